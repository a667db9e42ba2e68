"""Where and how often checkpoints are written.

`checkpoint` imports JAX; what only reads a time does not need it.
"""

from __future__ import annotations

import threading

from simfl.errors import ScenarioError
from simfl.scenario.problems import InvalidValueError
from simfl.scenario.units import parse_time

FILE = "checkpoint.npz"


def parse_interval(value: str | float | None) -> float | None:
    """Return seconds of host time between checkpoints; None for no checkpoints.

    `value` is a time such as "5 min", a number of seconds, "never" or None; anything else is a `ScenarioError`.
    """
    if value is None or value == "never":
        return None
    try:
        seconds = parse_time(value)
    except InvalidValueError as error:
        raise ScenarioError(f"--checkpoint-every: {error}") from None
    if not 0.0 < seconds < threading.TIMEOUT_MAX:
        raise ScenarioError(f"--checkpoint-every: expected a time above 0, such as 5 min, or never, found {value!r}")
    return seconds
