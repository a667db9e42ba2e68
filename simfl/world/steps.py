"""Values that are measured: each holds from its time on until the next."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    """A trace: a value from each time on, until the next; repeated every `every_s`. Before the first time: none."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    every_s: float | None = None

    def _place(self, time: float) -> tuple[float, int]:
        """Return when the repetition of a time began, and the number of steps in it until then."""
        begun = 0.0 if self.every_s is None else math.floor(time / self.every_s) * self.every_s
        return begun, bisect_right(self.times, time - begun)

    def at(self, time: float) -> float | None:
        """Return the value at a time; None before the first."""
        begun, place = self._place(time)
        if place == 0:  # what was measured last goes on until the first measurement of the next time around
            return self.values[-1] if begun > 0.0 else None
        return self.values[place - 1]

    def next_change(self, time: float) -> float:
        """Return when the next step begins."""
        begun, place = self._place(time)
        if place < len(self.times):
            change = begun + self.times[place]
        else:
            change = math.inf if self.every_s is None else begun + self.every_s
        return change if change > time else math.nextafter(time, math.inf)
