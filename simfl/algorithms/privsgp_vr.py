"""PrivSGP-VR: private stochastic gradient push with a table of gradients (SAGA).

Zhu, Huang, Wang, Xu 2024, "PrivSGP-VR: differentially private variance-reduced stochastic gradient push with tight
utility bounds", IJCAI, https://arxiv.org/abs/2405.02638. The abstract and the beginning of the introduction could be
read: push-sum over directed graphs that change, variance reduction, Gaussian noise of constant variance. The equations,
the theorems and the experiments could not. Here the variance reduction is that of SAGA (Defazio, Bach, Lacoste-Julien
2014, https://arxiv.org/abs/1407.0202), and the push is that of `simfl.algorithms.sgp`:

    client i keeps T_m for each of its M mini-batches, 0 at first. In each round:
        m <- one of 1 ... M, uniformly
        S <- sum over mini-batch m of the clipped gradients at z_i
        v <- (M / n) (S - T_m + z C xi) + (1 / n) (T_1 + ... + T_M)      xi standard normal
        T_m <- S
        x_i <- x_i - step * v;   then push, wait and z_i = x_i / w_i, as in SGP

n are the client's examples. The mean of v over m is the mean gradient of all n, whatever the table is. At the optimum,
v has no variance without noise, so that z goes to the optimum with a constant step; the gradients of SGP do not let it.
With `batch_size: 1` an example has a row of the table. With more, mini-batches are fixed parts of the data, of which
the last may be smaller, and the table is shorter.

Privacy. T_m has no noise, and stays in v until m is drawn again. So an example is in every later release of its client,
not only in those of its own mini-batch: `simfl.privacy.tables` counts that.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.sgp import SGP
from simfl.tape import Gradient, Model


class PrivSgpVr(SGP):
    """Rounds of SAGA's steps and pushes along directed edges."""

    kind: ClassVar[str] = "privsgp_vr"
    summary: ClassVar[str] = "PrivSGP-VR: SGP with a table of each client's gradients, which takes out their variance"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for the shares that its in-neighbors sent `overlap` rounds ago"
    what_travels: ClassVar[str] = "parts of models with their weights, along directed edges"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `replace_one`)"
    combines_per_gradient: ClassVar[float] = 3.0

    def set_up(self, *, graph: str, overlap: int, lost: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(graph=graph, overlap=overlap, lost=lost)
        #: Sums of the gradients of mini-batches that were drawn before, by client.
        self._table: list[dict[int, Model]] = [{} for _ in range(self.num_clients)]
        #: Sum of a client's table.
        self._sum = [Model((), ())] * self.num_clients
        #: The mini-batch of a client's present gradient.
        self._drawn = [0] * self.num_clients
        self._streams = self.training.streams or self.world.streams

    def _gradient_at(self, me: int) -> Gradient:
        """Promise the gradient of a mini-batch that is drawn, with noise."""
        n, size, draw = int(self.training.sizes[me]), self.batches.sizes[me], self.batches.draws[me]
        gradient = super()._gradient_at(me)
        drawn = self._drawn[me] = int(self._streams.generator("table", me, draw).integers(-(-n // size)))
        # A promise takes `size` examples of the client's one order from draw * size + first on, modulo n.
        gradient.first_or_steps = (drawn - draw) * size % n
        gradient.size = min(size, n - drawn * size)
        return gradient

    def _step(self, me: int, gradient: Gradient, step_size: float) -> Model:
        """Return x after a step along v, and replace the row of the table."""
        n, size, table = int(self.training.sizes[me]), self.batches.sizes[me], self._table[me]
        combine = self.tape.combine
        mean, old, model = -(-n // size) / n, table.get(self._drawn[me], Model((), ())), gradient.model
        clean = gradient.twin()
        clean.noise_scale = 0.0
        self.tape.hold(clean)  # only an account of a table can certify what is kept without noise
        new = combine((1.0, clean))
        terms: list[tuple[float, Model | Gradient]]
        terms = [(mean, gradient), (-mean, old), (1.0 / n, self._sum[me]), (self.training.l2, model)]
        stepped = self.descent.along(me, self.model[me], terms if self.training.l2 else terms[:-1], step_size)
        self._sum[me] = self.tape.settle(combine((1.0, self._sum[me]), (1.0, new), (-1.0, old)))
        table[self._drawn[me]] = new
        return stepped
