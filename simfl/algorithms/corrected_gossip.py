"""Corrected gossip: EXTRA, exact diffusion, NIDS and gradient tracking.

D-PSGD with a constant step s ends at a distance from the optimum, because the local gradients of unlike data pull the
clients apart. Here, each client k also has a correction c_k, 0 at first. The corrections add up to 0 for any symmetric
W, and at the optimum they cancel the local gradients. With the gradient g at x, and w the mean over neighbors by W:

    extra:            send x,           x <- w(x) - s g - c,       c <- c + (x - w(x)) / 2           Shi et al. 2015
    exact_diffusion:  phi = x - s g - c,   send phi,   x <- (phi + w(phi)) / 2,   c <- c + phi - x   Yuan et al. 2019
    nids:             the same; in the first round x <- phi without a message                        Li et al. 2019
    tracking:         y = g + c,   send (x - s y, y),   x <- w(x - s y),          c <- c + w(y) - y  Xu et al. 2015

EXTRA is https://arxiv.org/abs/1404.6264, exact diffusion https://arxiv.org/abs/1702.05122, NIDS
https://arxiv.org/abs/1704.07807, tracking in its adapt-then-combine form (NEXT, SONATA)
https://arxiv.org/abs/1602.00591. Without c, their recursions are those of the papers: x'' = x' + W x' -
(I + W) x / 2 - s (g' - g) for EXTRA, x'' = (I + W) / 2 (2 x' - x - s (g' - g)) for exact diffusion and NIDS. D2 of
Tang et al. 2018, https://arxiv.org/abs/1803.07068, has W in place of (I + W) / 2, which needs eigenvalues of W above
-1/3. It is not offered: on an even ring with the weights of `metropolis` the least is -1/3.

In NIDS, client k may have the step s f_k. Its mean is then x = phi_k - f_k / (2 max f) sum_j W_kj (phi_k - phi_j), the
paper's I - c Lambda (I - W) with the largest c. The sum of c_k / f_k stays 0.

Shares of different sizes: with `weighting: data`, the gradient of a client counts n_k K / N times, and the optimum is
that of all examples. With `uniform`, it is that of the mean of the clients' losses.

Weights are rounded to multiples of 2^-23: their sums are then exact in float32, and rounding does not add to the sum of
the corrections in every round.

Faults. As with D-PSGD, a lost message, a partition or a crashed client delays the neighbors: every round uses every
message, so the values are those of a run without faults. A client that joins late has c = 0, and the optimum is then
that of all clients. A client that leaves takes its c with it: the others do not reach their optimum any more, because
the sum of their corrections is no longer 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from simfl.algorithms.disclosure import merged
from simfl.algorithms.neighbor_rounds import GraphRounds
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

_GRID = 2.0**23
_ZERO = Model((), ())


class CorrectedGossip(GraphRounds):
    """Rounds of gossip with a correction for each client."""

    kind: ClassVar[str] = "corrected_gossip"
    summary: ClassVar[str] = "EXTRA, exact diffusion, NIDS, gradient tracking: gossip to the optimum; waits as D-PSGD"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for its neighbors' messages of the round"
    what_travels: ClassVar[str] = "models, to all neighbors; with `method: tracking`, two vectors"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 3.0

    def set_up(  # type: ignore[override]
        self, *, method: str, weighting: str, step_factors: Sequence[float] | None, mixing: str = "metropolis"
    ) -> None:
        """Take the options.

        Args:
            mixing: rule of the mixing matrix; see `Topology.mixing_matrix`.
        """
        super().set_up(mixing)
        self.method = method
        sizes, count = self.training.sizes, self.num_clients
        self._shares = (sizes * count / sizes.sum()).tolist() if weighting == "data" else [1.0] * count
        factors = [1.0] * count if step_factors is None else [float(factor) for factor in step_factors]
        self._factors = factors
        #: Share of the neighbors' mean in x: f / (2 max f) for exact diffusion and NIDS, 1 for the others.
        halved = method in ("exact_diffusion", "nids")
        self._pulls = [factor / (2.0 * max(factors)) if halved else 1.0 for factor in factors]
        self.correction = [_ZERO] * count

    def worker(self, me: int) -> Process:
        """Compute, send, wait for the neighbors, step, correct."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self._gradient_at(me)
            size = gradient.all_examples
            vectors: tuple[Model, ...] = (self.model[me],)
            if self.method == "extra":  # the model travels while the client computes
                self._show(me, round_num, vectors)
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the neighbors still wait for this round
            if outcome is Outcome.GONE:
                self.leave(me)
                return
            step_size = self._step_of(me)
            if self.method != "extra":
                vectors = self._vectors(me, gradient, step_size)
                self._show(me, round_num, vectors)
            if not (yield from self.wait_for(me, round_num)):
                return
            self._step(me, gradient, step_size, vectors, self._mix(me, round_num, vectors))
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _gradient_at(self, me: int) -> Gradient:
        """Promise what the client computes at its model."""
        return self.batches.gradient(self.model[me], me)

    def _step_of(self, me: int) -> float:
        """Return the client's step size."""
        return self.step_size() * self._factors[me]

    def _step(
        self, me: int, gradient: Gradient, step_size: float, vectors: tuple[Model, ...], means: tuple[Model, ...]
    ) -> None:
        """Take the step, and correct the correction; `means` are those of the vectors."""
        for each in means:
            merged(self.world.network, me, each)
        vector, mean, before = vectors[-1], means[-1], self.correction[me]
        if self.method == "extra":
            descent = self.descent.terms(gradient, step_size, self._shares[me])
            self.model[me] = self.tape.combine((1.0, mean), (-1.0, before), *descent)
            change = 0.5
        else:
            self.model[me] = means[0]
            change = -1.0 if self.method == "tracking" else 1.0
        after = self.tape.combine((1.0, before), (change, vector), (-change, mean))
        if any(after.coefs):  # else nothing was mixed, and 0 stays 0
            self.correction[me] = self.tape.settle(after)

    def _vectors(self, me: int, gradient: Gradient, step_size: float) -> tuple[Model, ...]:
        """Return what the client sends: phi, or x - s y and y."""
        model, correction, share = self.model[me], self.correction[me], self._shares[me]
        if self.method == "tracking":
            tracker = self.tape.combine((1.0, correction), *self.descent.terms(gradient, -1.0, share))
            return self.tape.combine((1.0, model), (-step_size, tracker)), tracker
        return (self.tape.combine((1.0, model), (-1.0, correction), *self.descent.terms(gradient, step_size, share)),)

    def _show(self, me: int, round_num: int, vectors: tuple[Model, ...]) -> None:
        """Send the vectors to the neighbors."""
        if not self._alone(round_num):
            size = len(vectors) * self.training.model_bytes
            for neighbor in self.receivers(me, round_num):
                self.send(me, neighbor, round_num, vectors, size, *vectors)

    def _mix(self, me: int, round_num: int, vectors: tuple[Model, ...]) -> tuple[Model, ...]:
        """Return the means of the vectors; missing weight goes to `me`'s own."""
        if self._alone(round_num):
            return vectors
        pull = self._pulls[me]
        messages = [(round(pull * w * _GRID) / _GRID, sent) for w, sent in self.received(me, round_num)[1]]
        own_weight = 1.0 - sum(weight for weight, _ in messages)
        return tuple(
            self.tape.combine((own_weight, vector), *((weight, sent[place]) for weight, sent in messages))
            for place, vector in enumerate(vectors)
        )

    def _alone(self, round_num: int) -> bool:
        """Whether the round has no messages."""
        return round_num == 0 and self.method == "nids"

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the neighbors whose messages have not arrived."""
        return () if self._alone(round_num) else super().missing(me, round_num)
