"""Progress reports of a run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simfl.records.display import show_clock, show_time

RECENT_S = 3.0
"""Host seconds over which speed is measured."""


@dataclass(frozen=True)
class Progress:
    """One progress report.

    Args:
        time_s: virtual time.
        updates: updates of all clients together so far.
        epochs: passes over the whole training set so far.
        accuracy: test accuracy at the last evaluation, None before the first and where it is undefined.
        fraction: how far the run is towards the stop rule that it will meet first, 0 to 1.
        wall_s: host seconds since the run began.
        updates_per_s: updates per host second.
        compiled: whether the programs are compiled; the host time before says nothing about the time left.
    """

    time_s: float
    updates: int
    epochs: float
    accuracy: float | None
    fraction: float
    wall_s: float
    updates_per_s: float
    compiled: bool = True

    def pace(self, earlier: Progress) -> tuple[float, float | None] | None:
        """Return updates per host second since a report, and the host seconds left.

        None where no time has passed; the second is None where the run came no further.
        """
        wall_s, way = self.wall_s - earlier.wall_s, self.fraction - earlier.fraction
        if wall_s <= 0:
            return None
        return (self.updates - earlier.updates) / wall_s, (1.0 - self.fraction) * wall_s / way if way > 0 else None


class Recent:
    """The reports of the last seconds, for the speed without compilation."""

    def __init__(self) -> None:
        self._reports: deque[Progress] = deque()

    def since(self, report: Progress) -> Progress | None:
        """Add a report; return the one to measure speed from, or None."""
        if report.compiled:
            self._reports.append(report)
        while len(self._reports) > 2 and report.wall_s - self._reports[1].wall_s >= RECENT_S:
            self._reports.popleft()
        return self._reports[0] if self._reports else None


def describe(report: Progress, earlier: Progress | None = None, room: int = 1000) -> str:
    """Return the text beside the progress bar.

    Where there is less room, what tells least is left out; the time left stays.
    """
    parts = {"time": f"t = {show_time(report.time_s)}", "updates": f"{report.updates:,} updates"}
    if report.accuracy is not None:
        parts["accuracy"] = f"acc. {report.accuracy:.1%}"
    if earlier is not None and (pace := report.pace(earlier)) is not None:
        updates_per_s, remaining_s = pace
        parts["speed"] = f"{updates_per_s:,.0f}/s"
        if remaining_s is not None:
            parts["left"] = f"ETA {show_clock(remaining_s)}"
    for least in ("speed", "updates", "time", "accuracy"):
        if len("  ".join(parts.values())) <= room:
            break
        parts.pop(least, None)
    return "  ".join(parts.values())
