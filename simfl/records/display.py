"""Number formats, the same on the terminal, in figures and on pages.

Every `show_*` writes a mean, followed by half of its interval if that is given: `88.44 ± 0.21 %`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from simfl.scenario.control import METRICS, OF_KNOWN_OPTIMA, OF_REGRESSIONS

NOTHING = "–"
"""Stands for a value that does not exist."""

_ROUNDING = 1e-9  # relative to the mean; a smaller half interval is rounding


Y_AXES = {
    "time_s": "virtual time",
    "updates": "updates",
    "epochs": "epochs",
    "rounds": "rounds",
    "train_loss": "training loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "validation_loss": "validation loss",
    "validation_accuracy": "validation accuracy",
    "consensus_distance": "consensus distance",
    "bytes_sent": "data sent by all clients",
    "messages": "messages",
    "epsilon": "largest ε over clients",
    "wall_s": "wall time",
    "gradient_norm": "norm of the mean gradient, as clipped",
    "clipped_share": "share of gradients that are clipped",
    "clipping_norm": "clipping norm",
    "macro_f1": "macro F1",
    "balanced_accuracy": "balanced accuracy",
    "auc": "area under the ROC curve",
    "worst_decile": "accuracy on own data, worst tenth of clients",
    "worst_decile_models": "accuracy of own models, worst tenth of clients",
    "own_classes": "accuracy on own classes",
    "own_classes_models": "accuracy of own models on own classes",
    "energy_j": "energy",
    "money": "money",
    "carbon_g": "CO2 equivalent",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
    "r2": "R²",
}
"""Column of metrics -> label."""


def measure_label(y: str) -> str:
    """Return the label of a column of metrics; a user's metrics keep their names."""
    return Y_AXES.get(y, y.replace("_", " "))


@dataclass(frozen=True)
class Scale:
    """Display of a quantity: values are divided by `divisor` and shown in `unit`."""

    divisor: float
    unit: str


def scale_time(largest_s: float) -> Scale:
    """Choose the most readable unit for times up to `largest_s` seconds."""
    for limit_s, divisor, unit in (
        (1e-3, 1e-6, "µs"),
        (1.0, 1e-3, "ms"),
        (600.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
    ):
        if largest_s < limit_s:
            return Scale(divisor, unit)
    return Scale(86400.0, "d")


def scale_bytes(largest: float) -> Scale:
    """Choose the decimal (SI) unit for values up to `largest` bytes."""
    power = 0 if not largest > 0 else min(max(math.floor(math.log10(largest) / 3), 0), 5)
    return Scale(1000.0**power, ("B", "kB", "MB", "GB", "TB", "PB")[power])


SI_UNITS = {"energy_j": "J", "carbon_g": "g"}
"""Columns of metrics that are shown with a unit and its prefix."""


def scale_si(column: str, largest: float) -> Scale:
    """Choose the prefix of a column's unit for values up to `largest`."""
    scale = scale_bytes(largest)
    return Scale(scale.divisor, scale.unit[:-1] + SI_UNITS[column])


def show_time(seconds: float | None, half: float = math.nan) -> str:
    """Write a duration with four digits in the most readable unit."""
    return NOTHING if seconds is None else _scaled(seconds, half, scale_time(abs(seconds) or 1.0))


def show_bytes(count: float, half: float = math.nan) -> str:
    """Write a number of bytes with an SI unit."""
    return _scaled(count, half, scale_bytes(count))


def _scaled(mean: float, half: float, scale: Scale) -> str:
    if not math.isfinite(mean):
        return NOTHING
    return f"{show_number(mean / scale.divisor, half / scale.divisor)} {scale.unit}"


def show_share(value: float | None, half: float = math.nan) -> str:
    """Write an accuracy in percent."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:.2%}" if math.isnan(half) else f"{100 * value:.2f} ± {100 * half:.2f} %"


def show_points(difference: float, half: float = math.nan) -> str:
    """Write a difference of accuracies in percentage points."""
    return NOTHING if math.isnan(difference) else f"{show_fixed(100 * difference, 100 * half, sign=True)} points"


def show_count(value: float, half: float = math.nan) -> str:
    """Write a whole number with thousands separators."""
    return f"{value:,.0f}" + ("" if math.isnan(half) else f" ± {half:,.0f}") if math.isfinite(value) else NOTHING


def show_measure(name: str, value: float, half: float = math.nan) -> str:
    """Write an additional measure as a share or a number."""
    if name in SI_UNITS:
        return _scaled(value, half, scale_si(name, value))
    is_share = name in METRICS and name not in (*OF_REGRESSIONS, *OF_KNOWN_OPTIMA)
    return show_share(value, half) if is_share else show_number(value, half)


def show_number(value: float, half: float = math.nan) -> str:
    """Write a real number with four digits."""
    if not math.isfinite(value):
        return NOTHING if math.isnan(value) else "∞" if value > 0 else "-∞"
    return f"{value:.4g}" + ("" if math.isnan(half) else f" ± {show_half(half, value)}")


def show_fixed(value: float, half: float = math.nan, digits: int = 2, sign: bool = False) -> str:
    """Write a real number with `digits` decimals, without a minus sign before a zero."""
    shown = f"{value:{'+' if sign else ''}.{digits}f}"
    if shown.startswith("-") and float(shown) == 0.0:
        shown = "+" * sign + shown[1:]
    return shown + ("" if math.isnan(half) else f" ± {half:.{digits}f}")


def show_half(half: float, mean: float) -> str:
    """Write half an interval with two digits, no exponent; 0 if it is rounding."""
    return "0" if half <= _ROUNDING * abs(mean) else f"{float(f'{half:.2g}'):,.10g}"


def show_factor(factor: float, low: float = math.nan, high: float = math.nan) -> str:
    """Write a ratio with the bounds of its asymmetric interval."""
    if math.isnan(factor):
        return NOTHING
    return f"{factor:.3g} x" + ("" if math.isnan(low) or low == high else f" ({low:.3g} to {high:.3g})")


def show_range(low: float, high: float, show: Callable[[float], str] = show_number) -> str:
    """Write the smallest and the largest value, or one if both read the same."""
    ends = show(low), show(high)
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def show_about(seconds: float) -> str:
    """Write an estimated time with two digits."""
    return show_time(float(f"{seconds:.2g}"))


def show_ending(status: str, reason: str) -> str:
    """Write how and why a run ended; the reason alone if it says both."""
    return reason if reason.startswith(status) else f"{status}: {reason}" if reason else status


def show_clock(seconds: float) -> str:
    """Write a remaining time as minutes and seconds, with hours if needed."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
