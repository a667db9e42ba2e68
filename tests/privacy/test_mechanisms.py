import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simfl.papers.mapa.printed import LaplaceL2RadiusOnly
from simfl.privacy.accounting import Release, delta_of
from simfl.privacy.mechanisms import MECHANISMS, Gaussian, GaussianUpdate, Laplace, LaplaceL2, UnclippedGaussian
from simfl.privacy.noise import SAMPLERS, unit_std
from tests.helpers import Lab, batch_examples, make_problem, softmax_gradient

CLIPPED = [Gaussian, GaussianUpdate, LaplaceL2, Laplace, LaplaceL2RadiusOnly]
PURE = [LaplaceL2, Laplace]


def coordinate_std(mechanism, size):
    return mechanism.scale(size) * unit_std(mechanism.sampler, size)


def clipped_sum(gradients, clipping_norm):
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1)
    return (gradients * np.minimum(1.0, clipping_norm / norms)[:, None]).sum(axis=0)


def test_each_kind_has_its_name_in_scenarios():
    assert list(MECHANISMS) == [
        "gaussian", "gaussian_update", "gaussian_cohort", "discrete_gaussian", "laplace_l2", "laplace",
        "gaussian_unclipped", "laplace_l2_radius_only", "laplace_l2_radius_only_mean",
    ]  # fmt: skip
    for kind, mechanism in MECHANISMS.items():
        assert mechanism.kind == kind
        assert mechanism.sampler in SAMPLERS
        assert mechanism.summary
        assert hash(mechanism()) == hash(mechanism())
        with pytest.raises(FrozenInstanceError):
            mechanism().clipping_norm = 2.0


# -- how much noise -----------------------------------------------------------------------------------


def test_gaussian_noise_does_not_depend_on_neighbors():
    for kind in (Gaussian, GaussianUpdate):
        for neighbors in ("add_or_remove", "replace_one"):
            mechanism = kind(clipping_norm=0.5, neighbors=neighbors, noise_multiplier=3.0)
            assert mechanism.scale(650) == coordinate_std(mechanism, 650) == 1.5
            assert mechanism.noise_multiplier == 3.0


def test_laplace_noise_follows_the_sensitivity():
    one = LaplaceL2(clipping_norm=0.5, epsilon_per_release=0.1)
    assert one.sensitivity == 0.5
    assert one.scale(650) == pytest.approx(5.0, rel=1e-12)
    assert coordinate_std(one, 650) == pytest.approx(5.0 * math.sqrt(651), rel=1e-12)
    two = replace(one, neighbors="replace_one")
    assert two.sensitivity == 1.0
    assert two.scale(650) == pytest.approx(10.0, rel=1e-12)
    each = Laplace(clipping_norm=0.5, epsilon_per_release=0.1)
    assert each.scale(625) == pytest.approx(25 * 5.0, rel=1e-12)
    assert coordinate_std(each, 625) == pytest.approx(math.sqrt(2) * 125, rel=1e-12)
    assert coordinate_std(each, 10**6) / coordinate_std(one, 10**6) == pytest.approx(math.sqrt(2), rel=1e-6)
    radius = LaplaceL2RadiusOnly(clipping_norm=0.5, epsilon_per_release=0.1)
    assert radius.neighbors == "replace_one"
    assert radius.scale(650) == pytest.approx(10.0, rel=1e-12)
    assert coordinate_std(radius, 650) == pytest.approx(10 * math.sqrt(2 / 650), rel=1e-12)


def test_unclipped_noise_has_the_given_deviation():
    mechanism = UnclippedGaussian(noise_std=2.0)
    assert mechanism.scale(650) == coordinate_std(mechanism, 650) == 2.0


# -- what is certified --------------------------------------------------------------------------------


def test_uncertified_mechanisms_give_a_reason():
    refusals = {kind: mechanism.refusal for kind, mechanism in MECHANISMS.items() if mechanism.refusal}
    assert list(refusals) == ["gaussian_unclipped", "laplace_l2_radius_only", "laplace_l2_radius_only_mean"]
    assert "not private for more than one parameter" in refusals["laplace_l2_radius_only"]
    assert "gradients are not clipped" in refusals["gaussian_unclipped"]
    of_clients = [kind for kind, mechanism in MECHANISMS.items() if mechanism.unit == "client"]
    assert of_clients == ["gaussian_update", "laplace_l2_radius_only_mean"]
    assert {mechanism.level for mechanism in MECHANISMS.values() if mechanism.pure} == {"epsilon_per_release"}


@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
def test_the_accountant_and_the_mechanism_share_the_noise_multiplier(neighbors):
    gaussian = Gaussian(noise_multiplier=4.0, neighbors=neighbors)
    mu = gaussian.sensitivity / gaussian.scale(10)
    exact = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    release = Release(getattr(gaussian, gaussian.level), 1.0, "none")
    assert delta_of([(release, 1)], 1.0, neighbors=neighbors) == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_density_of_a_pure_release_changes_by_at_most_e_to_the_epsilon(kind, neighbors, data):
    """Pure DP as defined: ln p(x) - ln p'(x) for the sums of neighbors, and some neighbors come close to epsilon."""
    d = data.draw(st.integers(1, 6))
    epsilon = data.draw(st.floats(0.05, 3.0))
    mechanism = kind(clipping_norm=data.draw(st.floats(0.1, 10.0)), neighbors=neighbors, epsilon_per_release=epsilon)
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    gradients, other = generator.standard_normal((4, d)) * 20.0, generator.standard_normal(d) * 20.0
    neighbor = gradients[1:] if neighbors == "add_or_remove" else np.vstack([other, gradients[1:]])
    one, two = (clipped_sum(g, mechanism.clipping_norm) for g in (gradients, neighbor))
    order = 2 if kind is LaplaceL2 else 1
    x = generator.standard_normal((200, d)) * 50.0
    loss = (np.linalg.norm(x - two, order, axis=1) - np.linalg.norm(x - one, order, axis=1)) / mechanism.scale(d)
    assert np.abs(loss).max() <= epsilon * (1 + 1e-9)
    # the worst neighbors: opposite gradients in the worst direction, at a far point along it
    worst = np.ones((1, d)) * 100.0
    removed = clipped_sum(worst, mechanism.clipping_norm)
    replaced = 0.0 if neighbors == "add_or_remove" else -removed
    far = removed * 10.0
    loss = (np.linalg.norm(far - replaced, order) - np.linalg.norm(far - removed, order)) / mechanism.scale(d)
    assert loss == pytest.approx(epsilon, rel=1e-6)


# -- what the kernels make of it ----------------------------------------------------------------------


@pytest.mark.slow(but=["gaussian"])
@pytest.mark.parametrize("kind", [*CLIPPED, UnclippedGaussian])
def test_a_release_of_the_tape_is_the_clipped_sum_with_the_mechanisms_noise(kind):
    mechanism = kind(clipping_norm=0.7) if kind in CLIPPED else kind(noise_std=1.3)
    norm, client, draw, size = getattr(mechanism, "clipping_norm", None), 3, 9, 8
    whole = kind.unit == "client"
    clip = "update" if whole else "example"
    problem = make_problem(clipping_norm=norm, clip=clip, noise=kind.sampler)
    start = 0.1 * np.random.default_rng(1).standard_normal(650).astype(np.float32)
    with Lab(problem) as lab:
        promise = lab.tape.gradient(lab.tape.constant(start), client, draw, size, mechanism.scale(650))
        value = lab.tape.values([lab.tape.combine((1.0, promise))])[0]
    at = batch_examples(problem, client, draw, size)
    expected = softmax_gradient(start, problem.data.train_x[at], problem.data.train_y[at], None if whole else norm)
    if whole:  # the mean is clipped; the tape holds its sum
        expected = size * clipped_sum(expected[None] / size, norm)
    with np.errstate(over="ignore"):  # the hash wraps around
        unit = SAMPLERS[kind.sampler](problem.keys.noise, np.int32(client), np.int32(draw), 650)
    expected = expected + mechanism.scale(650) * np.asarray(unit, np.float64)
    np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5 * coordinate_std(mechanism, 650))


# -- wrong arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLIPPED)
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_clipping_norm_must_be_a_positive_number(kind, value):
    with pytest.raises(ValueError, match=rf"{kind.kind}: clipping_norm: expected a finite number > 0"):
        kind(clipping_norm=value)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Gaussian(noise_multiplier=-1.0),
     "gaussian: noise_multiplier: expected a finite number >= 0, found -1.0"),
    (lambda: LaplaceL2(epsilon_per_release=0.0), "laplace_l2: epsilon_per_release: expected a finite number > 0"),
    (lambda: UnclippedGaussian(noise_std=math.nan), "gaussian_unclipped: noise_std: expected a finite number >= 0"),
    (lambda: Laplace(neighbors="some"), "laplace: neighbors: expected add_or_remove or replace_one, found 'some'"),
])  # fmt: skip
def test_wrong_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
