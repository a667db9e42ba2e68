"""Multi-Walk: several models walk over the graph at once, and meet at one client.

Gholami, Seferoglu 2025, "A tale of two learning algorithms: multiple stream random walk and asynchronous gossip",
https://arxiv.org/abs/2504.09792; the equations are those of the authors' program (`RandomWalk` of its
`distributed_training.py`) with one local step. There are R = `walks` models x_r, all at the root client at first. The
root keeps u, the last model that it mixed, and p_r, that of walk r. Model x_r at client i:

    x_r <- x_r - step * gradient at x_r, on the data of i
    at the root:   x_r <- u + (x_r - p_r) / R,   p_r <- x_r,   u <- x_r
    j = a random neighbor of i;  with probability min(1, degree_i / degree_j) x_r moves to j, else it stays at i

So walks visit all clients equally often (Metropolis-Hastings), whatever their degrees, and u moves by a share of what
each walk did since its last visit. u is evaluated. With R = 1 this is SGD along a random walk. The root is client 0, or
the first one that joins. A client computes for one model at a time, in order of arrival; in the program, for several at
once. The walk's state is the model: momentum of an optimizer stays at clients, as in the program.

Faults. A model waits for a lost message, a partition and a crashed client; other models go on. Models do not go to
clients that have left or not joined. If a client leaves with a model, the client before sends its last model to another
neighbor of the one that left; if the client before has left, too, the next one goes on with the last model that it had.
If the root leaves, models walk on and u stays. A walk that no client can take ends, and begins from u when one joins.

Privacy: each gradient is clipped and noised at its client. All else is a function of such gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.algorithms.disclosure import merged, shown
from simfl.algorithms.sampled_rounds import SampledRounds
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.compute import Draws
from simfl.world.engine import Process


class MultiWalk(SampledRounds):
    """Models that walk at random, train at each client, and mix at the root."""

    kind: ClassVar[str] = "multi_walk"
    summary: ClassVar[str] = "Multi-Walk: several models walk over the graph at random, and mix at one client"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no model waits for another, unless both are at one client"
    what_travels: ClassVar[str] = "models, to one random neighbor"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 0.5

    pairs = Algorithm.pairs

    def set_up(self, *, walks: int) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        self.walks = walks
        self.root = min(range(self.num_clients), key=lambda client: (self._joins_s[client], client))
        self.shared = self.model[self.root]
        #: p of each walk; where the walk is, -1 if nowhere; how often it moved; the client that it came from.
        self.parted = [self.shared] * walks
        self.place = [-1] * walks
        self.moves = [0] * walks
        self._before = [-1] * walks
        self._degrees = self.world.topology.degrees.tolist()
        self._draws = Draws(self.world.streams, "walk", lambda g, n: g.random(n))

    def models(self) -> Sequence[Model]:
        """Return u."""
        return [self.shared]

    def client_models(self) -> Sequence[Model]:
        """Return the last model of each client."""
        return self.model

    def present(self, client: int) -> bool:
        """Whether a client has joined and not left."""
        return self._joins_s[client] <= self.clock.now and not self._left[client]

    def begin(self) -> None:
        """Begin all walks that are nowhere."""
        start = self.root if self.present(self.root) else next(filter(self.present, range(self.num_clients)), -1)
        for walk in range(self.walks):
            if self.place[walk] < 0 <= start:
                self.parted[walk] = self.shared
                if start != self.root:
                    shown(self.world.network, self.root, start, self.shared)
                self._arrive(walk, start, start, self.shared)

    def replace(self, client: int) -> None:
        """Send the models that were at a client, or on their way to it, elsewhere."""
        for walk in range(self.walks):
            if self.place[walk] == client:
                self._move(walk, client, self._before[walk])

    def _arrive(self, walk: int, client: int, before: int, model: Model) -> None:
        """Begin a visit."""
        self.place[walk], self._before[walk], self.model[client] = client, before, model
        self.clock.start(self._visit(walk, client, self.moves[walk], model), client)

    def _visit(self, walk: int, me: int, move: int, model: Model) -> Process:
        """Compute, step, mix at the root, and move on."""
        with self.device(me).request() as right:
            yield right
            if self._left[me]:
                return
            gradient = self.batches.gradient(model, me)
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again
        if outcome is Outcome.GONE:
            self.leave(me)
        if self._left[me] or move != self.moves[walk]:
            return
        step_size = self.step_size()
        stepped = self.descent.step(me, model, gradient, step_size)
        del model, gradient  # a suspended process would keep them alive
        if me == self.root:
            share = 1.0 / self.walks
            mixed = self.tape.combine((1.0, self.shared), (share, stepped), (-share, self.parted[walk]))
            self.shared = self.parted[walk] = stepped = self.tape.settle(mixed)
            merged(self.world.network, me, stepped)
        self.model[me] = stepped
        self._move(walk, me, me)
        del stepped
        self.updated(me, 0, size, step_size)

    def _move(self, walk: int, client: int, holder: int) -> None:
        """Move a walk on from a client; `holder` has its model."""
        number = self.moves[walk] = self.moves[walk] + 1
        there = [k for k in self.world.topology.neighbors(client) if self.present(k)]
        target = -1 if self._left[client] else client
        if there:
            drawn = there[int(self._draws.next(walk) * len(there))]
            stays = self._draws.next(walk) * self._degrees[drawn] >= self._degrees[client]
            target = client if stays and target >= 0 else drawn
        source = target if self._left[holder] else holder
        self.place[walk], self._before[walk] = target, source
        model = self.model[source]

        def arrived() -> None:
            if self.moves[walk] == number:
                self._arrive(walk, target, source, model)

        if source == target >= 0:
            arrived()
        elif target >= 0:
            self.world.network.send(source, target, self.training.model_bytes, arrived, content=model)

    def awaits(self, client: int) -> str:
        """Say that no walk comes."""
        return "waits for a model" if client in self.place else "waits for its turn"
