"""SCAFFOLD, FedDyn and FedNova: FedAvg without the bias of local steps.

A client k of a round makes H local steps from the server's model x, and sends its change D_k. With p_k its weight among
all clients, N clients and the step size eta:

    scaffold:  w <- w - eta (gradient at w + c - c_k);      C_k = -c - D_k / (H eta)
               x <- x + server step * mean D,   c_k <- c_k + C_k,   c <- c + sum of p_k C_k
    feddyn:    w <- w - eta (gradient at w - g_k + alpha (w - x));      g_k <- g_k - alpha D_k
               h <- h - alpha / N * sum of D_k,   x <- x + mean D - h / alpha
    fednova:   w <- w - eta (gradient at w + mu (w - x));   d_k = D_k / a_k
               x <- x + server step * (sum of p_k a_k) * sum of p_k d_k

SCAFFOLD is Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378, with option II of the control variates c_k.
FedDyn is Acar et al. 2021, https://arxiv.org/abs/2111.04263; alpha is `proximal`. FedNova is Wang et al. 2020,
https://arxiv.org/abs/2007.07481; a_k = H, or (1 - (1 - eta mu)^H) / (eta mu) with mu > 0, and p_k is the weight among
the clients of the round.

SCAFFOLD sends two vectors both ways. The control variates of a client change only if the server takes its change: one
that came too late changes nothing.

Privacy: control variates are functions of the noisy changes that clients send, so that they are no further releases.

Faults: those of `simfl.algorithms.fedavg`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.fedavg import FedAvg, RoundUnderWay
from simfl.algorithms.sums import Part
from simfl.tape import Model
from simfl.tape.recording import Round

_Terms = list[tuple[float, Model | Round]]


class _Corrected(FedAvg):
    """Base of the servers that keep a vector for each client."""

    combines_per_gradient: ClassVar[float] = 3.0

    def set_up(self, **options: Any) -> None:
        """Take the options of FedAvg; all vectors are 0."""
        super().set_up(**options)
        self.controls = [Model((), ())] * self.num_clients

    def _parts(self, this: RoundUnderWay, came: Sequence[int]) -> list[Part]:
        """Return the updates in the sum, computed: controls follow from them, too."""
        this.came.update({k: self.tape.combine((1.0, change)) for k, change in this.came.items()})
        return super()._parts(this, came)

    def _add(self, model: Model, *terms: tuple[float, Model | Round]) -> Model:
        """Return model + terms as one row."""
        return self.tape.settle(self.tape.combine((1.0, model), *terms))


class Scaffold(_Corrected):
    """Rounds with control variates of the clients and the server."""

    kind: ClassVar[str] = "scaffold"
    summary: ClassVar[str] = "SCAFFOLD: FedAvg with control variates, which reach the optimum of unlike data"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model and a control variate to clients, their changes of both to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    vectors: ClassVar[int] = 2

    def _correction(self, me: int, this: RoundUnderWay) -> Model:
        return self.tape.combine((1.0, this.control), (-1.0, self.controls[me]))

    def _terms(self, this: RoundUnderWay, terms: _Terms) -> _Terms:
        total, steps = sum(self.weights), []
        for k, change in this.came.items():
            per_step = -self.batches.sizes[k] / (this.sizes[k] * this.step_size)
            difference = (-1.0, this.control), (per_step, change)
            self.controls[k] = self._add(self.controls[k], *difference)
            steps += [(self.weights[k] / total * coef, vector) for coef, vector in difference]
        self.control = self._add(self.control, *steps)
        return terms


class FedDyn(_Corrected):
    """Rounds with a linear term for each client, and a pull to the server's model."""

    kind: ClassVar[str] = "feddyn"
    summary: ClassVar[str] = "FedDyn: FedAvg with a dynamic penalty, which reaches the optimum of unlike data"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(self, *, alpha: float = 0.1, **options: Any) -> None:
        """Take the options.

        Args:
            alpha: weight of the pull to the server's model, > 0.
        """
        super().set_up(**options)
        self.alpha = alpha
        self._state = Model((), ())

    def _correction(self, me: int, this: RoundUnderWay) -> Model:
        return self.tape.combine((-1.0, self.controls[me]))

    def _terms(self, this: RoundUnderWay, terms: _Terms) -> _Terms:
        for k, change in this.came.items():
            self.controls[k] = self._add(self.controls[k], (-self.alpha, change))
        share = -self.alpha / self.num_clients
        self._state = self._add(self._state, *((share, change) for change in this.came.values()))
        return [*terms, (-1.0 / self.alpha, self._state)]


class FedNova(FedAvg):
    """Rounds in which changes are divided by their numbers of steps."""

    kind: ClassVar[str] = "fednova"
    summary: ClassVar[str] = "FedNova: FedAvg whose changes count per local step, so that more steps do not count more"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = (
        "the server waits for all selected clients; with a `deadline`, a slow client makes fewer steps"
    )
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    partial_work: ClassVar[bool] = True

    def set_up(self, mu: float = 0.0, **options: Any) -> None:
        """Take the options.

        Args:
            mu: weight of the pull to the server's model.
        """
        super().set_up(**options)
        self.mu = mu

    def _terms(self, this: RoundUnderWay, terms: _Terms) -> _Terms:
        pull = this.step_size * self.mu
        norms, came = {}, sorted(this.came)
        for k in came:
            steps = this.sizes[k] / self.batches.sizes[k]
            norms[k] = steps if not pull else (1.0 - (1.0 - pull) ** steps) / pull
        total = sum(self.weights[k] for k in came)
        effective = sum(self.weights[k] / total * norms[k] for k in came)
        return [(weight * effective / norms[k], change) for k, (weight, change) in zip(came, terms, strict=True)]
