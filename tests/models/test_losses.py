"""Losses and metrics by name, against the closed forms in NumPy and scikit-learn's."""

from typing import get_args

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from simfl.errors import ScenarioError
from simfl.models.losses import LOSSES, METRICS, named
from simfl.scenario.models import Torch

GENERATOR = np.random.default_rng(0)
Z = GENERATOR.normal(size=(5, 4)).astype(np.float32)
CLASSES = GENERATOR.integers(0, 4, 5).astype(np.int32)
MANY = GENERATOR.integers(0, 2, (5, 4)).astype(np.int32)


def softmax(z):
    return np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)


def logistic(z, y):
    return np.log1p(np.exp(-z * (2 * y - 1)))


@pytest.mark.parametrize(("name", "z", "y", "wanted"), [
    ("cross_entropy", Z, CLASSES, -np.log(softmax(Z)[np.arange(5), CLASSES])),
    ("cross_entropy", Z[None], CLASSES[None], [-np.log(softmax(Z)[np.arange(5), CLASSES]).mean()]),
    ("binary", Z[:, :1], MANY[:, 0], logistic(Z[:, 0], MANY[:, 0])),
    ("multi_label", Z, MANY, logistic(Z, MANY).mean(axis=1)),
    ("squared", Z[:, 0], Z[:, 1], (Z[:, 0] - Z[:, 1]) ** 2 / 2),
    ("squared", Z[:, :1], Z[:, 1], (Z[:, 0] - Z[:, 1]) ** 2 / 2),
    ("huber", np.array([0.5, 3.0]), np.zeros(2), [0.125, 2.5]),
    ("ranking", Z, MANY, -(softmax(MANY.astype(float)) * np.log(softmax(Z))).sum(axis=1)),
])  # fmt: skip
def test_losses_equal_their_formulas(name, z, y, wanted):
    np.testing.assert_allclose(LOSSES[name](z, y), wanted, rtol=1e-5)


@pytest.mark.parametrize(("name", "z", "y", "wanted"), [
    ("accuracy", Z, CLASSES, Z.argmax(axis=1) == CLASSES),
    ("accuracy", Z[:, :1], MANY[:, 0], (Z[:, 0] > 0) == MANY[:, 0]),
    ("accuracy", Z[None], CLASSES[None], [(Z.argmax(axis=1) == CLASSES).mean()]),
    ("mae", Z[:, 0], Z[:, 1], abs(Z[:, 0] - Z[:, 1])),
    ("mse", Z[:, 0], Z[:, 1], (Z[:, 0] - Z[:, 1]) ** 2),
    ("exact_match", np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([[1, 0], [1, 0]]), [1, 0]),
    ("bits", np.zeros((2, 8)), np.array([3, 5]), [3, 3]),
    ("ndcg", Z, np.zeros((5, 4)), np.zeros(5)),
])  # fmt: skip
def test_metrics_equal_their_formulas(name, z, y, wanted):
    np.testing.assert_allclose(METRICS[name](z, y), np.asarray(wanted, dtype=float), rtol=1e-5, atol=1e-7)


def test_ndcg_equals_that_of_scikit_learn():
    gains = np.array([[0, 1, 2, 3], [3, 0, 0, 1], [1, 0, 0, 0]])
    theirs = [ndcg_score(2.0 ** gains[i : i + 1] - 1, Z[i : i + 1]) for i in range(3)]
    np.testing.assert_allclose(METRICS["ndcg"](Z[:3], gains), theirs, rtol=1e-5)


def test_the_section_of_a_network_of_pytorch_names_all_losses_and_metrics():
    fields = Torch.model_fields
    assert get_args(fields["loss"].annotation) == tuple(LOSSES)
    metrics, _ = get_args(get_args(fields["metrics"].annotation)[0])
    assert get_args(metrics) == tuple(METRICS)


def test_unknown_names_are_refused():
    with pytest.raises(ScenarioError, match=r"^loss: expected one of cross_entropy, .*'crossentropy'; did you mean"):
        named("loss", "crossentropy", LOSSES)
    own = LOSSES["huber"]
    assert named("loss", own, {}) is own
