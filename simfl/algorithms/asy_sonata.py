"""ASY-SONATA: asynchronous gradient tracking; losses do not move its limit.

Tian, Sun, Scutari 2018, "Achieving linear convergence in distributed asynchronous multi-agent optimization",
https://arxiv.org/abs/1803.10359, Algorithm 3. A client i has a model x, a tracker z of the sum of all gradients, and
shares that others gave it. With its gradient g at x, n_o out-neighbors, n_i in-neighbors, and no waiting:

    y <- z + (new shares) + g - (the gradient before)
    z <- y / (1 + n_o),   give y / (1 + n_o) to every out-neighbor by running sums (`simfl.algorithms.running_sums`)
    v <- x - step z;      send (v, running sum) to every out-neighbor
    x <- (v + sum over in-neighbors j of the newest v_j) / (1 + n_i)

Messages are sent once. The sum of all z and of all shares on their way is the sum of the clients' last gradients,
whatever is lost, late or overtaken. So where the models are equal and all y are 0, the gradients cancel: x is the
optimum. z and the gradient before start at 0, and v_j counts from its first arrival: before, x has its weight.

The client stores b = z - g. Then y = b + shares + g, and b <- b + shares - n_o / (1 + n_o) y: the sum of all b and of
all shares is 0, and no gradient is used twice. Weights are multiples of 2^-23, as in
`simfl.algorithms.corrected_gossip`, whose `weighting` this algorithm has too.

Graphs: `topology` (both ways over the scenario's links), `ring` (to i + 1), `exponential` (to all i + 2^h).

Faults. A client that crashes computes its gradient again at the same model. The others go on, with its last v. Messages
to a client that is offline or cut off are lost, which running sums make up for. A client that leaves takes its z with
it: the others forget its v, but do not reach their optimum any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.algorithms.disclosure import merged
from simfl.algorithms.running_sums import RunningSums
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

_GRID = 2.0**23


class ASYSONATA(Algorithm):
    """Clients that track the sum of all gradients, and never wait."""

    kind: ClassVar[str] = "asy_sonata"
    summary: ClassVar[str] = "ASY-SONATA: asynchronous gradient tracking, to the optimum also if messages are lost"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "two vectors, along directed edges; lost messages are not sent again"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 4.0

    def set_up(self, *, graph: str, weighting: str) -> None:
        """Take the options."""
        count, sizes = self.num_clients, self.training.sizes
        self.model: list[Model] = [self.tape.constant(self.training.initial)] * count
        #: b = z - g of every client.
        self.base = [Model((), ())] * count
        #: The shares that were given and not used yet.
        self.sums = RunningSums(self.tape, self.world.network)
        self._shares = (sizes * count / sizes.sum()).tolist() if weighting == "data" else [1.0] * count
        hops = [1] if graph == "ring" else [2**power for power in range((count - 1).bit_length())]
        self._targets: Callable[[int], Sequence[int]] = self.world.neighbors()
        self._sources = self._targets
        if graph != "topology":
            self._targets = lambda k: [(k + hop) % count for hop in hops if count > 1]
            self._sources = lambda k: [(k - hop) % count for hop in hops if count > 1]
        self._came: list[list[Model]] = [[] for _ in range(count)]
        self._heard: list[dict[int, tuple[int, Model]]] = [{} for _ in range(count)]  # number and v by sender
        self._left = [False] * count
        availability = self.world.availability
        self._stays = [(availability.joins_s(k), availability.leaves_s(k)) for k in range(count)]

    def start(self) -> None:
        """Start the clients."""
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)

    def models(self) -> Sequence[Model]:
        """Return x of every client."""
        return self.model

    def worker(self, me: int) -> Process:
        """Repeat: compute, track, step, send, mix."""
        yield self.world.joined(me)
        while self._trivial or (yield from self.world.until_back(me)):
            gradient, read_at = self.batches.gradient(self.model[me], me), self.updates
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass
            if outcome is Outcome.GONE:
                break
            step_size = self.step_size()
            self.step(me, gradient, step_size)
            del gradient  # a suspended process would keep it, and the model in it, alive
            self.updated(me, self.updates - read_at, size, step_size)
        self._left[me] = True

    def step(self, me: int, gradient: Gradient, step_size: float) -> None:
        """Update z, v and x, and send."""
        combine, came = self.tape.combine, self._came[me]
        targets = [k for k in self._targets(me) if self._present(k)]
        share = round(_GRID / (1 + len(targets))) / _GRID
        base = self.tape.settle(combine((1.0, self.base[me]), *((1.0, model) for model in came)))
        came.clear()
        tracker = combine((1.0, base), *self.descent.terms(gradient, -1.0, self._shares[me]))
        given = share * len(targets)
        self.base[me] = combine((1.0, base), (-given, tracker))
        shown = self.tape.settle(combine((1.0, self.model[me]), (step_size * (given - 1.0), tracker)))
        for target in targets:
            self._send(me, target, shown, combine((share, tracker)))
        self.model[me] = self._mix(me, shown)
        merged(self.world.network, me, self.model[me])

    def _mix(self, me: int, shown: Model) -> Model:
        """Return the mean of v and of the newest v_j; missing weight goes to v."""
        sources, heard = self._sources(me), self._heard[me]
        for source in [source for source in heard if not self._present(source)]:
            del heard[source]
        share = round(_GRID / (1 + len(sources))) / _GRID
        models = [heard[k][1] for k in sources if k in heard]
        return self.tape.combine((1.0 - share * len(models), shown), *((share, model) for model in models))

    def _present(self, client: int) -> bool:
        """Whether a client has joined and not left."""
        joins_s, leaves_s = self._stays[client]
        return joins_s <= self.clock.now < leaves_s and not self._left[client]

    def _send(self, me: int, target: int, shown: Model, share: Model) -> None:
        """Send v and the running sum to an out-neighbor, once."""
        number, network, sums = self.client_updates[me], self.world.network, self.sums
        rho = sums.give(me, target, number, (share, 0.0))

        def deliver() -> None:
            self._came[target] += [model for model, _ in sums.use(me, target, number).values()]
            if number >= self._heard[target].get(me, (-1, shown))[0]:
                self._heard[target][me] = number, shown

        size, beside = 2 * self.training.model_bytes, () if rho is None else (rho,)
        network.send(me, target, size, deliver, lambda: sums.lose(me, target, number), shown, once=True, beside=beside)
