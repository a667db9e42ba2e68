"""What a run says about itself while it is under way."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report of a run under way.

    Args:
        time_s: virtual time.
        updates: updates of all clients together so far.
        epochs: passes over the whole training set so far.
        accuracy: test accuracy at the last evaluation, None before the first and where it is undefined.
        fraction: how far the run is towards the stop rule that it will meet first, 0 to 1.
        wall_s: host seconds since the run began.
        updates_per_s: updates per host second.
    """

    time_s: float
    updates: int
    epochs: float
    accuracy: float | None
    fraction: float
    wall_s: float
    updates_per_s: float

    @property
    def remaining_s(self) -> float | None:
        """Host seconds still to go if the run keeps its pace; None before there is one."""
        return self.wall_s * (1.0 - self.fraction) / self.fraction if self.fraction > 0 else None
