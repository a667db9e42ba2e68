"""Ask a selector which clients take part, and keep what it may know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from simfl.algorithms.channel import Channel
from simfl.algorithms.training import Training
from simfl.errors import RunError
from simfl.selection.base import AbstractSelector, Clients
from simfl.selection.selectors.uniform import Uniform
from simfl.tape.recording import Model, Tape
from simfl.world import World
from simfl.world.compute import Draws

#: The most mini-batches of a round whose losses a client reports.
MOST_LOSSES: Final = 4
#: Takes the place of a loss that is infinite or not a number.
_LARGE: Final = 1e30


class Server(Protocol):
    """What a selection needs of `simfl.algorithms.server.ServerAlgorithm`."""

    world: World
    tape: Tape
    training: Training
    channel: Channel

    def server_of(self, client: int) -> int:
        """Return the node that the client exchanges messages with."""


def _nothing() -> None:
    """Report nothing."""


class Selection:
    """The choices of a server.

    Args:
        server: has the clients, the tape and the messages.
        steps: mini-batches of a round at each client, [K].
        vectors: those as large as a model in a message.
    """

    def __init__(self, server: Server, steps: Sequence[int], vectors: int = 1) -> None:
        training, draws = server.training, Draws(server.world.streams, "cohort", lambda g, n: g.random(n))
        self._server, self._vectors, self._steps = server, vectors, list(steps)
        self._selector: AbstractSelector = training.selector or Uniform()
        self._work = [count * size for count, size in zip(steps, training.batch_sizes, strict=True)]
        sizes: list[int] = training.sizes.tolist()
        if self._selector.reads == "world":
            sizes = [0] * len(sizes)
        #: Returns the next random number in [0, 1).
        self.draw: Callable[[], float] = lambda: draws.next(0)
        self._losses: dict[int, list[float]] = {}
        trained = list(map(min, sizes, self._work))
        memory = self._selector.begin()
        self.clients = Clients(self.draw, self._seconds, [0] * len(sizes), sizes, trained, self._losses, 0, memory)
        #: By client: the model of its last update, and the numbers of the mini-batches whose losses it reports.
        self._reports: dict[int, tuple[Model, range]] = {}

    def pick(self, candidates: Sequence[int], size: int) -> list[int]:
        """Return at most `size` of the candidates.

        Raises:
            RunError: a user's selector returns something else.
        """
        if self._reports:
            self._look()
        clients, size = self.clients, min(size, len(candidates))
        clients.number += 1
        cohort = self._selector.choose(candidates, size, clients)
        if not 1 <= len(cohort) <= size or len({*cohort} & {*candidates}) < len(cohort):
            raise RunError(
                f"{type(self._selector).__name__}.choose: expected 1 to {size} different clients of "
                f"{list(candidates)}, found {cohort}"
            )
        for k in cohort:
            clients.last[k] = clients.number
        return cohort

    def report(self, client: int, model: Model, draw: int, steps: int) -> Callable[[], None]:
        """Return what to call when the server has a client's update, for its losses.

        Args:
            client: makes the update.
            model: the one that it received.
            draw: the number of the first mini-batch.
            steps: their number.
        """
        if self._selector.reads != "losses":
            return _nothing

        def arrived() -> None:
            self._reports[client] = model, range(draw, draw + min(steps, MOST_LOSSES))

        return arrived

    def _look(self) -> None:
        """Compute the losses that were reported since the last choice, in one probe."""
        reports, self._reports = self._reports, {}
        width = max(len(draws) for _, draws in reports.values())
        numbers = [[*draws, *[-1] * (width - len(draws))] for _, draws in reports.values()]
        models = [model for model, _ in reports.values()]
        losses = self._server.tape.probe(models, list(reports), numbers, lambda _, losses: losses)
        losses = np.nan_to_num(losses.astype(float), nan=_LARGE, posinf=_LARGE, neginf=-_LARGE)
        for row, (client, (_, draws)) in zip(losses.tolist(), reports.items(), strict=True):
            self._losses[client] = row[: len(draws)]

    def _seconds(self, client: int) -> float:
        """Return how long a client's round should take."""
        server, node, factor = self._server, self._server.server_of(client), self._vectors
        network, compute = server.world.network, server.world.compute
        down_s = network.expected_s([(node, client)], factor * server.channel.down_bytes)[0]
        up_s = network.expected_s([(client, node)], factor * server.training.message_bytes)[0]
        return down_s + compute.usual(client, self._work[client]) + up_s
