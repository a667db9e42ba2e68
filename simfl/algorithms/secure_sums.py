"""Secure sums of updates in time: rounds of messages, dropouts, aborts.

See `simfl.world.secure_sums` for the protocols. A round of messages ends when all clients in it have answered or
dropped out, or at its timeout; the last one as soon as the answers suffice. A client drops out if it is offline or cut
off when a message arrives, if it crashes or leaves while it computes, or by the protocol's own probability. The server
knows it after the resend timeout of a link, when a crashed client is back, or at once. Lost messages are sent again.
Fewer than t clients in any round abort the sum: the server learns nothing of the updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import Any, Protocol

import simpy

from simfl.errors import RunError
from simfl.world import World
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Clock
from simfl.world.secure_sums import LightSecAgg, Step, SumProtocol, circle_of

#: A row of the table `secure_sums`: sum, began_s, time_s, the clients of the four rounds, members, bytes.
SumRow = tuple[int, float, float, int, int, int, int, int, int]
#: With more aborted sums in a row than this, no sum will ever be made.
MOST_ABORTED = 1000


class Owner(Protocol):
    """What secure sums need of `simfl.algorithms.server.ServerAlgorithm`."""

    world: World
    clock: Clock
    num_clients: int
    server: int

    def meets_s(self, client: int, nodes: Sequence[int]) -> float:
        """Return when the client is next online and can reach `nodes`; inf for never."""

    def exhausted(self, client: int) -> bool:
        """Whether the client may be in no further release."""

    def gated(self, client: int) -> bool:
        """Whether the client may be in no release before others are made."""

    def compute_for(self, client: int, seconds: float) -> simpy.Event:
        """Let the client compute for `seconds`."""

    def present_s(self, client: int, start: float, end: float) -> float:
        """Return the seconds of [start, end] in which the client is online."""

    def communicated(self, client: int, seconds: float) -> None:
        """Count that the client communicated during the last `seconds`."""

    def to_client(
        self,
        client: int,
        receive: Callable[[], None],
        size: int | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Send `size` bytes to a client."""

    def when_up(self, call: Callable[[], None]) -> None:
        """Call an action of the server now or when it is back, if it ever is."""

    def until_up(self) -> Generator[simpy.Event, Any, bool]:
        """Wait until the server is online; returns false if it has left permanently."""


class SecureSums:
    """The secure sums of a server.

    Args:
        algorithm: has the server, its messages and its clients' computations.
        protocol: rounds, bytes and work.
    """

    def __init__(self, algorithm: Owner, protocol: SumProtocol) -> None:
        self.protocol = protocol
        #: Number of sums so far, with aborted ones.
        self.number = 0
        #: Receives the rows of the table; may be replaced before the run.
        self.on_sum: Callable[[SumRow], None] = lambda row: None
        #: Is called when a client begins and ends to compute for a sum.
        self.on_busy: Callable[[int, bool], None] = lambda client, busy: None
        #: Clients that may tell the server what they know.
        self.colluding = 0
        #: The clients of the last sum if it was aborted, but the answers say something about it.
        self.shown: list[int] = []
        #: Whether the server can compute sums of some clients of the last sum only.
        self.split = False
        self._algorithm, self._clock = algorithm, algorithm.clock
        usual = [algorithm.world.compute.usual(k, 1) for k in range(algorithm.num_clients)]
        self._slower = [seconds / min(usual) for seconds in usual]
        self._drops = Draws(algorithm.world.streams, "secure-sum", lambda g, n: g.random(n))
        self._aborted = 0
        #: By update, if masks are exchanged beforehand: who was sent pieces of its mask, and who has not got them yet.
        self._holders: dict[int, set[int]] = {}
        self._coming: dict[int, set[int]] = {}
        #: Clients that answer as soon as they have the pieces of these updates.
        self._waiting: dict[int, tuple[set[int], Callable[[], None]]] = {}

    def hopeless(self, clients: Iterable[int]) -> bool:
        """Whether fewer than t of the clients can be in the next sum, whenever it is."""
        algorithm = self._algorithm

        def comes(k: int) -> bool:
            out = algorithm.exhausted(k) or algorithm.gated(k)
            return not out and not math.isinf(algorithm.meets_s(k, (k, algorithm.server)))

        return sum(map(comes, clients)) < self.protocol.threshold

    @property
    def first(self) -> Step:
        """The round in which a client says that it has an update."""
        return self.protocol.steps(1)[0]

    def work_s(self, client: int, step: Step) -> float:
        """Return how long a client computes in a round."""
        return step.work_s * self._slower[client]

    # -- rounds --------------------------------------------------------------------------------

    def sum(self, clients: Collection[int]) -> Generator[simpy.Event, Any, list[int]]:
        """Run the rounds after the first; return who is in the sum, none if aborted."""
        began_s, ready = self._clock.now, sorted(clients)
        _, sharing, masking, unmasking = self.protocol.steps(len(ready))
        shared = yield from self._round(ready, sharing)
        masked = yield from self._round(shared, masking)
        circle = self._circle(shared)
        enough = self.protocol.enough
        answered = yield from self._round(masked, unmasking, lambda came: enough(circle, came))
        spent = [len(ready), *map(len, (shared, masked, answered))]
        sizes = (self.protocol.steps(len(ready))[0], sharing, masking, unmasking)
        asked = [0, *(count * (count >= self.protocol.threshold) for count in spent[:3])]
        sent = sum(a * one.down + b * one.up for a, b, one in zip(asked, spent, sizes, strict=True))
        return (yield from self._ended(began_s, spent, circle, masked, answered, sent))

    def _circle(self, clients: Sequence[int]) -> list[int]:
        return circle_of(clients, self._algorithm.world.streams.generator("secure-circle", 0, self.number))

    def _ended(
        self,
        began_s: float,
        counts: Sequence[int],
        circle: Sequence[int],
        masked: Sequence[int],
        answered: Sequence[int],
        sent: int,
    ) -> Generator[simpy.Event, Any, list[int]]:
        """Unmask the sum, or abort it; write its row."""
        protocol, members = self.protocol, list(masked)
        enough = len(members) >= protocol.threshold
        self.split = enough and not protocol.hides(circle, members, self.colluding)
        self.shown = []
        if not enough or not protocol.enough(circle, answered):
            if enough and answered and protocol.shows(len(answered), self.colluding):
                self.shown = members
            members = []
        elif seconds := protocol.server_s(circle, members):
            yield self._clock.timeout(seconds)
        self._aborted = 0 if members else self._aborted + 1
        if self._aborted > MOST_ABORTED:
            raise RunError(
                f"algorithm.secure_sum.threshold: {MOST_ABORTED} sums in a row had fewer than {protocol.threshold} "
                "survivors; lower it, the dropout or the timeout"
            )
        self.number += 1
        first, second, third, fourth = counts
        now = self._clock.now
        self.on_sum((self.number - 1, began_s, now, first, second, third, fourth, len(members), sent))
        return members

    def _round(
        self,
        members: Sequence[int],
        step: Step,
        enough: Callable[[Sequence[int]], bool] = lambda came: False,
        ask: Callable[[int, Callable[[int, bool], None]], None] | None = None,
    ) -> Generator[simpy.Event, Any, list[int]]:
        """Send to the members, and return those whose answers came in time."""
        if len(members) < self.protocol.threshold:
            return []
        missing, came, over = set(members), list[int](), self._clock.event()

        def settle(client: int, answered: bool) -> None:
            if client in missing and not over.triggered:
                missing.discard(client)
                if answered:
                    came.append(client)
                if not missing or (answered and enough(came)):
                    over.succeed()

        for client in members:
            if ask is not None:
                ask(client, settle)
            else:
                self._ask(client, step, settle)
        if not math.isinf(self.protocol.timeout_s):
            self._clock.call_at(self._clock.now + self.protocol.timeout_s, lambda: over.triggered or over.succeed())
        yield over
        yield from self._algorithm.until_up()
        return sorted(came)

    def _ask(self, client: int, step: Step, settle: Callable[[int, bool], None]) -> None:
        """Send a round's message to a client, which answers or drops out."""
        algorithm, since = self._algorithm, self._clock.now

        def received() -> None:
            algorithm.communicated(client, algorithm.present_s(client, since, self._clock.now))
            if self.protocol.dropout and self._drops.next(client) < self.protocol.dropout:
                settle(client, False)
            else:
                self._clock.start(self._answer(client, step, settle), client)

        algorithm.to_client(client, received, step.down, lambda: settle(client, False))

    def _answer(
        self, client: int, step: Step, settle: Callable[[int, bool], None]
    ) -> Generator[simpy.Event, Any, None]:
        """Compute, and send the answer."""
        algorithm = self._algorithm
        if step.work_s:
            self.on_busy(client, True)
            outcome = yield algorithm.compute_for(client, self.work_s(client, step))
            self.on_busy(client, False)
            if outcome is not Outcome.DONE:
                algorithm.when_up(lambda: settle(client, False))
                return
        sent_s = self._clock.now

        def arrived() -> None:
            algorithm.communicated(client, algorithm.present_s(client, sent_s, self._clock.now))
            settle(client, True)

        algorithm.world.network.send(client, algorithm.server, step.up, arrived)

    # -- masks that are exchanged beforehand ---------------------------------------------------

    def encoding_s(self, client: int) -> float:
        """Return the seconds in which a client makes a mask and its pieces."""
        return self._light.encoding_s(self._algorithm.num_clients) * self._slower[client]

    def exchange(self, client: int, update: int) -> None:
        """Send pieces of an update's mask to all other clients that are in the run."""
        algorithm, protocol, now = self._algorithm, self._light, self._clock.now
        availability = algorithm.world.availability
        everyone = range(algorithm.num_clients)
        there = [k for k in everyone if availability.joins_s(k) <= now < availability.leaves_s(k)]
        others = [k for k in there if k != client]
        self._holders[update], self._coming[update] = {client, *others}, set(others)

        def relay() -> None:
            for k in others:
                algorithm.to_client(k, lambda k=k: self._got(k, update), protocol.piece_bytes)  # type: ignore[misc]

        algorithm.world.network.send(client, algorithm.server, len(others) * protocol.piece_bytes, relay)

    def forget(self, update: int) -> None:
        """Forget an update that will be in no sum."""
        self._holders.pop(update, None)
        self._coming.pop(update, None)

    def _got(self, client: int, update: int) -> None:
        """Note that a client has its piece of an update's mask."""
        self._coming.get(update, set()).discard(client)
        updates, answer = self._waiting.get(client, (set(), None))
        updates.discard(update)
        if answer is not None and not updates:
            del self._waiting[client]
            answer()

    def recover(self, updates: Sequence[int]) -> Generator[simpy.Event, Any, bool]:
        """Ask for the sums of pieces of some updates; return whether they give the sum."""
        began_s, protocol, count = self._clock.now, self._light, len(updates)
        holders = sorted(set.intersection(*(self._holders[update] for update in updates)))
        present = [k for k in holders if self._algorithm.world.availability.leaves_s(k) > began_s]
        asked = present if count >= protocol.threshold else []
        step = protocol.steps(count)[3]

        def ask(client: int, settle: Callable[[int, bool], None]) -> None:
            def answer() -> None:
                self._clock.start(self._answer(client, step, settle), client)

            def received() -> None:
                missing = {update for update in updates if client in self._coming.get(update, ())}
                if protocol.dropout and self._drops.next(client) < protocol.dropout:
                    settle(client, False)
                elif missing:
                    self._waiting[client] = missing, answer
                else:
                    answer()

            self._algorithm.to_client(client, received, step.down, lambda: settle(client, False))

        answered = yield from self._round(asked, step, lambda came: protocol.enough(holders, came), ask)
        self._waiting.clear()
        pieces = sum(len(self._holders[update]) - 1 for update in updates)
        sent = 2 * pieces * protocol.piece_bytes + count * protocol.vector_bytes + len(answered) * step.up
        for update in updates:
            self.forget(update)
        counts = count, len(holders), count, len(answered)
        return bool((yield from self._ended(began_s, counts, holders, range(count), answered, sent)))

    @property
    def _light(self) -> LightSecAgg:
        assert isinstance(self.protocol, LightSecAgg)
        return self.protocol
