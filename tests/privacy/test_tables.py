"""The account of releases with a table: closed forms, exact values with secret draws, and what it refuses."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from simfl.privacy.assumptions import assumptions
from simfl.privacy.closed_form import MOST_RELEASES
from simfl.privacy.gaussian import gaussian_delta
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.tables import TableLedger, cost_of, delta_of, epsilon_of_table
from simfl.privacy.terms import Terms


def ledger(sizes=(64, 60), batch_size=8, level=4.0, made=TableLedger, **terms):
    terms = {"mechanism": "gaussian", "delta": 1e-5, "neighbors": "replace_one", **terms}
    return made(Terms(**terms), np.array(sizes), batch_size, "shuffle", [level] * len(sizes))


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_cost_is_that_of_the_worst_gradients(rows):
    """Gradients of norm C or 0 before and after a replacement, for all draws of six releases."""
    releases = 6
    for draws in itertools.product((False, True), repeat=releases):
        worst = 0.0
        for signs in itertools.product((-1.0, 1.0), repeat=sum(draws)):
            table, moved, at = 0.0, 0.0, iter(signs)
            for drawn in draws:  # S moves by 2 C in either direction
                new = 2.0 * next(at) if drawn else table
                moved += (new - table + table / rows) ** 2 if drawn else (table / rows) ** 2
                table = new
            worst = max(worst, moved)
        bound = 4.0 * cost_of(rows, releases, np.array(float(sum(draws))))
        assert worst <= bound * (1 + 1e-12)
        if sum(draws) and draws[0]:
            assert worst == pytest.approx(bound), "attained if the first release has it"


def test_delta_is_a_mixture_of_gaussian_deltas():
    rows, releases, z, epsilon = 5, 12, 3.0, 1.3
    expected = sum(
        math.comb(releases, n) * (1 / rows) ** n * (1 - 1 / rows) ** (releases - n)
        * gaussian_delta(epsilon, 2 / z * math.sqrt(cost_of(rows, releases, np.array(float(n)))))
        for n in range(1, releases + 1)
    )  # fmt: skip
    assert delta_of(epsilon, rows, releases, 2 / z) == pytest.approx(expected, rel=1e-9)
    spent = epsilon_of_table(expected, rows, releases, 2 / z)
    assert spent == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("rows", "z", "epsilon"), [(2, 1.5, 0.5), (2, 3.0, 0.2), (4, 1.0, 1.0)])
def test_the_account_is_not_below_the_exact_value_of_secret_draws(rows, z, epsilon):
    """Two releases of one number each; gradients turn around at each draw. Their densities are added up on a grid."""
    step = 0.02
    y = np.arange(-5.0 - 4 * z, 5.0 + 4 * z, step)
    normal = lambda at, mean: np.exp(-0.5 * ((at - mean) / z) ** 2) / (z * math.sqrt(2 * math.pi))  # noqa: E731
    densities = []
    for sign in (1.0, -1.0):  # C = 1 with one example, -1 with the one in its place
        total = np.zeros((len(y), len(y)))
        for draws in itertools.product((False, True), repeat=2):
            table, means, turned = 0.0, [], sign
            for drawn in draws:
                new = turned if drawn else table
                means.append(new - table + table / rows if drawn else table / rows)
                turned, table = (-turned if drawn else turned), new
            chance = np.prod([1 / rows if drawn else 1 - 1 / rows for drawn in draws])
            total += chance * np.outer(normal(y, means[0]), normal(y, means[1]))
        densities.append(total)
    exact = np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0.0).sum() * step**2
    assert 1e-4 < exact < delta_of(epsilon, rows, 2, 2 / z)


def test_known_limits():
    assert epsilon_of_table(1e-5, 10, 0, 0.5) == 0.0
    assert epsilon_of_table(1e-5, 10, 10, math.inf) == math.inf
    one = ndtr(0.25 / 2 - 1 / 0.25) - math.e * ndtr(-0.25 / 2 - 1 / 0.25)
    assert delta_of(1.0, 1, 1, 0.25) == pytest.approx(one, rel=1e-5)
    spent = [epsilon_of_table(1e-5, 50, count, 0.1) for count in (1, 10, 100, 1000, 10**6)]
    assert spent == sorted(spent)


def test_a_ledger_has_an_epsilon_for_examples_that_are_replaced():
    releases = Releases([30, 0])
    made = ledger()
    assert made.epsilon(releases).tolist() == [epsilon_of_table(1e-5, 8, 30, 0.5), 0.0]
    assert made.largest(releases) == made.final_epsilon(releases)[0] == made.epsilon_after(0, 30, "renyi")
    releases.add(0, 4, 2.0)  # a release with less noise: all count like it
    assert made.epsilon(releases)[0] == epsilon_of_table(1e-5, 8, 31, 1.0)
    assert "earlier gradients counted in every later one" in made.statement
    assert "whatever the data; the adversary may know the draws" in assumptions(made, releases)["draws"]
    (((release, count),), nothing) = made.compositions(Releases([30, 0]))
    assert (release.noise_multiplier, release.sampling_rate, nothing) == (4.0, 1.0, ())
    assert count == math.ceil(1 + 29 * (2 - 1 / 8) ** 2)
    assert Ledger.epsilon(ledger(made=Ledger), Releases([30, 0]))[0] < made.epsilon(Releases([30, 0]))[0]
    allowed = made.allowances([2.0, 1e9])
    assert made.epsilon_after(0, allowed[0], "renyi") <= 2.0 < made.epsilon_after(0, allowed[0] + 1, "renyi")
    assert allowed[1] == MOST_RELEASES


def test_other_promises_are_refused():
    assert "replace_one" in ledger(neighbors="add_or_remove").statement
    assert "gaussian only" in ledger(unit="client").statement
    terms = Terms("laplace", 1e-5, neighbors="replace_one")
    assert "gaussian only" in TableLedger(terms, np.array([9]), 3, "shuffle", [1.0], True).statement
