"""The world's clock: SimPy, with cheap calls at a given time.

Events at one time run in the order in which they were scheduled. An exception inside a process or
a call is carried out with the virtual time at which it happened.
"""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from typing import Any

import simpy

from simfl.compiled import Integer, Number
from simfl.errors import RunError, SimflError, raised

#: A SimPy process of a client: a generator that yields events.
Process = Generator[simpy.Event, Any, None]


#: Events at one moment, beyond which time is taken to stand still: more than the messages of any world that fits into
#: memory at one moment, and a few seconds.
MOST_AT_ONCE = 2**22
#: How often that is looked at meanwhile.
CHECKS = 16
#: How long an event may take that is under way when the run is to end, in seconds of wall time.
PATIENCE_S = 20.0


_new = object.__new__
#: SimPy's order of what happens at one moment: processes begin before all else.
_URGENT, _NORMAL = 0, 1


class Call:
    """Something to be called at a time: what stands in SimPy's heap in the place of an event that nobody waits for."""

    __slots__ = ("argument", "function")

    def __init__(self, function: Callable[[Any], None], argument: Any) -> None:
        self.function = function
        self.argument = argument


def _call(call: Callable[[], None]) -> None:
    call()


def _pass(_: Any) -> None:
    """What happens where a process has ended: nothing."""


class Routine:
    """A process under way: sends its generator the value of each event that it waits for, as `simpy.Process` does.

    It is what an event calls when it happens.

    Args:
        clock: whose process it is; what the generator raises ends the run.
        process: the generator.
        client: whose process it is, or None.
    """

    __slots__ = ("_client", "_clock", "_process")

    def __init__(self, clock: Clock, process: Process, client: Integer | None) -> None:
        self._clock = clock
        self._process = process
        self._client = client

    def __call__(self, event: Any) -> None:
        """Go on, an event has happened; None: begin."""
        try:
            while True:
                if event is None:
                    event = self._process.send(None)
                elif event._ok:
                    event = self._process.send(event._value)
                else:
                    event._defused = True
                    event = self._process.throw(event._value)
                try:
                    callbacks = event.callbacks
                except AttributeError:
                    raise TypeError(f"a process yields events, and {event!r} is none") from None
                if callbacks is not None:
                    callbacks.append(self)
                    return
        except StopIteration:
            pass
        except BaseException as error:
            self._clock.fail(error, self._client)
        self._clock.push(_NORMAL, Call(_pass, None))

    def describe(self) -> tuple[str, str]:
        """Return whose it is, "client 3, " or nothing, and in which function, file and line it waits."""
        client = "" if self._client is None else f"client {self._client}, "
        inner: Any = self._process
        while hasattr(inner, "gi_code") and hasattr(inner.gi_yieldfrom, "gi_code"):
            inner = inner.gi_yieldfrom
        if not hasattr(inner, "gi_code"):  # it is compiled
            return client, ""
        code = inner.gi_code
        return client, f", the next of process {code.co_name} in {code.co_filename}:{inner.gi_frame.f_lineno}"


class Clock:
    """Virtual time: starts processes, calls things at a time, runs until it is stopped."""

    def __init__(self) -> None:
        self.env = simpy.Environment()
        self.env.step = self.step
        self.now = 0.0  # virtual time in seconds
        self._queue: list[tuple[float, int, int, Any]] = self.env._queue
        self._numbers = self.env._eid
        self._failure: BaseException | None = None
        self._moment, self._moment_began = math.nan, 0  # when progress was checked, and at which event it was so first
        self._next_check = MOST_AT_ONCE // CHECKS  # the event at which progress is checked next
        self.events = 0  # that have happened so far
        self.stopped = False  # whether `stop` was called
        self.interrupted = False  # the run ends before the next event
        self.paused = False  # set by anybody; `run` returns before the next event, and may be called again
        self._insisting: threading.Timer | None = None

    @property
    def pending(self) -> int:
        """Events that are still to happen."""
        return len(self._queue)

    def push(self, priority: int, what: Any) -> None:
        """Let something happen now, behind what was to happen now before."""
        heappush(self._queue, (self.now, priority, next(self._numbers), what))

    def start(self, process: Process, client: Integer | None = None) -> None:
        """Start a process. What it raises ends the run."""
        if not hasattr(process, "send"):
            raise TypeError(f"start: expected what a function with yield returns when it is called, found {process!r}")
        self.push(_URGENT, Call(Routine(self, process, client), None))

    def fail(self, error: BaseException, client: Integer | None) -> None:
        """End the run with what a process, or a call, has raised."""
        if isinstance(error, SimflError | KeyboardInterrupt):
            self._failure = error
        else:
            who = "" if client is None else f"client {client}, "
            self._failure = RunError(f"{who}virtual time {self.now:.6g} s: {raised(error)}")
            self._failure.__cause__ = error
        self.stop()

    def timeout(self, seconds: Number, value: Any = None) -> simpy.Event:
        """An event that happens `seconds` from now and hands `value` to whoever waits for it."""
        if not seconds >= 0:
            raise ValueError(f"timeout: expected a time >= 0, found {seconds}")
        # What its constructor does, without two calls more: these are made for every event.
        event = _new(simpy.events.Timeout)
        event.env = self.env
        event.callbacks = []
        event._value = value
        event._delay = seconds
        event._ok = True
        heappush(self._queue, (self.now + seconds, _NORMAL, next(self._numbers), event))
        return event

    def event(self) -> simpy.Event:
        """An event that happens when its `succeed()` is called."""
        return self.env.event()

    def call_at(self, time: Number, call: Callable[[], None]) -> None:
        """Call something at a virtual time (now, if that has passed by rounding)."""
        self.tell_at(time, _call, call)

    def tell_at(self, time: Number, function: Callable[[Any], None], argument: Any) -> None:
        """Call a function with an argument at a virtual time; as `call_at` otherwise."""
        now = self.now
        wait_s = time - now
        when = now + (wait_s if wait_s > 0.0 else 0.0)
        heappush(self._queue, (when, _NORMAL, next(self._numbers), Call(function, argument)))

    def stop(self) -> None:
        """End the run: nothing that is scheduled after now happens."""
        self.stopped = True

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
        queue, step = self._queue, self.step
        count = self.events
        last = math.inf if events is None else count + events
        look = min(self._next_check, last)
        self.paused |= count >= last
        try:
            while queue and not (self.stopped or self.interrupted or self.paused):
                step()
                count += 1
                if count >= look:
                    self.paused |= count >= last
                    if count >= self._next_check:
                        self._check_progress(count)
                    look = min(self._next_check, last)
        finally:
            self.events = count
            self.relent()
        if self._failure is not None:
            raise self._failure
        if math.isinf(self.now):
            raise RunError("virtual time: expected a finite time, found infinity: something takes too long; shorten it")

    def step(self) -> None:
        """Let the next event happen; there must be one."""
        self.now, _, _, what = heappop(self._queue)
        self.env._now = self.now
        if isinstance(what, Call):
            try:
                what.function(what.argument)
            except BaseException as error:
                self.fail(error, None)
            return
        callbacks, what.callbacks = what.callbacks, None
        for callback in callbacks:
            callback(what)
        if not what._ok and not hasattr(what, "_defused"):  # it has failed, and nobody takes care of it
            raise what._value

    def _check_progress(self, events: int) -> None:
        """Refuse to go on if too many events have happened at one moment, with the process whose turn is next."""
        self._next_check = events + MOST_AT_ONCE // CHECKS
        if self.now != self._moment:
            self._moment, self._moment_began = self.now, events
        elif events - self._moment_began >= MOST_AT_ONCE:
            client, place = self._whose_turn()
            raise RunError(
                f"{client}virtual time {self.now:.6g} s: expected it to go on, found {MOST_AT_ONCE} events at one "
                f"moment{place}; something takes no time, or too little to be added to it: lengthen compute times, "
                "latencies or periods"
            )

    def _whose_turn(self) -> tuple[str, str]:
        """Return which client, and where in its code, waits for the next event; "" where no process does."""
        what = self._queue[0][3] if self._queue else None
        waiting = [what.function] if isinstance(what, Call) else getattr(what, "callbacks", None) or []
        for routine in waiting:
            if isinstance(routine, Routine):
                return routine.describe()
        return "", ""
