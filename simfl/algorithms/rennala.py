"""Rennala SGD: a server collects S gradients at its model, discards others, steps.

Tyurin and Richtárik 2023, "Optimal time complexities of parallel stochastic optimization methods under a fixed
computation model", https://arxiv.org/abs/2305.12387, Method 4 and Algorithms 5 and 6:

    client:   pull the model x^k and its version k, compute the gradient g of a mini-batch at x^k, push g
    server:   on receipt of g of version k:   if k is the present version, put g into the batch, else discard it
              send the model to the client that sent g
              with S gradients in the batch:  x^{k+1} = x^k - gamma / S * (their sum), and the batch is empty

A client may have several gradients in a batch. Clients do not wait: one whose gradient is in the batch computes another
at the same model. For an eps-stationary point, E |grad f(x)|^2 <= eps, of an L-smooth f with gradients of variance
sigma^2 the paper takes S = max(1, ceil(sigma^2 / eps)) and gamma = min(1 / L, eps S / (2 L sigma^2)).

With `late: stop` clients stop computations at older models: `simfl.algorithms.late` with R = 1.

Faults: those of `simfl.algorithms.server`. Gradients of an incomplete batch at the end of a run are not applied.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.late import LateGradients
from simfl.tape import Gradient, Model


class Rennala(LateGradients):
    """A server that takes one step for every S gradients at its model."""

    summary: ClassVar[str] = "Rennala SGD: a server takes a step for every S gradients at its model, discards others"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; gradients at older models are discarded"
    what_travels: ClassVar[str] = (
        "gradients to the server, the model to clients; with `late: stop`, also to clients that should start again"
    )
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "rennala"

    def set_up(self, *, gradients_per_step: int | None, late: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(threshold=1, late=late)
        self.take_rule(self.num_clients)
        self.gradients_per_step = self.num_clients if gradients_per_step is None else gradients_per_step
        #: Sender, size, standard deviation of the noise, and promise or what the server decodes of it.
        self._batch: list[tuple[int, int, float, Gradient | Model]] = []

    def version_after(self, updates: int) -> int:
        """Return the version after further updates; only a full batch increases it."""
        return self.version + (len(self._batch) + updates) // self.gradients_per_step

    def apply(
        self, client: int, gradient: Gradient, size: int, sent: Model | None, weight: float, staleness: int
    ) -> None:
        """Put a gradient at the present model into the batch; step when it is full."""
        if weight == 0.0:
            self.client_dropped[client] += 1
            return
        self._batch.append((client, size, self.noise_std_of(client, gradient), sent or gradient))
        if len(self._batch) == self.gradients_per_step:
            self.step()

    def divisor(self, gradients: int) -> float:
        """Return what the sum of a step's mean gradients is divided by."""
        return gradients

    def step(self) -> None:
        """Take the step x <- x - gamma / S * (sum of the batch's mean gradients)."""
        batch, self._batch = self._batch, []
        step_size, sent = self.step_size(), [(client, one) for client, *_, one in batch]
        mean = self.sum.mean(self.descent, sent, self.divisor(len(batch)))
        self.server_model = self.server_descent.along(self.server_model, mean, step_size)
        self.applied()
        self.round_num += 1
        with self.together():
            for client, size, noise_std, _ in batch:
                self.updated(client, 0, size, step_size, round_num=self.round_num - 1, noise_std=noise_std)
