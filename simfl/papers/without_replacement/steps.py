"""Step sizes of a task: one over the root of its updates, and a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simfl.scenario.schedules import Schedule


@dataclass(frozen=True, slots=True)
class RootOfCount(Schedule):
    """eta_t = initial / sqrt(t), t counting updates from 1."""

    initial: float

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return self.initial / math.sqrt(updates + 1)


@dataclass(frozen=True, slots=True)
class Capped(Schedule):
    """eta_t = min(then_t, largest)."""

    largest: float
    then: Schedule

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return min(self.largest, self.then(updates, examples, epochs))

    def simplified(self) -> float | Schedule:
        """Return the smaller value if both are constant."""
        then = self.then.simplified()
        return min(self.largest, then) if isinstance(then, float) else self
