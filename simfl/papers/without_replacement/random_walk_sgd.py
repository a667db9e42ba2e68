"""DP-SGD-k: a random walk over nodes with k uses of each example; a baseline.

Hegedus and Jelasity, "Distributed differentially private stochastic gradient descent: An empirical study", as Jin, He,
Dai use it ("DP-SGD-5"), with Gaussian noise in the place of Laplace noise.

    for t = 1, 2, ...: a node, uniformly at random among those that have budget left,
        fetches the global model from the node that updated it last, and takes its next batch of b examples
        w_{t+1} <- w_t - (gradient of the mean loss + N_t) / sqrt(t)

Every visit of an example is (epsilon/k, delta/k)-private, so that its budget is spent after k visits; a node takes no
further part then. A node's visits are k passes over its data, each in a new order. `visits: 1` is the one-visit form:
Algorithm 1 with this step size.

Faults: those of `passing`.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.papers.without_replacement.without_replacement_sgd import WithoutReplacementSGD


class RandomWalkSGD(WithoutReplacementSGD):
    """The walk of `without_replacement_sgd`, with several passes."""

    kind: ClassVar[str] = "random_walk_sgd"
    summary: ClassVar[str] = "DP-SGD-k: a global model walks at random, each example is used k times"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "a client waits for the right to update the model"
    what_travels: ClassVar[str] = "the model, to the next client; two integers, to all clients"
    what_is_private: ClassVar[str] = (
        "an example (`one_pass_gaussian`, `gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    )

    def set_up(self, *, order: str, visits: int) -> None:  # type: ignore[override]
        """Take the options; see `passing`."""
        self.begin(order, "token", visits)
