"""Formats of numbers on the terminal, in figures and on pages."""

import math

import pytest

from simfl.records.display import (
    NOTHING,
    scale_bytes,
    scale_time,
    show_about,
    show_bytes,
    show_clock,
    show_count,
    show_factor,
    show_fixed,
    show_half,
    show_number,
    show_points,
    show_range,
    show_share,
    show_time,
)


@pytest.mark.parametrize(
    ("seconds", "unit"), [(0.0, "µs"), (2e-4, "µs"), (0.5, "ms"), (30, "s"), (3600, "min"), (86400, "h"), (1e6, "d")]
)
def test_times_read_well(seconds, unit):
    assert scale_time(seconds).unit == unit


@pytest.mark.parametrize(
    ("number", "unit"), [(0, "B"), (999, "B"), (1000, "kB"), (5e6, "MB"), (1e15, "PB"), (1e20, "PB")]
)
def test_bytes_read_well(number, unit):
    assert scale_bytes(number).unit == unit


@pytest.mark.parametrize(
    ("half", "mean", "text"),
    [(170.0, 594.0, "170"), (1099.0, 398.0, "1,100"), (0.0069, 1.2, "0.0069"), (1e-12, 576.0, "0"), (31.4, 1, "31")],
)
def test_half_of_an_interval_is_written_without_powers_of_ten(half, mean, text):
    assert show_half(half, mean) == text


@pytest.mark.parametrize(("show", "alone", "with_half"), [
    (show_time, "90 s", "90 ± 3 s"),
    (show_bytes, "90 B", "90 ± 3 B"),
    (show_share, "9000.00%", "9000.00 ± 300.00 %"),
    (show_points, "+9000.00 points", "+9000.00 ± 300.00 points"),
    (show_count, "90", "90 ± 3"),
    (show_number, "90", "90 ± 3"),
])  # fmt: skip
def test_half_of_an_interval_follows_the_mean(show, alone, with_half):
    assert show(90.0, math.nan) == alone
    assert show(90.0, 3.0) == with_half
    assert show(math.nan) == NOTHING


def test_the_interval_has_the_unit_of_the_mean():
    assert show_time(3600.0, 30.0) == "60 ± 0.5 min"
    assert show_bytes(2.5e6, 1000.0) == "2.5 ± 0.001 MB"
    assert show_time(0.0) == "0 s"
    assert show_time(None) == show_share(None) == show_time(math.inf) == NOTHING


def test_other_numbers_read_well():
    assert [show_number(sign * math.inf) for sign in (1, -1)] == ["∞", "-∞"]
    assert show_fixed(1.005, 0.5, digits=1, sign=True) == "+1.0 ± 0.5"
    assert show_factor(2.0) == show_factor(2.0, 2.0, 2.0) == "2 x"
    assert show_factor(2.0, 1.5, 2.66) == "2 x (1.5 to 2.66)"
    assert show_factor(math.nan) == NOTHING
    assert show_range(1.00001, 1.00002) == "1"
    assert show_range(5, 1200, show_count) == "5 to 1,200"
    assert show_about(1234.0) == "20 min"
    assert [show_clock(seconds) for seconds in (59.6, 61, 3661)] == ["1:00", "1:01", "1:01:01"]
