"""The moments bound of proactive_dp and async_fl.

Van Dijk et al. 2021, "Proactive DP", https://arxiv.org/abs/2102.09030, Lemma B.3 and Theorem B.2; van Dijk et al. 2020,
"Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from Less Aggregated
Gaussian Noise", https://arxiv.org/abs/2007.09208, Lemma 4 and Theorem 3. They make the O(q^3) term of Lemma 3 of Abadi
et al. 2016, https://arxiv.org/abs/1607.00133, explicit.

The setting: round i draws each of N examples with probability q_i = s_i / N (Poisson), sums gradients clipped to norm
C, adds N(0, (sigma C)^2 I) and releases the sum. Neighboring data sets differ by one example more or less. The
adversary sees every release (local view). `sigma` is the papers' name of the noise multiplier z. An epsilon from here
is a claim that the papers prove; the accountants of `simfl.privacy.accounting` certify a smaller one.

Two gaps of the proofs:

- lambda must be an integer, which the closed form of Theorem 3 of async_fl ignores.
- The proof bounds U0 and U1 with lambda / sigma^2 <= ln(1 / (q lambda)), while the lemma only asks for
  lambda <= sigma^2 ln(1 / (q sigma)). The bound held at every point where it was compared with the exact log-moment;
  `strict=True` keeps to the orders that the proof covers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.privacy import checks

Sizes = Sequence[int] | Sequence[float] | NDArray[np.int64] | NDArray[np.float64]


def u0(sigma: float, r0: float) -> float:
    """Return u0 = 2 sqrt(r0 sigma) / (sigma - r0); it must be below 1.

    It is U0(lambda) of Lemma 4 at lambda = sigma^2.
    """
    return 2.0 * math.sqrt(r0 * sigma) / (sigma - r0)


def u1(sigma: float, r0: float) -> float:
    """Return u1 = 2 e sqrt(r0 sigma) / ((sigma - r0) sigma); it must be below 1.

    It is U1(lambda) of Lemma 4 at lambda = sigma^2.
    """
    return math.e * u0(sigma, r0) / sigma


def third_order_factor(sigma: float, r0: float) -> float:
    """Return R, the factor of the q^3 term.

    R = 8 (1/(1 - u0) + e^3 / ((1 - u1) sigma^3)) exp(3 / sigma^2).

    The papers' r is r0 R. Async_fl, equation (16); it grows with r0.

    `r0` in [0, 1) bounds sigma s_i / N over all rounds.

    Raises:
        ConditionError: u0 or u1 is not below 1.
    """
    checks.positive(sigma=sigma)
    if not 0.0 <= r0 < 1.0:
        raise ConditionError(
            f"condition r0 < 1 of Lemma 4: r0 = sigma max s_i/N is {r0:.6g}; take smaller batches (or less noise)"
        )
    first, second = (u0(sigma, r0), u1(sigma, r0)) if sigma > r0 else (math.inf, math.inf)
    for name, value in (("u0", first), ("u1", second)):
        if not value < 1.0:
            raise ConditionError(
                f"condition {name} < 1 of Lemma 4: {name} = {value:.6g} at sigma = {sigma:g}, r0 = {r0:.6g}; "
                "take smaller batches or more noise"
            )
    return 8.0 * (1.0 / (1.0 - first) + math.e**3 / ((1.0 - second) * sigma**3)) * math.exp(3.0 / sigma**2)


@dataclass(frozen=True)
class SizeMoments:
    """The numbers of a sequence of batch sizes that the bounds use."""

    rounds: int  # T, rounds with s_i > 0
    gradients: float  # K = sum of s_i
    largest_rate: float  # max s_i / N
    first: float  # Sh_1 = (1/T) sum s_i / N
    second: float  # Sh_2 = (1/T) sum s_i^2 / (N (N - s_i))
    third: float  # Sh_3 = (1/T) sum s_i^3 / (N (N - s_i)^2)


def size_moments(sizes: Sizes, num_examples: int) -> SizeMoments:
    """Return Sh_j for j = 1, 2, 3, with T, K and the largest rate.

    Sh_j = (1/T) sum_i s_i^j / (N (N - s_i)^(j-1)).

    `sizes` are s_i, the expected examples per batch, each in [0, N). Rounds of size 0 release nothing about the data.
    """
    s = np.asarray(sizes, dtype=np.float64)
    if s.ndim != 1 or s.size == 0 or not np.isfinite(s).all() or s.min() < 0 or s.max() <= 0:
        raise ValueError("sizes: expected at least one round, sizes >= 0 and not all 0")
    if s.max() >= num_examples:
        raise ValueError(f"sizes: expected every batch below the {num_examples} examples there are, found {s.max():g}")
    q = s[s > 0] / num_examples
    odds = q / (1.0 - q)
    means = [float((q * odds**power).mean()) for power in range(3)]
    return SizeMoments(int(q.size), float(s.sum()), float(q.max()), *means)


def largest_order(sigma: float, largest_rate: float, *, strict: bool = False) -> int:
    """Return the largest integer lambda of Lemma 4; 0 if there is none.

    lambda <= min(sigma^2, sigma^2 ln(1 / (q sigma))); with `strict` also lambda / sigma^2 <= ln(1 / (q lambda)), which
    the proof uses, and which q <= 1 / (e sigma^2) implies.
    """
    if largest_rate * sigma >= 1.0:
        return 0
    limit = math.floor(sigma**2 * min(1.0, -math.log(largest_rate * sigma)))
    while strict and limit >= 1 and limit > -(sigma**2) * math.log(largest_rate * limit):
        limit -= 1
    return limit


@dataclass(frozen=True)
class MomentEpsilon:
    """The result of the explicit moment accountant."""

    epsilon: float  # the smallest over all orders
    order: int  # lambda that gave it
    largest_order: int  # the largest lambda allowed


def explicit_moments(
    sizes: Sizes, num_examples: int, sigma: float, delta: float, *, strict: bool = False
) -> MomentEpsilon:
    """Return the explicit moment accountant's epsilon of sizes, and its order.

    epsilon = min over integers lambda <= min(sigma^2, sigma^2 ln(1 / (q_max sigma))) of
        ( T Sh_2 lambda (lambda + 1) / sigma^2 + R T Sh_3 lambda^2 (lambda + 1) / sigma^3 + ln(1/delta) ) / lambda,
    R at r0 = sigma q_max: Lemma 4 summed over rounds, and the tail bound of Abadi et al. 2016, Theorem 2. Unlike the
    papers' closed forms it does not give half of epsilon away.

    `sizes` are s_i, each in [0, N); `strict` takes only orders that the proof of Lemma 4 covers without a gap.

    Raises:
        ConditionError: sigma q_max >= 1, u0 or u1 >= 1, or no order is allowed.
    """
    checks.positive(sigma=sigma)
    checks.open_unit(delta=delta)
    m = size_moments(sizes, num_examples)
    factor = third_order_factor(sigma, sigma * m.largest_rate)
    limit = largest_order(sigma, m.largest_rate, strict=strict)
    if limit < 1:
        raise ConditionError(
            f"condition 1 <= lambda <= sigma^2 min(1, ln(1/(q sigma))) of Lemma 4: no integer lambda at "
            f"sigma = {sigma:g}, q = {m.largest_rate:.4g}; take smaller batches or more noise"
        )
    order = np.arange(1, limit + 1, dtype=np.float64)
    spent = m.rounds * (order + 1) * (m.second / sigma**2 + factor * m.third * order / sigma**3)
    epsilon = spent - math.log(delta) / order
    best = int(np.argmin(epsilon))
    return MomentEpsilon(float(epsilon[best]), best + 1, limit)


def explicit_moment_epsilon(
    sizes: Sizes, num_examples: int, sigma: float, delta: float, *, strict: bool = False
) -> float:
    """Return the epsilon of `explicit_moments`."""
    return explicit_moments(sizes, num_examples, sigma, delta, strict=strict).epsilon
