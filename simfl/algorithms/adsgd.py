"""ADSGD: wait-free gossip as block descent, whose limit delays do not move.

Zhou, Pu 2025, "Asynchronous decentralized SGD under non-convexity: a block-coordinate descent framework",
https://arxiv.org/abs/2505.10322. Abstract, introduction and a summary with the update could be read; the theorem with
its bound on the step, and the experiments, could not:

    each client i repeats, without waiting:
        g <- gradient at x_i                                                          (takes time)
        x_i <- w_ii x_i + sum over neighbors j of w_ij (the newest x_j that came) - step * g
        send x_i to all neighbors

w are the Metropolis weights, symmetric: w_ij = 1 / (1 + max(n_i, n_j)) with n_i neighbors. Only i changes x_i, so g is
never stale. An update is a step of block-coordinate descent with stochastic gradients on

    F(x_1, ..., x_K) = sum_i f_i(x_i) + (1 / (2 step)) sum_ij x_i (I - W)_ij x_j

in block i, with blocks of others as old as their messages. A minimum of F is one whatever the order, the number and
the delays of updates: with whole batches, models go to the fixed point of D-PSGD, x = W x - step * gradients. SWIFT
averages after its step; its weights are by the clients' speeds, and with them fast clients count more.

Before a model of j has come, it is the initial one. Faults are those of `simfl.algorithms.swift`: a message is sent
again until it comes, the newest one counts, and the weight of a client that has left goes to the others' own models.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.swift import Swift


class ADSGD(Swift):
    """Clients that average with what came, step, and send to their neighbors."""

    kind: ClassVar[str] = "adsgd"
    summary: ClassVar[str] = "ADSGD: wait-free gossip whose limit does not depend on speeds and delays"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "models, to all neighbors, after every step"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self) -> None:  # type: ignore[override]
        """Take the initial models; weights are those of equal speeds."""
        super().set_up(skip=0)

    def before_step(self, me: int) -> None:
        """Average with the newest models."""
        self._average(me)

    def after_step(self, me: int) -> None:
        """Do nothing: models are averaged before the step."""
