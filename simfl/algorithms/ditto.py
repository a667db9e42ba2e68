"""Ditto: FedAvg, and a personal model of each client.

Li, Hu, Beirami, Smith 2021, "Ditto: fair and robust federated learning through personalization",
https://arxiv.org/abs/2012.04221, Algorithm 1. In a round, a client k gets the server's model x, trains it for H steps
and sends the change as in FedAvg. It also makes H steps on a model v_k of its own, which never leaves it:

    v_k <- v_k - eta (gradient at v_k + lambda (v_k - x)),   H times

lambda is `personal_pull`: with 0, v_k is trained on the client's data alone; the larger it is, the closer v_k stays to
x. A round takes the time of all 2 H mini-batches.

Which model is evaluated: the columns of `metrics` are those of x. With `evaluate.clients`, the table `client_metrics`
has the values of each v_k on the common test set, and `record.client_models` keeps all v_k. The metrics `own_classes`
and `own_classes_models` are the accuracy of x, and of each v_k, on test data in the client's mix of classes.

Privacy: a v_k has gradients of its client without noise. They are no part of messages, but of tables and files of the
run. So scenarios with privacy are refused.

Faults: those of `simfl.algorithms.fedavg`. A client whose change comes too late keeps its v_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.fedavg import FedAvg, RoundUnderWay
from simfl.tape.recording import Model, Round


class PersonalRounds(FedAvg):
    """Rounds of FedAvg with a personal model of each client."""

    def set_up(self, **options: Any) -> None:
        """Take the options."""
        super().set_up(**options)
        #: The personal model of every client.
        self.personal = [self.server_model] * self.num_clients

    def client_models(self) -> Sequence[Model]:
        """Return the personal models."""
        return self.personal


class Ditto(PersonalRounds):
    """Rounds of FedAvg in which clients train a model of their own, too."""

    kind: ClassVar[str] = "ditto"
    summary: ClassVar[str] = "Ditto: FedAvg, and a personal model of each client that is pulled to the global one"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server; personal models stay at clients"
    what_is_private: ClassVar[str] = "nothing: personal models are trained without noise"
    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(self, *, personal_pull: float, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(**options)
        self.pull = personal_pull

    def _seconds(self, me: int) -> float:
        """Return the duration of the steps on both models."""
        return super()._seconds(me) + super()._seconds(me)

    def _train(self, me: int, model: Model, this: RoundUnderWay, steps: int) -> tuple[Model | Round, int]:
        """Make also the steps on the personal model, each a round with its own pull."""
        combine, pull = self.tape.combine, self.pull
        for _ in range(self.steps[me]):
            personal = self.personal[me]
            towards = combine((pull, personal), (-pull, model))
            change = self.batches.train(personal, me, 1, (this.step_size, 0.0, 0.0, 0.0), towards)
            self.personal[me] = combine((1.0, personal), (1.0, change))
        return super()._train(me, model, this, steps)
