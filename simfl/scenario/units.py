"""Quantities with units: times in s, bandwidths in bytes per s, sizes in bytes.

Numbers are scaled in decimal arithmetic. "100 us" is therefore the float nearest to 0.0001, and the text that
`format_time` and `format_bandwidth` write is read back as exactly the same float.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal

from simfl.scenario.problems import invalid, is_number, show, suggestion

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
    "": _TIMES["s"],
    "µs": _TIMES["us"],  # MICRO SIGN
    "μs": _TIMES["us"],  # GREEK SMALL LETTER MU
    **dict.fromkeys(("sec", "second", "seconds"), _TIMES["s"]),
    **dict.fromkeys(("minute", "minutes"), _TIMES["min"]),
    **dict.fromkeys(("hour", "hours"), _TIMES["h"]),
    **dict.fromkeys(("day", "days"), _TIMES["d"]),
}
_TIME_ADVICE = "one of the units ns, us, ms, s, min, h, d"
_PREFIXES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZES = {prefix + "B": Decimal(factor) for prefix, factor in (_PREFIXES | _BINARY).items()}
_BANDWIDTHS = {
    **{f"{prefix}bit/s": Decimal(factor) / 8 for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}bps": Decimal(factor) / 8 for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}/s": factor for prefix, factor in _SIZES.items()},
}


def _scaled(value: object, units: Mapping[str, Decimal], expected: str, advice: str, usual: Iterable[str]) -> Decimal:
    """Return a quantity in the base unit; `usual` are the units that advice names."""
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _LONGEST else None
    if match is None:
        raise invalid(expected, show(value), f"write a number and {advice}")
    number, unit = Decimal(match[1]), match[2]
    if unit not in units:
        names = list(usual)
        other_case = [name for name in names if unit and name.lower() == unit.lower()]
        otherwise = f"use {advice}" if units is _TIME_SPELLINGS else f"write a number and {advice}"
        raise invalid(expected, show(value), suggestion(other_case[0] if other_case else unit, names, otherwise))
    return _exact.multiply(number, units[unit])


def parse_time(value: object) -> float:
    """Return seconds: "10 ms" is 0.01; a plain number counts seconds.

    Raises:
        InvalidValueError: the value is not a time, or its unit is unknown.
    """
    if is_number(value):
        if abs(value) < math.inf and abs(value) < 10**300:
            return float(value)
        raise invalid("a finite time", show(value), "leave the key out for no limit")
    return float(_scaled(value, _TIME_SPELLINGS, "a time like '10 ms'", _TIME_ADVICE, _TIMES))


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

    A plain number is rejected: bits and bytes differ by a factor of eight, which is easily missed.

    Raises:
        InvalidValueError: the value is not a bandwidth, or its unit is missing or unknown.
    """
    expected, advice = "a bandwidth like '100 Mbit/s'", "a unit such as Mbit/s or MB/s"
    return float(_scaled(value, _BANDWIDTHS, expected, advice, _BANDWIDTHS))


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
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    advice = "one of the units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
    size = _scaled(value, _SIZES, "a size like '10 kB'", advice, _SIZES)
    if size != size.to_integral_value():
        raise invalid("a whole number of bytes", show(value), "choose a smaller unit")
    return int(size)


def _plain(number: Decimal) -> str:
    """Return the shortest digits, without an exponent where that stays readable."""
    short = number.normalize(_exact)
    return f"{short:f}" if -15 < short.adjusted() < 16 else str(short)
