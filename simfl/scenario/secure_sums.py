"""Secure aggregation: a server learns sums of updates only; its cost is simulated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Bytes,
    Config,
    Count,
    Loss,
    PositiveSeconds,
    Seconds,
    Within,
    option,
    variant,
)
from simfl.scenario.problems import Problem


class SecureSumConfig(Config):
    """Options of every protocol."""

    threshold: Count | None = option(
        None,
        "t: with fewer survivors a sum is aborted; null: two thirds of the clients of a sum, rounded down, and one "
        "more",
    )
    bits: Annotated[int, Within(at_least=1, at_most=64)] = option(
        32, "b, bits of a coordinate in the sum: sums are modulo 2^b"
    )
    dropout: Loss = option(
        0.0,
        "probability that a client drops out in each round of messages after the first, besides the world's faults",
    )
    timeout: PositiveSeconds | None = option(
        None, "time after which a round of messages goes on without missing answers; null: it waits"
    )
    key_bytes: Bytes = option(32, "bytes of a public key")
    share_bytes: Bytes = option(32, "bytes of an encrypted secret share")
    seconds_per_agreement: Seconds = option(
        1e-4, "time of a key agreement on the fastest client and on the server; slower clients need longer"
    )
    mask_rate: Bandwidth = option(1e9, "bytes of masks per second on the fastest client and on the server")
    seconds_per_operation: Seconds = option(1e-8, "time of a multiplication of secret shares")

    def threshold_of(self, members: int) -> int:
        """Return t for sums of `members` clients."""
        return 2 * members // 3 + 1 if self.threshold is None else self.threshold

    def most_colluding(self, threshold: int) -> int:
        """Return how many clients may collude with the server at threshold t."""
        return threshold - 1

    def impossible(self, threshold: int) -> Iterator[Problem]:
        """Yield options that do not suit threshold t."""
        return iter(())


class BonawitzSum(SecureSumConfig):
    """Pairwise masks between all clients of a sum (Bonawitz et al. 2017)."""

    kind: Literal["bonawitz"] = variant("bonawitz")


class SecAggPlusSum(SecureSumConfig):
    """Pairwise masks between random neighbors (SecAgg+)."""

    kind: Literal["secagg_plus"] = variant("secagg_plus")
    neighbors: Annotated[int, Within(at_least=2)] = option(
        20, "k, an even number: each client shares masks and secrets with k others"
    )
    neighbors_threshold: Count | None = option(
        None, "survivors among the neighbors of a client without which a sum is aborted; null: k / 2 + 1"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield an odd number of neighbors, and too high a threshold among them."""
        if self.neighbors % 2:
            yield Problem("an even number", str(self.neighbors), "as many on each side of a circle", ("neighbors",))
        if self.neighbors_threshold is not None and self.neighbors_threshold > self.neighbors:
            advice = "lower it"
            at = ("neighbors_threshold",)
            yield Problem(f"at most neighbors, {self.neighbors}", str(self.neighbors_threshold), advice, at)

    @property
    def needed(self) -> int:
        """The number of neighbors whose shares give a secret."""
        return self.neighbors // 2 + 1 if self.neighbors_threshold is None else self.neighbors_threshold

    def most_colluding(self, threshold: int) -> int:
        """Return how many clients may collude: a sum of t has t - 1 neighbors at most."""
        return max(0, min(self.needed, threshold - 1) - 1)


class LightSecAggSum(SecureSumConfig):
    """Encoded masks, exchanged beforehand (LightSecAgg); the protocol of buffers."""

    kind: Literal["lightsecagg"] = variant("lightsecagg")
    colluding: Count | None = option(
        None, "T, clients that learn nothing together with the server; below the threshold; null: half of it"
    )

    def most_colluding(self, threshold: int) -> int:
        """Return T."""
        return threshold // 2 if self.colluding is None else self.colluding

    def impossible(self, threshold: int) -> Iterator[Problem]:
        """Yield a threshold of 1, and too many that collude."""
        if threshold < 2:
            yield Problem("at least 2 with lightsecagg", str(threshold), "raise it", ("threshold",))
        elif self.colluding is not None and self.colluding >= threshold:
            yield Problem(f"below the threshold, {threshold}", str(self.colluding), "lower it", ("colluding",))


SecureSum = Annotated[BonawitzSum | SecAggPlusSum | LightSecAggSum, ByKind(default="bonawitz")]
