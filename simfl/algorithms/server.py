"""The base class of algorithms with a server.

The server is a node of the network but not a client. Messages to and from it travel over links like all others, its
uplink and downlink may be shared, and it may need time for each update. `simfl.algorithms.staleness` enforces a bound
on the staleness of updates.

Faults, for all these algorithms: a lost message is sent again, and messages to or from an offline or unreachable server
wait. A client that is unreachable when its model arrives requests another one; its next update is stale. The server
stops expecting the update of a crashed client at once (or when the server is back), and the client requests the model
again. An offline server applies no updates; it keeps its model, and later takes the updates that arrived, in order.
Under the staleness policy `wait`, once the bound is reached, the others wait for a client that a partition separates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.admission import Admission, Participation
from simfl.algorithms.base import Algorithm, OnUpdate
from simfl.algorithms.channel import Channel, CompressedChannel, PersonalChannel
from simfl.algorithms.cohorts import Cohorts
from simfl.algorithms.gathering import Gathering
from simfl.algorithms.optimizers import Optimizer, ServerOptimizer
from simfl.algorithms.secure_sums import SecureSums
from simfl.algorithms.service import Service
from simfl.algorithms.staleness import Apply, StalenessBound, Turns
from simfl.algorithms.steps import ServerDescent
from simfl.algorithms.sums import RuledSum, Sum
from simfl.algorithms.times import Exchanges
from simfl.algorithms.training import Training
from simfl.compiled import Integer, Number
from simfl.tape.recording import Gradient, Model, Tape
from simfl.world import World
from simfl.world.availability import DONE, GONE
from simfl.world.engine import Process


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerAlgorithm(Algorithm):
    """Base of algorithms with one server, which holds `server_model`.

    A client repeats: wait for the event of `hand_out` or `request`, compute, send with `to_server`. The server calls
    `arrive` with the update and answers with `hand_out`, or calls `forget` if there will be no update. An algorithm
    whose clients read without `hand_out` calls `turns.admit` first. `AsyncServerAlgorithm` has this loop.
    """

    #: What makes secure sums of its updates.
    secure_sums: ClassVar[type[SecureSums]] = SecureSums
    #: Whether the server sums what arrives at once and in order.
    in_order: ClassVar[bool] = True

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
        #: Number of updates applied to the server's model.
        self.version = 0
        self.turns = Turns(staleness, self.version_after, lambda: self.clock.stopped)
        self.server_model: Model
        super().__init__(world, tape, training, on_update, **options)

    def set_up(self) -> None:
        """Put the server's model on the tape and the server into the network."""
        server = self.world.server
        self.server = self.world.network.add_node(server.uplink, server.downlink)
        self.service = Service(self.world, self.server)
        self.server_model = self.tape.constant(self.training.initial)
        training = self.training
        #: The steps of its model.
        self.server_descent = ServerDescent(self.tape, self.descent, self.in_order)
        if training.server_optimizer is not None:
            optimizer = Optimizer(self.tape, training, training.server_optimizer, chain=True)
            self.server_descent = ServerOptimizer(self.tape, self.descent, self.in_order, optimizer)
        plan, protocol, compression = training.cohorts, training.secure_sum, training.compression
        #: Whose updates may be in a release, what the server makes of them, and how they come to it.
        self.admission, self.sum = Admission(), Sum(self)
        if plan is not None:
            self.admission = users = Participation(self, plan)
            self.sum = Cohorts(self, plan, users)
            self.budgets.leave_to(users.affords)
        self.gathering: Gathering = Gathering(self) if protocol is None else self.secure_sums(self, protocol)
        self.budgets.owed = self.gathering.owed
        self.exchanges = Exchanges(self.clock, self.times, self.gathering.spent_s)
        #: What clients and the server have of each other's vectors.
        self.channel = Channel(training.message_bytes, training.model_bytes)
        if compression is not None:
            sizes = training.model_bytes, training.message_bytes
            clients = range(self.num_clients)
            self.channel = CompressedChannel(self.tape, compression, clients, self.server_model, *sizes)
            self.combines += 1.0
        if training.personal is not None:
            size = training.message_bytes
            channel = PersonalChannel(self.tape, training.personal, self.num_clients, self.server_model, size)
            self.channel, self.of_clients = channel, channel.of_clients

    def models(self) -> Sequence[Model]:
        """Return the one model of the server."""
        return [self.server_model]

    @property
    def clipping_norm(self) -> Number | Model:
        """The norm to which updates are clipped, which the server may adapt."""
        return self.training.clipping_norm if self.sum.norm is None else self.sum.norm

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each client paired with the server."""
        return ((client, self.server_of(client)) for client in range(self.num_clients))

    def server_of(self, client: int) -> int:
        """Return the node that the client exchanges messages with."""
        del client
        return self.server

    @property
    def ending(self) -> str:
        """Say that the server will release no further sum."""
        return self.sum.ended or self.gathering.ended

    def take_rule(self, most_senders: int, kind: type[RuledSum] = RuledSum) -> None:
        """Let a robust rule make the sums, or attackers replace updates, if there are any."""
        aggregation = self.aggregator(most_senders)
        if aggregation is not None:
            self.sum = kind(self, aggregation)

    def awaits(self, client: Integer) -> str:
        """Say that the client waits for the server's answer, or for its turn."""
        del client
        return "waits for the server"

    def miss(self, client: int) -> None:
        """Tell the server, now or when it is back, that no update will arrive."""
        self.service.when_up(lambda: self.forget(client), self.server_of(client))

    # -- messages ------------------------------------------------------------------------------

    def to_server(
        self, client: int, receive: Callable[[], None], size: int | None = None, content: Model | Gradient | None = None
    ) -> None:
        """Send an update; `receive` is called when the server has processed it."""
        size, server = self.channel.up_bytes if size is None else size, self.server_of(client)
        self.world.network.send(client, server, size, lambda: self.service.process(receive, server), content=content)

    def to_client(
        self,
        client: int,
        receive: Callable[[], None],
        size: int | None = None,
        refused: Callable[[], None] | None = None,
        content: Model | None = None,
    ) -> None:
        """Send the model, or `size` bytes, to a client; see `Network.send`."""
        size = self.channel.down_bytes if size is None else size
        self.world.network.send(self.server_of(client), client, size, receive, refused, content)

    def content(self, client: int) -> Any:
        """Return the server's message to a client: the model and its version."""
        del client
        return self.server_model, self.version

    def hand_out(self, client: int, came: simpy.Event | None = None) -> simpy.Event:
        """Send a client the model as soon as it may read; return an event.

        The event is `came`, or a new one. Its value is `content()` at the time of sending, or None if the client was
        offline on arrival and has read nothing.
        """
        arrived = self.clock.event() if came is None else came
        since = self.clock.now

        def give() -> None:
            self.read(client)
            content = self.content(client)
            if self.clock.now == 0.0:
                arrived.succeed(content)
                return
            if self.turns.waits:
                self.exchanges.waited(client, since)

            def refused() -> None:
                self.miss(client)
                arrived.succeed(None)

            model, called = self.channel.down(client, content[0], refused)
            given = model, *content[1:]
            self.to_client(client, lambda: arrived.succeed(given), None, called, model)

        self.turns.admit(give, client)
        return arrived

    def request(self, client: int) -> simpy.Event:
        """Request the model by a message without size; returns the event of `hand_out`."""
        came = self.clock.event()
        self.world.network.send(client, self.server_of(client), 0, lambda: self.hand_out(client, came))
        return came

    # -- staleness -----------------------------------------------------------------------------

    def read(self, client: int) -> int:
        """Note that the next update is computed at the current version; return it."""
        return self.turns.read(client)

    def forget(self, client: int) -> None:
        """Stop expecting the client's update: it crashed or left."""
        self.turns.forget(client)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read`, when the bound allows it.

        `apply` changes the model and calls `applied` if it did.
        """
        if not self.turns.waits:
            self.turns.arrive(client, read, apply)
            return
        since = self.clock.now

        def in_turn(weight: Number, staleness: int) -> None:
            self.exchanges.waited(client, since)
            apply(weight, staleness)

        self.turns.arrive(client, read, in_turn)

    def applied(self) -> None:
        """Note that the server's model has changed by one update."""
        self.version += 1

    def version_after(self, updates: int) -> int:
        """Return the version after further updates; by default each increases it by 1."""
        return self.version + updates


@mypyc_attr(allow_interpreted_subclasses=True)
class AsyncServerAlgorithm(ServerAlgorithm):
    """Base of algorithms whose clients do not wait for each other."""

    def start(self) -> None:
        """Start the clients."""
        self.processes = [self.clock.start(self.client(client), client) for client in range(self.num_clients)]

    def client(self, me: int) -> Process:
        """Pull, compute and push, repeatedly.

        An interrupt stops a computation; its cause is an event, as of `hand_out`, of the model to continue from.
        """
        yield self.world.joined(me)
        self.enter(me)
        came = self.hand_out(me) if self.clock.now == 0.0 else self.request(me)
        while True:
            since = self.clock.now
            content = yield came
            del came  # a suspended process would keep it, and the model in it, alive
            self.exchanges.ended(me, since)
            if content is None:  # the client was offline when the model arrived
                if not (yield from self.world.until_back(me)):
                    break
                came = self.request(me)
                continue
            gradient, read = self.gradient_at(me, content), content[1]
            del content
            try:
                outcome = yield self.compute(me)
            except simpy.Interrupt as stop:
                self.lose(gradient)
                del gradient
                came = stop.cause
                continue
            if outcome is DONE:
                came = self.push(me, gradient, read)
                del gradient
                continue
            self.lose(gradient)
            del gradient
            self.miss(me)
            if outcome is GONE:
                break
            came = self.request(me)
        self.leave(me)

    def enter(self, me: int) -> None:
        """Note that the client has joined."""

    def leave(self, me: int) -> None:
        """Note that the client has left permanently."""

    def lose(self, gradient: Any) -> None:
        """Drop a result that the client did not compute to the end."""
        self.batches.lost(gradient)

    @abstractmethod
    def gradient_at(self, me: int, content: Any) -> Gradient:
        """Promise the result that the client computes at the model in the message."""

    @abstractmethod
    def push(self, me: int, gradient: Any, read: int) -> simpy.Event:
        """Send the result to the server; return the event of its answer."""
