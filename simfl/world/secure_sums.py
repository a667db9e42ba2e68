"""The cost of secure aggregation: rounds, bytes and work, without cryptography.

A server learns the sum of its clients' vectors and nothing else about them, as long as at least t clients survive. Here
the messages, bytes and computing times of such protocols are simulated. Nothing is encrypted: whether the protocols
keep their promise is taken for granted.

All have four rounds of messages, each from the server to clients and back. A client may drop out before any of them:

    keys:    clients that have an update advertise public keys
    shares:  the server sends them to the others; each client sends the others shares of its secrets, by the server
    masked:  the server passes the shares on; each client sends its masked vector; who does is in the sum
    unmask:  the server says who survived; survivors send what the server needs to take the masks off the sum

With n clients, d coordinates of b bits each, m = ceil(d b / 8) bytes, keys of a_K and shares of a_S bytes:

- `bonawitz`: Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", CCS,
  https://eprint.iacr.org/2017/281. Any two clients agree on a mask, which cancels in the sum, and each has a mask of
  its own. Shares of both secrets (Shamir, t of n) go to all others. Section 7: a client sends and receives
  2 n a_K + (5 n - 4) a_S + m bytes, and computes 2 n key agreements, 2 n shares of t terms, and n masks. The server
  reconstructs a secret for each client: the own mask of one that survived, or the key of one that dropped out after
  the second round, with its masks beside all survivors: O(n^2 + m n (1 + dropped)) in all.
- `secagg_plus`: Bell, Bonawitz, Gascon, Lepoint, Raykova 2020, "Secure single-server aggregation with
  (poly)logarithmic overhead", CCS, https://eprint.iacr.org/2020/704. The same with k random neighbors on a circle in
  place of n - 1 others. A secret needs shares from `neighbors_threshold` of its k neighbors.
- `lightsecagg`: So et al. 2022, "LightSecAgg: a lightweight and versatile design for secure aggregation in federated
  learning", MLSys, https://arxiv.org/abs/2109.14236, Table 1. A client cuts its mask into t - T pieces, encodes them
  with T random ones, and sends each of the N - 1 others a piece of p = ceil(d / (t - T)) coordinates. Survivors answer
  with the sum of their pieces, and t answers give the sum of all masks, whoever dropped out. T colluding clients learn
  nothing. Encoding takes p N log2 N operations, decoding p t log2 t. Masks are exchanged beforehand, so that sums of
  updates of different times can be made: the protocol for buffers.

**What a server learns of an aborted sum.** The server follows the protocol and keeps all that it receives, also late
messages. It asks for answers of the last round only if it has the masked vectors of t clients in time. It receives
answers that come after the round is over all the same. Up to c clients collude: they give the server their secrets, and
all shares and pieces that others have sent them. Answers and shares of colluding clients decide (`SumProtocol.shows`):

- `bonawitz`: t of them reconstruct every secret, and the server knows the sum.
- `secagg_plus`: each secret needs enough neighbors that answer or collude, however few answers there are in all.
- `lightsecagg`: more than T of them say something about the sum.

With `secagg_plus`, survivors that are no longer connected by common masks have sums of their own, which the server can
compute (`SumProtocol.hides`). A masked vector that arrives late shows nothing. With pairwise masks, the answers give
the keys of its client, but honest clients never give both the key and the own mask of one client, and c shares are too
few for the own mask. With `lightsecagg`, honest clients answer with pieces of the sum of those that came in time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Step:
    """A round of messages, for each client.

    Attributes:
        down: bytes from the server.
        work_s: seconds of computing on the fastest client.
        up: bytes to the server.
    """

    down: int
    work_s: float
    up: int


@dataclass(frozen=True)
class Work:
    """How fast clients and the server compute.

    Attributes:
        agreement_s: seconds of a key agreement or the generation of a key.
        mask_rate: bytes of masks per second.
        operation_s: seconds of a multiplication in the field of the shares.
    """

    agreement_s: float = 1e-4
    mask_rate: float = 1e9
    operation_s: float = 1e-8


@dataclass(frozen=True)
class SumProtocol(ABC):
    """A protocol of secure aggregation.

    Attributes:
        threshold: t, the least number of survivors.
        size: d, coordinates of a vector.
        bits: b, bits of a coordinate in the sum's group.
        key_bytes, share_bytes: a_K and a_S.
        work: speeds.
        timeout_s: time after which a round ends with those who have answered; inf: it waits for all others.
        dropout: probability with which a client drops out in each of the last three rounds, besides the world's faults.
    """

    kind: ClassVar[str]
    #: Whether masks are exchanged before it is known which updates are in a sum.
    ahead: ClassVar[bool] = False

    threshold: int
    size: int
    bits: int = 32
    key_bytes: int = 32
    share_bytes: int = 32
    work: Work = Work()
    timeout_s: float = math.inf
    dropout: float = 0.0

    @property
    def vector_bytes(self) -> int:
        """m."""
        return math.ceil(self.size * self.bits / 8)

    @property
    def mask_s(self) -> float:
        """Seconds of one mask."""
        return self.vector_bytes / self.work.mask_rate

    @abstractmethod
    def steps(self, count: int) -> tuple[Step, Step, Step, Step]:
        """Return the rounds of `count` clients; `down` of the first is 0."""

    @abstractmethod
    def enough(self, circle: Sequence[int], answered: Collection[int]) -> bool:
        """Whether the answers of the last round unmask the sum of the circle."""

    @abstractmethod
    def shows(
        self, circle: Sequence[int], survivors: Collection[int], answered: Collection[int], colluding: int
    ) -> bool:
        """Whether the server may learn something about the sum of the survivors.

        Args:
            circle: the clients that sent shares, in a random order.
            survivors: those whose masked vectors are in the sum.
            answered: those whose answers of the last round reach the server, in time or not.
            colluding: how many clients of the circle may tell the server what they know, whichever they are.
        """

    def hides(self, circle: Sequence[int], survivors: Collection[int], colluding: int) -> bool:
        """Whether the server learns no sum of some survivors only."""
        del circle, survivors, colluding
        return True

    @abstractmethod
    def server_s(self, circle: Sequence[int], survivors: Collection[int]) -> float:
        """Return the server's seconds of unmasking.

        Args:
            circle: the clients that sent shares, in a random order.
            survivors: those that sent a masked vector.
        """


@dataclass(frozen=True)
class Bonawitz(SumProtocol):
    """Pairwise masks between all clients."""

    kind: ClassVar[str] = "bonawitz"

    def others(self, count: int) -> int:
        """Return the number of clients with which one has a common mask."""
        return max(0, count - 1)

    def shares_needed(self, count: int) -> int:
        """Return the number of shares that reconstruct a secret."""
        del count
        return self.threshold

    def steps(self, count: int) -> tuple[Step, Step, Step, Step]:
        """Return the rounds; see the module's docstring."""
        others, work = self.others(count), self.work
        sharing_s = others * work.agreement_s + 2 * (others + 1) * self.shares_needed(count) * work.operation_s
        ciphers = 2 * others * self.share_bytes
        return (
            Step(0, 2 * work.agreement_s, 2 * self.key_bytes),
            Step(2 * others * self.key_bytes, sharing_s, ciphers),
            Step(ciphers, others * work.agreement_s + (others + 1) * self.mask_s, self.vector_bytes),
            Step(0, 0.0, (others + 1) * self.share_bytes),
        )

    def neighbors(self, circle: Sequence[int]) -> Callable[[int], Collection[int]]:
        """Return a function from a place to those that hold shares of its secrets."""
        everyone = frozenset(circle)
        return lambda place: everyone

    def enough(self, circle: Sequence[int], answered: Collection[int]) -> bool:
        """Whether t shares of every secret are there."""
        return len(answered) >= self.threshold

    def shows(
        self, circle: Sequence[int], survivors: Collection[int], answered: Collection[int], colluding: int
    ) -> bool:
        """Whether t shares of every secret are there; all clients of the circle hold some."""
        return len(answered) + colluding >= self.threshold

    def server_s(self, circle: Sequence[int], survivors: Collection[int]) -> float:
        """Return the time of reconstructing secrets and masks."""
        work, count, needed, alive = self.work, len(circle), self.shares_needed(len(circle)), set(survivors)
        neighbors = self.neighbors(circle)
        pairs = sum(len(alive & set(neighbors(at))) for at, client in enumerate(circle) if client not in alive)
        weights = (
            count if type(self) is not Bonawitz else 1
        )  # of Lagrange: one set if all secrets have the same holders
        shares_s = (weights * needed**2 + count * needed) * work.operation_s
        return shares_s + pairs * work.agreement_s + (len(alive) + pairs) * self.mask_s


@dataclass(frozen=True)
class SecAggPlus(Bonawitz):
    """Pairwise masks between neighbors on a random circle.

    Attributes:
        near: k, an even number of neighbors; all others if they are fewer.
        neighbors_threshold: shares that reconstruct a secret, at most k.
    """

    kind: ClassVar[str] = "secagg_plus"
    near: int = 20
    neighbors_threshold: int = 11

    def others(self, count: int) -> int:
        """Return k."""
        return min(self.near, max(0, count - 1))

    def shares_needed(self, count: int) -> int:
        """Return the threshold among neighbors."""
        return min(self.neighbors_threshold, self.others(count))

    def neighbors(self, circle: Sequence[int]) -> Callable[[int], Collection[int]]:
        """Return a function from a place on the circle to the k nearest clients."""
        count = len(circle)
        if self.others(count) == count - 1:
            return lambda place: [*circle[:place], *circle[place + 1 :]]
        half = self.near // 2
        hops = [hop for hop in range(-half, half + 1) if hop]
        return lambda place: [circle[(place + hop) % count] for hop in hops]

    def enough(self, circle: Sequence[int], answered: Collection[int]) -> bool:
        """Whether enough neighbors of every client, and t clients, have answered."""
        if len(answered) < self.threshold:
            return False
        return bool((self._near(circle, answered) >= self.shares_needed(len(circle))).all())

    def shows(
        self, circle: Sequence[int], survivors: Collection[int], answered: Collection[int], colluding: int
    ) -> bool:
        """Whether all secrets that hide the sum may have enough shares.

        These are the own masks of survivors, and the keys of others with an honest surviving neighbor. A secret of an
        honest client lacks at most `colluding` shares then, which its colluding neighbors have. Each colluding client
        has shares of all its neighbors' secrets, so there is also a bound on what all secrets lack together. Both are
        necessary, whichever clients collude. With none, the answer is exact.
        """
        count, alive = len(circle), set(survivors)
        lacking = np.maximum(0, self.shares_needed(count) - self._near(circle, answered))
        inside = np.array([client in alive for client in circle], dtype=bool)
        lacking[~inside & (self._near(circle, survivors) <= colluding)] = 0
        lacking = np.sort(lacking)[: max(0, count - colluding)]  # colluding clients tell their own secrets
        return bool(lacking.max(initial=0) <= colluding and lacking.sum() <= colluding * self.others(count))

    def _near(self, circle: Sequence[int], clients: Collection[int]) -> NDArray[np.int64]:
        """Return how many neighbors of each place of the circle are among some clients."""
        count, half, among = len(circle), self.near // 2, set(clients)
        inside = np.array([client in among for client in circle], dtype=np.int64)
        if self.others(count) == count - 1:
            return np.asarray(inside.sum() - inside)
        before = np.concatenate(([0], np.cumsum(np.concatenate((inside[-half:], inside, inside[:half])))))
        return np.asarray(before[2 * half + 1 :] - before[:count] - inside)

    def hides(self, circle: Sequence[int], survivors: Collection[int], colluding: int) -> bool:
        """Whether masks connect survivors, whichever `colluding` of them collude.

        Two gaps of k / 2 clients on the circle cut it into two parts, whose sums the server can compute.
        """
        count, half, alive = len(circle), self.near // 2, set(survivors)
        if self.others(count) == count - 1:
            return True
        there = np.array([client in alive for client in circle] * 2, dtype=np.int64)
        before = np.concatenate(([0], np.cumsum(there)))
        cost = before[half : half + count] - before[:count]  # survivors who would have to collude for a gap at a place
        for first in np.flatnonzero(cost <= colluding).tolist():
            others = np.arange(first + half + 1, first + count - half)  # with somebody in between on both sides
            one = before[others] - before[first + half]
            rest = before[first + count] - before[others + half]
            both = (one > 0) & (rest > 0) & (cost[first] + cost[others % count] <= colluding)
            if both.any():
                return False
        return True


@dataclass(frozen=True)
class LightSecAgg(SumProtocol):
    """Masks that are encoded in pieces, of which t give the mask of any sum.

    Attributes:
        colluding: T < t, clients whose pieces together say nothing about a mask.
    """

    kind: ClassVar[str] = "lightsecagg"
    ahead: ClassVar[bool] = True
    colluding: int = 1

    @property
    def piece(self) -> int:
        """p, coordinates of a piece."""
        return math.ceil(self.size / (self.threshold - self.colluding))

    @property
    def piece_bytes(self) -> int:
        """Bytes of a piece."""
        return math.ceil(self.piece * self.bits / 8)

    def encoding_s(self, count: int) -> float:
        """Return the seconds of making a mask and a piece for each of `count` clients."""
        return self.mask_s + self.piece * count * math.log2(max(2, count)) * self.work.operation_s

    def steps(self, count: int) -> tuple[Step, Step, Step, Step]:
        """Return the rounds; see the module's docstring."""
        others, work = max(0, count - 1), self.work
        pieces = others * self.piece_bytes
        return (
            Step(0, work.agreement_s, self.key_bytes),
            Step(others * self.key_bytes, others * work.agreement_s + self.encoding_s(count), pieces),
            Step(pieces, 0.0, self.vector_bytes),
            Step(0, 0.0, self.piece_bytes),
        )

    def enough(self, circle: Sequence[int], answered: Collection[int]) -> bool:
        """Whether t clients have answered."""
        return len(answered) >= self.threshold

    def shows(
        self, circle: Sequence[int], survivors: Collection[int], answered: Collection[int], colluding: int
    ) -> bool:
        """Whether the pieces of the sum's mask are more than T."""
        return len(answered) + colluding > self.colluding

    def server_s(self, circle: Sequence[int], survivors: Collection[int]) -> float:
        """Return the time of decoding the sum of masks."""
        return self.piece * self.threshold * math.log2(max(2, self.threshold)) * self.work.operation_s


PROTOCOLS: Mapping[str, type[SumProtocol]] = {one.kind: one for one in (Bonawitz, SecAggPlus, LightSecAgg)}


def circle_of(clients: Sequence[int], generator: np.random.Generator) -> list[int]:
    """Return clients in a random order."""
    return [clients[at] for at in generator.permutation(len(clients)).tolist()]
