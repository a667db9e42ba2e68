"""Times, bandwidths and sizes are read exactly; written values are read back as the same float."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simfl.scenario.units import format_bandwidth, format_time, parse_bandwidth, parse_bytes, parse_time

finite = st.floats(min_value=0, allow_infinity=False, allow_nan=False, max_value=1e300)


@pytest.mark.parametrize(("text", "seconds"), [
    ("10 ms", 0.01), ("10ms", 0.01), ("100 us", 1e-4), ("100 µs", 1e-4), ("100 μs", 1e-4), ("3 ns", 3e-9),
    ("1.5 s", 1.5), ("2 min", 120.0), ("2 h", 7200.0), ("1 d", 86400.0), ("1e3 ms", 1.0), (".5 hours", 1800.0),
    ("7 seconds", 7.0), ("  7  ", 7.0), (7, 7.0), (0.25, 0.25),
])  # fmt: skip
def test_times_are_parsed(text: object, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(("text", "bytes_per_s"), [
    ("100 Mbit/s", 1.25e7), ("100 Mbps", 1.25e7), ("1 GB/s", 1e9), ("1 GiB/s", 2.0**30), ("8 bit/s", 1.0),
    ("3 kB/s", 3000.0), ("3 KB/s", 3000.0),
])  # fmt: skip
def test_bandwidths_are_parsed(text: str, bytes_per_s: float) -> None:
    assert parse_bandwidth(text) == bytes_per_s


@pytest.mark.parametrize(
    ("text", "size"), [("10 kB", 10_000), ("4 GiB", 2**32), ("7 B", 7), (12, 12), ("1.5 kB", 1500)]
)
def test_sizes_are_parsed(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("seconds", "text"), [
    (0.001, "1 ms"), (0.0001, "100 us"), (0.0, "0 s"), (3600.0, "1 h"), (90.0, "90 s"), (120.0, "2 min"),
    (172800.0, "2 d"), (0.5, "500 ms"), (1e-12, "0.001 ns"), (1 / 3, "333.3333333333333 ms"),
])  # fmt: skip
def test_times_are_written_with_a_suitable_unit(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


def test_bandwidths_are_written_readably() -> None:
    assert format_bandwidth(1.25e8) == "1 Gbit/s"
    assert format_bandwidth(12.5e6) == "100 Mbit/s"
    assert format_bandwidth(0.5) == "4 bit/s"


@given(finite)
@example(5e-324)
@example(0.1 + 0.2)
@example(86400.0 * 3)
@example(1e22)
def test_written_times_are_read_back_exactly(seconds: float) -> None:
    assert parse_time(format_time(seconds)) == seconds


@given(finite)
@example(5e-324)
@example(1e15 / 3)
def test_written_bandwidths_are_read_back_exactly(bytes_per_s: float) -> None:
    assert parse_bandwidth(format_bandwidth(bytes_per_s)) == bytes_per_s


@given(st.integers(0, 10**6), st.sampled_from([("ns", 10**9), ("us", 10**6), ("ms", 1000), ("s", 1)]))
def test_a_unit_scales_without_rounding(number: int, unit: tuple[str, int]) -> None:
    assert parse_time(f"{number} {unit[0]}") == number / unit[1]


@pytest.mark.parametrize(("parse", "value", "message"), [
    (parse_time, "3 parsecs",
     "expected a time like '10 ms', found '3 parsecs'; use one of the units ns, us, ms, s, min, h, d"),
    (parse_time, "3 MS", "expected a time like '10 ms', found '3 MS'; did you mean 'ms'?"),
    (parse_time, "ms",
     "expected a time like '10 ms', found 'ms'; write a number and one of the units ns, us, ms, s, min, h, d"),
    (parse_time, True,
     "expected a time like '10 ms', found true; write a number and one of the units ns, us, ms, s, min, h, d"),
    (parse_time, math.inf, "expected a finite time, found inf; leave the key out for no limit"),
    (parse_time, math.nan, "expected a finite time, found nan; leave the key out for no limit"),
    (parse_bandwidth, "100 mbit/s",
     "expected a bandwidth like '100 Mbit/s', found '100 mbit/s'; did you mean 'Mbit/s'?"),
    (parse_bandwidth, "100",
     "expected a bandwidth like '100 Mbit/s', found '100'; write a number and a unit such as Mbit/s or MB/s"),
    (parse_bytes, "0.5 B", "expected a whole number of bytes, found '0.5 B'; choose a smaller unit"),
    (parse_bytes, "3 kb", "expected a size like '10 kB', found '3 kb'; did you mean 'kB'?"),
])  # fmt: skip
def test_invalid_quantities_have_exact_messages(parse: object, value: object, message: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError, match=r"^expected") as caught:
        parse(value)
    assert str(caught.value) == message


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_time, parse_bandwidth, parse_bytes):
        message = "expected "
        try:
            parse(text)
        except ValueError as error:
            message = str(error)
        assert message.startswith("expected ")
