"""SWIFT: wait-free gossip; clients average with the newest models that came.

Bornstein, Rabbani, Wang, Bedi, Huang 2023, "SWIFT: rapid decentralized federated learning via wait-free model
communication", ICLR, https://arxiv.org/abs/2210.14026, Algorithm 1, in the order of its program:

    each client i repeats, without waiting:
        x_i <- x_i - step * gradient at x_i                     (takes time)
        send x_i to all neighbors
        in every (1 + skip)-th step:   x_i <- w_ii x_i + sum over neighbors j of w_ij (the newest x_j that came)

Before a model of j has come, it is the initial one. Let p_i be the share of all steps that client i makes. Averages
keep the mean of all models in expectation if p_i w_ij = p_j w_ji. The paper's clients find such weights by messages.
Here they are those of Metropolis and Hastings, which satisfy it too, with n_i neighbors:

    w_ij = min(1 / (1 + n_i), p_j / (p_i (1 + n_j))),   w_ii = 1 - sum_j w_ij,   p_i ~ 1 / (mean seconds of a gradient)

The mean is over the whole run, with slowdowns, traces and jitter; absences do not count. Where times change during a
run, averages keep the mean over the run, not at each time.
Models are sent after every step: on links that are slower than that, they queue.

Faults. A lost message is sent again. A model for a client that is offline, cut off or gone is lost. Of two models that
overtake each other the newer one counts. A client that crashes loses its gradient. The others go on with the last model
of a client that is offline; that of a client that has left is forgotten, and its weight goes to their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process
from simfl.world.topology import Topology


def weights_of(topology: Topology, shares: Sequence[float]) -> list[dict[int, float]]:
    """Return w_ij of each client and its neighbors.

    Args:
        topology: the graph.
        shares: p, [K], in any unit.
    """
    neighbors = topology.neighbors
    least = [share / (1 + len(neighbors(k))) for k, share in enumerate(shares)]
    return [{j: min(least[k], least[j]) / share for j in neighbors(k)} for k, share in enumerate(shares)]


class Swift(Algorithm):
    """Clients that step, send to their neighbors, and average with what came."""

    kind: ClassVar[str] = "swift"
    summary: ClassVar[str] = "SWIFT: wait-free gossip with the newest models of the neighbors"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "models, to all neighbors, after every step"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(self, *, skip: int, gradient_s: Sequence[float] = ()) -> None:
        """Take the options.

        Args:
            gradient_s: seconds of a gradient of each client on average, [K]; equal by default.
        """
        count = self.num_clients
        initial = self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * count
        self.skip = skip
        each_s = list(gradient_s) or [1.0] * count
        self.weights = weights_of(self.world.topology, [1.0 / own_s for own_s in each_s])
        #: The newest model of each neighbor, and the number of the sender's step.
        self._newest: list[dict[int, tuple[int, Model]]] = [dict.fromkeys(row, (0, initial)) for row in self.weights]
        self._left = [False] * count

    def start(self) -> None:
        """Start the clients."""
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)

    def models(self) -> Sequence[Model]:
        """Return one model per client."""
        return self.model

    def worker(self, me: int) -> Process:
        """Repeat: compute, step, send, average."""
        yield self.world.joined(me)
        while self._trivial or (yield from self.world.until_back(me)):
            gradient, read_at = self.batches.gradient(self.model[me], me), self.updates
            size, outcome = gradient.size, (yield self.compute(me))
            if outcome is Outcome.GONE:
                break
            if outcome is Outcome.CRASHED:
                self.batches.lost(gradient)
                continue
            step_size = self.step_size()
            self.before_step(me)
            self.model[me] = self.descent.step(me, self.model[me], gradient, step_size)
            del gradient  # a suspended process would keep it, and the model in it, alive
            self.updated(me, self.updates - read_at, size, step_size)
            self._send(me)
            self.after_step(me)
        self._left[me] = True

    def before_step(self, me: int) -> None:
        """Do nothing: models are averaged after the step."""

    def after_step(self, me: int) -> None:
        """Average, in one of 1 + `skip` updates."""
        if self.client_updates[me] % (1 + self.skip) == 0:
            self._average(me)

    def _send(self, me: int) -> None:
        """Send the model to all neighbors."""
        model, number = self.model[me], self.client_updates[me]
        for neighbor in self.weights[me]:
            self.world.network.send(
                me,
                neighbor,
                self.training.model_bytes,
                lambda neighbor=neighbor: self._receive(neighbor, me, number, model),  # type: ignore[misc]
                lambda: None,
                model,
            )

    def _receive(self, me: int, source: int, number: int, model: Model) -> None:
        if number > self._newest[me].get(source, (number, model))[0]:
            self._newest[me][source] = number, model

    def _average(self, me: int) -> None:
        """Average with the newest models."""
        newest, weights = self._newest[me], self.weights[me]
        if not self._trivial:
            for gone in [j for j in newest if self._left[j] or self.world.availability.gone(j, self.clock.now)]:
                del newest[gone]
        terms = [(weights[j], model) for j, (_, model) in newest.items()]
        own = 1.0 - sum(weight for weight, _ in terms)
        self.model[me] = self.tape.combine((own, self.model[me]), *terms)
