import functools
import math
from dataclasses import FrozenInstanceError, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simfl.errors import ConditionError
from simfl.privacy.accounting import delta_of, epsilon_of
from simfl.privacy.mechanisms import (
    MECHANISMS,
    Gaussian,
    GaussianUpdate,
    Laplace,
    LaplaceL2,
    LaplaceL2RadiusOnly,
    UnclippedGaussian,
)
from simfl.privacy.noise import SAMPLERS
from simfl.streams import Streams

KEY = Streams(0).key("noise")
CLIPPED = [Gaussian, GaussianUpdate, LaplaceL2, Laplace, LaplaceL2RadiusOnly]
PURE = [LaplaceL2, Laplace]


def rows(b, d, seed=0, size=3.0):
    return (size * np.random.default_rng(seed).standard_normal((b, d))).astype(np.float32)


def clipped_sum(gradients, clipping_norm):
    norms = np.linalg.norm(gradients.astype(np.float64), axis=1)
    return (gradients * np.minimum(1.0, clipping_norm / norms)[:, None]).sum(axis=0)


def test_each_kind_is_what_scenarios_call_it():
    assert list(MECHANISMS) == [
        "gaussian",
        "gaussian_update",
        "laplace_l2",
        "laplace",
        "laplace_l2_radius_only",
        "gaussian_unclipped",
    ]
    for kind, mechanism in MECHANISMS.items():
        assert mechanism.kind == kind
        assert mechanism.sampler in SAMPLERS
        assert mechanism.summary
        assert hash(mechanism()) == hash(mechanism())
        with pytest.raises(FrozenInstanceError):
            mechanism().clipping_norm = 2.0


# -- how much noise -----------------------------------------------------------------------------------


def test_gaussian_noise_is_the_multiplier_times_the_clipping_norm_whatever_the_neighbors():
    for kind in (Gaussian, GaussianUpdate):
        for neighbors in ("add_or_remove", "replace_one"):
            mechanism = kind(clipping_norm=0.5, neighbors=neighbors, noise_multiplier=3.0)
            assert mechanism.scale(650) == mechanism.coordinate_std(650) == 1.5
            assert mechanism.noise_multiplier == 3.0
            assert mechanism.pure_epsilon is None


def test_laplace_noise_follows_the_sensitivity():
    one = LaplaceL2(clipping_norm=0.5, epsilon_per_release=0.1)
    assert one.sensitivity == 0.5
    assert one.scale(650) == pytest.approx(5.0, rel=1e-12)
    assert one.coordinate_std(650) == pytest.approx(5.0 * math.sqrt(651), rel=1e-12)
    two = replace(one, neighbors="replace_one")
    assert two.sensitivity == 1.0
    assert two.scale(650) == pytest.approx(10.0, rel=1e-12)
    each = Laplace(clipping_norm=0.5, epsilon_per_release=0.1)
    assert each.scale(625) == pytest.approx(25 * 5.0, rel=1e-12)
    assert each.coordinate_std(625) == pytest.approx(math.sqrt(2) * 125, rel=1e-12)
    assert each.coordinate_std(10**6) / one.coordinate_std(10**6) == pytest.approx(math.sqrt(2), rel=1e-6)
    radius = LaplaceL2RadiusOnly(clipping_norm=0.5, epsilon_per_release=0.1)
    assert radius.neighbors == "replace_one"
    assert radius.scale(650) == pytest.approx(10.0, rel=1e-12)
    assert radius.coordinate_std(650) == pytest.approx(10 * math.sqrt(2 / 650), rel=1e-12)


def test_unclipped_noise_is_as_given():
    mechanism = UnclippedGaussian(noise_std=2.0)
    assert mechanism.scale(650) == mechanism.coordinate_std(650) == 2.0
    assert mechanism.clipping_norm == mechanism.sensitivity == math.inf


# -- what is certified --------------------------------------------------------------------------------


def test_what_cannot_be_certified_says_why_and_has_no_release():
    assert [kind for kind, mechanism in MECHANISMS.items() if not mechanism().certifiable] == [
        "laplace_l2_radius_only",
        "gaussian_unclipped",
    ]
    with pytest.raises(ConditionError, match="not private for more than one parameter"):
        LaplaceL2RadiusOnly().release()
    with pytest.raises(ConditionError, match="gradients are not clipped"):
        UnclippedGaussian().release()
    for kind in (LaplaceL2RadiusOnly, UnclippedGaussian):
        assert kind().pure_epsilon is None
        assert kind().noise_multiplier is None
        assert kind().protects.startswith("nothing that can be certified")
    assert "claimed: epsilon = 0.1 per release" in LaplaceL2RadiusOnly(epsilon_per_release=0.1).protects


def test_what_a_release_protects_is_said_in_words():
    assert Gaussian(noise_multiplier=2.0).protects == (
        "one example more or less in the data: per release as hard to see as a shift of a Gaussian by "
        "0.5 standard deviations"
    )
    assert "by 1 standard deviations" in Gaussian(noise_multiplier=2.0, neighbors="replace_one").protects
    assert Gaussian(noise_multiplier=0.0).protects.startswith("nothing: there is no noise")
    assert GaussianUpdate().protects.startswith("whether the client takes part or sends noise only")
    assert (
        LaplaceL2(neighbors="replace_one", epsilon_per_release=0.1).protects
        == "one example of the data replaced by any other: epsilon = 0.1, delta = 0, per release"
    )
    assert GaussianUpdate.unit == "client"


@pytest.mark.parametrize("neighbors", ["add_or_remove", "replace_one"])
def test_the_accountant_reads_a_mechanism(neighbors):
    gaussian = Gaussian(noise_multiplier=4.0, neighbors=neighbors)
    mu = gaussian.sensitivity / gaussian.scale(10)
    exact = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    assert delta_of([(gaussian.release(), 1)], 1.0, neighbors=neighbors) == pytest.approx(exact, rel=0.02)
    for kind in PURE:
        pure = kind(epsilon_per_release=0.3, neighbors=neighbors)
        assert pure.pure_epsilon == 0.3
        assert pure.release(0.1, "poisson").sampling_rate == 0.1
        assert epsilon_of([(pure.release(), 2)], 1e-12, neighbors=neighbors) == pytest.approx(0.6, rel=0.01)


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
    # the worst neighbors there are: opposite gradients in the worst direction, seen from far along it
    worst = np.ones((1, d)) * 100.0
    removed = clipped_sum(worst, mechanism.clipping_norm)
    replaced = 0.0 if neighbors == "add_or_remove" else -removed
    far = removed * 10.0
    loss = (np.linalg.norm(far - replaced, order) - np.linalg.norm(far - removed, order)) / mechanism.scale(d)
    assert loss == pytest.approx(epsilon, rel=1e-6)


# -- clipping and noising -----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, derandomize=True)
@given(b=st.sampled_from([1, 5]), clipping_norm=st.floats(0.01, 50.0), size=st.sampled_from([1e-3, 1.0, 1e3]))
def test_without_noise_the_sum_of_clipped_rows_is_left(b, clipping_norm, size):
    gradients = rows(b, 12, size=size)
    found = Gaussian(clipping_norm=clipping_norm, noise_multiplier=0.0).privatize_sum(gradients, KEY)
    np.testing.assert_allclose(found, clipped_sum(gradients, clipping_norm), rtol=1e-5, atol=1e-5 * clipping_norm)
    assert np.linalg.norm(found) <= b * clipping_norm * (1 + 1e-5)
    update = Gaussian(clipping_norm=clipping_norm, noise_multiplier=0.0).privatize_update(gradients[0], KEY)
    np.testing.assert_allclose(update, clipped_sum(gradients[:1], clipping_norm), rtol=1e-5)


def test_zero_and_huge_rows_are_clipped_to_what_they_should_be():
    gradients = np.array([[0.0, 0.0], [3e19, 4e19], [0.3, 0.4]], np.float32)
    # the squares of the second overflow: it is left out, which is within the clipping norm
    found = Gaussian(clipping_norm=0.25, noise_multiplier=0.0).privatize_sum(gradients, KEY)
    np.testing.assert_allclose(found, [0.15, 0.2], rtol=1e-6)


@pytest.mark.parametrize("kind", CLIPPED)
def test_noise_is_the_scale_times_the_samplers(kind):
    gradients = rows(3, 40)
    mechanism = kind(clipping_norm=0.7)
    found = mechanism.privatize_sum(gradients, KEY, client=4, draw=9)
    unit = SAMPLERS[kind.sampler](jnp.asarray(KEY), jnp.int32(4), jnp.int32(9), 40)
    expected = clipped_sum(gradients, 0.7) + mechanism.scale(40) * np.asarray(unit, np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * mechanism.coordinate_std(40))
    again = mechanism.privatize_sum(gradients, KEY, client=4, draw=9)
    np.testing.assert_array_equal(found, again)
    for other in (
        mechanism.privatize_sum(gradients, KEY, client=4, draw=10),
        mechanism.privatize_sum(gradients, KEY, client=5, draw=9),
        mechanism.privatize_sum(gradients, Streams(1).key("noise"), client=4, draw=9),
    ):
        assert not np.array_equal(found, other)


@pytest.mark.parametrize("kind", MECHANISMS)
def test_the_deviation_of_each_coordinate_is_as_stated(kind):
    mechanism, d, count = MECHANISMS[kind](), 25, 4000
    program = jax.jit(jax.vmap(lambda draw: mechanism.privatize_update(jnp.zeros(d), jnp.asarray(KEY), 1, draw)))
    found = np.asarray(program(np.arange(count)), np.float64)
    # rel: 4.5 standard errors of the root mean square of all coordinates, E r^4 / (E r^2)^2 - 1 = 5 for the worst kind
    spread = 0.5 * math.sqrt(5 / count)
    assert math.sqrt((found**2).mean()) == pytest.approx(mechanism.coordinate_std(d), rel=4.5 * spread)


def test_unclipped_gradients_go_through():
    gradients = rows(4, 6, size=100.0)
    found = UnclippedGaussian(noise_std=0.0).privatize_sum(gradients, KEY)
    np.testing.assert_allclose(found, gradients.sum(axis=0), rtol=1e-5)


def test_it_works_inside_a_program():
    mechanism = LaplaceL2(clipping_norm=1.0, epsilon_per_release=2.0)
    gradients = rows(6, 30)

    @functools.partial(jax.jit, static_argnums=0)
    def step(mechanism, gradients, client, draw):
        return mechanism.privatize_sum(gradients, jnp.asarray(KEY), client, draw)

    np.testing.assert_allclose(
        step(mechanism, gradients, 2, 3), mechanism.privatize_sum(gradients, KEY, 2, 3), rtol=1e-5, atol=1e-4
    )


# -- wrong arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLIPPED)
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_clipping_norm_must_be_a_positive_number(kind, value):
    with pytest.raises(ValueError, match=rf"{kind.kind}: clipping_norm: expected a finite number > 0"):
        kind(clipping_norm=value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Gaussian(noise_multiplier=-1.0),
            "gaussian: noise_multiplier: expected a finite number >= 0, found -1.0",
        ),
        (lambda: LaplaceL2(epsilon_per_release=0.0), "laplace_l2: epsilon_per_release: expected a finite number > 0"),
        (lambda: UnclippedGaussian(noise_std=math.nan), "gaussian_unclipped: noise_std: expected a finite number >= 0"),
        (lambda: Laplace(neighbors="some"), "laplace: neighbors: expected add_or_remove or replace_one, found 'some'"),
        (lambda: Gaussian().privatize_sum(np.zeros(3), KEY), r"gradients: expected shape \[b, d\], found \(3,\)"),
        (lambda: Gaussian().privatize_update(np.zeros((1, 3)), KEY), r"update: expected shape \[d\], found \(1, 3\)"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
