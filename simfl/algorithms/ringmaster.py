"""Ringmaster ASGD: asynchronous SGD without gradients of delay R or more.

Maranjyan, Tyurin and Richtárik 2025, "Ringmaster ASGD: the first asynchronous SGD with optimal time complexity",
https://arxiv.org/abs/2501.16168, Algorithm 4, and Algorithm 5 with `late: stop`:

    client:   pull the model x^k and its version k, compute the gradient g of a mini-batch at x^k, push g
    server:   on receipt of g, with version k' now:   if k' - k < R:   x <- x - gamma g,  k' <- k' + 1
              send x to the client that sent g

For an eps-stationary point, E |grad f(x)|^2 <= eps, of an L-smooth f with gradients of variance sigma^2 the paper takes
R = max(1, ceil(sigma^2 / eps)) and gamma = min(1 / (2 R L), eps / (4 L sigma^2)). A fixed R >= K is asynchronous SGD if
all clients are equally fast.

`simfl.algorithms.late` describes how gradients are discarded and computations stopped.

Faults: those of `simfl.algorithms.server`.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.late import LateGradients


class Ringmaster(LateGradients):
    """A server that applies gradients as they arrive, except late ones."""

    summary: ClassVar[str] = "Ringmaster ASGD: as async_sgd, but the server discards, or stops, gradients R steps late"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; gradients that are `threshold` or more steps late are discarded"
    what_travels: ClassVar[str] = (
        "gradients to the server, the model to clients; with `late: stop`, also to clients that should start again"
    )
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "ringmaster"

    def set_up(self, *, threshold: int | None, late: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(threshold=self.num_clients if threshold is None else threshold, late=late)
