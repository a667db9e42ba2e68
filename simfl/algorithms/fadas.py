"""FADAS: FedBuff whose server steps by AMSGrad, less far with stale updates.

Wang, Wang, Lu and Chen 2024, "FADAS: towards federated adaptive asynchronous optimization", ICML,
https://arxiv.org/abs/2407.18365, with the delay-adaptive step of the paper's program (`g_delay_adaptive.py`):

    clients:  as in FedBuff:  take w^t, train, send Delta = w_Q - w^t
    server:   with M updates in the buffer, of staleness at most tau_max:   D = their mean
              m <- beta1 m + (1 - beta1) D,   v <- beta2 v + (1 - beta2) D^2,   u <- max(u, v)
              w^{t+1} = w^t + eta' m / c_1 / (sqrt(u) / sqrt(c_2) + eps)
              eta' = eta / tau_max if tau_max > tau_c, else eta

Squares, roots and the maximum are taken for each coordinate. The paper's text has min(eta, 1 / tau_max) in place of
eta / tau_max. Without `delay_threshold`, tau_c, the step is always eta.

The program corrects the bias of moments that start at 0, as Adam does: c_i = 1 - beta_i^(t + 1) at the step from w^t.
The paper's listing does not: c_i = 1, with `bias_correction: false`. Without corrections the first steps are longer, by
c_1 / sqrt(c_2): for beta1 = 0.9 and beta2 = 0.99 up to 2.1 times, at the 13th.

Privacy: the moments are functions of the noisy updates that clients sent, or of the noisy sums of a server
(`privacy.unit: user`), so they are no further releases.

Faults: those of FedBuff.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.fedbuff import FedBuff
from simfl.algorithms.local_rounds import Update
from simfl.algorithms.sums import Released
from simfl.tape import Model
from simfl.tape.optimizers import Amsgrad


class FADAS(FedBuff):
    """A server that takes an adaptive step for every M updates."""

    summary: ClassVar[str] = "FADAS: FedBuff whose server steps by AMSGrad, less far if updates are very stale"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `after_update: wait`, clients wait for the server's step"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"
    kind: ClassVar[str] = "fadas"
    combines_per_gradient = 1.0

    def set_up(  # type: ignore[override]
        self,
        *,
        server_step: float,
        beta1: float,
        beta2: float,
        eps: float,
        delay_threshold: int | None,
        bias_correction: bool,
        **options: Any,
    ) -> None:
        """Take the options."""
        super().set_up(server_step=server_step, **options)
        self.server_step = server_step
        self.delay_threshold = delay_threshold
        self._rule, self._eps = Amsgrad(), eps
        self._decays = beta1, 1 - beta1, beta2, 1 - beta2
        #: beta1^t and beta2^t; None without corrections.
        self._powers = (1.0, 1.0) if bias_correction else None
        self._moments = (self.tape.settle(self.tape.combine((0.0, self.server_model))),) * 3

    def stepped(self, buffer: Sequence[Update], released: Released) -> Model:
        """Return the model after the step, whose size depends on the largest staleness."""
        stalest = max(update.staleness for update in buffer)
        late = self.delay_threshold is not None and stalest > self.delay_threshold
        step_size = self.server_step / stalest if late else self.server_step
        eps, share = self._eps, 1.0 / released.total
        if self._powers is not None:
            self._powers = self._powers[0] * self._decays[0], self._powers[1] * self._decays[2]
            root = (1.0 - self._powers[1]) ** 0.5
            step_size, eps = step_size * root / (1.0 - self._powers[0]), eps * root
        changes = ((share * weight, change) for weight, change in released.terms)
        models = self.tape.apply(*changes), self.server_model, *self._moments
        model, *moments = self.tape.map(self._rule, models, scalars=(step_size, *self._decays, eps), outputs=4)
        self._moments = moments[0], moments[1], moments[2]
        return model
