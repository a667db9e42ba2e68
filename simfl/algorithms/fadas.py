"""FADAS: FedBuff whose server steps by AMSGrad, less far with stale updates.

Wang, Wang, Lu and Chen 2024, "FADAS: towards federated adaptive asynchronous optimization", ICML,
https://arxiv.org/abs/2407.18365, with the delay-adaptive step of the paper's program (`g_delay_adaptive.py`):

    clients:  as in FedBuff:  take w^t, train, send Delta = w_Q - w^t
    server:   with M updates in the buffer, of staleness at most tau_max:   D = their mean
              m <- beta1 m + (1 - beta1) D,   v <- beta2 v + (1 - beta2) D^2,   u <- max(u, v)
              w^{t+1} = w^t + eta' m / (sqrt(u) + eps)
              eta' = eta / tau_max if tau_max > tau_c, else eta

Squares, roots and the maximum are taken for each coordinate. The paper's text has min(eta, 1 / tau_max) in place of
eta / tau_max. Without `delay_threshold`, tau_c, the step is always eta.

Privacy: the moments are functions of the noisy updates that clients sent, so they are no further releases.

Faults: those of FedBuff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.fedbuff import FedBuff
from simfl.algorithms.local_rounds import Update
from simfl.robust.base import Among
from simfl.tape import Model
from simfl.tape.optimizers import Amsgrad


class FADAS(FedBuff):
    """A server that takes an adaptive step for every M updates."""

    summary: ClassVar[str] = "FADAS: FedBuff whose server steps by AMSGrad, less far if updates are very stale"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `after_update: wait`, clients wait for the server's step"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    kind: ClassVar[str] = "fadas"
    aggregates: ClassVar[frozenset[Among]] = frozenset()
    combines_per_gradient = 1.0

    def set_up(  # type: ignore[override]
        self,
        server_step: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.99,
        eps: float = 1e-8,
        delay_threshold: int | None = 1,
        staleness_exponent: float = 0.0,
        **options: Any,
    ) -> None:
        """Take the options.

        Args:
            server_step: eta.
            beta1, beta2: the decay of the moments, in [0, 1).
            eps: is added to the root of the second moment, > 0.
            delay_threshold: tau_c, the largest staleness without effect on the step; None: no staleness has one.
            staleness_exponent: 0 in the paper, whose updates have no weight that falls with staleness.
            options: the other options of FedBuff.
        """
        super().set_up(staleness_exponent=staleness_exponent, **options)
        self.server_step = server_step
        self.delay_threshold = delay_threshold
        self._rule, self._constants = Amsgrad(), (beta1, 1 - beta1, beta2, 1 - beta2, eps)
        self._moments = (self.tape.settle(self.tape.combine((0.0, self.server_model))),) * 3

    def stepped(self, buffer: Sequence[Update], weights: Sequence[float]) -> Model:
        """Return the model after the step, whose size depends on the largest staleness."""
        stalest = max(update.staleness for update in buffer)
        late = self.delay_threshold is not None and stalest > self.delay_threshold
        step_size = self.server_step / stalest if late else self.server_step
        share = 1.0 / len(buffer)
        changes = ((share * weight, update.change) for weight, update in zip(weights, buffer, strict=True))
        models = self.tape.apply(*changes), self.server_model, *self._moments
        model, *moments = self.tape.map(self._rule, models, scalars=(step_size, *self._constants), outputs=4)
        self._moments = moments[0], moments[1], moments[2]
        return model
