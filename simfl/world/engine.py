"""The world's clock: SimPy, with cheap calls at a given time.

Events at one time run in the order in which they were scheduled. An exception inside a process or
a call is carried out with the virtual time at which it happened.
"""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable, Generator
from typing import Any

import simpy

from simfl.compiled import Integer, Number
from simfl.errors import RunError, SimflError

#: A SimPy process of a client: a generator that yields events.
Process = Generator[simpy.Event, Any, None]


#: Events at one moment, beyond which time is taken to stand still: more than the messages of any world that fits into
#: memory at one moment, and a few seconds.
MOST_AT_ONCE = 2**22
#: How long an event may take that is under way when the run is to end, in seconds of wall time.
PATIENCE_S = 20.0


class Clock:
    """Virtual time: starts processes, calls things at a time, runs until it is stopped."""

    def __init__(self) -> None:
        self.env = simpy.Environment()
        self._stop = self.env.event()
        self._failure: BaseException | None = None
        self._moment = math.nan  # when progress was checked last
        self.events = 0  # that have happened so far
        self.interrupted = False  # the run ends before the next event
        self.paused = False  # set by anybody; `run` returns before the next event, and may be called again
        self._insisting: threading.Timer | None = None

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.env._now  # type: ignore[no-any-return] # its property would be a second call, often in an event

    @property
    def pending(self) -> int:
        """Events that are still to happen, the end itself aside."""
        return len(self.env._queue) - (self._stop.triggered and not self._stop.processed)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.triggered  # type: ignore[no-any-return]

    def start(self, process: Process, client: Integer | None = None) -> None:
        """Start a process. What it raises ends the run."""
        self.env.process(self._guarded(process, client))

    def _guarded(self, process: Process, client: Integer | None) -> Process:
        # SimPy re-creates the exceptions of a process by type(e)(*e.args), which loses causes and
        # breaks on exceptions with other signatures: keep the original and stop the clock instead.
        try:
            yield from process
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error, client)

    def _fail(self, error: BaseException, client: Integer | None) -> None:
        if isinstance(error, SimflError) or not isinstance(error, Exception):
            self._failure = error
        else:
            who = "" if client is None else f"client {client}, "
            self._failure = RunError(f"{who}virtual time {self.now:.6g} s: {type(error).__name__}: {error}")
            self._failure.__cause__ = error
        self.stop()

    def timeout(self, seconds: Number, value: Any = None) -> simpy.Event:
        """An event that happens `seconds` from now and hands `value` to whoever waits for it."""
        return self.env.timeout(seconds, value)

    def event(self) -> simpy.Event:
        """An event that happens when its `succeed()` is called."""
        return self.env.event()

    def call_at(self, time: Number, call: Callable[[], None]) -> None:
        """Call something at a virtual time (now, if that has passed by rounding)."""

        def run(_: simpy.Event) -> None:
            try:
                call()
            except BaseException as error:
                self._fail(error, None)

        wait_s = time - self.env._now
        self.env.timeout(wait_s if wait_s > 0.0 else 0.0).callbacks.append(run)

    def stop(self) -> None:
        """End the run: nothing that is scheduled after now happens."""
        if not self._stop.triggered:
            self._stop.succeed()

    def interrupt(self, patience_s: float = PATIENCE_S) -> None:
        """End the run before its next event, for a signal handler; an event that does not end is broken off.

        Args:
            patience_s: wall time after which the main thread gets another Ctrl-C if the event is still under way.
        """
        self.interrupted = True
        if self._insisting is None:
            self._insisting = threading.Timer(patience_s, _thread.interrupt_main)
            self._insisting.daemon = True
            self._insisting.start()

    def relent(self) -> None:
        """Break nothing off any more: there is no event under way."""
        if self._insisting is not None:
            self._insisting.cancel()

    def run(self, until: float | None = None, events: int | None = None) -> None:
        """Run until `stop`, until the time `until`, until nothing is left to happen, or until somebody pauses.

        After a pause it may be called again, without `until`.

        Args:
            until: virtual time in seconds.
            events: pause after so many events.

        Raises:
            RunError: time stands still, or is infinite: a duration is too small to be added to it, or too large.
        """
        if until is not None:
            self.call_at(until, self.stop)
        stop, step = self._stop, self.env.step
        last = math.inf if events is None else events
        look = min(MOST_AT_ONCE, last)
        self.paused |= not last
        events = 0
        try:
            while not (stop.triggered or self.interrupted or self.paused):
                step()
                events += 1
                if events == look:
                    if events == last:
                        self.paused = True
                    else:
                        self._check_progress()
                    look = min(look + MOST_AT_ONCE, last)
        except simpy.core.EmptySchedule:
            pass
        finally:
            self.events += events
            self.relent()
        if self._failure is not None:
            raise self._failure
        if math.isinf(self.now):
            raise RunError("virtual time: expected a finite time, found infinity: something takes too long; shorten it")

    def _check_progress(self) -> None:
        """Refuse to go on if so many events have happened at one moment."""
        if self.now == self._moment:
            raise RunError(
                f"virtual time {self.now:.6g} s: expected it to go on, found {MOST_AT_ONCE} events at one moment; "
                "something takes no time, or too little to be added to it: lengthen compute times, latencies or periods"
            )
        self._moment = self.now
