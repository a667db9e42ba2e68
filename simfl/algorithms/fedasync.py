"""FedAsync: a server that mixes in each model, with less weight if it is stale.

Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization", https://arxiv.org/abs/1903.03934, Algorithm 1:

    clients:  take (w, its version), train with the pull mu (w_h - w) towards w (the paper's rho), send w_H
    server:   on receipt of w_H, u updates after its read:  w <- (1 - alpha_t) w + alpha_t w_H,
              alpha_t = alpha s(u)

    constant:    s(u) = 1
    polynomial:  s(u) = (u + 1)^-a
    hinge:       s(u) = 1 for u <= b, else 1 / (a (u - b) + 1)

Here u is the number of updates that the server applied between the client's read and the update's arrival. If there
were none, u is 0 and the update has full weight. (The paper's listing, read literally, has t - tau = 1 in this case.)
Clients send the change w_H - w; the server knows w and adds the two. The paper's scheduler gives tasks to random
workers from time to time; here all clients, or `concurrency` clients at a time, train without pause.

With privacy, each client clips its change to norm C and adds noise before it sends it; or the server adds the noise to
each change (`privacy.unit: user`), and every change is a cohort of one user.

A robust rule compares the client's model with the server's: w <- (1 - alpha_t) w + alpha_t rule(w, w_H). The norm clip
w + clip(w_H - w, tau) is `clipped_gossip`. Attackers replace their change. One that knows everything knows the last
change of each honest client that the server took.

Faults: those of `simfl.algorithms.server`. Reachable clients continue, and late updates have less weight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simfl.algorithms.local_rounds import LocalRounds, Update
from simfl.algorithms.sums import ComparedSum, Part
from simfl.compiled import Integer, Number
from simfl.each import number

#: 1.0, for arithmetic with numbers that may differ between the runs of a sweep: compiled, 1.0 - x must be a float.
_ONE: Number = 1.0


def staleness_weight(kind: str, exponent: Number, slope: Number, free: Number) -> Callable[[int], Number]:
    """Return s, a function from a staleness to a factor in (0, 1].

    Args:
        kind: "constant", "polynomial" or "hinge".
        exponent: a of the polynomial.
        slope: a of the hinge.
        free: b of the hinge, the largest staleness with full weight.
    """
    if kind == "constant":
        return lambda u: 1.0
    if kind == "polynomial":
        return lambda u: number((u + 1) ** -exponent)
    if kind == "hinge":
        return lambda u: 1.0 if u <= free else _ONE / (slope * (u - free) + _ONE)
    raise ValueError(f"weighting: expected constant, polynomial or hinge, found {kind!r}")


@mypyc_attr(allow_interpreted_subclasses=True)
class FedAsync(LocalRounds):
    """A server that mixes in models as they arrive; no client waits for another."""

    summary: ClassVar[str] = "FedAsync: a server mixes each client's model into its own; a staler model has less weight"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"
    kind: ClassVar[str] = "fedasync"

    def set_up(  # type: ignore[override]
        self,
        *,
        mixing: Number,
        weighting: str,
        exponent: Number,
        slope: Number,
        free_staleness: int,
        concurrency: Integer | None,
        steps: Sequence[int] | None = None,
    ) -> None:
        """Take the options.

        Args:
            steps: see `LocalRounds`.
        """
        self.mixing = mixing
        self.weighting = staleness_weight(weighting, exponent, slope, free_staleness)
        super().set_up(steps=steps, concurrency=concurrency)
        self.take_rule(1, ComparedSum)

    def take(self, update: Update) -> None:
        """Apply w <- (1 - alpha_t) w + alpha_t w_H."""
        if self.refused(update):
            return
        share, before = self.mixing * self.weighting(update.staleness) * update.weight, self.server_model
        self.admission.join(update.client)
        terms, _, noise_std = self.sum.model_of(before, update.model, Part(update.client, update.change))
        kept, mixed = (_ONE - share, before), ((share * part, model) for part, model in terms)
        self.server_model = self.tape.apply(kept, *mixed)
        self.sum.shown(self.server_model, (kept, (share, update.model)), share)
        self.applied()
        self.updated(update.client, update.staleness, update.examples, update.step_size, noise_std=noise_std[0])
        self.hand_out(update.client, update.came)
        self.admission.let_in()
