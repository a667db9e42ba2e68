"""DiLoCo: long rounds of AdamW, and Nesterov's momentum on the mean change.

Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models",
https://arxiv.org/abs/2311.08105, Algorithm 1:

    every round:  each k takes theta, trains for H mini-batches with AdamW, sends D_k = theta - theta_k
                  D = mean of D_k,   m <- beta m + D,   theta <- theta - lr (D + beta m)

A client keeps the moments of AdamW between its rounds. They are never sent. The paper has H = 500, lr = 0.7 and
beta = 0.9. The paper averages by all-reduce; here the changes go to a server and its model to the clients.

This is FedAvg with other defaults: `optimizer`, `server_optimizer` and the options of `simfl.algorithms.fedavg` apply.

Privacy: a client's change is clipped as a whole, so what it keeps between rounds is no further release. The server's
momentum is a function of noisy sums (`privacy.unit: user`) or noisy changes.

Faults: those of `simfl.algorithms.fedavg`. A client that crashes starts its round again, with the moments of the round
before, or with new ones (`optimizer.state.crash`).
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.fedavg import FedAvg


class DiLoCo(FedAvg):
    """Rounds whose optimizers keep their states, and a server with momentum."""

    kind: ClassVar[str] = "diloco"
    summary: ClassVar[str] = "DiLoCo: long rounds of AdamW, whose moments clients keep, and Nesterov's outer momentum"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"
