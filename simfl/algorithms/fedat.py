"""FedAT: tiers of equally fast clients, synchronous inside, asynchronous between.

Chai, Chen, Anwar, Zhao, Cheng and Rangwala 2021, "FedAT: a high-performance and communication-efficient federated
learning system with asynchronous tiers", SC, https://arxiv.org/abs/2010.05958. There are M tiers of clients, the
fastest first. Each tier m has rounds of its own, as in FedAvg, which do not wait for other tiers:

    every round of m:  S = max(fraction, 1) random clients of m take w, train, send w_k - w
                       w_m <- w + sum over S of n_k (w_k - w) / sum over S of n_k,   T_m <- T_m + 1
                       w <- sum over m of T_{M + 1 - m} / T w_m,   T = sum of all T_m

A w_m is the initial model at first. So a slow tier has the weight of the rounds of a fast one, and fast clients do not
bias the model. A tier has no weight before its counterpart has had a round. Clients train with the pull mu (w_h - w)
towards w, as in FedProx.

What this rests on: the paper's abstract and two public programs, Flotilla's and one for Plato; its listing could not be
read. Flotilla orders tiers by T_m; here, as in the other program, the order is that of their speeds. The paper's
compression of messages is not here; `compression` applies.

Tiers are given (`tier_of`), or measured: in a first round all clients take part, and the server notes how long each
takes from the model to its update. It sorts clients by this time into M tiers of equal size, and the round is one of
all tiers. Clients that take no part in it are in the slowest tier.

Privacy: as in `simfl.algorithms.fedavg`. Tiers and their weights depend on times only.

Faults: those of `simfl.algorithms.fedavg`, for each tier. Other tiers go on while one waits for a client.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from simfl.algorithms.disclosure import merged
from simfl.algorithms.fedavg import FedAvg, RoundUnderWay
from simfl.tape import Model
from simfl.tape.recording import Round


class FedAT(FedAvg):
    """Rounds of tiers, whose newest models the server averages."""

    kind: ClassVar[str] = "fedat"
    summary: ClassVar[str] = "FedAT: tiers of equally fast clients, each with rounds of its own; slow tiers weigh more"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "a client waits for the others of its tier; no tier waits for another"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 1.0

    def set_up(self, *, tiers: int, tier_of: Sequence[int] | None, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(server_step=1.0, deadline=None, **options)
        self.tier_of = [] if tier_of is None else list(tier_of)
        count = tiers if tier_of is None else max(tier_of) + 1
        #: w_m and T_m of each tier.
        self.tier_models = [self.server_model] * count
        self.tier_rounds = [0] * count
        #: Seconds from the model to the update in the first round; inf for clients that took no part.
        self.response_s = [math.inf] * self.num_clients

    def start(self) -> None:
        """Start the tiers, or measure them."""
        if self.tier_of:
            self._start_tiers()
        else:
            self.clock.start(self.rounds_of(range(self.num_clients), lambda: bool(self.tier_of)))

    def _start_tiers(self) -> None:
        for tier in range(len(self.tier_rounds)):
            members = [k for k in range(self.num_clients) if self.tier_of[k] == tier]
            self.clock.start(self.rounds_of(members))

    def _measure(self) -> None:
        """Sort the clients into tiers by their times in the first round."""
        order = sorted(range(self.num_clients), key=lambda k: (self.response_s[k], k))
        tier_of = {k: at * len(self.tier_rounds) // len(order) for at, k in enumerate(order)}
        self.tier_of = [tier_of[k] for k in range(self.num_clients)]

    def _cohort_size(self, members: Sequence[int]) -> int:
        """Return how many of the members take part; all in the first round."""
        return super()._cohort_size(members) if self.tier_of else len(members)

    def _done(self, client: int, this: RoundUnderWay, change: Model | Round | None, examples: int = 0) -> None:
        """Note that an update has arrived, and when."""
        if change is not None and not self.tier_of:
            self.response_s[client] = self.clock.now - this.began_s
        super()._done(client, this, change, examples)

    def _step(self, this: RoundUnderWay) -> None:
        """Renew the models of the tiers that had this round, and average those of all."""
        if measured := not self.tier_of:
            self._measure()
        came: dict[int, list[int]] = {}
        for client in sorted(this.came):
            came.setdefault(self.tier_of[client], []).append(client)
        for tier, clients in sorted(came.items()):
            terms, total, _ = self.sum.release(this.model, self._parts(this, clients), float(len(clients)))
            changes = [(c / total, change) for c, change in terms]
            self.tier_models[tier] = self.tape.settle(self.tape.combine((1.0, this.model), *changes))
            self.tier_rounds[tier] += 1
        all_rounds, shares = sum(self.tier_rounds), reversed(self.tier_rounds)
        tiers = [(share / all_rounds, model) for share, model in zip(shares, self.tier_models, strict=True) if share]
        self.server_model = self.tape.combine(*tiers)
        merged(self.world.network, self.server, self.server_model)
        staleness = self.version - this.version
        self.applied()
        self.round_num += 1
        with self.together():
            for k in sorted(this.came):
                self.updated(k, staleness, this.sizes[k], this.step_size, round_num=self.round_num - 1)
        if measured:
            self._start_tiers()
