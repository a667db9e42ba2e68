import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError, ScenarioError
from simfl.papers.adp2sgd.theory import (
    DecentralizedProblem,
    constants,
    largest_step_size,
    minimal_steps,
    proposition2,
    rhobar,
    smallest_admissible_epsilon,
    spectral_rho,
    theorem1,
    theorem2,
)
from simfl.privacy.accounting import Release, delta_of, epsilon_of
from simfl.privacy.gaussian import gaussian_delta

QUICK = settings(max_examples=40, deadline=None)
CIFAR = {"num_workers": 16, "examples": 3125, "batch_size": 256, "steps": 58594}  # 300 epochs


def problem(**changed):
    values = {
        "num_workers": 16,
        "batch_size": 32,
        "smoothness": 1.0,
        "initial_gap": 2.0,
        "sampling_variance": 0.5,
        "worker_variance": 0.1,
        "dimension": 100,
        "staleness": 16.0,
        "rho": spectral_rho(changed.get("num_workers", 16), "random_pair"),
    }
    return DecentralizedProblem(**{**values, **changed})


def close(digits):
    """Equal to as many digits as the theory page prints."""
    return pytest.approx(digits, rel=6e-4)


# -- mixing ----------------------------------------------------------------------------------


def averaging_matrices(num_workers, mixing):
    senders, receivers = range(0, num_workers, 2), range(1, num_workers, 2)
    pairs = {
        "random_pair": itertools.combinations(range(num_workers), 2),
        "bipartite": itertools.product(senders, receivers),
        "ring_edge": ((k, (k + 1) % num_workers) for k in range(num_workers)),
    }[mixing]
    for i, j in pairs:
        matrix = np.eye(num_workers)
        matrix[np.ix_([i, j], [i, j])] = 0.5
        yield matrix


@pytest.mark.parametrize("num_workers", [2, 4, 6, 16])
@pytest.mark.parametrize("mixing", ["random_pair", "bipartite", "ring_edge"])
def test_rho_is_the_second_eigenvalue_of_the_mean_square(num_workers, mixing):
    mean = np.mean([matrix.T @ matrix for matrix in averaging_matrices(num_workers, mixing)], axis=0)
    expected = np.sort(np.abs(np.linalg.eigvalsh(mean)))[-2]
    assert spectral_rho(num_workers, mixing) == pytest.approx(expected, abs=1e-12)


def test_mixing_has_the_numbers_of_the_theory_page():
    rhos = [spectral_rho(16, mixing) for mixing in ("random_pair", "bipartite", "ring_edge")]
    assert rhos == pytest.approx([0.93333, 0.93750, 0.99524], abs=5e-6)
    for num_workers, pair, bipartite in ((16, 1589.531, 1815.469), (8, 300.562, 399.437), (4, 38.621, 75.373)):
        assert rhobar(num_workers, spectral_rho(num_workers, "random_pair")) == pytest.approx(pair, abs=5e-4)
        assert rhobar(num_workers, spectral_rho(num_workers, "bipartite")) == pytest.approx(bipartite, abs=5e-4)
    assert rhobar(16, rhos[2]) == pytest.approx(3.30e5, rel=2e-3)
    assert rhobar(1, spectral_rho(1)) == 0.0


# -- convergence -----------------------------------------------------------------------------


def test_constants_are_those_of_the_paper():
    # By hand, with K = 2, tau = 3, L = 2, h = 0.01 and rho = 0, so that rho-bar = 1/2 and the delay is 2.
    here = problem(num_workers=2, batch_size=5, smoothness=2.0, staleness=3.0, rho=0.0)
    computed = constants(here, 0.002)
    assert computed.c1 == pytest.approx(1 - 24 * 1e-4 * 4 * 2)
    spread = 6 * 1e-4 * 4 + 0.01 * 2 * 2 + 12 * 1e-6 * 8 * 9 / 2
    assert computed.c3 == pytest.approx(0.5 + 0.01 * 2 * 9 / 2 + spread / computed.c1)
    drift = 0.01 * 4 / 2 + 6 * 1e-4 * 8 / 4 + 12 * 1e-6 * 16 * 9 / 8
    gain = 0.01 / 4 - 1e-4 * 2 / 4 - 2 * 1e-6 * 4 * 9 / 8
    assert computed.c2 == pytest.approx(gain - drift * 4 * 1e-4 * 2 / computed.c1)
    assert computed.violated is None


problems = st.builds(
    problem,
    num_workers=st.sampled_from([1, 2, 4, 16, 64]),
    batch_size=st.sampled_from([1, 32]),
    smoothness=st.floats(0.01, 100.0),
    staleness=st.floats(0.0, 200.0),
)


@QUICK
@given(here=problems, smaller=st.floats(1e-3, 0.999))
def test_conditions_hold_up_to_the_largest_step_size(here, smaller):
    largest = largest_step_size(here)
    assert constants(here, largest).violated is None
    assert constants(here, largest * smaller).violated is None
    assert constants(here, largest * 1.0001).violated is not None


@QUICK
@given(here=problems)
def test_enough_steps_by_proposition_1_meet_the_conditions(here):
    assume(here.num_workers > 1)
    steps = minimal_steps(here)
    step_size = here.num_workers / (here.batch_size * math.sqrt(steps))
    assert constants(here, step_size).violated is None


def test_the_printed_number_of_steps_violates_a_condition():
    here = problem(num_workers=2, staleness=100.0, rho=0.0, batch_size=1)
    printed = minimal_steps(here, as_printed=True)
    assert printed < minimal_steps(here)
    assert constants(here, 2 / math.sqrt(printed)).violated.startswith("condition C3 <= 1: C3 is ")


def test_enough_steps_are_astronomically_many():
    here = problem(batch_size=1, rho=spectral_rho(16, "bipartite"))
    assert minimal_steps(here) == pytest.approx(2.2e14, rel=0.01)


def test_theorem_1_adds_its_parts():
    here = problem()
    step_size = largest_step_size(here) / 2
    theorem = theorem1(here, step_size=step_size, steps=1000, noise_std=3.0)
    assert theorem.start == pytest.approx(2 * 2.0 * 16 / (step_size * 1000 * 32))
    assert theorem.gradients == pytest.approx(2 * step_size / (32 * 16) * (0.5 * 32 + 6 * 0.1 * 32**2))
    assert theorem.noise == pytest.approx(2 * step_size / (32 * 16) * 100 * 9.0)
    assert theorem.bound == pytest.approx(theorem.start + theorem.gradients + theorem.noise)


def test_theorem_1_names_the_condition_and_a_step_size():
    here = problem()
    largest = largest_step_size(here)
    with pytest.raises(ConditionError, match=r"^Theorem 1: condition C3 <= 1: C3 is .*; use at most \S+$") as refused:
        theorem1(here, step_size=largest * 1.01, steps=10)
    advised = float(str(refused.value).split()[-1])
    assert 0.999 * largest < advised <= largest
    theorem1(here, step_size=advised, steps=10)
    with pytest.raises(ConditionError, match=r"^Theorem 1: condition C1 > 0: C1 is -"):
        theorem1(here, step_size=1.0, steps=10)


# -- privacy ---------------------------------------------------------------------------------


def test_theorem_2_has_the_numbers_of_the_theory_page():
    theorem = theorem2(10.0, 1e-5, **CIFAR)
    assert theorem.mu == pytest.approx(0.5367, abs=5e-5)
    assert theorem.alpha == pytest.approx(3.48498, abs=1e-4)
    assert theorem.noise_std_for_mean == pytest.approx(0.0174464, abs=5e-8)
    assert theorem.noise_std_for_sum == pytest.approx(4.46628, abs=1e-5)
    assert theorem.zeta == pytest.approx(2.23314, abs=5e-6)
    assert (theorem.neighbors, theorem.view) == ("replace_one", "global_hidden")


def test_noise_on_the_sum_is_batch_size_times_that_on_the_mean():
    theorem = theorem2(10.0, 1e-5, **CIFAR, gradient_bound=0.3)
    assert theorem.noise_std_for_sum == pytest.approx(256 * theorem.noise_std_for_mean)
    assert theorem.noise_std_for_mean == pytest.approx(0.3 * 0.0174464, rel=1e-5)
    assert theorem.noise_multiplier == pytest.approx(theorem.noise_std_for_sum / 0.3)
    assert theorem.zeta == pytest.approx(theorem.noise_multiplier / 2)
    assert theorem.zeta == pytest.approx(2.23314, rel=1e-5), "the multiplier does not depend on the unit of gradients"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claimed", "batch_size", "steps", "sigma", "zeta", "mu", "hidden", "local", "hidden_aor", "local_aor"),
    [
        (8.5, 256, 58594, 0.022071, 2.8251, 0.3486, 2.044, 10.083, 0.81, 3.82),
        (10.0, 256, 58594, 0.017446, 2.2331, 0.5367, 2.802, 14.214, 1.06, 5.04),
        (15.0, 256, 58594, 0.012330, 1.5782, 0.6028, 4.667, 24.889, 1.57, 7.73),
        # Under add_or_remove and the global view the theory page has 0.46; finer bins of the accountant give 0.442.
        (4.0, 16, 937500, 0.158769, 1.2702, 0.5271, 1.389, 6.696, 0.442, 2.03),
    ],
)
def test_accounts_of_theorem_2_match_the_theory_page(
    claimed, batch_size, steps, sigma, zeta, mu, hidden, local, hidden_aor, local_aor
):
    theorem = theorem2(claimed, 1e-5, **{**CIFAR, "batch_size": batch_size, "steps": steps})
    assert theorem.noise_std_for_mean == close(sigma)
    assert theorem.zeta == close(zeta)
    assert theorem.mu == pytest.approx(mu, abs=2e-4)
    rows = {(row.view, row.neighbors): row for row in theorem.accounted()}
    assert rows["global_hidden", "replace_one"].epsilon == close(hidden)
    assert rows["local_transcript", "replace_one"].epsilon == close(local)
    assert rows["global_hidden", "add_or_remove"].epsilon == pytest.approx(hidden_aor, abs=0.006)
    assert rows["local_transcript", "add_or_remove"].epsilon == pytest.approx(local_aor, abs=0.006)
    # Seen by its neighbors, the claim is violated under the paper's own definition; hidden, it holds with slack.
    holds = {key: row.claim_holds for key, row in rows.items()}
    assert holds.pop(("local_transcript", "replace_one")) is False
    assert all(holds.values())
    assert [row.certified for row in rows.values()] == [row.view == "local_transcript" for row in rows.values()]
    assert rows["local_transcript", "replace_one"].sampling_rate == batch_size / 3125
    assert rows["local_transcript", "replace_one"].steps == round(steps / 16)
    assert rows["global_hidden", "replace_one"].sampling_rate == batch_size / 50000


@pytest.mark.slow
@pytest.mark.parametrize(("claimed", "least"), [(8.5, 1.5e-5), (10.0, 2.5e-4), (15.0, 1.7e-3)])
def test_theorem_2_is_refuted_also_where_the_sender_is_hidden(claimed, least):
    """Worker 1's gradients are along e1 and the others' along e2: an update shows its worker."""
    theorem = theorem2(claimed, 1e-5, **CIFAR)
    assert theorem.least_delta() > least > theorem.delta
    # By dp-accounting's own distributions, which round up, of each number of updates of worker 1.
    from dp_accounting.pld import privacy_loss_distribution as pld

    one = pld.from_gaussian_mechanism(theorem.zeta, sampling_prob=256 / 3125, value_discretization_interval=1e-4)
    counts = np.arange(3362, 3963, 100)
    deltas = [one.self_compose(int(count)).get_delta_for_epsilon(claimed) for count in counts]
    updates = scipy.stats.binom(CIFAR["steps"], 1 / 16)
    every = np.arange(3362, 3963)
    above = float(updates.pmf(every) @ np.interp(every, counts, deltas))
    assert 0.85 * above < theorem.least_delta() < above


@pytest.mark.slow
def test_a_lower_bound_is_below_what_is_certified():
    """Of one worker, whose updates are known: at most the certified delta, and nearly that of a Gaussian for q = 1."""
    theorem = theorem2(12.0, 1e-5, num_workers=1, examples=64000, batch_size=64, steps=20000)
    release = Release(theorem.noise_multiplier, 64 / 64000, "without_replacement")
    certified = delta_of([(release, 20000)], theorem.epsilon, neighbors="replace_one")
    assert 0.0 <= theorem.least_delta() <= certified
    whole = dataclasses.replace(theorem, examples=64, batch_size=64, steps=50, zeta=3.0)
    assert 0.85 < whole.least_delta() / gaussian_delta(theorem.epsilon, math.sqrt(50) / 3.0) <= 1.0


@pytest.mark.slow
def test_small_batches_hide_their_worker_and_printed_noise_hides_nothing():
    theorem = theorem2(10.0, 1e-5, **CIFAR)
    assert dataclasses.replace(theorem, batch_size=2, examples=25).least_delta() == 0.0
    assert theorem.least_delta(printed=True) > 0.999


def test_few_workers_are_within_the_claim():
    theorem = theorem2(10.0, 1e-5, num_workers=8, examples=6250, batch_size=256, steps=58594)
    local = theorem.accounted()[0]
    assert local.claim_holds
    assert 0.6 < local.epsilon / 10.0 <= 0.96


def test_algorithm_1_as_printed_gives_an_epsilon_above_a_million():
    theorem = theorem2(10.0, 1e-5, **CIFAR)
    literal = Release(theorem.noise_std_for_mean / theorem.gradient_bound, 256 / 3125, "without_replacement")
    assert literal.noise_multiplier / 2 == pytest.approx(0.0087, abs=5e-5)
    assert epsilon_of([(literal, 3662)], 1e-5, neighbors="replace_one", accountant="renyi") > 1e6


settings_of_theorem2 = {
    "epsilon": st.floats(0.5, 200.0),
    "delta": st.sampled_from([1e-8, 1e-5, 1e-3]),
    "num_workers": st.sampled_from([1, 4, 16, 64]),
    "batch_size": st.sampled_from([1, 16, 256]),
    "steps": st.integers(1, 10**6),
}


@QUICK
@given(**settings_of_theorem2, other=st.floats(1e-6, 1 - 1e-6))
def test_no_other_mu_needs_less_noise(epsilon, delta, num_workers, batch_size, steps, other):
    n = 3125
    try:
        theorem = theorem2(
            epsilon, delta, num_workers=num_workers, examples=n, batch_size=batch_size, steps=steps, gradient_bound=2.0
        )
    except ConditionError:
        assume(False)
    pool = num_workers * n

    def sigma_squared(mu):
        alpha = math.log(1 / delta) / ((1 - mu) * epsilon) + 1
        sigma_squared = 20 * 2.0**2 * steps * alpha / (pool**2 * mu * epsilon)
        zeta_squared = sigma_squared * batch_size**2 / (4 * 2.0**2)
        enough = epsilon <= 10 * batch_size**2 * steps * alpha / (3 * pool**2 * mu) * (1 + 1e-9)
        bound = pool**3 * mu * epsilon / (pool**2 * mu * epsilon * batch_size + 5 * steps * alpha * batch_size**3)
        assert bound == pytest.approx(pool / (batch_size * (1 + zeta_squared)))
        return sigma_squared if enough and alpha <= math.log(bound) * (1 + 1e-9) else math.inf

    ours = sigma_squared(theorem.mu)
    assert math.sqrt(ours) == pytest.approx(theorem.noise_std_for_mean)
    assert ours <= sigma_squared(other) * (1 + 1e-5)
    # Equation (24), at the order that was chosen.
    spent = 20 * 2.0**2 * steps * theorem.alpha / (pool**2 * theorem.noise_std_for_mean**2)
    assert spent + math.log(1 / delta) / (theorem.alpha - 1) == pytest.approx(epsilon)


@pytest.mark.parametrize(("epochs", "smallest"), [(10, 4.2), (100, 6.4), (300, 8.4)])
def test_smallest_admissible_epsilon_of_cifar(epochs, smallest):
    here = {**CIFAR, "steps": round(epochs * 50000 / 256)}
    admissible = smallest_admissible_epsilon(1e-5, **here)
    assert math.ceil(10 * admissible) / 10 == pytest.approx(smallest)
    assert theorem2(admissible * 1.0001, 1e-5, **here).noise_std_for_mean > 0
    with pytest.raises(ConditionError):
        theorem2(admissible * 0.999, 1e-5, **here)


@pytest.mark.slow
@QUICK
@given(**{**settings_of_theorem2, "epsilon": st.floats(1.001, 1.5)})
def test_theorem_2_applies_from_the_smallest_admissible_epsilon_on(epsilon, delta, num_workers, batch_size, steps):
    here = {"num_workers": num_workers, "examples": 3125, "batch_size": batch_size, "steps": steps}
    smallest = smallest_admissible_epsilon(delta, **here)
    assume(math.isfinite(smallest))
    assert theorem2(smallest * epsilon, delta, **here).epsilon == smallest * epsilon
    with pytest.raises(ConditionError, match="Theorem 2: condition"):
        theorem2(smallest / epsilon, delta, **here)


def test_an_inadmissible_epsilon_is_named_with_the_smallest_one():
    with pytest.raises(ConditionError) as refused:
        theorem2(8.3, 1e-5, **CIFAR)
    message = str(refused.value)
    assert message == (
        "Theorem 2: condition (7) holds for no mu (nearest at mu = 0.268: alpha is 2.894, at most 2.876 is allowed) at "
        "epsilon = 8.3; expected at least epsilon = 8.344; ask for that, or take fewer steps or smaller batches"
    )
    assert isinstance(refused.value, ScenarioError)
    with pytest.raises(ConditionError, match=r"no epsilon is admissible: the batches are too large a part"):
        theorem2(8.3, 1e-5, num_workers=1, examples=300, batch_size=256, steps=1000)
    assert smallest_admissible_epsilon(1e-5, num_workers=1, examples=300, batch_size=256, steps=1000) == math.inf


def test_remark_1_needs_its_order_condition():
    theorem = theorem2(15.0, 1e-5, **CIFAR)
    first = theorem.remark1_from_step()
    assert 1 < first < CIFAR["steps"]
    orders = [1 + (theorem.alpha - 1) * math.sqrt(CIFAR["steps"] / step) for step in (first - 1, first)]
    assert orders[1] <= theorem.largest_alpha < orders[0]
    # At the edge of condition (7) the remark says nothing before the end.
    edge = theorem2(10.0, 1e-5, **CIFAR)
    assert edge.remark1_from_step() == CIFAR["steps"]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: spectral_rho(0), r"^num_workers: expected an integer >= 1, found 0$"),
    (lambda: spectral_rho(7, "bipartite"),
     r"^num_workers: expected an even number for bipartite mixing, found 7; use"),
    (lambda: spectral_rho(8, "star"), r"^mixing: expected random_pair, bipartite or ring_edge, found 'star'$"),
    (lambda: rhobar(8, 1.0), r"^rho: "),
    (lambda: rhobar(0, 0.5), r"^num_workers: "),
    (lambda: problem(dimension=0), r"^dimension: expected an integer >= 1, found 0$"),
    (lambda: problem(smoothness=0.0), r"^smoothness: "),
    (lambda: problem(staleness=-1.0), r"^staleness: "),
    (lambda: constants(problem(), 0.0), r"^step_size: "),
    (lambda: minimal_steps(problem(num_workers=1, rho=0.0)), r"^num_workers: expected an integer >= 2 for Prop"),
    (lambda: theorem1(problem(), step_size=1e-6, steps=0), r"^steps: "),
    (lambda: theorem1(problem(), step_size=1e-6, steps=1, noise_std=-1.0), r"^noise_std: "),
    (lambda: theorem2(0.0, 1e-5, **CIFAR), r"^epsilon: "),
    (lambda: theorem2(10.0, 0.0, **CIFAR), r"^delta: "),
    (lambda: theorem2(10.0, 1e-5, **CIFAR, gradient_bound=0.0), r"^gradient_bound: "),
    (lambda: theorem2(10.0, 1e-5, **{**CIFAR, "batch_size": 4000}), r"^batch_size: expected an integer from 1 to"),
    (lambda: theorem2(10.0, 1e-5, **{**CIFAR, "num_workers": 0}), r"^num_workers: "),
])  # fmt: skip
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("mu", [None, 0.2])
def test_proposition_2_is_proposition_1_at_the_steps_of_equation_8(mu):
    here, epsilon, delta, n = problem(dimension=100, batch_size=32), 40.0, 1e-5, 3125
    gap = here.initial_gap + here.sampling_variance / here.batch_size + 6 * here.worker_variance
    log_delta = math.log(1 / delta)
    K, B, d = here.num_workers, here.batch_size, here.dimension
    for as_printed in (False, True):
        proposition = proposition2(here, epsilon, delta, examples=n, as_printed=as_printed, mu=mu)
        assert proposition.steps == math.floor(2 * gap * (K * n * epsilon) ** 2 / (40 * d * log_delta))
        # The closed form takes alpha for ln(1/delta) / ((1 - mu) eps).
        share = proposition.theorem2.mu
        assert mu is None or share == mu
        sigma_squared = 20 * proposition.steps * log_delta / ((K * n) ** 2 * share * (1 - share) * epsilon**2)
        over_batch = sigma_squared / B**2 if as_printed else sigma_squared
        assert proposition.bound == pytest.approx(
            (2 * gap + 2 * d * over_batch) / math.sqrt(proposition.steps), rel=1e-4
        )
        assert proposition.exact_bound > proposition.bound, "alpha is larger than what the closed form takes"
        assert proposition.step_size == pytest.approx(K / (B * math.sqrt(proposition.steps)))
        assert proposition.minimal_steps == minimal_steps(here, as_printed=as_printed)
        assert proposition.long_enough is False


def test_proposition_2_needs_a_step_and_theorem_2():
    with pytest.raises(ConditionError, match=r"^Proposition 2: condition T >= 1: equation \(8\) gives T = "):
        proposition2(problem(dimension=10**13), 1.0, 1e-5, examples=3125)
    with pytest.raises(ConditionError, match=r"^Theorem 2: condition "):
        proposition2(problem(dimension=10), 0.1, 1e-5, examples=3125)


def test_a_given_mu_is_checked():
    best = theorem2(10.0, 1e-5, **CIFAR)
    other = theorem2(10.0, 1e-5, **CIFAR, mu=0.9 * best.mu)
    assert other.noise_multiplier > best.noise_multiplier
    assert theorem2(10.0, 1e-5, **CIFAR, mu=best.mu).noise_multiplier == best.noise_multiplier
    with pytest.raises(ConditionError, match=r"^Theorem 2: condition \(7\) at mu = 0\.9"):
        theorem2(10.0, 1e-5, **CIFAR, mu=0.9)
    with pytest.raises(ConditionError, match=r"^Theorem 2: condition \(B sigma / 2G\)² >= 1\.5"):
        theorem2(10.0, 1e-5, num_workers=16, examples=3125, batch_size=1, steps=100, mu=0.5)
    with pytest.raises(ValueError, match=r"^mu: expected a number in \(0, 1\)"):
        theorem2(10.0, 1e-5, **CIFAR, mu=1.0)
