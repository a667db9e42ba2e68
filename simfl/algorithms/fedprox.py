"""FedProx: FedAvg with a proximal term and partial work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith 2020, "Federated optimization in heterogeneous networks",
https://arxiv.org/abs/1812.06127, Algorithm 2:

    each chosen k:  w_{h+1} = w_h - eta ( gradient at w_h + mu (w_h - w) ),  for as many steps as it has time for
    server:         w <- weighted mean of the clients' models

With mu = 0 and no deadline this is FedAvg. With a deadline, FedAvg drops late updates; here a client stops after at
least one step, in time for its message: its result arrives by the deadline if the message takes its mean time.

Faults: those of `simfl.algorithms.fedavg`.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.fedavg import FedAvg


class FedProx(FedAvg):
    """FedAvg with a proximal term and partial work."""

    summary: ClassVar[str] = "FedProx: FedAvg with a pull towards the server's model, and partial work of slow clients"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = (
        "the server waits for all selected clients; with a `deadline`, a slow client makes fewer steps"
    )
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"
    kind: ClassVar[str] = "fedprox"
    partial_work: ClassVar[bool] = True
