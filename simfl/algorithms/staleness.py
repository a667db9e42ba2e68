"""Bounds on staleness: when who may read, and when what was computed may be applied.

Staleness of an update is the number of updates applied between the read of the model it was computed at and its own
application. A bound on it is kept by

- `wait`: an update is held back while applying it would leave others, under way or held back, more than they can all
  keep; and at most bound + 1 clients compute at a time, the next one reads when one of them is done. One after the
  other, the oldest first, is then always possible: nothing waits for ever, because who is waited for is computing, or
  has crashed (and reads anew) or left (and is forgotten).
- `drop`: an update that is too stale is thrown away; its client goes on from the present model.
- `down_weight`: an update that is too stale counts (bound + 1) / (staleness + 1).

A server keeps the bound on what it applies. Where clients apply their own updates (gossip) nobody is there to keep it:
papers assume that it holds, and here it does. The simulator knows who reads and who applies, and costs no messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import simpy

from simfl.algorithms.base import Algorithm
from simfl.tape import Gradient, Model


@dataclass(frozen=True)
class StalenessBound:
    """How stale an update may be, and what happens to one that is more.

    Attributes:
        bound: tau_max >= 0.
        policy: as above.
    """

    bound: int
    policy: Literal["wait", "drop", "down_weight"]

    def weight(self, staleness: int) -> float:
        """Return the factor on an update of this staleness; 0 for one that is dropped."""
        if staleness <= self.bound:
            return 1.0
        return 0.0 if self.policy == "drop" else (self.bound + 1) / (staleness + 1)


#: Called with the weight and the staleness of an update when its turn has come; weight 0 means that it is dropped.
Apply = Callable[[float, int], None]


class Turns:
    """Lets clients read, and their updates be applied, so that a bound on staleness holds.

    Who reads says so (`read`), and brings what was computed (`arrive`), or will not (`forget`).

    Args:
        limit: the bound; None for none.
        version_after: the number of updates applied after so many more; now, for 0.
        stopped: whether the run is over.
    """

    def __init__(
        self, limit: StalenessBound | None, version_after: Callable[[int], int], stopped: Callable[[], bool]
    ) -> None:
        self.limit = limit
        self.waits = limit is not None and limit.policy == "wait"
        #: The version that each client's update under way was computed at.
        self.reading: dict[int, int] = {}
        self._version_after = version_after
        self._stopped = stopped
        self._bound = 0 if limit is None else limit.bound
        self._held: list[tuple[int, int, Apply]] = []  # read, order of arrival, what to do
        self._arrivals = 0
        self._queue: deque[Callable[[], None]] = deque()

    @property
    def idle(self) -> bool:
        """Whether no update is under way or held back, and nobody waits to read."""
        return not (self.reading or self._held or self._queue)

    def weight(self, staleness: int) -> float:
        """Return the factor on an update of this staleness that is applied now."""
        return 1.0 if self.limit is None else self.limit.weight(staleness)

    def admit(self, give: Callable[[], None]) -> None:
        """Call `give`, which lets a client read, now; under the policy `wait` when few enough clients compute."""
        if not self.waits:
            give()
            return
        self._queue.append(give)
        self._let_in()

    def read(self, client: int) -> int:
        """Note that the client's next update is computed at the present version, and return it."""
        version = self.reading[client] = self._version_after(0)
        return version

    def forget(self, client: int) -> None:
        """The client's update will not come: it crashed or left."""
        self.reading.pop(client, None)
        self._go_on()

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read`, now or when the bound allows it.

        `apply` makes the version one of an update more, or, where that cannot be now, notes in `reading` that the
        update is still under way.
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
        """Under the policy `wait`: apply what may be applied, then let in who may read."""
        if not self.waits:
            return
        while self._held and not self._stopped():
            first = min(self._held)
            read, _, apply = first
            reads = sorted([*self.reading.values(), *(entry[0] for entry in self._held if entry is not first)])
            if reads and reads[0] < read and not self._possible(reads):
                break
            self._held.remove(first)
            apply(1.0, self._version_after(0) - read)
        self._let_in()

    def _possible(self, reads: Sequence[int]) -> bool:
        """Whether updates read at these versions (in order) can all be applied in time after one more is."""
        return all(self._version_after(1 + i) - read <= self._bound for i, read in enumerate(reads))

    def _let_in(self) -> None:
        """Let clients read for as long as all updates under way can be applied in time, one after the other."""
        while (
            self._queue
            and self._version_after(len(self.reading) + len(self._held)) - self._version_after(0) <= self._bound
        ):
            self._queue.popleft()()


class OwnUpdates(Algorithm):
    """Base of algorithms without a server, whose clients apply their own updates: staleness counts those of all.

    A client asks `may_read` before it reads, and applies with `in_turn` what it computed; both only where `waits`. A
    client whose update will not come is forgotten (`turns.forget`). What is dropped nobody has seen: it is no release,
    and its mini-batch is handed out again.
    """

    takes_optimizer = True
    #: The present model of each client.
    model: list[Model]

    def __init__(self, *arguments: Any, staleness: StalenessBound | None = None, **options: Any) -> None:
        self.turns = Turns(staleness, lambda more: self.updates + more, lambda: self.clock.stopped)
        #: Whether clients may have to wait before they read, and before they apply.
        self.waits = self.turns.waits
        super().__init__(*arguments, **options)

    def may_read(self, me: int) -> Generator[simpy.Event, Any, bool]:
        """Wait until the bound lets the client read; false if it has left for good."""
        while True:
            admitted = self.clock.event()

            def give(admitted: simpy.Event = admitted) -> None:
                there = self._trivial or self.world.availability.online(me, self.clock.now)
                if there:
                    self.turns.read(me)
                admitted.succeed(there)

            self.turns.admit(give)
            if (yield admitted):
                self.turns.read(me)  # others may have gone before it at this very moment
                return True
            if not (yield from self.until_back(me)):
                return False

    def in_turn(self, me: int, read: int, apply: Apply) -> Generator[simpy.Event, Any, bool]:
        """Apply what was computed at version `read` when the bound allows it; false if the client has left for good.

        Who is away when its turn comes is waited for.
        """
        while True:
            turn = self.clock.event()

            def applied(weight: float, staleness: int, turn: simpy.Event = turn) -> None:
                there = self._trivial or self.world.availability.online(me, self.clock.now)
                if there:
                    apply(weight, staleness)
                else:
                    self.turns.reading[me] = read
                turn.succeed(there)

            self.turns.arrive(me, read, applied)
            if (yield turn):
                return True
            if not (yield from self.until_back(me)):
                self.turns.forget(me)
                return False

    def apply(self, me: int, gradient: Gradient, peer: int, weight: float, staleness: int) -> None:
        """Take the step, or throw the gradient away."""
        if weight == 0.0:
            self.drop(gradient)
            return
        size, step_size = gradient.size, weight * self.step_size()
        self.model[me] = self.descend(me, self.model[me], gradient, step_size)
        self.updated(me, staleness, size, step_size, peer)

    def drop(self, gradient: Gradient) -> None:
        """Throw away what a client computed: it is too stale."""
        self.client_dropped[gradient.client] += 1
        self.lost(gradient)
