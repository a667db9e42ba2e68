"""Byzantine attacks: published vectors, NumPy, and their effect on the mean."""

from dataclasses import replace

import numpy as np
import pytest

from simfl.robust.attacks import ATTACKS
from simfl.robust.attacks.alie import ALittleIsEnough
from simfl.robust.attacks.dissensus import Dissensus
from simfl.robust.attacks.gaussian import GaussianModel
from simfl.robust.attacks.ipm import InnerProductManipulation
from simfl.robust.attacks.mimic import Mimic
from simfl.robust.attacks.sign_flip import SignFlip
from tests.robust.helpers import PUBLISHED, given_of

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def test_attacks_give_published_vectors():
    """Examples in the documentation of byzfl 0.0.11."""
    rows, given = given_of(PUBLISHED, pads=True)
    np.testing.assert_allclose(SignFlip()(rows, given), [-4, -5, -6], **CLOSE)
    np.testing.assert_allclose(InnerProductManipulation()(rows, given), [-8, -10, -12], **CLOSE)
    np.testing.assert_allclose(ALittleIsEnough()(rows, given), [8.5, 9.5, 10.5], **CLOSE)
    np.testing.assert_allclose(Mimic()(rows, given), [1, 2, 3], **CLOSE)
    np.testing.assert_allclose(Mimic(9)(rows, given), [7, 8, 9], **CLOSE)


def test_every_attack_is_in_the_catalogue_and_hashable():
    for kind, attack in ATTACKS.items():
        assert attack.kind == kind
        assert attack.summary
        assert attack() == attack()
        assert hash(attack()) == hash(attack())


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_little_is_enough_uses_the_standard_deviation_of_a_sample(count):
    x = np.random.default_rng(count).normal(size=(count, 6))
    expected = x.mean(axis=0) + 0.7 * x.std(axis=0, ddof=1)
    np.testing.assert_allclose(ALittleIsEnough(0.7)(*given_of(x, pads=True)), expected, **CLOSE)


def test_gaussian_models_have_their_mean_and_standard_deviation_and_differ_from_call_to_call():
    rows, given = given_of(np.zeros((1, 20_000)))
    sent = np.asarray(GaussianModel(2.0, 3.0)(rows, given))
    assert sent.mean() == pytest.approx(2.0, abs=0.1)
    assert sent.std() == pytest.approx(3.0, abs=0.1)
    again = GaussianModel(2.0, 3.0)(rows, replace(given, draw=given.draw + 1))
    assert abs(np.corrcoef(sent, again)[0, 1]) < 0.05


def test_dissensus_moves_the_gossip_average_of_its_target_away_from_the_neighbors():
    """With epsilon 1 the target stays where it is; with 1.5, half of the honest step goes backwards."""
    x, weights = np.random.default_rng(0).normal(size=(3, 6)), [0.4, 0.2, 0.25, 0.0]
    rows, given = given_of(x, weights=weights)
    honest = sum(w * (one - x[0]) for w, one in zip(weights[1:3], x[1:], strict=True))
    for epsilon in (1.0, 1.5):
        sent = np.asarray(Dissensus(epsilon)(rows, given))
        average = x[0] + weights[0] * (sent - x[0]) + honest
        np.testing.assert_allclose(average, x[0] + (1.0 - epsilon) * honest, **CLOSE)
