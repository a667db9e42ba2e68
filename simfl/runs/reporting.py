"""Progress reports, and signals that end a run."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping

from simfl import signals
from simfl.records import Progress
from simfl.runs.context import Context
from simfl.runs.endings import NEVER
from simfl.runs.evaluations import Schedule
from simfl.runs.recorder import Recorder
from simfl.world.engine import Clock

#: A second signal within this many host seconds counts as the first: a bouncing key, or a signal to the process group.
SAME_SIGNAL_S = 1.0
#: Host seconds between two reports of progress, except those of evaluations.
REPORT_S = 0.1


class Reporter:
    """Flushes rows, and calls `progress` a few times a second; None for no reports."""

    def __init__(self, context: Context, recorder: Recorder, progress: Callable[[Progress], None] | None) -> None:
        self.closing = False
        self._context = context
        self._recorder = recorder
        self._progress = progress
        self._schedule: Schedule | None = None
        self._accuracy: float | None = None
        self._reported_s = 0.0

    def begin(self, schedule: Schedule) -> None:
        """Report after each flush of the tape from now on."""
        self._schedule = schedule
        self._context.session.on_flush = self.report

    def evaluated(self, row: Mapping[str, float]) -> None:
        """Report an evaluation, a row of `metrics` by column."""
        accuracy = row["test_accuracy"]
        if accuracy == accuracy:
            self._accuracy = accuracy
        self.report(is_evaluation=True)

    def report(self, is_evaluation: bool = False) -> None:
        """Flush rows if it is time, and report how far the run is."""
        wall_s = max(self._context.wall_s, 1e-9)
        if not self.closing:
            self._recorder.flush(wall_s)
        if self._progress is None or self._schedule is None:
            return
        now = time.perf_counter()
        if not is_evaluation and now - self._reported_s < REPORT_S:
            return
        self._reported_s = now
        clock, algorithm, stop = self._context.world.clock, self._context.algorithm, self._context.setup.scenario.stop
        last_update = self._schedule.last_update
        fraction = algorithm.updates / last_update if last_update < NEVER else 0.0
        if stop.time is not None:
            fraction = max(fraction, clock.now / stop.time)
        self._progress(
            Progress(
                time_s=clock.now,
                updates=algorithm.updates,
                epochs=algorithm.marks.epochs(algorithm.updates),
                accuracy=self._accuracy,
                fraction=min(1.0, fraction),
                wall_s=wall_s,
                updates_per_s=algorithm.updates / wall_s,
                compiled=self._context.executor.compiled,
            )
        )


class Interruption:
    """Ends a run before its next event at Ctrl-C or SIGTERM, at once at the second.

    Once `closing` is set, tables are being written, and signals have no effect.
    """

    def __init__(self, clock: Clock) -> None:
        self.closing = False
        self._clock = clock
        self._signal: int = signal.SIGINT
        self._first_s = 0.0

    @property
    def reason(self) -> str:
        """The signal, in words."""
        return signals.describe(self._signal)

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals inside the block."""
        with signals.handled(self._handle):
            try:
                yield
            finally:
                self._clock.relent()

    def _handle(self, number: int) -> None:
        if not self._clock.interrupted:
            self._signal, self._first_s = number, time.monotonic()
            self._clock.interrupt()
            if self.closing:
                self._clock.relent()
        elif not self.closing and time.monotonic() - self._first_s >= SAME_SIGNAL_S:
            raise KeyboardInterrupt
