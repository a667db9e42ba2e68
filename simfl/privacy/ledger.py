"""Each client's releases, and what they cost: (epsilon, delta) by dp-accounting.

What is certified here: Gaussian noise of standard deviation z * C on the sum of gradients that
were each clipped to norm C, over mini-batches drawn by Poisson sampling at rate q = B / n_k;
neighboring data sets differ by one example more or less; the adversary sees everything that the
client ever sent (local view). The accountant reads the releases that a run recorded, not a plan:
in asynchronous runs, how often a client takes part is an outcome.

Anything else has no epsilon (NaN), and a reason.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


@functools.lru_cache(maxsize=4096)
def _renyi(noise_multiplier: float, rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Renyi divergences of one release: (orders, RDP at each order)."""
    import dp_accounting
    from dp_accounting import rdp

    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise_multiplier)
    if rate < 1.0:
        event = dp_accounting.PoissonSampledDpEvent(rate, event)
    # It warns of every fractional order at which its series does not converge and leaves it out,
    # which is sound: the best of the other orders is taken.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant = rdp.RdpAccountant()
        accountant.compose(event)
    finally:
        logger.setLevel(level)
    return np.asarray(accountant.orders, dtype=np.float64), np.asarray(accountant.rdp, dtype=np.float64)


@functools.lru_cache(maxsize=65536)
def poisson_gaussian_epsilon(noise_multiplier: float, rate: float, releases: int, delta: float) -> float:
    """Return epsilon of `releases` Poisson-sampled Gaussian releases at delta.

    Args:
        noise_multiplier: z >= 0, standard deviation of the noise over the clipping norm.
        rate: q in (0, 1], probability with which an example enters a mini-batch.
        releases: T >= 0.
        delta: in (0, 1).
    """
    if releases == 0:
        return 0.0
    if noise_multiplier == 0.0:
        return math.inf
    from dp_accounting import rdp

    orders, cost = _renyi(noise_multiplier, rate)
    epsilon, _ = rdp.rdp_privacy_accountant.compute_epsilon(orders, cost * releases, delta)
    return float(epsilon)


class Ledger:
    """What every client released, and the epsilon of it.

    Args:
        sizes: examples per client, int [K].
        batch_size: B, expected examples per mini-batch.
        sampling: how mini-batches are drawn.
        clipped: whether each example's gradient is clipped.
        noise_multiplier: z.
        delta: in (0, 1).
    """

    view = "local"
    neighbors = "add_or_remove"

    def __init__(
        self,
        sizes: NDArray[np.int64],
        batch_size: int,
        sampling: str,
        clipped: bool,
        noise_multiplier: float,
        delta: float,
    ) -> None:
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.rates = np.minimum(1.0, batch_size / np.asarray(sizes, dtype=np.float64))
        self._refusal = self._reason(sampling, clipped)

    @staticmethod
    def _reason(sampling: str, clipped: bool) -> str | None:
        if not clipped:
            return "gradients are not clipped, so the noise hides nothing: one example can move the sum by any amount"
        if sampling != "poisson":
            return f"sampling {sampling} is not Poisson sampling, which the accountant assumes; use sampling: poisson"
        return None

    @property
    def certified(self) -> bool:
        """Whether an epsilon holds for this run."""
        return self._refusal is None

    @property
    def statement(self) -> str:
        """One line that says what the epsilon means, or why there is none."""
        if self._refusal is not None:
            return f"not certified: {self._refusal}"
        return (
            f"(epsilon, delta = {self.delta:g}) per example of a client, neighboring data sets by adding or removing "
            "one example, local view (all that the client ever sent), Renyi accountant"
        )

    def epsilon(self, releases: Sequence[int]) -> NDArray[np.float64]:
        """Return each client's epsilon, float [K], given how often each released; NaN if not certified."""
        if not self.certified:
            return np.full(len(releases), math.nan)
        return np.array(
            [
                poisson_gaussian_epsilon(self.noise_multiplier, float(rate), int(count), self.delta)
                for rate, count in zip(self.rates, releases, strict=True)
            ]
        )

    def largest(self, releases: Sequence[int]) -> float:
        """Return the largest epsilon over clients; per sampling rate only the client with most releases counts."""
        if not self.certified:
            return math.nan
        most: dict[float, int] = {}
        for rate, count in zip(self.rates.tolist(), releases, strict=True):
            if count > most.get(rate, -1):
                most[rate] = count
        return max(
            poisson_gaussian_epsilon(self.noise_multiplier, rate, count, self.delta) for rate, count in most.items()
        )
