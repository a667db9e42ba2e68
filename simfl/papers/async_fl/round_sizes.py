"""Gradients of each client and round, and the gate between clients.

Van Dijk et al. 2020, https://arxiv.org/abs/2007.09208, Algorithms 1 and 2. `simfl.papers.async_fl.sizes` has the
sequences s_i and the delay functions tau.
"""

from __future__ import annotations

import bisect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simfl.errors import ConditionError
from simfl.papers.async_fl.sizes import AbstractSizes
from simfl.streams import Streams


class RoundSizes:
    """s_i and s_{i,c}: the gradients of round i, of all and of each client.

    - `random`: each of the s_i gradients goes to client c with probability p_c.
    - `proportional`: s_{i,c} ~ p_c s_i, rounded so that they add up to s_i in every round. Clients that earlier rounds
      rounded down come first.

    Args:
        sequence: s_i; with `each_client` the gradients of each client, so that s_i is K times that.
        weights: p_c up to a common factor, [K]; unused with `each_client`.
        streams: of the run; the random assignment draws from them.
        noise: (first round, factor) of the noise of later stages, in order.
    """

    def __init__(
        self,
        sequence: AbstractSizes,
        weights: Sequence[float],
        streams: Streams,
        assignment: Literal["proportional", "random"] = "proportional",
        each_client: bool = False,
        noise: Sequence[tuple[int, float]] = (),
    ) -> None:
        self._noise = ((0, 1.0), *noise)
        self.sequence = sequence
        self.num_clients = len(weights)
        self.weights = np.asarray(weights, dtype=np.float64) / math.fsum(weights)
        self.assignment = assignment
        self.each_client = each_client
        self._streams = streams
        self._rounds: list[list[int]] = []
        self._given = np.zeros(self.num_clients, dtype=np.int64)

    def of(self, i: int, client: int) -> int:
        """Return s_{i,c}, which may be 0."""
        if self.each_client:
            return self.sequence.size(i)
        while len(self._rounds) <= i:
            self._rounds.append(self._divide(len(self._rounds)))
        return self._rounds[i][client]

    def noise_factor(self, i: int) -> float:
        """Return the noise of round i relative to that of the first."""
        return next(factor for begin, factor in reversed(self._noise) if begin <= i)

    def total(self, i: int) -> int:
        """Return S_i = s_0 + ... + s_(i-1)."""
        return self.sequence.total(i) * (self.num_clients if self.each_client else 1)

    def rounds_for(self, gradients: float) -> int:
        """Return the smallest number of rounds with at least this many gradients."""
        return self.sequence.rounds_for(gradients / (self.num_clients if self.each_client else 1))

    def _divide(self, i: int) -> list[int]:
        size = self.sequence.size(i)
        if self.assignment == "random":
            generator = self._streams.generator("assignment", 0, i)
            return [int(n) for n in generator.multinomial(size, self.weights)]
        lacking = self.weights * self.sequence.total(i + 1) - self._given
        whole = np.maximum(np.floor(lacking + 1e-9), 0.0).astype(np.int64)
        rest = size - int(whole.sum())
        order = np.argsort(-(lacking - whole), kind="stable")
        whole[order[: max(rest, 0)]] += 1
        # Clients that got too much before get nothing now. If the others then get more than s_i, those that lack least
        # give one back.
        giving = [client for client in order[::-1] if whole[client] > 0]
        whole[giving[: max(-rest, 0)]] -= 1
        self._given += whole
        return [int(n) for n in whole]


class Gate(ABC):
    """The limit on how far a client runs ahead of its model (the wait loop)."""

    @abstractmethod
    def gradients(self, sizes: RoundSizes, i: int, client: int, known: int) -> int:
        """Return the gradients allowed given a model with all rounds < `known`.

        From 0 to s_{i,c}, or -1 if the client may not begin the round; it does not decrease with `known`.
        """

    def allows(self, sizes: RoundSizes, i: int, client: int, known: int, least: int) -> bool:
        """Return whether `gradients` is at least `least`."""
        return self.gradients(sizes, i, client, known) >= least


@dataclass(frozen=True)
class RoundsGate(Gate):
    """Wait while i > k + d.

    The paper prints i = k + d, for which d = 1 would mean what d = 0 means here.
    """

    ahead: int = 1  # d >= 0; 0 is synchronous

    def gradients(self, sizes: RoundSizes, i: int, client: int, known: int) -> int:
        """Return all of the round's gradients or -1."""
        return sizes.of(i, client) if i <= known + self.ahead else -1


@dataclass(frozen=True)
class DelayGate(Gate):
    """Wait while tau(t_glob) < t_delay: gradient h needs t_delay <= tau(t_glob).

    t_glob = s_0 + ... + s_i - (s_{i,c} - h) - 1 and t_delay = s_k + ... + s_i - (s_{i,c} - h), which is
    t_glob + 1 - S_k. (Algorithm 1 waits while the two are equal: then no client would wait one step later.)
    """

    delay: Callable[[float], float]  # tau, with t - tau(t) increasing

    def gradients(self, sizes: RoundSizes, i: int, client: int, known: int) -> int:
        """Return the number of gradients that keep the bound; t - tau(t) increases."""
        size = sizes.of(i, client)
        first = sizes.total(i + 1) - size - 1
        contained = sizes.total(known)
        if not size:  # the condition of the round's last gradient
            return -1 if self._lacks_too_many(first - 1, contained) else 0
        return bisect.bisect_left(range(size), True, key=lambda h: self._lacks_too_many(first + h, contained))

    def allows(self, sizes: RoundSizes, i: int, client: int, known: int, least: int) -> bool:
        """Return whether the last of `least` gradients, and so all, keep the bound."""
        last = sizes.total(i + 1) - sizes.of(i, client) + least - 2
        return not self._lacks_too_many(last, sizes.total(known))

    def _lacks_too_many(self, t_glob: int, contained: int) -> bool:
        return t_glob + 1 - contained > self.delay(float(max(0, t_glob)))


def check_size(i: int, client: int, size: int, examples: int) -> None:
    """Reject rounds with more examples than the client has, if drawn once."""
    if size > examples:
        raise ConditionError(
            f"condition s_i <= N: in round {i} client {client} is to draw {size} of its {examples} examples; take "
            "fewer rounds, smaller sizes, or sampling: with_replacement"
        )


def check_gate(gate: Gate, sizes: RoundSizes, i: int, client: int, least: int) -> None:
    """Reject a gate that blocks a client whose model is complete.

    `least` is the number of gradients that the client has to compute at once.
    """
    if not gate.allows(sizes, i, client, i, least):
        allowed = gate.gradients(sizes, i, client, i)
        raise ConditionError(
            f"gate: tau allows client {client} {allowed} gradients of round {i} although its model contains all rounds "
            f"before, and it needs {least}: no client could go on; take a larger tau or smaller sizes"
        )
