"""APFL: FedAvg, and a mixture of a local and the global model at each client.

Deng, Kamani, Mahdavi 2020, "Adaptive personalized federated learning", https://arxiv.org/abs/2003.13461, Algorithm 1
with a fixed weight alpha. A client k has a local model v_k of its own. In a round it gets the server's model w, and

    H times:  w_k <- w_k - eta grad f_k(w_k)
              v_k <- v_k - eta alpha grad f_k(m_k),    m_k = alpha v_k + (1 - alpha) w_k
    sends w_k - w, as in FedAvg

Both gradients of a step are at the models before it; each has a mini-batch of its own. m_k is the personal model. With
alpha = 0 it is FedAvg's local model; with 1 the client trains alone. A round takes the time of 2 H mini-batches.

Not here: alpha that adapts (the paper's equation 11). It would need inner products of models in the world.

What is evaluated, privacy and faults: see `simfl.algorithms.ditto`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from simfl.algorithms.ditto import PersonalRounds
from simfl.algorithms.fedavg import RoundUnderWay
from simfl.compiled import Number
from simfl.tape.recording import Model, Round


class Apfl(PersonalRounds):
    """Rounds of FedAvg in which clients also train a model to mix with it."""

    kind: ClassVar[str] = "apfl"
    summary: ClassVar[str] = "APFL: FedAvg, and at each client a mixture of the global model and one of its own"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server; personal models stay at clients"
    what_is_private: ClassVar[str] = "nothing: personal models are trained without noise"
    combines_per_gradient: ClassVar[float] = 1.5

    def set_up(self, *, mixture: float, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(**options)
        self.mixture = mixture
        #: v of every client.
        self.own = [self.server_model] * self.num_clients

    def _seconds(self, me: int) -> Number:
        """Return the duration of the steps on both models."""
        return super()._seconds(me) + super()._seconds(me)

    def _train(self, me: int, model: Model, this: RoundUnderWay, steps: int) -> tuple[Model | Round, int]:
        """Make the steps of both models in turn; the change is that of w."""
        combine, alpha = self.tape.combine, self.mixture
        step, w, v, examples = (this.step_size, 0.0, 0.0, 0.0), model, self.own[me], 0
        for _ in range(steps):
            of_mixture = self.batches.train(combine((alpha, v), (1.0 - alpha, w)), me, 1, step)
            of_global = self.batches.train(w, me, 1, step)
            examples += of_global.all_examples
            v, w = combine((1.0, v), (alpha, of_mixture)), combine((1.0, w), (1.0, of_global))
        self.own[me], self.personal[me] = v, combine((alpha, v), (1.0 - alpha, w))
        return combine((1.0, w), (-1.0, model)), examples
