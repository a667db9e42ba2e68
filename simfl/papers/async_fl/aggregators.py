"""A tree of aggregators between clients and server; each forwards sums of updates.

Van Dijk et al. 2020, https://arxiv.org/abs/2007.09208, appendix A: "we may think of the server as a number of connected
separate aggregators that serve as proxies between the clients and server". In each round, an aggregator waits for the
updates of all participating clients below it and sends their sum up. It forwards updates that arrive later at once.
Broadcasts go down the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simfl.tape import Model, Tape
from simfl.world import Network


@dataclass(frozen=True)
class Part:
    """One client's update: its examples, and the server's version in its model."""

    client: int
    examples: int
    version: int


@dataclass
class Bundle:
    """The sum of one round's updates of some clients, to be added to the model."""

    round_num: int
    change: Model
    parts: list[Part]


@dataclass
class _Node:
    """An aggregator, and what has arrived of each round."""

    number: int
    parent: int
    clients: frozenset[int]
    arrived: dict[int, set[int]] = field(default_factory=dict)
    waiting: dict[int, list[Bundle]] = field(default_factory=dict)


class Aggregators:
    """The nodes between clients and server.

    Args:
        server: the root's number.
        levels: number of aggregators on each level, from the server down; () for none.
        num_clients: K, divided evenly among the lowest level.
        update_bytes: size of a client's update; a sum of n updates has min(n * update_bytes, model_bytes).
        model_bytes: size of a model.
        expected: a function from a round to the clients to wait for; empty if the round is complete.
        arrive: called with each bundle that reaches the server.
    """

    def __init__(
        self,
        network: Network,
        tape: Tape,
        server: int,
        levels: Sequence[int],
        num_clients: int,
        update_bytes: int,
        model_bytes: int,
        expected: Callable[[int], set[int]],
        arrive: Callable[[Bundle], None],
    ) -> None:
        self._network, self._tape, self._server = network, tape, server
        self._update_bytes, self._model_bytes = update_bytes, model_bytes
        self._expected, self._arrive = expected, arrive
        self._nodes: dict[int, _Node] = {}
        above = [server]
        for count in levels:
            row = [network.add_node() for _ in range(count)]
            for at, number in enumerate(row):
                self._nodes[number] = _Node(number, above[at * len(above) // count], frozenset())
            above = row
        self._parent = [above[client * len(above) // num_clients] for client in range(num_clients)]
        for client in range(num_clients):
            number = self._parent[client]
            while number != server:
                node = self._nodes[number]
                node.clients |= {client}
                number = node.parent

    def up(self, client: int, bundle: Bundle) -> None:
        """Send a client's update towards the server."""
        self._send(client, self._parent[client], bundle)

    def down(self, clients: Sequence[int], receive: Callable[[int], None], size: int, model: Model) -> None:
        """Send a model of `size` bytes down the tree; each client calls `receive`."""
        self._spread(self._server, set(clients), receive, size, model)

    def forget(self, complete: int) -> None:
        """Forget which updates have arrived in rounds below `complete`."""
        for node in self._nodes.values():
            for round_num in [r for r in node.arrived if r < complete and r not in node.waiting]:
                del node.arrived[round_num]

    def check(self) -> None:
        """Forward the sums that waited for a client that has left."""
        for node in self._nodes.values():
            for round_num in sorted(node.waiting):
                self._forward(node, round_num)

    def _send(self, source: int, target: int, bundle: Bundle) -> None:
        size = min(self._model_bytes, self._update_bytes * len(bundle.parts))
        if target == self._server:
            self._network.send(source, target, size, lambda: self._arrive(bundle), content=bundle.change)
        else:
            node = self._nodes[target]
            self._network.send(source, target, size, lambda: self._gather(node, bundle), content=bundle.change)

    def _gather(self, node: _Node, bundle: Bundle) -> None:
        node.arrived.setdefault(bundle.round_num, set()).update(part.client for part in bundle.parts)
        node.waiting.setdefault(bundle.round_num, []).append(bundle)
        self._forward(node, bundle.round_num)

    def _forward(self, node: _Node, round_num: int) -> None:
        if not (self._expected(round_num) & node.clients) <= node.arrived[round_num]:
            return
        bundles = node.waiting.pop(round_num)
        change = bundles[0].change
        if len(bundles) > 1:
            change = self._tape.settle(self._tape.combine(*((1.0, bundle.change) for bundle in bundles)))
        parts = [part for bundle in bundles for part in bundle.parts]
        self._send(node.number, node.parent, Bundle(round_num, change, parts))

    def _spread(self, source: int, clients: set[int], receive: Callable[[int], None], size: int, model: Model) -> None:
        for client in sorted(clients):
            if self._parent[client] == source:
                self._network.send(
                    source, client, size, lambda client=client: receive(client), content=model  # type: ignore[misc]
                )  # fmt: skip
        for node in self._nodes.values():
            below = clients & node.clients
            if node.parent == source and below:
                self._network.send(
                    source, node.number, size,
                    lambda node=node, below=below: self._spread(  # type: ignore[misc]
                        node.number, below, receive, size, model
                    ),
                    content=model,
                )  # fmt: skip
