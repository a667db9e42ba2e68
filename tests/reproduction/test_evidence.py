"""Decisions by seeds, and the verdict over readings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simfl.comparison.comparing import median_of
from simfl.reproduction.evidence import (
    MOST_SEEDS,
    Judged,
    NotMeasuredError,
    Part,
    Reading,
    Verdict,
    above,
    below,
    decides,
    exactly,
    gathered,
    log_ratio,
    measured,
    seeds_needed,
    show,
    show_ratio,
    typical,
    under,
    verdict_of,
    within,
)

NEAR_ONE = (0.9, 1.0, 1.1, 1.0, 1.0)  # mean 1, interval ± 2.776 · 0.0707 / √5 = 0.088


@pytest.mark.parametrize(("part", "held"), [
    (above(NEAR_ONE, 0.9, ""), True),
    (above(NEAR_ONE, 0.95, ""), None),
    (above(NEAR_ONE, 1.1, ""), False),
    # A lead over 0.95 by less than 0.2 does not count, unless the whole interval is above the bar.
    (above(NEAR_ONE, 0.95, "", least=0.2), False),
    (above(NEAR_ONE, 0.9, "", least=0.5), True),
    (below(NEAR_ONE, 1.1, ""), True),
    (below(NEAR_ONE, 1.05, ""), None),
    (below(NEAR_ONE, 0.9, ""), False),
    (within(NEAR_ONE, 1.1, ""), True),
    (within(NEAR_ONE, 1.0, ""), None),
    (within(NEAR_ONE, 0.9, ""), False),
    (within([-value for value in NEAR_ONE], 0.9, ""), False),
    # Four seeds never decide; neither do diverged runs that `typical` did not replace.
    (above(NEAR_ONE[:4], -9, ""), None),
    (within((0.0,) * 4, 1, ""), None),
    (above((*NEAR_ONE, math.nan), 0, ""), None),
    # With diverged runs as minus infinity the median decides: of six values, its interval is the whole range.
    (above(typical((*NEAR_ONE, math.nan)), 0, ""), None),
    (above(typical((math.nan,) * 6), 0, ""), False),
    (above(typical((*NEAR_ONE, *NEAR_ONE, math.nan)), 0.8, ""), True),
    (exactly(True, ""), True),
])  # fmt: skip
def test_intervals_decide_and_few_seeds_do_not(part, held):
    assert part.held is held


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_median_lies_in_its_interval_and_six_values_have_one(values):
    median = median_of(values)
    assert math.isnan(median.low) == (len(values) < 6)
    if len(values) >= 6:
        assert median.low <= median.mean <= median.high
        below_, above_ = (sum(value < median.low for value in values), sum(value > median.high for value in values))
        # The number of values outside on one side is at most what a fair coin gives in one of forty cases.
        for outside in (below_, above_):
            assert sum(math.comb(len(values), k) for k in range(outside + 1)) <= 0.025 * 2 ** len(values)


def test_a_medians_interval_is_that_of_the_tables():
    """Order statistics of the binomial: of 10 values the second and ninth, of 16 the fourth and thirteenth."""
    for count, rank in ((6, 1), (8, 1), (9, 2), (10, 2), (16, 4), (25, 8)):
        median = median_of(range(1, count + 1))
        assert (median.low, median.high) == (rank, count + 1 - rank)
    assert median_of([-math.inf] * 4 + [1.0, 2.0]).mean == -math.inf
    assert math.isnan(median_of([1.0, math.nan]).mean)


def test_figures_and_tables_have_intervals_from_three_seeds_on():
    assert math.isnan(measured((1.0, 2.0)).low)
    assert measured((1.0, 2.0, 3.0)).low == pytest.approx(2 - 4.303 / math.sqrt(3), abs=1e-3)
    interval = measured((1.0, 2.0, 3.0, 4.0, 5.0, math.nan))
    assert (interval.mean, interval.low, interval.high) == (2.5, -math.inf, 5.0)


@pytest.mark.parametrize(("judge", "distance"), [
    (lambda values: above(values, 0.95, ""), 0.05),
    (lambda values: above(values, 1.02, "", least=0.03), 0.05),
    (lambda values: below(values, 1.04, ""), 0.04),
    (lambda values: within(values, 1.03, ""), 0.03),
    (lambda values: within(values, 0.96, ""), 0.04),
    # In the middle of a band either end may decide, and two bars that are equally near must both be away.
    (lambda values: above(values, 0.97, "", least=0.06), None),
    (lambda values: within(np.subtract(values, 1.0), 0.05, ""), None),
])  # fmt: skip
def test_the_seeds_that_would_decide_do_so_in_nine_of_ten_cases(judge, distance, monkeypatch):
    """Drawn samples are decided as often as the power says: normal values with the mean and the spread as measured."""
    part, spread = judge(NEAR_ONE), math.sqrt(0.02 / 4)
    assert part.held is None
    seeds = int(part.seeds)
    assert seeds > len(NEAR_ONE)
    monkeypatch.setattr("simfl.reproduction.evidence._enough", lambda *_: math.nan)
    draws = np.random.default_rng(1).normal(1.0, spread, (1000, seeds))
    assert sum(judge(draw).held is not None for draw in draws) / len(draws) == pytest.approx(0.91, abs=0.03)
    # Mean and spread known, 1.96 + 1.28 standard errors fit the distance; Student's t asks for a few seeds more.
    if distance:
        normal = ((1.96 + 1.2816) * spread / distance) ** 2
        assert normal < seeds < normal + 4


@pytest.mark.parametrize(("part", "seeds"), [
    (above(NEAR_ONE, 1.0, ""), math.inf), (above(NEAR_ONE, 0.99, ""), math.inf),
    (above([1.0] * 5, 1.0, ""), math.inf), (above(NEAR_ONE[:1] * 2, 0.0, ""), math.nan),
    (above(NEAR_ONE, 0.9, ""), math.nan),
])  # fmt: skip
def test_no_number_of_seeds_is_named_where_none_would_do(part, seeds):
    assert part.seeds == pytest.approx(seeds, nan_ok=True)


def test_a_claim_says_how_many_seeds_it_would_take_or_that_none_would_do():
    near = Reading({"a": "1"}, [above(NEAR_ONE, 0.95, ""), above(NEAR_ONE, 0.9, "")])
    assert seeds_needed([near, Reading({}, [Part(False, "")])]) == "about 24 seeds for a power of 90 %"
    equal = Reading({"a": "2"}, [above(NEAR_ONE, 1.0, "")])
    assert seeds_needed([near, equal]).startswith(f"more than {MOST_SEEDS} seeds: the difference is too near")
    assert seeds_needed([near, Reading({}, [Part(None, "")])]) == "more seeds"


def reading(held, own=False, **choices):
    return Reading(choices, [Part(held, "measured")], own=own)


@pytest.mark.parametrize(("held", "short", "verdict"), [
    ([True, True], "", Verdict.REPRODUCED),
    ([True, True, False], "", Verdict.MOSTLY),
    ([True, None], "", Verdict.MOSTLY),
    ([True] * 17 + [False] * 2 + [None] * 2, "", Verdict.MOSTLY),
    ([True, False], "", Verdict.MIXED),
    ([True] * 3 + [False] * 9 + [None] * 6, "", Verdict.MIXED),
    ([True] + [False] * 9, "", Verdict.NOT_REPRODUCED),
    ([True] + [False] * 8, "", Verdict.MIXED),
    ([False] * 17 + [None], "", Verdict.NOT_REPRODUCED),
    ([False, False], "", Verdict.NOT_REPRODUCED),
    ([False, None, None], "", Verdict.UNDECIDABLE),
    ([True] * 3 + [None] * 9, "", Verdict.UNDECIDABLE),
    ([False, None], "a third of the passes", Verdict.UNDECIDABLE),
    ([True, False], "a third of the passes", Verdict.MIXED),
])  # fmt: skip
def test_the_verdict_follows_from_the_shares_of_the_readings(held, short, verdict):
    assert verdict_of([reading(one) for one in held], short) == verdict


@pytest.mark.parametrize(("own", "others", "verdict"), [
    (True, [True] * 4 + [False], Verdict.MOSTLY),
    (False, [True] * 9, Verdict.MIXED),
    (None, [True] * 9, Verdict.UNDECIDABLE),
    (None, [True] * 5 + [False] * 4, Verdict.MIXED),
    (None, [False] * 9, Verdict.UNDECIDABLE),
    (True, [False] * 9, Verdict.MIXED),
    (False, [False] * 8 + [True], Verdict.NOT_REPRODUCED),
    (True, [True] * 9, Verdict.REPRODUCED),
])  # fmt: skip
def test_readings_nearest_to_the_paper_must_be_among_the_readings_that_hold(own, others, verdict):
    assert verdict_of([reading(own, own=True), *map(reading, others)]) == verdict


def test_a_claim_without_runs_is_not_measured():
    with pytest.raises(NotMeasuredError):
        verdict_of([])
    with pytest.raises(NotMeasuredError):
        Reading({}, []).held  # noqa: B018 (the property raises)


def test_a_reading_holds_if_all_parts_hold_and_names_failed_ones():
    parts = [Part(True, "fast"), Part(None, "accurate"), Part(False, "private")]
    assert Reading({}, parts).held is False
    assert Reading({}, parts[:2]).held is None
    assert Reading({}, parts[:1]).held is True
    assert Reading({}, parts).evidence == "fast; accurate (not decided); private (does not hold)"
    assert Reading({}, parts[2:]).evidence == "private"


GRID = [reading(sigma == "5" and g != "4", σ=sigma, G=g, data=data)
        for sigma in ("5", "14") for g in ("4", "true", "none") for data in ("USPS", "MNIST")]  # fmt: skip


def test_readings_of_equal_choices_are_one_with_the_parts_of_all():
    yes, no = exactly(True, "yes"), exactly(False, "no")
    one, other = Reading({"a": "1"}, [yes], own=True), Reading({"a": "2"}, [yes, no])
    readings = gathered([one, other, Reading({"a": "1"}, [no], own=True), Reading({"a": "3"}, [])])
    assert [(reading.choices["a"], reading.own, reading.held) for reading in readings] == [
        ("1", True, False),
        ("2", False, False),
    ]
    assert [len(reading.parts) for reading in readings] == [2, 2], "and those without parts are none"


def test_common_choices_of_the_readings_that_hold_are_named():
    assert under(GRID) == "σ = 5 and G = true or none"
    assert under([reading(True, σ="5"), reading(False, σ="14")]) == "σ = 5"
    assert under([reading(True, σ="5", G="4"), reading(True, σ="14", G="9"), reading(False, σ="5", G="9"),
                  reading(False, σ="14", G="4")]) == "2 of 4 readings"  # fmt: skip
    # If all readings but one corner hold, the corner is named.
    corner = [reading(not (sigma == "5" and g == "4"), σ=sigma, G=g) for sigma in ("5", "14") for g in ("4", "9")]
    assert under(corner) == "all readings but σ = 5 and G = 4"
    late = Reading({"σ": "5"}, [Part(True, "")], afterwards=True)
    assert under([late, reading(False, σ="14")]) == "σ = 5 (chosen after the result was seen)"
    assert under([late, reading(True, σ="9"), reading(False, σ="14")]) == "σ = 5 or 9"


def test_the_deciding_choice_is_counted_over_pairs_that_differ_only_in_it():
    assert decides(GRID) == (
        "What decides, in pairs of readings that differ in it alone: σ (4 of 6), G (4 of 12); not data"
    )
    assert decides([reading(True, σ="5"), reading(True, σ="14")]) == ""
    assert decides([reading(True, σ="5", G="4"), reading(False, σ="14", G="9")]) == ""


def judged(readings, **others):
    return Judged("It works.", verdict_of(readings), readings, **others)


def test_a_verdict_is_written_in_words():
    assert judged(GRID).words == "mixed: 4 yes, 8 no, 0 undecided"
    assert judged([reading(False, σ="5"), reading(False, σ="9")]).words == "not reproduced: 0 yes, 2 no, 0 undecided"
    assert judged([reading(False)]).words == "not reproduced"
    assert judged([reading(True)], instead="digits instead of CIFAR-10").words == (
        "reproduced (digits instead of CIFAR-10)"
    )
    assert judged([reading(True)], form="quick form").words == "reproduced, quick form"
    assert judged([reading(None)], form="quick form").words == "not decidable here, quick form"
    assert judged([reading(None)], why="more seeds").evidence == "Measured. It would take: more seeds"
    assert Judged("It is long.", Verdict.NOT_RUN, why="run", form="quick form").words == "not run in this form"
    assert Judged("It is pretty.", Verdict.UNDECIDABLE, why="a picture").evidence == "a picture"


def test_the_evidence_names_readings_that_hold_or_fail_and_the_deciding_choice():
    claim = judged([reading(True, σ="5"), reading(False, σ="14"), reading(False, σ="30"), reading(None, σ="40")])
    assert claim.evidence == (
        "It holds under σ = 5. Holds under σ = 5: measured. Does not hold under σ = 14 and 1 more: measured. Is not "
        "decided under σ = 40: measured. What decides, in pairs of readings that differ in it alone: σ (2 of 3)"
    )
    seen = Reading({"step": "min(1/μ, 1/λt)"}, [Part(True, "close")], afterwards=True)
    assert seen.label == "step: min(1/μ, 1/λt) (chosen after the result was seen)"
    assert reading(True, own=True, σ="5").label == "σ = 5 (nearest to the paper)"


@pytest.mark.parametrize(("values", "digits", "text"), [
    ((1.0,), 2, "1.00"),
    ((1.0, 1.0), 2, "1.00"),
    ((-0.001,), 2, "0.00"),
    # Two runs have no useful interval.
    ((1.0, 3.0), 1, "1.0 and 3.0"),
    # half of the interval: t(2, 0.975) s / √3 = 4.303 / √3
    ((1.0, 2.0, 3.0), 1, "2.0 ± 2.5"),
    ((1.0, math.nan), 2, "diverged (median; 1 of 2 diverged)"),
    ((1.0, 2.0, math.nan), 2, "1.00 (median; 1 of 3 diverged)"),
    ((math.nan,), 2, "diverged"),
    ((200.0, 400.0, math.inf), 0, "400 (median; 1 of 3 never)"),
    ((math.inf, math.inf, math.inf), 0, "never"),
    ((), 2, "-"),
])  # fmt: skip
def test_measured_values_are_written_in_words(values, digits, text):
    assert show(values, digits) == text


def test_ratios_judged_by_logarithms_are_geometric_means():
    assert show_ratio([math.log(2.0), math.log(8.0)] * 3) == "4.00 (1.80 to 8.87)"
    assert show_ratio([math.log(1234.5)] * 5, 1) == "1,234.5"
    assert show_ratio([0.0, math.inf]) == show_ratio([]) == ""


def test_ratios_of_costs_know_runs_that_never_arrive():
    assert log_ratio(1.0, math.e) == pytest.approx(-1.0)
    assert log_ratio(math.inf, 2.0) == math.inf
    assert log_ratio(2.0, math.inf) == -math.inf
    assert math.isnan(log_ratio(math.inf, math.inf))
    assert below([log_ratio(math.inf, math.inf)] * 5, math.log(0.5), "never against never").held is None
