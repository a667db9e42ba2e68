"""Noise that cancels between neighbors, or is correlated over time.

The release of client k for its mini-batch number t carries noise of `noise_scale` times a sum of standard normals. Each
of these has a name and is drawn again wherever it occurs (`simfl.privacy.noise.gaussian`):

    own noise       xi_k(t)
    pairwise        xi_k(t) + sum over neighbors j of  +/- r_k eta_kj(t)
    in time         sum over i < b of  w_i xi_k(t - i),   w_0 = 1; see `simfl.privacy.in_time`

Both ends of the edge {k, j} know the normal vector eta_kj(t) from a shared seed. The end with the smaller number adds
it, the other one subtracts it. r_k is the pair's noise in units of k's own. Summed over all clients, the pairs' noise
of mini-batch t cancels. Allouah et al. 2024, "The privacy power of correlated noise in decentralized
learning" (DECOR), https://arxiv.org/abs/2405.01031.

Remaining noise: if the other end has not made its release of the same number (it is slower, lost it in a crash, or has
left), a release keeps the pair's noise, of variance (z_pair C)^2 on each coordinate for each such edge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Form = Literal["pairwise", "in_time"]
Stream = Literal["own", "pair"]


class NoiseTerm(NamedTuple):
    """A standard normal vector in a release's noise, and its coefficient.

    Terms with the same stream ("own", of a client, or "pair", of an edge), owner (number of the client or the edge) and
    draw (number of the mini-batch) are the same vector.
    """

    stream: Stream
    owner: int
    draw: int
    coefficient: float


class Correlation(ABC):
    """The terms of each release's noise."""

    form: ClassVar[Form]

    @abstractmethod
    def terms(self, client: int, draw: int) -> list[NoiseTerm]:
        """Return the noise terms of a client's mini-batch, its own noise first."""

    @abstractmethod
    def stretch(self, client: int) -> float:
        """Return the standard deviation of the noise in units of the noise scale."""

    def owners(self, stream: Stream, owner: int) -> tuple[int, ...]:
        """Return the clients that know a stream of noise."""
        return (owner,)

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Return the arrays that `simfl.tape.kernels` needs besides keys."""


@dataclass(frozen=True)
class Pairwise(Correlation):
    """Noise that cancels between the two ends of an edge.

    Attributes:
        edges: int32 [K, D], numbers of each client's edges, of which the first `degrees[k]` are used.
        coefficients: f32 [K, D], signed factor of each edge's noise in units of the client's noise scale.
        degrees: int32 [K].
        key: uint32 [2], of the stream of the edges' noise.
        ends: the clients that know each edge's noise; of two, the smaller number first.
    """

    edges: NDArray[np.int32]
    coefficients: NDArray[np.float32]
    degrees: NDArray[np.int32]
    key: NDArray[np.uint32]
    ends: tuple[tuple[int, ...], ...]

    form = "pairwise"

    @classmethod
    def over(
        cls, edges: Iterable[tuple[int, int]], std: float, scales: Sequence[float], key: NDArray[np.uint32]
    ) -> Pairwise:
        """Return the noise of a graph's edges, numbered in the given order.

        On each coordinate of the sum, `std` is the standard deviation z_pair C of a pair's noise, and `scales` > 0 [K]
        are those of each client's own noise.
        """
        ends = tuple((min(edge), max(edge)) for edge in edges)
        degrees = np.bincount(np.array(ends, np.int64).ravel(), minlength=len(scales)).astype(np.int32)
        numbers = np.zeros((len(scales), max(1, degrees.max(initial=0))), np.int32)
        coefficients, filled = np.zeros(numbers.shape, np.float32), [0] * len(scales)
        for number, edge in enumerate(ends):
            for client, sign in zip(edge, (1, -1), strict=True):
                place = client, filled[client]
                numbers[place], coefficients[place] = number, sign * std / scales[client]
                filled[client] += 1
        return cls(numbers, coefficients, degrees, key, ends)

    def owners(self, stream: Stream, owner: int) -> tuple[int, ...]:
        """Return the client, or both ends of an edge."""
        return self.ends[owner] if stream == "pair" else (owner,)

    def terms(self, client: int, draw: int) -> list[NoiseTerm]:
        """Return the client's own noise, and that of each of its edges."""
        edges = zip(self.edges[client].tolist(), self.coefficients[client].tolist(), strict=True)
        pairs = [NoiseTerm("pair", edge, draw, coefficient) for edge, coefficient in edges]
        return [NoiseTerm("own", client, draw, 1.0), *pairs[: self.degrees[client]]]

    def stretch(self, client: int) -> float:
        """Return sqrt(1 + the sum of squares of the coefficients)."""
        return float(np.sqrt(1.0 + np.square(self.coefficients[client], dtype=np.float64).sum()))

    def arrays(self) -> dict[str, Any]:
        """Return edges, coefficients and degrees by client, and the key."""
        return {
            "pair_edges": self.edges,
            "pair_coefficients": self.coefficients,
            "pair_degrees": self.degrees,
            "pair_key": self.key,
        }


@dataclass(frozen=True)
class InTime(Correlation):
    """Noise correlated over releases by coefficients w, exact in float32, w_0 = 1."""

    coefficients: tuple[float, ...]

    form = "in_time"

    def terms(self, client: int, draw: int) -> list[NoiseTerm]:
        """Return the normals of this mini-batch and of earlier ones."""
        weights = enumerate(self.coefficients[: draw + 1])
        return [NoiseTerm("own", client, draw - back, weight) for back, weight in weights]

    def stretch(self, client: int) -> float:
        """Return sqrt(sum of w^2), the value after enough releases."""
        return float(np.linalg.norm(self.coefficients))

    def arrays(self) -> dict[str, Any]:
        """Return the coefficients."""
        return {"noise_coefficients": np.array(self.coefficients, np.float32)}
