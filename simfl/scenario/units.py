"""Quantities with units: times in s, bandwidths in bytes per s, sizes in bytes.

Numbers are scaled in decimal arithmetic, so that "100 us" is the float nearest to 0.0001, and what `format_time`
and `format_bandwidth` write is read back as exactly the same float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Context, Decimal

from simfl.scenario.problems import invalid, show, suggestion

_exact = Context(prec=60)
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*(\S*)")
_LONGEST = 60

_TIMES = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_TIME_SPELLINGS = {
    **_TIMES,
    "µs": _TIMES["us"],  # MICRO SIGN
    "μs": _TIMES["us"],  # GREEK SMALL LETTER MU
    **dict.fromkeys(("sec", "second", "seconds"), _TIMES["s"]),
    **dict.fromkeys(("minute", "minutes"), _TIMES["min"]),
    **dict.fromkeys(("hour", "hours"), _TIMES["h"]),
    **dict.fromkeys(("day", "days"), _TIMES["d"]),
}
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZES = {prefix + "B": Decimal(factor) for prefix, factor in (_PREFIXES | _BINARY).items()}
_BANDWIDTHS = {
    **{f"{prefix}bit/s": Decimal(factor) / 8 for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}bps": Decimal(factor) / 8 for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}/s": factor for prefix, factor in _SIZES.items()},
}


def _split(value: object, expected: str, advice: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _LONGEST else None
    if match is None:
        raise invalid(expected, show(value), advice)
    return Decimal(match[1]), match[2]


def _nearest_unit(unit: str, units: Iterable[str], otherwise: str) -> str:
    """Return the advice for an unknown unit: first the same letters in another case."""
    known = list(units)
    same = [other for other in known if unit and other.lower() == unit.lower()]
    return suggestion(same[0] if same else unit, known, otherwise)


def parse_time(value: object) -> float:
    """Return seconds: "10 ms" is 0.01; a plain number counts seconds.

    Raises:
        InvalidValueError: the value is not a time, or its unit is unknown.
    """
    expected = "a time like '10 ms'"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) < math.inf and abs(value) < 10**300:
            return float(value)
        raise invalid("a finite time", show(value), "leave the key out for no limit")
    number, unit = _split(value, expected, "write a number and one of the units ns, us, ms, s, min, h, d")
    if not unit:
        return float(number)
    if unit not in _TIME_SPELLINGS:
        otherwise = "use one of the units ns, us, ms, s, min, h, d"
        raise invalid(expected, show(value), _nearest_unit(unit, _TIMES, otherwise))
    return float(_exact.multiply(number, _TIME_SPELLINGS[unit]))


def format_time(seconds: float) -> str:
    """Return a time with a suitable unit; `parse_time` returns exactly `seconds`."""
    exact = Decimal(repr(float(seconds)))
    for unit in ("d", "h", "min"):
        if 0 < exact < 10**15 and _exact.remainder(exact, _TIMES[unit]) == 0:
            return f"{_plain(_exact.divide(exact, _TIMES[unit]))} {unit}"
    unit = next((unit for unit in ("s", "ms", "us") if abs(exact) >= _TIMES[unit]), "ns") if exact else "s"
    return f"{_plain(_exact.divide(exact, _TIMES[unit]))} {unit}"


def parse_bandwidth(value: object) -> float:
    """Return bytes per second: "100 Mbit/s" is 1.25e7; the unit is required.

    A plain number is refused: bits or bytes is a factor of eight that is easily missed.

    Raises:
        InvalidValueError: the value is not a bandwidth, or its unit is missing or unknown.
    """
    expected = "a bandwidth like '100 Mbit/s'"
    advice = "write a number and a unit such as Mbit/s or MB/s"
    number, unit = _split(value, expected, advice)
    if unit not in _BANDWIDTHS:
        raise invalid(expected, show(value), _nearest_unit(unit, _BANDWIDTHS, advice))
    return float(_exact.multiply(number, _BANDWIDTHS[unit]))


def format_bandwidth(bytes_per_s: float) -> str:
    """Return a bandwidth in bit/s; `parse_bandwidth` returns exactly the value."""
    bits = _exact.multiply(Decimal(repr(float(bytes_per_s))), Decimal(8))
    prefix = next((prefix for prefix in "TGMk" if bits >= _PREFIXES[prefix]), "")
    return f"{_plain(_exact.divide(bits, Decimal(_PREFIXES[prefix])))} {prefix}bit/s"


def parse_bytes(value: object) -> int:
    """Return a number of bytes: "10 kB" is 10,000, "4 GiB" is 2**32, 10 is 10.

    Raises:
        InvalidValueError: the value is not a size, its unit is unknown, or it is not a whole number of bytes.
    """
    expected = "a size like '10 kB'"
    advice = "write a number and one of the units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number, unit = _split(value, expected, advice)
    if unit not in _SIZES:
        raise invalid(expected, show(value), _nearest_unit(unit, _SIZES, advice))
    size = _exact.multiply(number, _SIZES[unit])
    if size != size.to_integral_value():
        raise invalid("a whole number of bytes", show(value), "choose a smaller unit")
    return int(size)


def format_bytes(size: float) -> str:
    """Return a size for reading, rounded to three digits: "12.3 MB"."""
    prefix = next((prefix for prefix in "TGMk" if abs(size) >= _PREFIXES[prefix]), "")
    return f"{size / _PREFIXES[prefix]:.3g} {prefix}B" if prefix else f"{size:g} B"


def _plain(number: Decimal) -> str:
    """Return the shortest digits, without an exponent where that stays readable."""
    short = number.normalize(_exact)
    return f"{short:f}" if -15 < short.adjusted() < 16 else str(short)
