"""What algorithms with a server have in common: a node that applies what arrives, and the staleness it accepts.

The server is a node of the network that is no client: messages to and from it travel over links like all others, its
uplink and downlink may be shared, and it may need time for each update. Staleness of an update is the number of
updates applied between the read of the model it was computed at and its own application. A bound on it is kept by

- `wait`: an update is held back while applying it would leave others, under way or held back, more than they can all
  keep; and at most bound + 1 clients compute at a time, the next one reads when one of them is done. One after the
  other, the oldest first, is then always possible: nothing waits for ever, because who is waited for is computing, or
  has crashed (and reads anew) or left (and is forgotten).
- `drop`: an update that is too stale is thrown away; its client goes on from the present model.
- `down_weight`: an update that is too stale counts (bound + 1) / (staleness + 1).

Faults, for all of them: a lost message is sent again, and messages to or from a server that is away, or out of reach,
wait. A client that is out of reach when its model comes asks for another; what it sends later is stale. Who crashes
is forgotten at once (or when the server is back) and asks anew. While the server is away nothing is applied; it keeps
its model, and takes what has come in order. Under `wait`, who is cut off is waited for once the bound is reached.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import simpy

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.availability import Outcome


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


class ServerAlgorithm(Algorithm):
    """Base of algorithms with one server, which holds `server_model`.

    A client's life is: wait for what `hand_out` or `request` promised, compute, send with `to_server`. The server
    calls `arrive` with what came, and answers with `hand_out`. A client whose update will not come is forgotten
    (`forget`). An algorithm whose clients read without `hand_out` asks `admit` first.
    """

    def __init__(self, *arguments: Any, staleness: StalenessBound | None = None, **options: Any) -> None:
        #: Updates applied to the server's model so far.
        self.version = 0
        #: The version that each client's update under way was computed at.
        self.reading: dict[int, int] = {}
        self.staleness_bound = staleness
        self._waits = staleness is not None and staleness.policy == "wait"
        self._held: list[tuple[int, int, int, Apply]] = []  # read, order of arrival, client, what to do
        self._arrivals = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._waited_s: dict[int, float] = {}
        self._server_free_s = 0.0
        self.server_model: Model
        super().__init__(*arguments, **options)

    def set_up(self) -> None:
        """Put the server's model on the tape and the server into the network."""
        server = self.world.server
        self.server = self.world.network.add_node(server.uplink, server.downlink)
        self.server_model = self.tape.constant(self.training.initial)

    def models(self) -> Sequence[Model]:
        """The one model of the server."""
        return [self.server_model]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield every client with the server."""
        return ((client, self.server) for client in range(self.num_clients))

    def awaits(self, client: int) -> str:
        """The server's answer, or its turn."""
        del client
        return "waits for the server"

    # -- outages of the server -----------------------------------------------------------------

    def when_up(self, call: Callable[[], None]) -> None:
        """Call something that the server does, now or when it is back; never, if it does not come back."""
        if self._trivial:
            call()
            return
        back_s = self.world.availability.back_s(self.server, self.clock.now)
        if back_s == self.clock.now:
            call()
        elif not math.isinf(back_s):
            self.clock.call_at(back_s, call)

    def miss(self, client: int) -> None:
        """The client's update will not come, which the server learns at once, or when it is back."""
        self.when_up(lambda: self.forget(client))

    # -- messages ------------------------------------------------------------------------------

    def to_server(self, client: int, receive: Callable[[], None], size: int | None = None) -> None:
        """Send an update (a model's size by default); `receive` is called when the server turns to it."""
        self.world.network.send(client, self.server, self._bytes(size), lambda: self._turn_to(receive))

    def to_client(
        self,
        client: int,
        receive: Callable[[], None],
        size: int | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Send the model (or `size` bytes) to a client; as `Network.send` otherwise."""
        self.world.network.send(self.server, client, self._bytes(size), receive, refused)

    def _bytes(self, size: int | None) -> int:
        return self.training.model_bytes if size is None else size

    def _turn_to(self, receive: Callable[[], None]) -> None:
        """The server works on one message after the other."""
        seconds = self.world.server.seconds_per_update
        if not seconds:
            receive()
            return
        begin_s = max(self.clock.now, self._server_free_s)
        self._server_free_s, outcome = self.world.availability.finish(self.server, begin_s, seconds)
        if outcome is Outcome.DONE:
            self.clock.call_at(self._server_free_s, receive)

    def content(self) -> Any:
        """What the server sends a client that may read: the model and its version."""
        return self.server_model, self.version

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model as soon as it may read it.

        At time 0 everybody has the initial model: nothing travels.

        Args:
            client: who reads.
            came: what happens then; an event of its own by default.

        Returns:
            An event whose value is `content()` as it was when the server sent it, or None if the client was away when
            it came: then it has not read anything.
        """
        arrived = self.clock.event() if came is None else came
        since = self.clock.now

        def give() -> None:
            self.read(client)
            content = self.content()
            if self.clock.now == 0.0:
                arrived.succeed(content)
                return
            if self._waits:
                self._wait(client, since)

            def refused() -> None:
                self.miss(client)
                arrived.succeed(None)

            self.to_client(client, lambda: arrived.succeed(content), refused=refused)

        self.admit(give)
        return arrived

    def request(self, client: int) -> simpy.Event:
        """Ask the server for the model, by a message of no size; returns the event of `hand_out`."""
        came = self.clock.event()
        self.world.network.send(client, self.server, 0, lambda: self.hand_out(client, came))
        return came

    def exchanged(self, client: int, since: float) -> None:
        """Count a client's time since it sent something: as communication, but for what it waited at the server."""
        now = self.clock.now
        if now == since:
            return
        spent = self.present_s(client, since, now)
        waited = min(self._waited_s.pop(client, 0.0), spent) if self._waited_s else 0.0
        self.times[client].communicate_s += spent - waited

    def _wait(self, client: int, since: float) -> None:
        """Note that the server let a client wait until now."""
        waited = self.present_s(client, since, self.clock.now)
        if waited > 0.0:
            self._waited_s[client] = self._waited_s.get(client, 0.0) + waited

    # -- staleness -----------------------------------------------------------------------------

    def admit(self, give: Callable[[], None]) -> None:
        """Call `give`, which lets a client read, now; under the policy `wait` when few enough clients compute."""
        if not self._waits:
            give()
            return
        self._queue.append(give)
        self._let_in()

    def read(self, client: int) -> int:
        """Note that the client's next update is computed at the present version, and return it."""
        self.reading[client] = self.version
        return self.version

    def forget(self, client: int) -> None:
        """The client's update will not come: it crashed or left."""
        self.reading.pop(client, None)
        self._go_on()

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read`, now or when the staleness bound allows it.

        `apply` changes the model and calls `applied` if it did.
        """
        self.reading.pop(client, None)
        limit = self.staleness_bound
        if limit is None or not self._waits:
            staleness = self.version - read
            apply(1.0 if limit is None else limit.weight(staleness), staleness)
            return
        since = self.clock.now

        def in_turn(weight: float, staleness: int) -> None:
            self._wait(client, since)
            apply(weight, staleness)

        self._arrivals += 1
        self._held.append((read, self._arrivals, client, in_turn))
        self._go_on()

    def applied(self) -> None:
        """Note that the server's model has changed by one update."""
        self.version += 1

    def version_after(self, updates: int) -> int:
        """The version after so many updates more: each makes one, unless several are applied together."""
        return self.version + updates

    def _go_on(self) -> None:
        """Under the policy `wait`: apply what may be applied, then let in who may read."""
        if not self._waits:
            return
        while self._held and not self.clock.stopped:
            first = min(self._held)
            read, _, _, apply = first
            reads = sorted([*self.reading.values(), *(entry[0] for entry in self._held if entry is not first)])
            if reads and reads[0] < read and not self._possible(reads):
                break
            self._held.remove(first)
            apply(1.0, self.version - read)
        self._let_in()

    def _possible(self, reads: Sequence[int]) -> bool:
        """Whether updates read at these versions (in order) can all be applied in time after one more is."""
        assert self.staleness_bound is not None
        bound = self.staleness_bound.bound
        return all(self.version_after(1 + i) - read <= bound for i, read in enumerate(reads))

    def _let_in(self) -> None:
        """Let clients read for as long as all updates under way can be applied in time, one after the other."""
        assert self.staleness_bound is not None
        bound = self.staleness_bound.bound
        while self._queue and self.version_after(len(self.reading) + len(self._held)) - self.version <= bound:
            self._queue.popleft()()
