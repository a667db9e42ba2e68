"""Secret draws are tested against the rate of the account."""

import numpy as np
import pytest
from scipy import stats

from simfl.attacks.draws import LAGS, MORE, DrawCheck
from simfl.attacks.noise import FALSE_ALARMS

RATE, MADE, USERS = 0.1, 40, 200


def verdict(table, rate=RATE, independent=True):
    check = DrawCheck(independent)
    for row in table:
        check.hear(rate, np.asarray(row, dtype=bool))
    return check.verdict()


def drawn(seed, rate=RATE, made=MADE, users=USERS):
    return np.random.default_rng(seed).random((made, users)) < rate


@pytest.mark.parametrize("independent", [True, False])
def test_draws_at_the_rate_are_rarely_blamed(independent):
    """Of 100 correct tables, at most 5 % have a p-value below 5 %, up to a chance of 1e-3."""
    chances = [verdict(drawn(seed), independent=independent).p_value for seed in range(100)]
    assert sum(chance < 0.05 for chance in chances) <= stats.binom.isf(1e-3, 100, 0.05)
    assert min(chances) > 1e-4


def test_the_total_has_its_exact_binomial_chance():
    table = np.arange(10) < np.array([4, 5, 4])[:, None]
    table = np.stack([np.roll(row, 3 * number) for number, row in enumerate(table)])  # no member in all three
    found = verdict(table, rate=0.25, independent=False)
    exact = sum(stats.binom.pmf(count, 30, 0.25) for count in range(13, 31))
    most = 10 * stats.binom.sf(1, 3, 0.25)
    assert (found.drawn, found.expected) == (13, 7.5)
    assert found.p_value == pytest.approx(min(1.0, 2 * 3 * 4 * min(exact, most)))


TURNS = np.arange(MADE)[:, None] % 10 == np.arange(USERS) % 10
FAULTS = {
    "three times as many": drawn(1, 3 * RATE),
    "half as many again": drawn(1, 1.5 * RATE),
    "half as many": drawn(1, RATE / 2),
    "in turn": TURNS,
    "the same always": np.tile(np.arange(USERS) < 20, (MADE, 1)),
    "all or none": np.tile(np.arange(MADE)[:, None] % 10 == 3, (1, USERS)),
    "fixed size": np.stack([np.random.default_rng(seed).permutation(USERS) < 20 for seed in range(MADE)]),
    "one in every release": drawn(1) | (np.arange(USERS) == 7),
    "each release twice": np.repeat(drawn(1)[::2], 2, axis=0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_other_draws_are_blamed(fault):
    assert verdict(FAULTS[fault]).p_value < FALSE_ALARMS


@pytest.mark.parametrize("fault", ["three times as many", "half as many again", "the same always"])
def test_more_draws_are_blamed_whatever_ends_the_run(fault):
    assert verdict(FAULTS[fault], independent=False).p_value < FALSE_ALARMS


def test_a_run_that_ends_by_its_draws_is_not_blamed():
    """As soon as the total is far above its mean the run ends: the worst that a stop can do."""
    made, users = 400, 50
    chances = []
    for seed in range(200):
        table = drawn(seed, RATE, made, users)
        surplus = (np.cumsum(table.sum(axis=1)) - RATE * users * np.arange(1, made + 1)) / np.sqrt(
            np.arange(1, made + 1)
        )
        end = int(np.argmax(surplus)) + 1
        chances.append(verdict(table[:end], independent=False).p_value)
    assert sum(chance < 0.05 for chance in chances) <= 10


def test_fewer_examples_than_expected_are_no_alarm():
    """Large batches take longer, and are lost more often when clients crash."""
    assert verdict(drawn(1, RATE / 2), independent=False).p_value == 1.0


def test_rates_are_tested_apart():
    check = DrawCheck(independent=False)
    for seed in range(20):
        check.hear(0.1, drawn(seed, 0.1, 1)[0])
        check.hear(0.2, drawn(seed + 99, 0.2, 1)[0])
        check.hear(1.0, np.ones(USERS, bool))
    found = check.verdict()
    assert found.expected == pytest.approx(20 * USERS * 0.3)
    assert found.p_value == 1.0
    for seed in range(20):
        check.hear(0.2, drawn(seed, 0.6, 1)[0])
    assert check.verdict().p_value < FALSE_ALARMS


def test_without_secret_draws_nothing_is_tested():
    found = verdict(np.ones((5, 3)), rate=1.0)
    assert (found.drawn, found.expected, found.p_value) == (0, 0.0, 1.0)
    assert DrawCheck(True).shows(np.random.default_rng(0)) == {}


@pytest.mark.parametrize(("made", "seen"), [(40, True), (1, False)])
def test_the_power_of_an_audit_is_simulated(made, seen):
    check = DrawCheck(independent=False)
    for row in drawn(1, 0.1, made, 20):
        check.hear(0.1, row)
    assert check.shows(np.random.default_rng(0)) == {MORE: seen}


def test_lags_use_each_release_in_one_pair():
    """An error here would make the count of pairs other than binomial: its variance shows it."""
    counts = [verdict(drawn(seed, 0.5, 2 * LAGS, 3), rate=0.5).p_value for seed in range(60)]
    assert sum(chance < 0.05 for chance in counts) <= stats.binom.isf(1e-3, 60, 0.05)
