"""Secure sums of updates in time: rounds of messages, dropouts, aborts.

See `simfl.world.secure_sums` for the protocols. A round of messages ends when all clients in it have answered or
dropped out, or at its timeout; the last one as soon as the answers suffice. A client drops out if it is offline or cut
off when a message arrives, if it crashes or leaves while it computes, or by the protocol's own probability. The server
knows it after the resend timeout of a link, when a crashed client is back, or at once. Lost messages are sent again. A
message of a round that is over is ignored. Fewer than t clients in any round abort the sum.

The server may still learn an aborted sum. The clients that it asked in the last round have not dropped out for certain,
unless the server knows of it: an answer that comes after the timeout reaches the server, and a client that gets the
request after the timeout answers. `SecureSums.shown` counts all of them. The future is not known when a sum is aborted,
so this is a bound. The same holds for a sum whose last round is under way when the run ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import simpy

from simfl.algorithms.gathering import Gathering, Server, Update
from simfl.algorithms.sums import Shown
from simfl.errors import RunError
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.secure_sums import LightSecAgg, Step, SumProtocol, circle_of

#: A row of the table `secure_sums`: sum, began_s, time_s, the clients of the four rounds, members, bytes.
SumRow = tuple[int, float, float, int, int, int, int, int, int]
#: With more aborted sums in a row than this, no sum will ever be made.
MOST_ABORTED = 1000


class Answers:
    """The answers of a round of messages.

    Args:
        members: the clients that are asked; none if there is no such round.
        over: ends the round.
        enough: whether the answers of these clients end it.
    """

    def __init__(self, members: Sequence[int], over: simpy.Event, enough: Callable[[Sequence[int]], bool]) -> None:
        self.members = members
        self.came: list[int] = []
        self.over = over
        self._missing, self._enough = set(members), enough

    @property
    def possible(self) -> list[int]:
        """The clients that have answered, and those that have not dropped out."""
        return [*self.came, *self._missing]

    @property
    def is_over(self) -> bool:
        """Whether the round has ended."""
        return bool(self.over.triggered)

    def end(self) -> None:
        """End the round without those that have not answered."""
        if not self.is_over:
            self.over.succeed()

    def settle(self, client: int, answered: bool) -> None:
        """Note that a client has answered, or dropped out."""
        if client not in self._missing or self.is_over:
            return
        self._missing.discard(client)
        if answered:
            self.came.append(client)
        if not self._missing or (answered and self._enough(self.came)):
            self.end()


@dataclass(frozen=True)
class LastRound:
    """The last round of a sum.

    Attributes:
        circle: the clients that sent shares.
        updates: those in the sum, by client.
        answers: the round's answers.
    """

    circle: Sequence[int]
    updates: Mapping[int, Any]
    answers: Answers


class SecureSums(Gathering):
    """The secure sums of a server, in rounds of messages.

    A client says that it has an update. `members` asks for the update, under a mask.

    Args:
        server: has the messages and its clients' computations.
        protocol: rounds, bytes and work.
    """

    is_open = False

    def __init__(self, server: Server, protocol: SumProtocol) -> None:
        super().__init__(server)
        self.protocol = protocol
        self.least = protocol.threshold
        #: Number of sums so far, with aborted ones.
        self.number = 0
        #: Receives the rows of the table; may be replaced before the run.
        self.on_sum: Callable[[SumRow], None] = lambda row: None
        plan = server.training.cohorts
        #: How many clients of a sum may tell the server what they know; None: no account needs `shown` and `split`.
        self.colluding = plan.least - plan.parts if plan is not None and plan.parts else None
        #: The updates of the last sum, by client, if it was aborted and the server may still learn something about it.
        self.shown: Mapping[int, Any] = {}
        #: Whether the server can compute sums of some clients of the last sum only.
        self.split = False
        self._clock = server.clock
        usual = [server.world.compute.usual(k, 1) for k in range(server.num_clients)]
        self._slower = [seconds / min(usual) for seconds in usual]
        self._drops = Draws(server.world.streams, "secure-sum", lambda g, n: g.random(n))
        self._aborted = 0
        self._last_round: LastRound | None = None
        #: Until when each client's time is counted: it exchanges messages of sums beside others.
        self._counted_s = [0.0] * server.num_clients

    def hopeless(self, clients: Iterable[int]) -> bool:
        """Whether fewer than t of the clients can be in the next sum, whenever it is."""
        server = self._server

        def comes(k: int) -> bool:
            out = server.budgets.spent(k) or server.admission.shuts(k)
            return not out and not math.isinf(server.world.meets_s(k, (k, server.server)))

        return sum(map(comes, clients)) < self.protocol.threshold

    @property
    def ended(self) -> str:
        """Say that too few clients are left."""
        if not self.hopeless(range(self._server.num_clients)):
            return ""
        said = f"fewer than {self.protocol.threshold} clients are left for a secure sum"
        return said + ", as participation allows" * self._server.admission.holds_back

    def work_s(self, client: int) -> float:
        """Return how long a client computes before it says that it has an update."""
        return self._work_s(client, self._first)

    def bytes_up(self, size: int) -> int:
        """Return the bytes of the message by which a client says so."""
        return self._first.up

    def spent_s(self, client: int, seconds: float) -> float | None:
        """Return the part of the last `seconds` in which the client did nothing else.

        It may compute meanwhile, or exchange other messages.
        """
        server, now = self._server, self._clock.now
        since_s = max(self._counted_s[client], server.times.busy_until[client])
        self._counted_s[client] = now
        return None if since_s >= now else min(seconds, server.times.present_s(client, since_s, now))

    def send(
        self, client: int, update: int, receive: Callable[[], None], size: int | None, content: Model | Gradient
    ) -> None:
        """Say that the client has an update, and send its keys."""
        self._server.to_server(client, receive, self._first.up)

    @property
    def _first(self) -> Step:
        """The round in which a client says that it has an update."""
        return self.protocol.steps(1)[0]

    def _work_s(self, client: int, step: Step) -> float:
        """Return how long a client computes in a round."""
        return step.work_s * self._slower[client]

    # -- rounds --------------------------------------------------------------------------------

    def members(self, updates: Mapping[int, Any]) -> Generator[simpy.Event, Any, list[int]]:
        """Run the rounds after the first; return who is in the sum, none if it is aborted."""
        members = yield from self._members(updates)
        if not members or self.split:
            self._aborts()
        return members

    def _aborts(self) -> None:
        """Tell the server's sum what the server may learn beside the result."""
        parts = (
            f"after dropouts, and with {self.colluding} colluding users, the neighbors of secure sum {self.number - 1} "
            "fall into parts, whose sums the server can compute"
        )
        shown, self.shown = self.shown, {}
        self._server.sum.aborted(Shown(shown, parts * self.split))

    def _members(self, updates: Mapping[int, Any]) -> Generator[simpy.Event, Any, list[int]]:
        began_s, ready = self._clock.now, sorted(updates)
        _, sharing, masking, unmasking = self.protocol.steps(len(ready))
        shared = yield from self._round(self._answers(ready), sharing)
        masked = yield from self._round(self._answers(shared), masking)
        circle = circle_of(shared, self._server.world.streams.generator("secure-circle", 0, self.number))
        answers = self._answers(masked, lambda came: self.protocol.enough(circle, came))
        self._last_round = LastRound(circle, {client: updates[client] for client in masked}, answers)
        answered = yield from self._round(answers, unmasking)
        spent = [len(ready), *map(len, (shared, masked, answered))]
        sizes = (self.protocol.steps(len(ready))[0], sharing, masking, unmasking)
        asked = [0, *(count * (count >= self.protocol.threshold) for count in spent[:3])]
        sent = sum(a * one.down + b * one.up for a, b, one in zip(asked, spent, sizes, strict=True))
        return (yield from self._ended(began_s, spent, answered, sent))

    def owed(self) -> Callable[[], None] | None:
        """Return what counts a sum that is being unmasked: answers may still come."""
        last = self._last_round
        return None if last is None or self.colluding is None else functools.partial(self._close, last)

    def _close(self, last: LastRound) -> None:
        self._judge(last)
        self._aborts()

    def _judge(self, last: LastRound) -> None:
        """Note what the server may learn of a sum that is over."""
        self._last_round, self.split, self.shown = None, False, {}
        if self.colluding is not None and last.answers.members:
            sum_of = last.circle, [*last.updates]
            self.split = not self.protocol.hides(*sum_of, self.colluding)
            if self.protocol.shows(*sum_of, last.answers.possible, self.colluding):
                self.shown = last.updates

    def _ended(
        self,
        began_s: float,
        counts: Sequence[int],
        answered: Sequence[int],
        sent: int,
    ) -> Generator[simpy.Event, Any, list[int]]:
        """Unmask the sum, or abort it; write its row."""
        protocol, last = self.protocol, self._last_round
        assert last is not None
        circle, members = last.circle, [*last.updates]
        if not last.answers.members or not protocol.enough(circle, answered):
            members = []
        elif seconds := protocol.server_s(circle, members):
            yield self._clock.timeout(seconds)
        self._aborted = 0 if members else self._aborted + 1
        if self._aborted > MOST_ABORTED:
            raise RunError(
                f"algorithm.secure_sum.threshold: {MOST_ABORTED} sums in a row had fewer than {protocol.threshold} "
                "survivors; lower it, the dropout or the timeout"
            )
        self._judge(last)
        if members:
            self.shown = {}
        self.number += 1
        first, second, third, fourth = counts
        now = self._clock.now
        self.on_sum((self.number - 1, began_s, now, first, second, third, fourth, len(members), sent))
        return members

    def _answers(self, members: Sequence[int], enough: Callable[[Sequence[int]], bool] = lambda came: False) -> Answers:
        """Return the answers of a round that asks the members, if they are t or more."""
        return Answers(members if len(members) >= self.protocol.threshold else (), self._clock.event(), enough)

    def _round(
        self, answers: Answers, step: Step, ask: Callable[[int, Answers], None] | None = None
    ) -> Generator[simpy.Event, Any, list[int]]:
        """Send to the members, and return those whose answers came in time."""
        if not answers.members:
            return []
        for client in answers.members:
            if ask is not None:
                ask(client, answers)
            else:
                self._ask(client, step, answers)
        if not math.isinf(self.protocol.timeout_s):
            self._clock.call_at(self._clock.now + self.protocol.timeout_s, answers.end)
        yield answers.over
        yield from self._server.service.until_up()
        return sorted(answers.came)

    def _ask(self, client: int, step: Step, answers: Answers) -> None:
        """Send a round's message to a client, which answers or drops out."""
        server, since = self._server, self._clock.now

        def received() -> None:
            if answers.is_over:
                return
            server.exchanges.communicated(client, server.times.present_s(client, since, self._clock.now))
            if self.protocol.dropout and self._drops.next(client) < self.protocol.dropout:
                answers.settle(client, False)
            else:
                self._clock.start(self._answer(client, step, answers), client)

        server.to_client(client, received, step.down, lambda: answers.settle(client, False))

    def _answer(self, client: int, step: Step, answers: Answers) -> Generator[simpy.Event, Any, None]:
        """Compute, and send the answer."""
        server = self._server
        if step.work_s:
            self.on_busy(client, True)
            outcome = yield server.compute_for(client, self._work_s(client, step))
            self.on_busy(client, False)
            if outcome is not Outcome.DONE:
                server.service.when_up(lambda: answers.settle(client, False))
                return
        sent_s = self._clock.now

        def arrived() -> None:
            if answers.is_over:  # the client may do other things by now
                return
            server.exchanges.communicated(client, server.times.present_s(client, sent_s, self._clock.now))
            answers.settle(client, True)

        server.world.network.send(client, server.server, step.up, arrived)


class LightSums(SecureSums):
    """Secure sums of updates of different times, whose masks are exchanged beforehand.

    Updates that come while a sum is made wait for its end.
    """

    def __init__(self, server: Server, protocol: SumProtocol) -> None:
        super().__init__(server, protocol)
        assert isinstance(protocol, LightSecAgg)
        self._light = protocol
        #: By update: who was sent pieces of its mask, and who has not got them yet.
        self._holders: dict[int, set[int]] = {}
        self._coming: dict[int, set[int]] = {}
        #: Clients that answer as soon as they have the pieces of these updates.
        self._waiting: dict[int, tuple[set[int], Callable[[], None]]] = {}
        #: Calls for updates that came during a sum.
        self._held: list[Callable[[], None]] = []

    def work_s(self, client: int) -> float:
        """Return the seconds in which a client makes a mask and its pieces."""
        return self._light.encoding_s(self._server.num_clients) * self._slower[client]

    def bytes_up(self, size: int) -> int:
        """Return the bytes of an update under its mask."""
        return self.protocol.vector_bytes

    def send(
        self, client: int, update: int, receive: Callable[[], None], size: int | None, content: Model | Gradient
    ) -> None:
        """Send pieces of a mask to the others, and the update under it to the server."""
        self._exchange(client, update)
        self._server.to_server(client, lambda: self._hear(receive), self.protocol.vector_bytes)

    def _hear(self, receive: Callable[[], None]) -> None:
        """Take an update now, or after the sum that is being made."""
        if self.busy:
            self._held.append(receive)
        else:
            receive()

    def gather(self, updates: Sequence[Update], release: Callable[[], None], aborted: Callable[[], None]) -> None:
        """Begin the sum."""
        self.busy = True
        self._clock.start(self._gather(updates, release, aborted))

    def _gather(
        self, updates: Sequence[Update], release: Callable[[], None], aborted: Callable[[], None]
    ) -> Generator[simpy.Event, Any, None]:
        changes = {update.client: update.change for update in updates}
        if (yield from self._recover([update.number for update in updates], changes)):
            release()
        else:
            self._aborts()
            aborted()
        self.busy = False
        held, self._held = self._held, []
        for receive in held:
            self._hear(receive)

    def _exchange(self, client: int, update: int) -> None:
        """Send pieces of an update's mask to all other clients that are in the run."""
        server, protocol, now = self._server, self._light, self._clock.now
        availability = server.world.availability
        everyone = range(server.num_clients)
        there = [k for k in everyone if availability.joins_s(k) <= now < availability.leaves_s(k)]
        others = [k for k in there if k != client]
        self._holders[update], self._coming[update] = {client, *others}, set(others)

        def relay() -> None:
            for k in others:
                server.to_client(k, lambda k=k: self._got(k, update), protocol.piece_bytes)  # type: ignore[misc]

        server.world.network.send(client, server.server, len(others) * protocol.piece_bytes, relay)

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

    def _recover(self, updates: Sequence[int], changes: Mapping[int, Any]) -> Generator[simpy.Event, Any, bool]:
        """Ask for the sums of pieces of some updates; return whether they give the sum.

        `updates` are their numbers, and `changes` what is in the sum, by client.
        """
        began_s, protocol, count = self._clock.now, self._light, len(updates)
        holders = sorted(set.intersection(*(self._holders[update] for update in updates)))
        present = [k for k in holders if self._server.world.availability.leaves_s(k) > began_s]
        asked = present if count >= protocol.threshold else []
        step = protocol.steps(count)[3]

        def ask(client: int, answers: Answers) -> None:
            def answer() -> None:
                self._clock.start(self._answer(client, step, answers), client)

            def received() -> None:
                if answers.is_over:
                    return
                missing = {update for update in updates if client in self._coming.get(update, ())}
                if protocol.dropout and self._drops.next(client) < protocol.dropout:
                    answers.settle(client, False)
                elif missing:
                    self._waiting[client] = missing, answer
                else:
                    answer()

            self._server.to_client(client, received, step.down, lambda: answers.settle(client, False))

        answers = self._answers(asked, lambda came: protocol.enough(holders, came))
        self._last_round = LastRound(holders, changes, answers)
        answered = yield from self._round(answers, step, ask)
        self._waiting.clear()
        pieces = sum(len(self._holders[update]) - 1 for update in updates)
        sent = 2 * pieces * protocol.piece_bytes + count * protocol.vector_bytes + len(answered) * step.up
        for update in updates:
            self.forget(update)
        counts = count, len(holders), count, len(answered)
        return bool((yield from self._ended(began_s, counts, answered, sent)))
