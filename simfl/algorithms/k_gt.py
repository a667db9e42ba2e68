"""K-GT: gradient tracking with rounds of local steps.

Liu, Lin, Koloskova, Stich 2023, "Decentralized gradient tracking with local steps", https://arxiv.org/abs/2301.01313,
Algorithm 1. A client k makes H_k local steps from its model x_k; w is the mean over neighbors by W:

    h = 1 ... H_k:   y <- y - eta (s_k gradient at y + c_k),   from y = x_k
    z_k = (x_k - y) / (H_k eta);   send (x_k - H_k eta eta_s z_k, z_k)
    x_k <- w(x - H eta eta_s z),   c_k <- c_k - z_k + w(z)

The corrections c start at 0 and add up to 0 for any symmetric W. At a fixed point all z are 0 and all x are equal, so
c_k = -s_k gradient of f_k, and the gradients of all clients cancel: x is the optimum, also if clients make different
numbers of steps. The local D-PSGD without c ends at a distance from it. With H = 1 and eta_s = 1 the round is that of
`corrected_gossip` with `tracking`.

`weighting: data` has s_k = n_k K / N, `uniform` 1: see `simfl.algorithms.corrected_gossip`. So are faults, late clients
and weights; a round takes the place of the mini-batch.

Privacy: a client clips and noises the change x_k - y as a whole. Corrections are functions of such changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.corrected_gossip import CorrectedGossip
from simfl.tape import Gradient, Model


class KGT(CorrectedGossip):
    """Rounds of local steps and gossip, with a correction of each client's gradients."""

    kind: ClassVar[str] = "k_gt"
    summary: ClassVar[str] = "K-GT: gradient tracking with local steps, gossip to the optimum; waits as D-PSGD"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for its neighbors' messages of the round"
    what_travels: ClassVar[str] = "two vectors, to all neighbors, after many local steps"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(  # type: ignore[override]
        self, *, weighting: str, outer_step: float, mixing: str = "metropolis", steps: Sequence[int] | None = None
    ) -> None:
        """Take the options.

        Args:
            mixing: as in `CorrectedGossip`.
            steps: H, mini-batches of a round at each client, [K]; one each by default.
        """
        super().set_up(method="tracking", weighting=weighting, step_factors=None, mixing=mixing)
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.outer_step = outer_step
        self._etas = [0.0] * self.num_clients

    def _gradient_at(self, me: int) -> Gradient:
        """Promise the client's next round at its model."""
        share, eta = self._shares[me], self.step_size()
        self._etas[me] = eta
        correction = self.tape.combine((1.0 / share, self.correction[me]))
        return self.batches.train(self.model[me], me, self.steps[me], (share * eta, 0.0, 0.0, 0.0), correction)

    def compute(self, client: int, examples: int | None = None) -> simpy.Event:
        """Let the client compute a round, or `examples`."""
        return super().compute(client, examples or self.steps[client] * self.batches.sizes[client])

    def _step_of(self, me: int) -> float:
        """Return eta of the round."""
        return self._etas[me]

    def _vectors(self, me: int, gradient: Gradient, step_size: float) -> tuple[Model, ...]:
        """Return what the client sends: x - H eta eta_s z and z."""
        length = self.steps[me] * step_size
        tracker = self.tape.combine((-1.0 / length, gradient))
        return self.tape.combine((1.0, self.model[me]), (-length * self.outer_step, tracker)), tracker
