"""The clock: a SimPy environment with cheap calls and errors by client.

`Clock` is a `simpy.Environment`, and `Clock.start` makes a `simpy.Process`: timeouts, conditions, interrupts, resources
and stores are SimPy's own. Added are three things:

- An exception in a process ends the run; the message names the client, the virtual time and the line of the user's
  code.
- `call_at` and `tell_at` call a function at a time, without an event that a process could wait for. A message on a
  link needs no more than that, and most events of a world are messages.
- `run` can pause after a number of events, for checkpoints, and be interrupted by a signal.

Events at one time happen in the order in which they were scheduled, calls of `call_last` after all others. Spans of
time include their start and exclude their end. A sum of many durations misses the end by rounding, on either side. So
an event that is early by a part of at most `ROUNDING` of the time counts as being at the end: after the run (`run`),
after an evaluation (`tell_before`), during the outage that starts there, or after the one that ends there
(`Availability`). A deadline includes its end: an update that arrives then, or later by rounding, is in time.

Once there are thousands of events, only the next few hundred are in SimPy's heap (`simfl.world.slots`). Each event
belongs to another client, whose objects are not in the cache. So there are few of them: an event that one process waits
for holds the process in place of a list of callbacks.

`Call` and `Clock` rely on three attributes of `simpy.Environment` that it does not document: `_now`, the heap `_queue`
of tuples (time, priority, number, event), and the counter `_eid`. `ClientProcess` relies on those that `simpy.Process`
sets when it resumes a generator. `tests/world/test_simpy.py` fails when they change.
"""

from __future__ import annotations

import _thread
import math
import threading
from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush
from typing import Any

import simpy
from simpy.core import BoundClass
from simpy.events import NORMAL

from simfl.compiled import Integer, Number
from simfl.errors import RunError, SimflError, raised
from simfl.world.slots import Slots

#: The behavior of a client: a generator that yields events.
Process = Generator[simpy.Event, Any, None]

#: The priority of an event that happens after all others of its time.
LAST = NORMAL + 1
#: Times that differ by a smaller part than this are one time: rounding of a million additions is a part of 1e-10.
ROUNDING = 1e-9
#: With more events than this at one virtual time, time is assumed to stand still. It is more than the messages at one
#: time in any world that fits into memory, and that many events take a few seconds.
MOST_AT_ONCE = 2**22
#: Number of checks of progress during `MOST_AT_ONCE` events.
CHECKS = 16
#: Number of events between two looks at the size of the heap.
LOOK = 4096
#: Stands for the callbacks of an event that nothing waits for.
_NOBODY: tuple[()] = ()
#: How long the current event may still take after an interrupt, in seconds of wall time.
PATIENCE_S = 20.0


class _Event(simpy.Event):  # type: ignore[misc]
    """An event whose list of callbacks is made when it is asked for."""

    #: The one process that waits for the event, a list of callbacks, or () for none; None once the event has happened.
    _waiting: ClientProcess | list[Callable[[Any], None]] | tuple[()] | None

    @property
    def callbacks(self) -> list[Callable[[Any], None]] | None:
        """The list of callbacks; None once the event has happened."""
        waiting: Any = self._waiting
        if waiting is _NOBODY:
            self._waiting = waiting = []
        elif type(waiting) is ClientProcess:
            self._waiting = waiting = [waiting._resume]
        return waiting  # type: ignore[no-any-return]

    @callbacks.setter
    def callbacks(self, callbacks: list[Callable[[Any], None]] | None) -> None:
        self._waiting = _NOBODY if callbacks == [] else callbacks


class Timeout(_Event, simpy.Timeout):  # type: ignore[misc]
    """An event that happens after a delay.

    Raises:
        ValueError: the delay is negative or not a number.
    """

    _ok = True

    def __init__(self, env: Clock, delay: Number, value: Any = None) -> None:
        if not delay >= 0:
            raise ValueError(f"timeout: expected a time >= 0, found {delay}")
        # The code of SimPy's constructors, inlined for speed, as SimPy inlines that of Event: timeouts are frequent.
        self.env = env
        self._value = value
        self._waiting = _NOBODY
        when = env._now + delay
        if when < env._horizon_s:
            heappush(env._queue, (when, NORMAL, next(env._eid), self))
        else:
            env._put_off(when, NORMAL, next(env._eid), self)

    def _desc(self) -> str:
        """Return how SimPy shows it, without the delay."""
        return "Timeout()"


class ClientProcess(_Event, simpy.Process):  # type: ignore[misc]
    """A SimPy process that knows its client.

    Attributes:
        client: the client's number; None for a process that belongs to no client.
    """

    def __init__(self, env: Clock, generator: Process, client: Integer | None = None) -> None:
        self.client = client
        super().__init__(env, generator)

    def _resume(self, event: Any) -> None:
        """Resume the generator, as SimPy does, with an event that has happened."""
        env, generator = self.env, self._generator
        env._active_proc = self
        while True:
            try:
                if type(event) is Timeout or event._ok:
                    event = generator.send(event._value)
                else:
                    event._defused = True
                    error = type(event._value)(*event._value.args)  # its traceback is this process's own
                    error.__cause__ = event._value
                    event = generator.throw(error)
            except BaseException as error:
                self._ok = isinstance(error, StopIteration)
                self._value = error.value if isinstance(error, StopIteration) else error
                event = None
                if not self._ok:
                    env.failing.append(self)
                    if error.__traceback__ is not None:
                        error.__traceback__ = error.__traceback__.tb_next  # without this method
                env.schedule(self)
                break
            if type(event) is Timeout and event._waiting is _NOBODY:
                event._waiting = self
                break
            if not isinstance(event, simpy.Event):
                raise TypeError(f"a process must yield events, and {event} is not an event")
            if event.callbacks is not None:
                event.callbacks.append(self._resume)
                break
        self._target = event
        env._active_proc = None

    def describe(self) -> tuple[str, str]:
        """Return the client, "client 3, " or "", and where its process waits."""
        client = "" if self.client is None else f"client {self.client}, "
        inner: Any = self._generator
        while hasattr(inner, "gi_code") and hasattr(inner.gi_yieldfrom, "gi_code"):
            inner = inner.gi_yieldfrom
        if not hasattr(inner, "gi_code"):  # a compiled generator does not know its line
            return client, ""
        code = inner.gi_code
        return client, f", the next of process {code.co_name} in {code.co_filename}:{inner.gi_frame.f_lineno}"


def _perform(call: Call) -> None:
    call.function(call.argument)


class Call:
    """A function to call at a time: an event that no process waits for.

    It has the attributes that `simpy.Environment.step` reads, so SimPy's own step can handle it too.
    """

    __slots__ = ("argument", "callbacks", "function")

    _ok = True

    def __init__(self, function: Callable[[Any], None], argument: Any) -> None:
        self.function = function
        self.argument = argument
        self.callbacks: tuple[Callable[[Call], None], ...] | None = _PERFORM


_PERFORM = (_perform,)


def _call(function: Callable[[], None]) -> None:
    function()


class _Progress:
    """Looks from time to time whether virtual time advances.

    Attributes:
        next_check: the number of events at which to look.
    """

    def __init__(self) -> None:
        self.next_check = MOST_AT_ONCE // CHECKS
        self._time_s, self._since = math.nan, 0

    def stands_still(self, time_s: float, events: int) -> bool:
        """Return whether `MOST_AT_ONCE` events have happened at this time."""
        self.next_check = events + MOST_AT_ONCE // CHECKS
        if time_s != self._time_s:
            self._time_s, self._since = time_s, events
        return events - self._since >= MOST_AT_ONCE


class Clock(simpy.Environment):  # type: ignore[misc]
    """Virtual time: starts processes, calls functions, runs until it is stopped.

    Attributes:
        now: virtual time in seconds.
        events: number of events that have happened.
        stopped: whether `stop` was called.
        interrupted: set it to end the run before the next event.
        paused: set it to make `run` return before the next event; `run` may be called again.
        failing: processes that an error has ended, before the event at which it ends the run or another process
            handles it. Meanwhile the state of the world is incomplete: no checkpoint may be taken.
    """

    now = 0.0  # SimPy has a property here; an attribute is faster, and read for every event
    timeout = BoundClass(Timeout)
    event = BoundClass(simpy.Event)

    def __init__(self) -> None:
        super().__init__(0.0)
        self._failure: BaseException | None = None
        self.failing: list[ClientProcess] = []
        self._progress = _Progress()
        self.events = 0
        self.stopped = False
        self.interrupted = False
        self.paused = False
        self._insisting: threading.Timer | None = None
        self._canceled: set[simpy.Event] = set()
        self._slots = Slots(self._queue)
        self._put_off = self._slots.put
        #: All events before this virtual time are in the heap; the others are in the heap or in slots.
        self._horizon_s = math.inf

    @property
    def pending(self) -> int:
        """Number of events that are still to happen."""
        return len(self._queue) + self._slots.count

    def start(self, process: Process, client: Integer | None = None) -> simpy.Process:
        """Start a process; its error ends the run, unless another process waits for it.

        Messages of errors name the client.

        Raises:
            TypeError: `process` is not a generator.
        """
        if not hasattr(process, "throw"):
            raise TypeError(f"start: expected a generator (the result of a function that yields), found {process!r}")
        return ClientProcess(self, process, client)

    def fail(self, error: BaseException, client: Integer | None) -> None:
        """End the run with the error of a process or a call."""
        if isinstance(error, SimflError | KeyboardInterrupt):
            self._failure = error
        else:
            who = "" if client is None else f"client {client}, "
            self._failure = RunError(f"{who}virtual time {self.now:.6g} s: {raised(error)}")
            self._failure.__cause__ = error
        self.stop()

    def call_at(self, time: Number, call: Callable[[], None]) -> None:
        """Call a function at a virtual time; now, if rounding puts that in the past."""
        self.tell_at(time, _call, call)

    def call_last(self, time: Number, call: Callable[[], None]) -> None:
        """Call a function at a virtual time, after all events of that time."""
        self.tell_at(time, _call, call, LAST)

    def tell_at(self, time: Number, function: Callable[[Any], None], argument: Any, priority: int = NORMAL) -> None:
        """Call a function with an argument at a virtual time; see `call_at`."""
        now = self.now
        wait_s = time - now
        when = now + (wait_s if wait_s > 0.0 else 0.0)
        if when < self._horizon_s:
            heappush(self._queue, (when, priority, next(self._eid), Call(function, argument)))
        else:
            self._put_off(when, priority, next(self._eid), Call(function, argument))

    def tell_before(self, time: Number, call: Callable[[], None]) -> None:
        """Call a function before all events at a virtual time or later.

        A time that is earlier by `ROUNDING` counts as that time. `now` is `time` during the call.
        """
        self.tell_at(time * (1.0 - ROUNDING), self._before, (time, call))

    def _before(self, appointment: tuple[float, Callable[[], None]]) -> None:
        self.now = self._now = appointment[0]
        appointment[1]()

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: Number = 0) -> None:
        """Schedule an event, as SimPy does."""
        when = self._now + delay
        if when < self._horizon_s:
            heappush(self._queue, (when, priority, next(self._eid), event))
        else:
            self._put_off(when, priority, next(self._eid), event)

    def peek(self) -> float:
        """Return the time of the next event; inf for none."""
        return float(self._queue[0][0]) if self._queue or self._refill() else math.inf

    def _refill(self) -> bool:
        """Fill the heap with the next events; return whether there are any."""
        self._horizon_s = self._slots.refill()
        return bool(self._queue)

    def cancel(self, event: simpy.Event) -> None:
        """Forget a scheduled event that nothing waits for, as if it never were.

        It does not hold the end of the run. It leaves the queue at the latest when half of the queue is canceled.
        """
        canceled, queue = self._canceled, self._queue
        canceled.add(event)
        if 2 * len(canceled) > self.pending:
            queue[:] = [entry for entry in queue if entry[3] not in canceled]
            heapify(queue)
            self._slots.remove(canceled)
            canceled.clear()

    def stop(self) -> None:
        """End the run after the current event; no other event happens."""
        self.stopped = True

    def interrupt(self, patience_s: float = PATIENCE_S) -> None:
        """End the run before its next event, from a signal handler.

        If the current event still runs after `patience_s` seconds of wall time, the main thread gets another Ctrl-C.
        """
        self.interrupted = True
        if self._insisting is None:
            self._insisting = threading.Timer(patience_s, _thread.interrupt_main)
            self._insisting.daemon = True
            self._insisting.start()

    def relent(self) -> None:
        """Cancel the pending Ctrl-C."""
        if self._insisting is not None:
            self._insisting.cancel()

    def run(self, until: float | None = None, events: int | None = None) -> None:
        """Run until `stop`, until `until`, until no event is left, or until `paused`.

        An event at the time `until`, up to `ROUNDING`, does not happen.
        It pauses after `events` events. After a pause it may be called again, without `until`.

        Raises:
            RunError: a process or a call failed; or time stands still or is infinite, because a duration is too small
                to be added to it, or too large.
        """
        if until is not None:
            self.tell_before(until, self.stop)
        queue, count, canceled = self._queue, self.events, self._canceled
        progress, slots = self._progress, self._slots
        last = math.inf if events is None else count + events
        look = min(progress.next_check, last, count + LOOK)
        self.paused |= count >= last
        try:
            while (queue or self._refill()) and not (self.stopped or self.interrupted or self.paused):
                when, _, _, event = heappop(queue)
                if canceled and event in canceled:
                    canceled.discard(event)
                    continue
                self.now = self._now = when
                try:
                    kind = type(event)
                    if kind is Timeout:
                        waiting, event._waiting = event._waiting, None
                        if type(waiting) is ClientProcess:
                            waiting._resume(event)
                        else:
                            for callback in waiting:
                                callback(event)
                    elif kind is Call:
                        event.function(event.argument)
                    else:
                        callbacks, event.callbacks = event.callbacks, None
                        for callback in callbacks:
                            callback(event)
                        if not event._ok:
                            self._failed(event)
                except BaseException as error:
                    process: Any = self.active_process
                    self._active_proc = None
                    self.fail(error, getattr(process, "client", None))
                count += 1
                if count >= look:
                    self.paused |= count >= last
                    if count >= progress.next_check and progress.stands_still(self.now, count):
                        raise self._stands_still()
                    if len(queue) > slots.most_in_heap and when > 0.0:  # at 0, all clients start
                        self._horizon_s = slots.thin_out(self._now)
                    look = min(progress.next_check, last, count + LOOK)
        finally:
            self.events = count
            self.relent()
        if self._failure is not None:
            raise self._failure
        if math.isinf(self.now):
            raise RunError(
                "virtual time: expected a finite time, found infinity: a duration is too long; "
                "shorten compute times, latencies or periods"
            )

    def step(self) -> None:
        """Let the next event happen, as SimPy does."""
        if not self._queue:
            self._refill()
        super().step()
        self.now = self._now

    def _failed(self, event: simpy.Event) -> None:
        """End the run with an event that has failed.

        If a process waited for the event, that process got the error, and the run goes on.
        """
        if isinstance(event, ClientProcess):
            self.failing.remove(event)
        if hasattr(event, "_defused"):
            return
        if isinstance(event, ClientProcess):
            self.fail(event._value, event.client)
        else:
            raise event._value

    def _stands_still(self) -> RunError:
        """Return the error of too many events at one time, which names the next process."""
        event, client, place = self._queue[0][3] if self._queue or self._refill() else None, "", ""
        for callback in getattr(event, "callbacks", None) or ():
            process = getattr(callback, "__self__", None)
            if isinstance(process, ClientProcess):
                client, place = process.describe()
                break
        return RunError(
            f"{client}virtual time {self.now:.6g} s: expected time to advance, found {MOST_AT_ONCE} events at this "
            f"time{place}; a duration is 0, or too small to be added to the time: lengthen compute times, "
            "latencies or periods"
        )
