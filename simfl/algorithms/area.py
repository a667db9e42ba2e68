"""AREA: the server holds the exact mean of the last models of all clients.

Iakovidou and Kim 2024, "Asynchronous federated stochastic optimization for heterogeneous objectives under arbitrary
delays", https://arxiv.org/abs/2405.10123, asynchronous exact averaging. Client i of n keeps y_i, the last model that it
sent, the initial model at first:

    client i:  take x, train:  y = w_H,   send the residual y - y_i,   y_i <- y
    server:    on receipt of a residual:  send x to the client
               with K residuals:          x <- x + 1/n * (their sum)

So x is the mean of the y_i that the server has received, whatever the delays: each client counts alike, however often
it sends. A client goes on from the model before the step that its residual completes.

The local steps of client i are eta n n_i / N times the mean gradient of a mini-batch, with n_i of the N examples
(`weighting: data`). With one local step, x then rests where the gradient of the mean over all examples is 0; with
`uniform`, where that of the mean of the clients' losses is.

The paper's listing could not be read. The rule, the order of events, the weights and K = 3 are those of the authors'
simulator AFL-Sim, in its documentation and program
(https://github.com/chariako/asynchronous_federated_learning_simulation). Its factor on gradients is n_i / N: a step
size there is n times the one here. Its clients make 100 local steps. APPFL's class of this name keeps the model that
the client received in place of y_i.

Here the server keeps the y_i, which is the same: a client has one message in flight. A bound on staleness that drops an
update leaves y_i as it was, and one that weighs it by s takes y_i + s (y - y_i) for y, so that x stays the mean. Under
a bound that makes clients wait, and with `after_update: wait`, a client gets the model after the step. With
`concurrency`, the next client is drawn after the events of the moment, and so after the step, too.

Privacy: x and the y_i are functions of the noisy changes w_H - x that clients made, so a residual is one release.

Faults: those of FedBuff. A client that has left keeps its share of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.cache import Cache
from simfl.algorithms.fedbuff import FedBuff
from simfl.algorithms.local_rounds import Update
from simfl.algorithms.sums import Released
from simfl.tape import Model
from simfl.tape.recording import Round


class AREA(FedBuff):
    """A server whose model is the mean of the clients' last models."""

    summary: ClassVar[str] = (
        "AREA: clients send what changed since their last message; the server's model is their mean"
    )
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `after_update: wait`, clients wait for the server's step"
    what_travels: ClassVar[str] = "the model to clients, the changes of their own models to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    kind: ClassVar[str] = "area"
    combines_per_gradient = 2.0
    answers_first: ClassVar[bool] = True

    def set_up(self, *, weighting: str, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        sizes, count = self.training.sizes, self.num_clients
        self._lengths = (sizes * count / sizes.sum()).tolist() if weighting == "data" else [1.0] * count
        super().set_up(server_step=1.0, staleness_exponent=0.0, noise="client", **options)
        self.last = Cache(self.tape, self.num_clients)
        self.last.latest = dict.fromkeys(range(self.num_clients), self.server_model)
        self.last.total = self.tape.combine((float(self.num_clients), self.server_model))

    def gradient_at(self, me: int, content: Any) -> Round:
        """Promise the client's next round, with steps of its length."""
        return self.batches.train(content[0], me, self.steps[me], (self.step_size() * self._lengths[me], 0.0, 0.0, 0.0))

    def stepped(self, buffer: Sequence[Update], released: Released) -> Model:
        """Renew the last models, and return their mean."""
        for update, (weight, change) in zip(buffer, released.terms, strict=True):
            before = self.last.latest[update.client]
            terms = (weight, update.model), (weight, change), (1.0 - weight, before)
            self.last.put(update.client, self.tape.settle(self.tape.combine(*terms)))
        return self.tape.combine((1.0 / self.num_clients, self.last.total))
