"""What algorithms with a server have in common: a node that applies what arrives, and the staleness it accepts.

The server is a node of the network that is no client: messages to and from it travel over links like all others, its
uplink and downlink may be shared, and it may need time for each update. How stale an update may be is a matter of
`simfl.algorithms.staleness`.

Faults, for all of them: a lost message is sent again, and messages to or from a server that is away, or out of reach,
wait. A client that is out of reach when its model comes asks for another; what it sends later is stale. Who crashes
is forgotten at once (or when the server is back) and asks anew. While the server is away nothing is applied; it keeps
its model, and takes what has come in order. Under `wait`, who is cut off is waited for once the bound is reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import simpy

from simfl.algorithms.base import Algorithm
from simfl.algorithms.optimizers import Optimizer
from simfl.algorithms.staleness import Apply, StalenessBound, Turns
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome


class ServerAlgorithm(Algorithm):
    """Base of algorithms with one server, which holds `server_model`.

    A client's life is: wait for what `hand_out` or `request` promised, compute, send with `to_server`. The server
    calls `arrive` with what came, and answers with `hand_out`. A client whose update will not come is forgotten
    (`forget`). An algorithm whose clients read without `hand_out` asks `admit` first.
    """

    def __init__(self, *arguments: Any, staleness: StalenessBound | None = None, **options: Any) -> None:
        #: Updates applied to the server's model so far.
        self.version = 0
        self.turns = Turns(staleness, self.version_after, lambda: self.clock.stopped)
        self._waited_s: dict[int, float] = {}
        self._server_free_s = 0.0
        self.server_model: Model
        #: What takes the server's steps; None for plain SGD.
        self.server_optimizer: Optimizer | None = None
        super().__init__(*arguments, **options)

    def set_up(self) -> None:
        """Put the server's model on the tape and the server into the network."""
        server = self.world.server
        self.server = self.world.network.add_node(server.uplink, server.downlink)
        self.server_model = self.tape.constant(self.training.initial)
        if self.training.server_optimizer is not None:
            self.server_optimizer = Optimizer(self.tape, self.training.server_optimizer, 1, chain=True)

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

    def to_server(
        self, client: int, receive: Callable[[], None], size: int | None = None, content: Model | Gradient | None = None
    ) -> None:
        """Send an update (a model's size by default); `receive` is called when the server turns to it."""
        self.world.network.send(client, self.server, self._bytes(size), lambda: self._turn_to(receive), content=content)

    def to_client(
        self,
        client: int,
        receive: Callable[[], None],
        size: int | None = None,
        refused: Callable[[], None] | None = None,
        content: Model | None = None,
    ) -> None:
        """Send the model (or `size` bytes) to a client; as `Network.send` otherwise."""
        self.world.network.send(self.server, client, self._bytes(size), receive, refused, content)

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
            if self.turns.waits:
                self._wait(client, since)

            def refused() -> None:
                self.miss(client)
                arrived.succeed(None)

            self.to_client(client, lambda: arrived.succeed(content), None, refused, content[0])

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
        self.communicated(client, spent - waited)

    def _wait(self, client: int, since: float) -> None:
        """Note that the server let a client wait until now."""
        waited = self.present_s(client, since, self.clock.now)
        if waited > 0.0:
            self._waited_s[client] = self._waited_s.get(client, 0.0) + waited

    # -- staleness -----------------------------------------------------------------------------

    def admit(self, give: Callable[[], None]) -> None:
        """Call `give`, which lets a client read, when the bound allows it."""
        self.turns.admit(give)

    def read(self, client: int) -> int:
        """Note that the client's next update is computed at the present version, and return it."""
        return self.turns.read(client)

    def forget(self, client: int) -> None:
        """The client's update will not come: it crashed or left."""
        self.turns.forget(client)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read`, now or when the staleness bound allows it.

        `apply` changes the model and calls `applied` if it did.
        """
        if not self.turns.waits:
            self.turns.arrive(client, read, apply)
            return
        since = self.clock.now

        def in_turn(weight: float, staleness: int) -> None:
            self._wait(client, since)
            apply(weight, staleness)

        self.turns.arrive(client, read, in_turn)

    def applied(self) -> None:
        """Note that the server's model has changed by one update."""
        self.version += 1

    def version_after(self, updates: int) -> int:
        """The version after so many updates more: each makes one, unless several are applied together."""
        return self.version + updates
