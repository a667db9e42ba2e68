"""Progress reports of a run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simfl.records.display import show_clock, show_time

RECENT_S = 3.0
"""Host seconds over which speed is measured."""


@dataclass(frozen=True)
class Progress:
    """One report of a run in progress.

    `accuracy` is the test accuracy at the last evaluation; None before the first, and if undefined. `fraction` is the
    progress towards the stop rule that will be met first, 0 to 1. `epochs` are passes over the whole training set,
    `wall_s` host seconds since the start. Before the programs are `compiled`, host times do not predict the time left.
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
        """Return updates per host second since `earlier`, and remaining seconds.

        None if no time has passed; the remaining time is None without progress.
        """
        wall_s, way = self.wall_s - earlier.wall_s, self.fraction - earlier.fraction
        if wall_s <= 0:
            return None
        return (self.updates - earlier.updates) / wall_s, (1.0 - self.fraction) * wall_s / way if way > 0 else None


class Recent:
    """The reports of the last seconds after compilation, for measuring speed."""

    def __init__(self) -> None:
        self._reports: deque[Progress] = deque()

    def since(self, report: Progress) -> Progress | None:
        """Add a report; return the one to measure its speed from, if any."""
        if report.compiled:
            self._reports.append(report)
        while len(self._reports) > 2 and report.wall_s - self._reports[1].wall_s >= RECENT_S:
            self._reports.popleft()
        return self._reports[0] if self._reports else None


def describe(report: Progress, earlier: Progress | None = None, room: int = 1000) -> str:
    """Return the line beside the bar: time, updates, accuracy, speed, time left.

    Speed is measured since an earlier report. If `room` characters are too few, the least important parts are left out;
    the time left always stays.
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
