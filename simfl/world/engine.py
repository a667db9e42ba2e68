"""The world's clock: SimPy, with cheap calls at a given time.

Events at one time run in the order in which they were scheduled. An exception inside a process or
a call is carried out with the virtual time at which it happened.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from simfl.errors import RunError, SimflError

#: A SimPy process of a client: a generator that yields events.
Process = Generator[simpy.Event, Any, None]


class Clock:
    """Virtual time: starts processes, calls things at a time, runs until it is stopped."""

    def __init__(self) -> None:
        self.env = simpy.Environment()
        self._stop = self.env.event()
        self._failure: BaseException | None = None
        self.events = 0  # that have happened so far
        self.interrupted = False  # set by a signal handler; the run ends before the next event

    @property
    def now(self) -> float:
        """Virtual time in seconds."""
        return self.env.now  # type: ignore[no-any-return]

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.triggered  # type: ignore[no-any-return]

    def start(self, process: Process, client: int | None = None) -> None:
        """Start a process. What it raises ends the run."""
        self.env.process(self._guarded(process, client))

    def _guarded(self, process: Process, client: int | None) -> Process:
        # SimPy re-creates the exceptions of a process by type(e)(*e.args), which loses causes and
        # breaks on exceptions with other signatures: keep the original and stop the clock instead.
        try:
            yield from process
        except GeneratorExit:
            raise
        except BaseException as error:
            self._fail(error, client)

    def _fail(self, error: BaseException, client: int | None) -> None:
        if isinstance(error, SimflError) or not isinstance(error, Exception):
            self._failure = error
        else:
            who = "" if client is None else f"client {client}, "
            self._failure = RunError(f"{who}virtual time {self.now:.6g} s: {type(error).__name__}: {error}")
            self._failure.__cause__ = error
        self.stop()

    def timeout(self, seconds: float, value: Any = None) -> simpy.Event:
        """An event that happens `seconds` from now and hands `value` to whoever waits for it."""
        return self.env.timeout(seconds, value)

    def event(self) -> simpy.Event:
        """An event that happens when its `succeed()` is called."""
        return self.env.event()

    def call_at(self, time: float, call: Callable[[], None]) -> None:
        """Call something at a virtual time (now, if that has passed by rounding)."""

        def run(_: simpy.Event) -> None:
            try:
                call()
            except BaseException as error:
                self._fail(error, None)

        self.env.timeout(max(0.0, time - self.env.now)).callbacks.append(run)

    def stop(self) -> None:
        """End the run: nothing that is scheduled after now happens."""
        if not self._stop.triggered:
            self._stop.succeed()

    def run(self, until: float | None = None) -> None:
        """Run until `stop`, until the time `until`, or until nothing is left to happen."""
        if until is not None:
            self.call_at(until, self.stop)
        stop, step = self._stop, self.env.step
        events = 0
        try:
            while not (stop.triggered or self.interrupted):
                step()
                events += 1
        except simpy.core.EmptySchedule:
            pass
        finally:
            self.events += events
        if self._failure is not None:
            raise self._failure
