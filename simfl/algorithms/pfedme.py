"""pFedMe: clients send where the envelope of their loss pulls the global model.

Dinh, Tran, Nguyen 2020, "Personalized federated learning with Moreau envelopes", https://arxiv.org/abs/2006.08848,
Algorithm 1. In a round a client k gets the server's model x and starts with w = x:

    R times:  theta_k <- K steps of SGD on f_k(theta) + lambda / 2 |theta - w|^2, from theta = w
              w <- w - eta lambda (w - theta_k)
    sends w - x;   the server steps along the mean of what it gets (beta, here `server_step`)

lambda is `proximal`, eta `outer_step`, K `inner_steps`, and H = R K the mini-batches of a round; if K does not divide
H, the last theta_k has fewer steps. Each step has a mini-batch of its own. theta_k is the personal model.

What is evaluated, privacy and faults: see `simfl.algorithms.ditto`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from simfl.algorithms.ditto import PersonalRounds
from simfl.algorithms.fedavg import RoundUnderWay
from simfl.tape.recording import Model, Round


class PFedMe(PersonalRounds):
    """Rounds in which clients minimize near the global model, and pull it there."""

    kind: ClassVar[str] = "pfedme"
    summary: ClassVar[str] = "pFedMe: personal models near the global one, which moves towards them"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server; personal models stay at clients"
    what_is_private: ClassVar[str] = "nothing: personal models are trained without noise"
    combines_per_gradient: ClassVar[float] = 0.5

    def set_up(self, *, inner_steps: int, outer_step: float, mu: float = 15.0, **options: Any) -> None:  # type: ignore[override]
        """Take the options; `mu` is lambda, which the clients' steps have."""
        super().set_up(**options)
        self.inner_steps = inner_steps
        self.towards = outer_step * mu

    def _train(self, me: int, model: Model, this: RoundUnderWay, steps: int) -> tuple[Model | Round, int]:
        """Make the steps in groups of K, and move after each."""
        combine, towards = self.tape.combine, self.towards
        step, w, examples = (this.step_size, 0.0, 0.0, 0.0), model, 0
        for made in range(0, steps, self.inner_steps):
            change = self.batches.train(w, me, min(self.inner_steps, steps - made), step)
            examples += change.all_examples
            self.personal[me] = combine((1.0, w), (1.0, change))
            w = combine((1.0 - towards, w), (towards, self.personal[me]))
        return combine((1.0, w), (-1.0, model)), examples
