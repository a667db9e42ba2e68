import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.streams import Streams
from simfl.world import Availability
from simfl.world import availability as availability_module
from simfl.world.availability import Outage, Outcome, RandomOutages, Repeated
from tests.helpers import constant, exponential

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
times = st.integers(0, 40).map(lambda tenths: tenths / 4)


def there(*outages, random=None, seed=0):
    return Availability(Streams(seed), {0: outages}, {0: random} if random else None)


def test_clients_without_outages_are_always_online():
    availability = Availability(Streams(0))
    assert availability.trivial
    assert availability.finish(3, 2.0, 1.5) == (3.5, Outcome.DONE)
    assert availability.online(3, 1e9)
    assert availability.joins_s(3) == 0.0
    assert availability.leaves_s(3) == math.inf
    assert availability.offline_s(3, 1e9) == 0.0
    assert not there(Outage(1.0, 2.0)).trivial


def test_an_outage_includes_its_start_and_excludes_its_end():
    availability = there(Outage(1.0, 2.0))
    assert [availability.online(0, t) for t in (0.9, 1.0, 1.9, 2.0)] == [True, False, False, True]
    assert availability.outage(0, 1.5) == Outage(1.0, 2.0)
    assert availability.outage(0, 2.0) is availability.outage(0, 2.5) is None
    assert availability.online(1, 1.5), "a rule concerns its client"


@pytest.mark.parametrize("tenths", [3, 6, 7, 8, 10, 29])
def test_rounding_moves_nothing_over_the_edge_of_an_outage(tenths):
    """Sums of 0.1 s are above 0.3 and 0.6, below 0.8 and 1.0, and equal to 0.7."""
    edge_s, now = tenths / 10, 0.0
    for crash, end_s in itertools.product((False, True), (edge_s + 1.0, math.inf)):
        availability, now = there(Outage(edge_s, end_s, crash)), 0.0
        for _ in range(tenths):
            assert availability.online(0, now)
            now, outcome = availability.finish(0, now, 0.1)
            assert outcome is Outcome.DONE, "what ends when the outage starts is done"
        assert now == pytest.approx(edge_s)
        assert not availability.online(0, now)
        assert availability.back_s(0, now) == end_s
        assert availability.away_s(0, now) == pytest.approx(edge_s)
    back = there(Outage(0.0, edge_s))
    assert back.online(0, now), "the client is back"
    assert back.back_s(0, now) == now


def test_a_client_that_crashes_permanently_is_gone():
    availability = there(Outage(4.0, math.inf, crash=True))
    assert availability.finish(0, 0.0, 4.0) == (4.0, Outcome.DONE)
    assert availability.finish(0, 3.0, 4.0) == (4.0, Outcome.GONE)
    assert availability.finish(0, 6.0, 4.0) == (6.0, Outcome.GONE)
    assert availability.leaves_s(0) == 4.0
    assert availability.gone(0, 4.0)
    assert not availability.gone(0, 3.9)
    assert availability.offline_s(0, 10.0) == 6.0


def test_away_s_is_the_time_of_the_next_absence():
    availability = there(Outage(1.0, 2.0), Outage(4.0, math.inf, crash=True))
    assert [availability.away_s(0, t) for t in (0.5, 1.0, 1.5, 2.0, 4.0, 5.0)] == [1.0, 1.0, 1.5, 4.0, 4.0, 5.0]
    assert availability.away_s(1, 1.5) == math.inf
    assert there(Outage(1.0, 2.0)).away_s(0, 2.0) == math.inf
    drawn = there(random=RandomOutages(constant(3.0), constant(0.5)))
    assert [drawn.away_s(0, t) for t in (0.0, 3.25, 3.5, 100.0)] == [3.0, 3.25, 6.5, 101.0]
    nightly = Availability(Streams(0), repeated={0: [NIGHTS]})
    for _ in range(1000):
        nightly.away_s(0, 0.0)
    assert nightly._timelines[0]._rounds == [8], "looking again writes out no more"
    left = Availability(Streams(0), {0: [Outage(30.0, math.inf)]}, repeated={0: [NIGHTS]})
    assert [left.away_s(0, t) for t in (23.0, 30.0, 50.0, 1e9)] == [30.0, 30.0, 50.0, 1e9]
    assert [nightly.away_s(0, t) for t in (0.0, 22.25, 23.0, 24.0 * 9 + 23.5)] == [20.0, 22.5, 44.0, 24.0 * 10 + 20.0]


def reference(outages, start, work):
    """The result of `finish`, by stepping through time in pieces that no outage cuts."""
    cuts = sorted({start, *(t for o in outages for t in (o.start_s, o.end_s) if start < t < math.inf), 1e6})
    left = work
    for begin, end in itertools.pairwise(cuts):
        inside = [o for o in outages if o.start_s <= begin < o.end_s]
        if not inside:
            if left <= end - begin:
                return begin + left, Outcome.DONE
            left -= end - begin
            continue
        joined = joined_with(outages, inside[0])
        if math.isinf(max(o.end_s for o in joined)):
            return max(start, min(o.start_s for o in joined)), Outcome.GONE
        if any(o.crash for o in joined) and min(o.start_s for o in joined) >= start:
            return max(o.end_s for o in joined), Outcome.CRASHED
    raise AssertionError("the work never ends")


def joined_with(outages, one):
    """Return all outages that touch `one`, directly or by others."""
    group = {one}
    while True:
        grown = {
            o for o in outages if any(o.start_s <= other.end_s and other.start_s <= o.end_s for other in group)
        } | group
        if grown == group:
            return group
        group = grown


@QUICK
@given(
    spans=st.lists(st.tuples(times, st.integers(1, 8), st.booleans()), max_size=5),
    leaves=st.none() | times,
    start=times,
    work=st.integers(1, 40),
)
def test_finish_agrees_with_stepping_through_time(spans, leaves, start, work):
    outages = [Outage(begin, begin + length / 4, crash) for begin, length, crash in spans]
    if leaves is not None:
        outages.append(Outage(leaves, math.inf, crash=True))
    when, outcome = there(*outages).finish(0, start, work / 4)
    expected_when, expected = reference(outages, start, work / 4)
    assert outcome is expected
    assert when == pytest.approx(expected_when, abs=1e-9)
    # All times are quarters of a second, so looking in the middle of each quarter sees everything.
    away = sum(0.25 for t in np.arange(0.125, 30, 0.25) if any(o.start_s <= t < o.end_s for o in outages))
    assert there(*outages).offline_s(0, 30.0) == pytest.approx(away)


@QUICK
@given(seed=st.integers(0, 1000), looks=st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_random_outages_do_not_depend_on_the_order_of_queries(seed, looks):
    random = RandomOutages(exponential(3.0), exponential(1.0))
    once = there(random=random, seed=seed)
    expected = [once.online(0, t) for t in sorted(looks)]
    ahead = there(random=random, seed=seed)
    ahead.offline_s(0, 500.0)
    assert [ahead.online(0, t) for t in sorted(looks)] == expected
    jumping = there(random=random, seed=seed)
    assert {t: jumping.online(0, t) for t in sorted(looks, reverse=True)} == dict(
        zip(sorted(looks, reverse=True), reversed(expected), strict=True)
    )


def test_random_outages_have_the_given_mean_lengths():
    availability = there(random=RandomOutages(exponential(3.0), exponential(1.0)))
    horizon = 8000.0
    assert availability.offline_s(0, horizon) / horizon == pytest.approx(0.25, abs=0.03)
    regular = there(random=RandomOutages(constant(3.0), constant(1.0)))
    assert [regular.online(0, t) for t in (2.9, 3.0, 3.9, 4.0, 6.9, 7.0)] == [True, False, False, True, True, False]
    assert regular.offline_s(0, 400.0) == pytest.approx(100.0)
    assert regular.finish(0, 0.0, 9.0) == (11.0, Outcome.DONE)


def test_outages_of_clients_are_independent():
    random = RandomOutages(exponential(3.0), exponential(3.0))
    availability = Availability(Streams(0), random=dict.fromkeys(range(2), random))
    there_at = np.array([[availability.online(k, t) for t in np.arange(0, 20_000, 10.0)] for k in range(2)])
    assert abs(np.corrcoef(there_at)[0, 1]) < 0.12


def test_looking_at_a_long_run_of_outages_merges_each_a_few_times_only(monkeypatch):
    merged = []
    original = availability_module._merged
    monkeypatch.setattr(
        availability_module, "_merged", lambda outages: merged.append(len(outages)) or original(outages)
    )
    availability = there(random=RandomOutages(exponential(1.0), exponential(1.0)))
    for time in range(4000):
        availability.online(0, float(time))
    drawn = len(availability._timelines[0].outages)
    assert drawn > 1900
    assert sum(merged) < 4 * drawn


@QUICK
@given(
    outages=st.lists(st.builds(lambda begin, length: Outage(begin, begin + length), times, times), max_size=4),
    start=times,
    length=times,
)
def test_present_and_offline_times_add_up(outages, start, length):
    availability = there(*outages)
    end = start + length
    pieces = availability.present(0, start, end)
    assert all(start <= begin < until <= end for begin, until in pieces)
    away_s = availability.offline_s(0, end) - availability.offline_s(0, start)
    assert sum(until - begin for begin, until in pieces) == pytest.approx(length - away_s)
    for begin, until in pieces:
        assert availability.online(0, (begin + until) / 2)
        assert begin == start or not availability.online(0, begin - 1e-6)
        assert until == end or not availability.online(0, until)


def test_random_outages_end_with_a_permanent_crash():
    churn = RandomOutages(exponential(1.0), exponential(0.1))
    availability = there(Outage(5.0, math.inf, crash=True), random=churn)
    assert availability.present(0, 4.0, math.inf)[-1][1] <= 5.0
    assert availability.finish(0, 0.0, math.inf) == (5.0, Outcome.GONE)
    assert availability.gone(0, 6.0)


def test_endlessly_many_random_outages_are_refused(monkeypatch):
    monkeypatch.setattr(availability_module, "MOST_OUTAGES", 1000)
    availability = there(random=RandomOutages(constant(1e-9), constant(1e-9)))
    assert availability.finish(0, 0.0, 1e-7) == (pytest.approx(1.99e-7), Outcome.DONE), (
        "at the end of the 100th time online"
    )
    with pytest.raises(
        ScenarioError, match=r"^availability\.random: expected at most 1000 absences .* every 2e-09 s on average"
    ):
        availability.finish(0, 0.0, 1.0)


NIGHTS = Repeated((Outage(20.0, 22.0), Outage(22.5, 23.0, crash=True)), 24.0)


@QUICK
@given(st.lists(st.tuples(times, times, st.booleans()), max_size=3), st.lists(st.integers(0, 4000), max_size=6))
def test_repeated_outages_equal_written_out_ones(spans, asked):
    scripted = [Outage(min(a, b), max(a, b), crash) for a, b, crash in spans]
    written = Availability(Streams(0), {0: [*scripted, *NIGHTS.between(0, 100)]})
    again = Availability(Streams(0), {0: scripted}, repeated={0: [NIGHTS]})
    for tenths in asked:  # in any order
        time = tenths / 10
        assert again.outage(0, time) == written.outage(0, time)
        assert again.finish(0, time, 7.5) == written.finish(0, time, 7.5)
        assert again.offline_s(0, time) == pytest.approx(written.offline_s(0, time))
        assert again.present(0, time / 2, time) == written.present(0, time / 2, time)


def test_repeated_outages_combine_with_random_ones_and_end_when_the_client_leaves():
    random = RandomOutages(constant(3.0), constant(0.5))
    both = Availability(Streams(0), {0: [Outage(100.0, math.inf)]}, {0: random}, {0: [NIGHTS]})
    assert both.outage(0, 68.5) == Outage(68.0, 70.0)
    assert both.outage(0, 73.25) == Outage(73.0, 73.5), "drawn"
    assert both.leaves_s(0) == 100.0
    assert both.gone(0, 1e12)


def test_outages_that_repeat_too_often_are_refused():
    short = Availability(Streams(0), repeated={0: [Repeated((Outage(0.0, 1e-10),), 1e-9)]})
    with pytest.raises(ScenarioError, match=r"^availability\.every: expected at most .* one every 1e-09 s"):
        short.finish(0, 0.0, 1.0)
