"""Discrete Gaussian noise in parts: the law of sums by brute force, the account, the rounding."""

import dataclasses
import math
from fractions import Fraction

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import rdp

import simfl
from simfl.accounts import check as claims
from simfl.errors import ScenarioError
from simfl.privacy.distributed import ATTEMPTS, GridSum, Part, Whole, concentrated_epsilon, wrapped
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.runs.runner import prepare, resume
from simfl.tape.maps import Given
from tests.helpers import run_until
from tests.privacy.test_secure_sums import FAULTS, FEDAVG, FEDBUFF, scenario

REACH = 200


def law(deviation):
    """The discrete Gaussian on -REACH .. REACH."""
    places = np.arange(-REACH, REACH + 1)
    mass = np.exp(-(places.astype(np.longdouble) ** 2) / (2 * np.longdouble(deviation) ** 2))
    return mass / mass.sum()


def summed(deviation, parts):
    """The law of a sum of discrete Gaussians, by convolution, on -REACH .. REACH."""
    total, one = law(deviation), law(deviation)
    for _ in range(parts - 1):
        total = np.convolve(total, one)
        middle = len(total) // 2
        total = total[middle - REACH : middle + REACH + 1]
    return total


def grid(deviation, *, size=1, norm=3.0):
    """A grid of step 1."""
    return GridSum(size, 16, norm, 1.0, Fraction(deviation))


@pytest.mark.parametrize("deviation", [0.5, 0.6, 0.8, 1.1])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_the_ratio_of_a_sums_law_to_a_discrete_gaussian_is_within_tau(deviation, parts):
    total, one = summed(deviation, parts), law(deviation * math.sqrt(parts))
    near = slice(REACH - int(8 * deviation * math.sqrt(parts)), REACH + int(8 * deviation * math.sqrt(parts)) + 1)
    worst = float(np.abs(np.log(total[near] / one[near])).max())
    tau = grid(deviation).tau(parts)
    assert worst <= tau * (1 + 1e-9)
    if parts == 2 and deviation <= 0.8:
        assert worst > tau / 4, "the bound is not far from it"
    paper = 10 * sum(math.exp(-2 * math.pi**2 * deviation**2 * k / (k + 1)) for k in range(1, parts))
    assert tau <= paper


@pytest.mark.parametrize(("deviation", "parts", "norm"), [(0.6, 3, 1.0), (0.9, 4, 2.0), (1.5, 2, 1.0), (3.0, 5, 4.0)])
@pytest.mark.parametrize("releases", [1, 3])
def test_epsilon_is_above_that_of_brute_force(deviation, parts, norm, releases):
    """One dimension: the exact curve of the sum, shifted by K in every release."""
    made = grid(deviation, norm=norm)
    shift = math.floor(math.sqrt(made.bound))
    total = summed(deviation, parts)
    moved = np.roll(total, shift)
    # Releases compose as a product: the law of the log ratio, by convolution on a fine grid of losses, rounded down.
    keep = (total > 1e-280) & (moved > 1e-280)
    loss, mass = np.log(moved[keep] / total[keep]).astype(float), moved[keep].astype(float)
    values, masses = np.array([0.0]), np.array([1.0])
    for _ in range(releases):
        values, masses = (values[:, None] + loss).ravel(), (masses[:, None] * mass).ravel()
        order = np.argsort(values)
        values, masses = np.round(values[order], 6), masses[order]
        values, at = np.unique(values, return_inverse=True)
        masses = np.bincount(at, masses)
    for delta in (1e-3, 1e-6):
        epsilon = made.epsilon(delta, releases, parts)
        exact = np.sum(masses[values > epsilon] * (1 - np.exp(epsilon - values[values > epsilon])))
        assert exact <= delta
        less = 0.6 * epsilon * shift / math.sqrt(made.bound)
        if made.tau(parts) < 0.01:
            low = np.sum(masses[values > less] * (1 - np.exp(less - values[values > less])))
            assert low > delta, "it is not far above it"


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_concentrated_privacy_is_converted_as_by_dp_accounting(rho, delta):
    accountant = rdp.RdpAccountant(orders=[1 + math.exp(x) for x in np.linspace(-6, 10, 4000)])
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    theirs, ours = accountant.get_epsilon(delta), concentrated_epsilon(rho, delta)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours >= gaussian_epsilon(delta, math.sqrt(2 * rho)), "the Gaussian is one of them"


def test_a_fine_grid_costs_hardly_more_than_real_noise():
    made = GridSum.of(100, 20, 20, 14, 0.5, 0.5)
    assert made.epsilon(1e-5, 10, 14) == pytest.approx(concentrated_epsilon(10 * 0.5, 1e-5 * 0.999), rel=1e-3)
    coarse = GridSum.of(100, 10, 20, 14, 0.5, 0.5)
    assert coarse.epsilon(1e-5, 10, 14) > 1.1 * made.epsilon(1e-5, 10, 14)
    assert made.epsilon(1e-5, 10, 14, 2.0) > made.epsilon(1e-5, 10, 14)
    assert made.epsilon(1e-5, 0, 14) == 0.0


def given(draw, count=1):
    seed = np.array([3, 5], np.uint32)
    return Given(np.zeros(0, np.float32), np.ones(count, bool), jnp.int32(0), jnp.int32(draw), seed)


@pytest.mark.parametrize("step", [0.004, 0.07])
def test_rounding_keeps_the_bound_and_the_mean(step):
    """The norm is at most K in every draw; without the condition, the mean is exact."""
    size, count = 50, 400
    made = GridSum(size, 16, 0.5, step, Fraction(2))
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    x *= np.float32(0.5 / np.linalg.norm(x))
    keys = jax.random.split(jax.random.key(0), count)
    rounded = np.asarray(jax.jit(jax.vmap(lambda key: Part(made).rounded(x, key)))(keys)).astype(float)
    assert (np.square(rounded).sum(axis=1) <= made.bound).all()
    assert np.abs(rounded - x / step).max() < 1.0
    error = (rounded.mean(axis=0) - x / step) / (0.5 / math.sqrt(count))
    assert np.abs(error).max() < (5 if step < 0.01 else 8), "the condition moves it a little"
    assert len(np.unique(rounded, axis=0)) > count / 2


def test_vectors_that_never_fit_are_rounded_to_zero():
    made = GridSum(4, 16, 0.5, 1.0, Fraction(2))
    tight = dataclasses.replace(made)
    object.__setattr__(tight, "clipping_norm", 1e-6)
    x = np.full(4, 0.999, np.float32)
    assert not np.asarray(Part(tight).rounded(x, jax.random.key(1))).any()
    assert ATTEMPTS >= 64


def test_a_part_has_the_noise_and_a_sum_is_modular():
    size, parts = 4000, 5
    made = GridSum(size, 12, 1.0, 0.01, Fraction(7))
    whole, nothing = Whole(made), [np.zeros(size, np.float32)]
    part = jax.jit(lambda draw: Part(made)(nothing, given(draw)))
    sent = [np.asarray(part(draw)) for draw in range(parts)]
    for one in sent:
        assert one.std() == pytest.approx(7.0, rel=0.05)
        assert abs(one.mean()) < 5 * 7 / math.sqrt(size)
    rows = np.stack([*sent, np.full(size, 1e9, np.float32)])
    total = np.asarray(whole(rows, Given(np.zeros(0), np.arange(6) < 5, 0, 0, np.zeros(2, np.uint32))))
    np.testing.assert_allclose(total, 0.01 * np.sum(sent, axis=0), rtol=1e-6)
    assert not np.array_equal(sent[0], sent[1])
    assert wrapped(np.array([2047, 2048, -2048, -2049, 4096]), 12).tolist() == [2047, -2048, -2048, 2047, 0]


def test_a_grid_that_is_too_coarse_or_too_fine_is_refused():
    for bits, line in ((6, "use more bits"), (5, r"2\^\(bits - 1\) above 20"), (25, "at most 24 bits")):
        with pytest.raises(ValueError, match=line):
            GridSum.of(10, bits, 20, 14, 1.0, 1.0)
    with pytest.raises(ValueError, match="use fewer bits"):
        GridSum.of(10, 24, 2, 2, 0.01, 10.0)


# -- scenarios -----------------------------------------------------------------------------------


def discrete(algorithm=FEDAVG, bits=16, **changes):
    secure = {**algorithm["secure_sum"], "bits": bits}
    privacy = {"mechanism": "discrete_gaussian", **changes.pop("privacy", {})}
    return scenario({**algorithm, "secure_sum": secure}, privacy=privacy, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [FEDAVG, FEDBUFF], ids=["fedavg", "fedbuff"])
def test_users_pay_for_discrete_noise_and_runs_resume(algorithm, tmp_path):
    changes = {**FAULTS["churn"], "stop": {"updates": 60}}
    made, events = run_until(prepare(discrete(algorithm, **changes)), math.inf, tmp_path)
    setup = prepare(discrete(algorithm, **changes))
    plan, counts = setup.training.cohorts, made.cohorts["client"].value_counts()
    assert plan.grid.size == setup.dimension
    for user, epsilon in zip(made.clients["client"], made.clients["epsilon"], strict=True):
        assert epsilon == pytest.approx(plan.grid.epsilon(1e-3, float(counts.get(user, 0)), plan.parts))
    again = max(one.certified["local_transcript", "add_or_remove"] for one in claims.check_run(made).findings)
    assert again == pytest.approx(made.clients["epsilon"].max())
    assert "as concentrated differential privacy of sums of discrete Gaussians" in made.manifest.extra["privacy"]
    cut, _ = run_until(prepare(discrete(algorithm, **changes)), events // 2, tmp_path)
    assert resume(cut.folder).manifest.digest == made.manifest.digest


def trained(run):
    with np.load(run.folder / "model.npz") as arrays:
        return np.concatenate([arrays[name].ravel() for name in sorted(arrays) if arrays[name].dtype.kind == "f"])


@pytest.mark.slow
def test_with_little_noise_a_run_learns_as_without_a_grid(tmp_path):
    """The step is the mean of clipped updates, within the noise and half a step of the grid."""
    common = {"stop": {"updates": 21}, "clients": {"count": 10}}
    privacy = {"noise_multiplier": 1e-3, "clipping_norm": 5.0}
    algorithm = {**FEDAVG, "secure_sum": {"threshold": 5}}
    models = [
        trained(simfl.run(make(algorithm, privacy=privacy, **common), out=tmp_path))
        for make in (lambda *a, **k: discrete(*a, bits=20, **k), scenario)
    ]
    one, other = models
    std = 0.005 / 7 * math.sqrt(2 * 7 / 5 * 3)  # of both runs' noise, on three steps
    assert np.abs(one - other).max() < 6 * std
    assert 0.5 * std < (one - other).std() < 1.1 * std
    assert one.std() > 5 * std


@pytest.mark.parametrize(("bits", "privacy", "message"), [
    (32, {}, "algorithm.secure_sum.bits: expected at most 24 with discrete_gaussian, found 32"),
    (16, {"noise_multiplier": 0}, "privacy.noise_multiplier: expected a number > 0 with discrete_gaussian"),
    (16, {"where": "server"}, "privacy.where: expected secure_sum"),
    (16, {"noise_multiplier": None, "epsilon": 1.0}, "privacy.noise_multiplier: expected a number"),
])  # fmt: skip
def test_what_has_no_discrete_account_is_refused(bits, privacy, message):
    with pytest.raises(ScenarioError) as caught:
        discrete(bits=bits, privacy=privacy)
    assert message in str(caught.value)


def test_bits_that_do_not_fit_the_noise_are_refused_before_a_run():
    with pytest.raises(ScenarioError, match=r"algorithm\.secure_sum\.bits: expected .* use more bits"):
        prepare(discrete(bits=5))
