"""A2CiD2: AD-PSGD with a second model of each client, which accelerates gossip.

Nabli, Belilovsky, Oyallon 2023, "A2CiD2: accelerating asynchronous communication in decentralized deep learning",
https://arxiv.org/abs/2306.08289, Algorithm 1. Each client has two models, x and y (the paper's x-tilde):

    before any event of a client, dt after its last one:   (x, y) <- exp(dt [[-eta, eta], [eta, -eta]]) (x, y)
    its gradient g:                                        x <- x - step g,   y <- y - step g
    a pair (i, j):   d = x_j - x_i,   x_i <- x_i + d / 2,   y_i <- y_i + alpha d,   and j with -d

Time counts in mean seconds of a gradient over the run, with slowdowns, traces and jitter, without absences. With Lambda
the Laplacian of the graph whose weights are the rates of its pairs, chi_1 = 1 / lambda_2(Lambda) and
chi_2 = max over edges of 1/2 (e_i - e_j)' Lambda^+ (e_i - e_j),

    eta = 1 / (2 sqrt(chi_1 chi_2)),   alpha = 1/2 sqrt(chi_1 / chi_2)

Consensus takes a time of sqrt(chi_1 chi_2) in place of chi_1. The two are equal on a complete graph. Messages hold x
only. Exchanges are those of `simfl.algorithms.adpsgd`, and rates those of clients that wait for no answer.

Faults: those of `simfl.algorithms.adpsgd`. The models of a client that is offline mix as time passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from simfl.algorithms.adpsgd import ADPSGD
from simfl.tape import Gradient, Model
from simfl.world.topology import Topology


def resistances(topology: Topology, starts: Sequence[float]) -> tuple[float, float]:
    """Return chi_1 and chi_2 of a connected graph, in units of time.

    Args:
        topology: the graph.
        starts: exchanges that each client starts in a unit of time, each with a random neighbor, [K].
    """
    count = topology.num_clients
    laplacian = np.zeros((count, count))
    for i, j in topology.edges:
        rate = starts[i] / len(topology.neighbors(i)) + starts[j] / len(topology.neighbors(j))
        laplacian[[i, j], [i, j]] += rate
        laplacian[[i, j], [j, i]] -= rate
    inverse = np.linalg.pinv(laplacian, hermitian=True)
    widest = max(float(inverse[i, i] + inverse[j, j] - 2.0 * inverse[i, j]) for i, j in topology.edges)
    return 1.0 / float(np.linalg.eigvalsh(laplacian)[1]), widest / 2.0


class A2CiD2(ADPSGD):
    """Asynchronous workers that average in pairs, with momentum in continuous time."""

    kind: ClassVar[str] = "a2cid2"
    summary: ClassVar[str] = "A2CiD2: AD-PSGD with a second model of each client, which accelerates gossip"
    family: ClassVar[str] = "pairs"
    who_waits: ClassVar[str] = "as with `adpsgd`"
    what_travels: ClassVar[str] = "models, to one neighbor and back; the second model of a client stays there"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self, *, exchange: str, pairing: str, gradient_s: Sequence[float] = ()) -> None:
        """Take the options.

        Args:
            gradient_s: seconds of a gradient of each client on average, [K]; 1 s by default.
        """
        super().set_up(exchange=exchange, pairing=pairing)
        self.combines = 3.0
        each_s = list(gradient_s) or [1.0] * self.num_clients
        #: The unit of time, seconds.
        self.unit_s = sum(each_s) / self.num_clients
        self.eta = self.alpha = 0.0
        if self.num_clients > 1:
            rates = [self.unit_s / own_s * begins for own_s, begins in zip(each_s, self._starts, strict=True)]
            first, second = resistances(self.world.topology, rates)
            self.eta, self.alpha = 0.5 / math.sqrt(first * second), 0.5 * math.sqrt(first / second)
        #: y of each client, and the time of its last event in seconds.
        self.second = list(self.model)
        self._mixed_s = [0.0] * self.num_clients

    def present(self, client: int) -> Model:
        """Return a client's model after it has mixed with its second one until now."""
        passed = (self.clock.now - self._mixed_s[client]) / self.unit_s
        if passed > 0.0:
            self._mixed_s[client] = self.clock.now
            kept = 0.5 * (1.0 + math.exp(-2.0 * self.eta * passed))
            x, y = self.model[client], self.second[client]
            if x is not y:
                combine = self.tape.combine
                self.model[client] = combine((kept, x), (1.0 - kept, y))
                self.second[client] = combine((1.0 - kept, x), (kept, y))
        return self.model[client]

    def _add(self, client: int, share: float, second_share: float, change: Model) -> None:
        """Add a change to both models of a client; each becomes one row."""
        self.present(client)
        combine, settle = self.tape.combine, self.tape.settle
        self.model[client] = settle(combine((1.0, self.model[client]), (share, change)))
        self.second[client] = settle(combine((1.0, self.second[client]), (second_share, change)))

    def move(self, client: int, share: float, difference: Model) -> None:
        """Add a share of a pair's difference to both models of a client."""
        self._add(client, share, 2.0 * self.alpha * share, difference)

    def _average(self, me: int, peer: int) -> None:
        x, other = self.present(me), self.present(peer)
        half = self.tape.combine((0.5, other), (-0.5, x))
        self.move(me, 1.0, half)
        self.move(peer, -1.0, half)

    def apply(self, me: int, gradient: Gradient, peer: int | None, weight: float, staleness: int) -> None:
        """Take the step with both models, or drop the gradient if its weight is 0."""
        if weight == 0.0:
            self.drop(gradient)
            return
        size, step_size = gradient.size, weight * self.step_size()
        change = self.tape.combine(*self.descent.terms(gradient, step_size))
        self._add(me, 1.0, 1.0, change)
        self.updated(me, staleness, size, step_size, peer)
