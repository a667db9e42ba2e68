"""What a walk reveals: all paths of small walks, a simulation, the order of accounts, and adversaries."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.accounts import walk_laws, walks
from simfl.accounts.walks import epsilons_of_walk, walk_of
from simfl.privacy.gaussian import gaussian_delta, gaussian_epsilon, smallest_epsilon
from simfl.world.topology import build_topology


def walk(kind, count, seed=0, **options):
    return walk_of(build_topology(kind, count, np.random.default_rng(seed), **options))


def paths(w, steps):
    """Yield (probability, clients) of each path that begins anywhere."""
    for path in itertools.product(range(len(w)), repeat=steps):
        p = math.prod((w[i, j] for i, j in itertools.pairwise(path)), start=1.0 / len(w))
        if p > 0.0:
            yield p, path


def revealed(path, u, v):
    """Return u's gradients before the last visit to v, and the sum of 1 / G in parts of 1/256, rounded up."""
    last = max((s for s, k in enumerate(path) if k == v), default=-1)
    before = [s for s in range(last) if path[s] == u]
    lengths = [next(t for t in range(s + 1, last + 1) if path[t] in (u, v)) - s for s in before]
    return len(before), sum(math.ceil(256 / length) for length in lengths)


@pytest.mark.parametrize(("kind", "count", "steps"), [("ring", 4, 7), ("star", 4, 7), ("complete", 3, 8)])
def test_laws_equal_those_of_all_paths(kind, count, steps):
    w = walk(kind, count)
    counts, sums = np.zeros(steps + 1), np.zeros(256 * (steps + 1))
    for p, path in paths(w, steps):
        number, total = revealed(path, 2, 0)
        counts[number] += p
        sums[total] += p
    np.testing.assert_allclose(walks._counts(w, steps, 2, 0), counts[:steps], atol=1e-12)
    np.testing.assert_allclose(walks._sums(w, steps, 2, 0, 256 * (steps + 1)), sums, atol=1e-10)


def test_laws_of_long_walks_add_up_to_one():
    """What Fourier sums misplace, also below 0, where it is cut off, is less than is added to delta."""
    law = walks._sums(walk("ring", 16), 500, 1, 0, 256 * 100)
    assert abs(law.sum() - 1.0) < walk_laws.ERROR
    assert law[-256 * 20 :].sum() < walk_laws.ERROR


def test_at_least_is_what_the_best_test_of_fixed_gradients_attains():
    """Simulated views of v and their likelihood ratios, at an epsilon with a delta of some percent."""
    w, steps, u, v, z, rng = walk("ring", 4), 12, 1, 0, 0.8, np.random.default_rng(4)
    law = {}  # of u's gradients between visits to v, by (first or not, length): all paths
    for length in range(1, steps + 1):
        for first in (True, False):
            shares = np.zeros(steps)
            tails = itertools.product(range(1, 4), repeat=length - 1)
            for inner in tails:
                path = (*inner, v) if first else (v, *inner, v)
                p = math.prod((w[i, j] for i, j in itertools.pairwise(path)), start=0.25 if first else 1.0)
                shares[inner.count(u)] += p
            law[first, length] = shares
    deltas, epsilon, k, reached = [], 1.0, np.arange(steps), w.cumsum(axis=1)
    for _ in range(4_000):
        place, first, length, number, noise, loss = rng.integers(4), True, 0, 0, 0.0, 0.0
        for _ in range(steps):
            length += 1
            if place == v:
                if length > 1:
                    variance, shares = (length - 1) * z**2, law[first, length]
                    terms = np.exp(((number + noise) * k - 0.5 * k**2) / variance)
                    loss += math.log(terms @ shares / shares.sum())
                first, length, number, noise = False, 0, 0, 0.0
            else:
                number += place == u
                noise += z * rng.standard_normal()
            place = np.searchsorted(reached[place], rng.random())
        deltas.append(max(0.0, -math.expm1(epsilon - loss)))
    delta, error = np.mean(deltas), np.std(deltas) / math.sqrt(len(deltas))
    lower = walk_laws.least_epsilon(delta + 4 * error, w, steps, u, v, z)
    upper = walk_laws.least_epsilon(delta - 4 * error, w, steps, u, v, z)
    assert lower < epsilon < upper + 0.03
    assert upper - lower < 0.4


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(["ring", "star", "complete", "erdos_renyi"]),
    st.integers(3, 9),
    st.integers(1, 40),
    st.floats(0.5, 5.0),
    st.integers(0, 99),
)
def test_no_bound_is_below_another_that_holds_for_less(kind, count, steps, z, seed):
    w = walk(kind, count, seed)
    u = 1 + seed % (count - 1)
    found = epsilons_of_walk(w, steps, u, 0, z, 1e-5)
    assert found.at_least <= found.nonexpansive + 1e-6
    assert found.nonexpansive <= found.certified <= gaussian_epsilon(1e-5, math.sqrt(steps) / z) + 1e-3
    once = epsilons_of_walk(w, steps, u, 0, z, 1e-5, uses=1)
    assert once.nonexpansive <= once.certified == pytest.approx(gaussian_epsilon(1e-5, 1.0 / z), rel=1e-6)


def test_the_program_counts_less_than_fixed_gradients_reveal():
    """A neighbor on a ring: PN-f-DP of the program is refuted by gradients that do not even react."""
    found = epsilons_of_walk(walk("ring", 16), 100, 1, 0, 2.0, 1e-5)
    assert found.published < found.at_least
    assert found.published < found.renyi


def test_clients_that_repeat_what_they_received_reveal_more_than_the_bound_for_nonexpansive_steps():
    """One gradient of u; the next client multiplies the model by 30, so that later noise hides nothing."""
    w, steps, z, gain, delta = walk("ring", 6), 40, 1.0, 30.0, 1e-5
    hits = walk_laws.first_hits(w, np.eye(6)[3], [0], steps)[1:, 0]
    noises = z**2 * (1.0 + np.arange(steps) / gain**2)

    def attained(epsilon):
        return sum(p * gaussian_delta(epsilon, 1.0 / math.sqrt(n)) for p, n in zip(hits, noises, strict=True))

    adversary = smallest_epsilon(delta, attained)
    found = epsilons_of_walk(w, steps, 3, 0, z, delta, uses=1)
    assert found.nonexpansive < adversary <= found.certified


def test_a_step_to_the_observer_reveals_all_of_it():
    """Two clients that change places in each step: every gradient comes with its own noise."""
    w, steps, z = np.array([[0.0, 1.0], [1.0, 0.0]]), 8, 1.5
    found = epsilons_of_walk(w, steps, 1, 0, z, 1e-5)
    # Half of the walks begin at 1: then 1 has a gradient before each of four visits, the last one after all steps.
    assert found.certified == found.nonexpansive == pytest.approx(gaussian_epsilon(1e-5, 2.0 / z), rel=1e-3)
    # The observer knows that each visit brings one gradient, so fixed ones reveal as much.
    assert found.at_least == pytest.approx(found.certified, rel=0.03)
    assert found.published < found.at_least


def test_the_model_goes_on_after_the_last_step():
    """One step, at the client in half of the walks, and the observer gets what it made."""
    found = epsilons_of_walk(np.array([[0.0, 1.0], [1.0, 0.0]]), 1, 1, 0, 1.5, 1e-5)
    once = smallest_epsilon(1e-5, lambda epsilon: 0.5 * gaussian_delta(epsilon, 1.0 / 1.5))
    assert found.certified == pytest.approx(once, rel=1e-3)
    assert once < found.nonexpansive


def test_a_client_where_the_model_stays_long_has_all_its_gradients_counted():
    """A star's leaf: here are only the walks that begin there, make k steps there, and go to the center."""
    count, steps, z, delta = 60, 100, 2.0, 1e-5
    stays, k = 1.0 - 1.0 / (count - 1), np.arange(1, steps + 1)
    chances = stays ** (k - 1) * (1.0 - stays) / count

    def attained(epsilon):
        return sum(p * gaussian_delta(epsilon, math.sqrt(n) / z) for p, n in zip(chances, k, strict=True))

    found = epsilons_of_walk(walk("star", count), steps, 1, 0, z, delta)
    assert found.certified >= smallest_epsilon(delta, attained)


def test_gaussian_mixtures_are_those_of_their_parts():
    law = np.array([0.5, 0.0, 0.3, 0.2])
    epsilon = walks._of_mixture(0.01, law, 0.25, 1.3)
    parts = [(0.3, math.sqrt(0.5) / 1.3), (0.2, math.sqrt(0.75) / 1.3)]
    assert sum(p * gaussian_delta(epsilon, mu) for p, mu in parts) == pytest.approx(0.01, rel=1e-6)


def test_the_command_prints_all_distances_and_refuses_bad_arguments(simfl_):
    rows = json.loads(simfl_.printed("privacy", "walk", "--clients", 6, "--steps", 30, "--json"))["result"]
    assert [row["distance"] for row in rows] == [1, 2, 3]
    assert all(row["at_least"] <= row["nonexpansive"] <= row["certified"] for row in rows)
    assert "not certified" in simfl_.printed("privacy", "walk", "--graph", "everyone", "--clients", 5, "--uses", 1)
    assert "steps: expected an integer from 1 to 500" in simfl_.refused("privacy", "walk", "--steps", 900)
