"""Values that change over time; each holds until the next."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass


class Changing(ABC):
    """A value that depends on the time, and may be drawn for each message."""

    @abstractmethod
    def at(self, time: float, source: int = 0) -> float | None:
        """Return the value at a time, drawn for a message of `source` if it is random.

        None for no value.
        """

    def next_change(self, time: float) -> float:
        """Return a time until which the value stays the same; inf for always."""
        return math.inf

    def mean(self, time: float) -> float | None:
        """Return the mean over draws of the value at a time, without drawing."""
        return self.at(time)

    def ever(self, until: float) -> set[float | None]:
        """Return all values before a time, perhaps more; of random values, the mean.

        None stands for times without a value.
        """
        return {self.mean(0.0)}

    def settled(self, source: int) -> float | Changing:
        """Return the value for one message, drawn now if it is drawn per message."""
        return self


def repetition(time: float, every_s: float | None) -> float:
    """Return when the current period of `every_s` seconds began; 0 if nothing repeats."""
    return 0.0 if every_s is None or math.isinf(every_s) else math.floor(time / every_s) * every_s


@dataclass(frozen=True)
class Steps(Changing):
    """A trace of values, repeated every `every_s`; None before its first time."""

    times: tuple[float, ...]
    values: tuple[float, ...]
    every_s: float | None = None

    def _place(self, time: float) -> tuple[float, int]:
        """Return when the current repetition began, and its steps until `time`."""
        begun = repetition(time, self.every_s)
        return begun, bisect_right(self.times, time - begun)

    def at(self, time: float, source: int = 0) -> float | None:
        """Return the value at a time; None before the first."""
        begun, place = self._place(time)
        if place == 0:  # the last value continues until the first time of the next repetition
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

    def ever(self, until: float) -> set[float | None]:
        """Return the values that begin before a time; None if the first begins after 0."""
        values = {value for time, value in zip(self.times, self.values, strict=True) if time < until}
        return {*values, *([None] if self.times[0] > 0.0 else [])}
