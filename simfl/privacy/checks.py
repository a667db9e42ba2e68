"""Checks of arguments with one-line errors; all of them reject NaN.

They take one or more values by name: `positive(epsilon=epsilon, sigma=sigma)`. A violated condition of a theorem is a
`ConditionError` instead, which names the condition.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any


def positive(**values: float) -> None:
    """Reject anything but finite numbers > 0."""
    _check(values, "a finite number > 0", lambda value: 0.0 < value < math.inf)


def at_least(least: float, /, **values: float) -> None:
    """Reject anything but finite numbers >= `least`."""
    _check(values, f"a finite number >= {least:g}", lambda value: least <= value < math.inf)


def not_negative(**values: float) -> None:
    """Reject anything but numbers >= 0, which may be infinite."""
    _check(values, "a number >= 0", lambda value: value >= 0.0)


def open_unit(**values: float) -> None:
    """Reject anything but numbers in (0, 1)."""
    _check(values, "a number in (0, 1)", lambda value: 0.0 < value < 1.0)


def unit(**values: float) -> None:
    """Reject anything but numbers in [0, 1]."""
    _check(values, "a number in [0, 1]", lambda value: 0.0 <= value <= 1.0)


def whole(least: int, most: int | None = None, /, **values: int) -> None:
    """Reject anything but integers from `least` to `most`, both included."""
    expected = f"an integer >= {least}" if most is None else f"an integer from {least} to {most}"

    def holds(value: Any) -> bool:
        is_integer = isinstance(value, Integral) and not isinstance(value, bool)
        return is_integer and least <= value and (most is None or value <= most)

    _check(values, expected, holds)


def one_of(words: tuple[str, ...], /, **values: str) -> None:
    """Reject anything but one of `words`."""
    _check(values, f"{', '.join(words[:-1])} or {words[-1]}", lambda value: value in words)


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a number rounded up to `digits` digits, for messages that advise a value."""
    return _rounded(value, digits, decimal.ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Write a number rounded down to `digits` digits."""
    return _rounded(value, digits, decimal.ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{float(decimal.Context(digits, rounding).create_decimal_from_float(value)):.{digits}g}"


def _check(values: Mapping[str, Any], expected: str, holds: Callable[[Any], bool]) -> None:
    for name, value in values.items():
        if not holds(value):
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise ValueError(f"{name}: expected {expected}, found {shown}")
