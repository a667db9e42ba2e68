"""Bounds on staleness: when a client may read, and when an update may be applied.

The staleness of an update is the number of updates applied between the read of its model and its own application.
Policies that enforce a bound on it:

- `wait`: an update is held back if applying it would make others, in progress or held back, exceed the bound. At most
  bound + 1 clients compute at a time; the next one reads when one of them is done. The oldest update can then always be
  applied first, so there is no deadlock: a client that others wait for either computes, or has crashed (and reads
  again), or has left (and its update is no longer expected).
- `drop`: an update above the bound is dropped; its client continues from the current model.
- `down_weight`: an update above the bound is multiplied by (bound + 1) / (staleness + 1).

A server enforces the bound on the updates that it applies. In gossip, where clients apply their own updates, papers
assume the bound; here the simulator enforces it, without messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.base import Algorithm, OnUpdate
from simfl.algorithms.training import Training
from simfl.compiled import Integer, Number, as_call
from simfl.tape.recording import Gradient, Model, Tape
from simfl.world import World


@dataclass(frozen=True)
class StalenessBound:
    """The largest allowed staleness, tau_max >= 0, and the policy above it."""

    bound: int
    policy: Literal["wait", "drop", "down_weight"]

    def weight(self, staleness: int) -> Number:
        """Return the factor on an update of this staleness; 0 if it is dropped."""
        if staleness <= self.bound:
            return 1.0
        return 0.0 if self.policy == "drop" else (self.bound + 1) / (staleness + 1)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


#: Called with the weight and the staleness of an update at its turn; it is dropped if the weight is 0.
Apply = Callable[[Number, int], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Turns:
    """Schedules reads and updates so that a bound on staleness holds.

    A client calls `read`, and then `arrive` with its update, or `forget` if there will be none.

    Args:
        limit: the bound; None for unbounded.
        version_after: returns the model's version after the given number of further updates.
        stopped: whether the run is over.
    """

    def __init__(
        self, limit: StalenessBound | None, version_after: Callable[[int], int], stopped: Callable[[], bool]
    ) -> None:
        self.limit = limit
        self.waits = limit is not None and limit.policy == "wait"
        #: The version read by each client whose update has not arrived.
        self.reading: dict[int, int] = {}
        self._version_after = version_after
        self._stopped = stopped
        self._bound = 0 if limit is None else limit.bound
        self._held: list[tuple[int, int, Apply]] = []  # version read, order of arrival, callback
        self._arrivals = 0
        self._queue: deque[Callable[[], None]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no update is in progress or held back, and no client waits to read."""
        return not (self.reading or self._held or self._queue)

    def weight(self, staleness: int) -> Number:
        """Return the factor on an update of this staleness; 0 if it is dropped."""
        return 1.0 if self.limit is None else self.limit.weight(staleness)

    def admit(self, give: Callable[[], None], client: int) -> None:
        """Call `give`, which lets a client read, as soon as the policy allows it."""
        del client
        if not self.waits:
            give()
            return
        self._queue.append(give)
        self._let_in()

    def read(self, client: int) -> int:
        """Note that the next update is computed at the current version; return it."""
        version = self.reading[client] = self._version_after(0)
        return version

    def forget(self, client: int) -> None:
        """Stop expecting the client's update: it crashed or left."""
        self.reading.pop(client, None)
        self._go_on()

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read`, now or when the bound allows it.

        `apply` increments the version by one update. If it cannot apply now, it puts the client back in `reading`.
        """
        self.reading.pop(client, None)
        if not self.waits:
            staleness = self._version_after(0) - read
            apply(self.weight(staleness), staleness)
            return
        self._arrivals += 1
        self._held.append((read, self._arrivals, apply))
        self._go_on()

    def _go_on(self) -> None:
        """Under `wait`: apply the held updates that may be applied, then let clients read."""
        if not self.waits:
            return
        while self._held and not self._stopped():
            first = min(self._held)
            read, arrival, apply = first  # compiled, a tuple from a list is another object: `is` would not find it
            reads = sorted([*self.reading.values(), *(entry[0] for entry in self._held if entry[1] != arrival)])
            if reads and reads[0] < read and not self._possible(reads):
                break
            self._held.remove(first)
            apply(1.0, self._version_after(0) - read)
        self._let_in()

    def _possible(self, reads: Sequence[int]) -> bool:
        """Whether updates read at these versions keep the bound after one more update."""
        return all(self._version_after(1 + i) - read <= self._bound for i, read in enumerate(reads))

    def _let_in(self) -> None:
        """Let clients read while all updates in progress can still be applied in time."""
        while (
            self._queue
            and self._version_after(len(self.reading) + len(self._held)) - self._version_after(0) <= self._bound
        ):
            self._queue.popleft()()


@mypyc_attr(allow_interpreted_subclasses=True)
class OwnUpdates(Algorithm):
    """Base of algorithms without a server; staleness counts all clients' updates.

    If `waits`, a client calls `may_read` before it reads and `in_turn` to apply its update, or `turns.forget` if there
    will be none. A dropped update was never shown: it is not a release, and its mini-batch is handed out again.
    """

    #: The current model of each client.
    model: list[Model]

    def __init__(
        self,
        world: World,
        tape: Tape,
        training: Training,
        on_update: OnUpdate | None = None,
        *,
        staleness: StalenessBound | None = None,
        **options: Any,
    ) -> None:
        self.turns = Turns(staleness, lambda more: self.updates + more, lambda: self.clock.stopped)
        #: Whether clients may have to wait before they read and before they apply.
        self.waits = self.turns.waits
        #: Whether every update has weight 1.
        self.unbounded = staleness is None
        super().__init__(world, tape, training, on_update, **options)

    def models(self) -> Sequence[Model]:
        """Return one model per client."""
        return self.model

    def present(self, client: Integer) -> Model:
        """Return a client's model as it is now."""
        return self.model[client]

    def move(self, client: Integer, share: Number, difference: Model) -> None:
        """Add a share of a difference to a client's model."""
        self.model[client] = self.tape.combine((1.0, self.model[client]), (share, difference))

    def may_read(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Wait until the bound lets the client read; false if it has left permanently."""
        while True:
            admitted = self.clock.event()

            def give(admitted: simpy.Event = admitted) -> None:
                online = self._trivial or self.world.availability.online(me, self.clock.now)
                if online:
                    self.turns.read(me)
                admitted.succeed(online)

            self.turns.admit(give, me)
            if (yield admitted):
                self.turns.read(me)  # others may have applied updates at the same time
                return True
            if not (yield from self.world.until_back(me)):
                return False

    def in_turn(self, me: int, read: int, apply: Apply) -> Generator[simpy.Event, Any, bool]:
        """Apply an update when the bound allows it and the client is online.

        Returns false if the client has left permanently.
        """
        while True:
            turn = self.clock.event()

            def applied(weight: Number, staleness: int, turn: simpy.Event = turn) -> None:
                online = self._trivial or self.world.availability.online(me, self.clock.now)
                if online:
                    apply(weight, staleness)
                else:
                    self.turns.reading[me] = read
                turn.succeed(online)

            self.turns.arrive(me, read, applied)
            if (yield turn):
                return True
            if not (yield from self.world.until_back(me)):
                self.turns.forget(me)
                return False

    def apply(self, me: int, gradient: Gradient, peer: int | None, weight: Number, staleness: int) -> None:
        """Take the step, or drop the gradient if its weight is 0."""
        if weight == 0.0:
            self.drop(gradient)
            return
        size, step_size = gradient.size, weight * self.step_size()
        self.model[me] = self.descent.step(me, self.model[me], gradient, step_size)
        self.updated(me, staleness, size, step_size, peer)

    def drop(self, gradient: Gradient) -> None:
        """Drop a gradient that is too stale."""
        self.client_dropped[gradient.client] += 1
        self.batches.lost(gradient)
