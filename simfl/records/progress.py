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

    def pace(self, earlier: Progress) -> tuple[float, float | None] | None:
        """Return updates per host second since an earlier report, and the host seconds still to go at that pace.

        None where no time has passed; the second is None where the run came no further.
        """
        wall_s, way = self.wall_s - earlier.wall_s, self.fraction - earlier.fraction
        if wall_s <= 0:
            return None
        return (self.updates - earlier.updates) / wall_s, (1.0 - self.fraction) * wall_s / way if way > 0 else None
