"""HALoS: regional servers with delayed momentum, and one above them.

Kim et al. 2025, "HALoS: Hierarchical asynchronous local SGD over slow networks for geo-distributed large language model
training", https://arxiv.org/abs/2506.04531, Algorithm 1, as in the authors' program (https://github.com/utnslab/halos):

    clients:           take their regional server's x, train for H_k mini-batches, send the change D
    regional servers:  on receipt of D:  x <- a step with momentum beta_l, once in N_l changes; answer with x
                       after K changes since the last merge:  send x - x_merged to the global server
    global server:     on receipt of x - x_merged:  X <- a step with momentum beta_g, once in N_g; answer with X
    regional servers:  on receipt of X:  x <- (1 - alpha) x + alpha X,   x_merged <- x

Steps are those of `simfl.algorithms.delayed_nesterov`. A regional server goes on while X is under way. Changes that
arrive meanwhile stay in x, in part, and are not sent on, as in the program. X is evaluated.

Each server has a version of its own, the number of changes that it has taken. The staleness of a client's change, and a
bound on it, count the changes that its regional server took since the client read x. A merge is not a change.

Privacy: as in `simfl.algorithms.fedasync`; what servers do is a function of noisy changes.

Faults: those of `simfl.algorithms.server` between clients and their regional servers, which are always online. While
the global server is offline, regional servers go on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from simfl.algorithms.delayed_nesterov import DelayedNesterov
from simfl.algorithms.local_rounds import LocalRounds, Update
from simfl.algorithms.staleness import Apply, StalenessBound, Turns
from simfl.tape import Model


class Region:
    """A regional server: its node, its model, and that after its last merge."""

    def __init__(
        self,
        node: int,
        model: Model,
        step: DelayedNesterov,
        limit: StalenessBound | None,
        stopped: Callable[[], bool],
    ) -> None:
        self.node, self.model, self.merged, self.step = node, model, model, step
        #: Changes of clients that it has taken, and those since the last merge.
        self.version = self.changes = 0
        self.turns = Turns(limit, lambda more: self.version + more, stopped)


class RegionalTurns(Turns):
    """The turns of the clients of each region, which do not depend on other regions."""

    def __init__(self, limit: StalenessBound | None, region_of: Sequence[Region], stopped: Callable[[], bool]) -> None:
        super().__init__(limit, lambda more: more, stopped)
        self._of = [region.turns for region in region_of]

    def admit(self, give: Callable[[], None], client: int) -> None:
        """Call `give`, which lets a client read, as soon as its region allows it."""
        self._of[client].admit(give, client)

    def read(self, client: int) -> int:
        """Note that the next update is computed at the region's version; return it."""
        return self._of[client].read(client)

    def forget(self, client: int) -> None:
        """Stop expecting the client's update: it crashed or left."""
        self._of[client].forget(client)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update computed at version `read` of the region; see `Turns`."""
        self._of[client].arrive(client, read, apply)


class Halos(LocalRounds):
    """Asynchronous local SGD in each region, and a server that steps on their sums."""

    kind: ClassVar[str] = "halos"
    summary: ClassVar[str] = "HALoS: asynchronous local SGD with a server in each region, and one above them"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "no client and no server waits"
    what_travels: ClassVar[str] = "the model to clients, their changes to regional servers; sums and the model above"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(  # type: ignore[override]
        self,
        *,
        server_step: float,
        momentum: float,
        momentum_every: int,
        regional_step: float,
        regional_momentum: float,
        regional_momentum_every: int,
        accumulate: int,
        merging: float,
        region_of: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        """Take the options.

        Args:
            region_of: the region of each client, [K]; None: two halves.
        """
        super().set_up(**options)
        self.step = DelayedNesterov(self.tape, server_step, momentum, momentum_every)
        self.accumulate, self.merging = accumulate, merging
        halves = [2 * client // self.num_clients for client in range(self.num_clients)]
        self.region_of = halves if region_of is None else list(region_of)
        limit, stopped = self.turns.limit, lambda: self.clock.stopped
        self.regions = [
            Region(
                self.world.network.add_node(),
                self.server_model,
                DelayedNesterov(self.tape, regional_step, regional_momentum, regional_momentum_every),
                limit,
                stopped,
            )
            for _ in range(max(self.region_of) + 1)
        ]
        self.turns = RegionalTurns(limit, [self.regions[number] for number in self.region_of], stopped)

    def server_of(self, client: int) -> int:
        """Return the node of the client's regional server."""
        return self.regions[self.region_of[client]].node

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each client with its regional server, and that with the global one."""
        yield from super().pairs()
        yield from ((region.node, self.server) for region in self.regions)

    def content(self, client: int) -> Any:
        """Return a message to a client: its region's model, and the version of that."""
        region = self.regions[self.region_of[client]]
        return region.model, region.version

    # -- regional servers ----------------------------------------------------------------------

    def take(self, update: Update) -> None:
        """Take the step of a change, and hand out the region's model."""
        if update.weight == 0.0:
            self.drop(update)
            return
        region = self.regions[self.region_of[update.client]]
        region.model = region.step(region.model, update.change, update.weight)
        region.changes += 1
        region.version += 1
        self.updated(update.client, update.staleness, update.examples, update.step_size)
        if region.changes == self.accumulate:
            self._send_up(region)
        self.hand_out(update.client, update.came)

    def _send_up(self, region: Region) -> None:
        """Send what a region has changed since its last merge."""
        change = self.tape.combine((1.0, region.model), (-1.0, region.merged))

        def arrived() -> None:
            self.service.process(lambda: self._step(region, change))

        self.world.network.send(region.node, self.server, self.training.model_bytes, arrived, content=change)

    def _merge(self, region: Region, model: Model) -> None:
        """Mix the global model into the region's."""
        region.model = self.tape.apply((1.0 - self.merging, region.model), (self.merging, model))
        region.merged, region.changes = region.model, 0

    # -- the global server ---------------------------------------------------------------------

    def _step(self, region: Region, change: Model) -> None:
        """Take the step of a region's change, and answer with the model."""
        model = self.server_model = self.step(self.server_model, change)
        self.applied()
        self.world.network.send(
            self.server, region.node, self.training.model_bytes, lambda: self._merge(region, model), content=model
        )
