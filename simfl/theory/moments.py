"""The moments bound that papers C and E share: log-moments of one subsampled Gaussian round, and what they add up to.

Van Dijk et al. 2021, "Proactive DP", https://arxiv.org/abs/2102.09030, Lemma B.3 and Theorem B.2; van Dijk et al. 2020,
"Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from Less Aggregated
Gaussian Noise", https://arxiv.org/abs/2007.09208, Lemma 4 and Theorem 3. They make the O(q^3) term of Lemma 3 of Abadi
et al. 2016, https://arxiv.org/abs/1607.00133, explicit.

The setting of everything here: round i draws each of N examples with probability q_i = s_i / N (Poisson), sums
gradients clipped to norm C, adds N(0, (sigma C)^2 I) and releases the sum; neighboring data sets differ by one example
more or less; the adversary sees every release (local view). `sigma` is the papers' name of the noise multiplier z. An
epsilon from here is a claim that the papers prove; the accountants of `simfl.privacy.accounting` certify a smaller one.

Two gaps of the proofs:

- lambda must be an integer, which paper E's closed form forgets: `general_form_delta` rounds it down.
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
from scipy.special import logsumexp

from simfl.errors import ConditionError

Sizes = Sequence[int] | Sequence[float] | NDArray[np.int64] | NDArray[np.float64]


def u0(sigma: float, r0: float) -> float:
    """Return u0 = 2 sqrt(r0 sigma) / (sigma - r0), U0(lambda) of Lemma 4 at lambda = sigma^2; it must be below 1."""
    return 2.0 * math.sqrt(r0 * sigma) / (sigma - r0)


def u1(sigma: float, r0: float) -> float:
    """Return u1 = 2 e sqrt(r0 sigma) / ((sigma - r0) sigma), U1(lambda) at lambda = sigma^2; it must be below 1."""
    return math.e * u0(sigma, r0) / sigma


def third_order_factor(sigma: float, r0: float) -> float:
    """Return R, the factor of the q^3 term: R = 8 (1/(1 - u0) + e^3 / ((1 - u1) sigma^3)) exp(3 / sigma^2).

    The papers' r is r0 R. Paper E, equation (16); it grows with r0.

    Args:
        sigma: noise multiplier, > 0.
        r0: bound of sigma s_i / N over all rounds, in [0, 1).

    Raises:
        ConditionError: u0 or u1 is not below 1.
    """
    _check_sigma(sigma)
    if not 0.0 <= r0 < 1.0:
        raise ConditionError(
            f"condition r0 < 1 of Lemma 4: r0 = sigma max s_i/N is {r0:.6g}; take smaller batches (or less noise)"
        )
    for name, value in (
        ("u0", u0(sigma, r0) if sigma > r0 else math.inf),
        ("u1", u1(sigma, r0) if sigma > r0 else math.inf),
    ):
        if not value < 1.0:
            raise ConditionError(
                f"condition {name} < 1 of Lemma 4: {name} = {value:.6g} at sigma = {sigma:g}, r0 = {r0:.6g}; "
                "take smaller batches or more noise"
            )
    first, second = u0(sigma, r0), u1(sigma, r0)
    return 8.0 * (1.0 / (1.0 - first) + math.e**3 / ((1.0 - second) * sigma**3)) * math.exp(3.0 / sigma**2)


@dataclass(frozen=True)
class SizeMoments:
    """What the bounds need to know of a sequence of batch sizes.

    Attributes:
        rounds: T, rounds with s_i > 0.
        gradients: K = sum of s_i.
        largest_rate: max s_i / N.
        first: Sh_1 = (1/T) sum s_i / N.
        second: Sh_2 = (1/T) sum s_i^2 / (N (N - s_i)).
        third: Sh_3 = (1/T) sum s_i^3 / (N (N - s_i)^2).
    """

    rounds: int
    gradients: float
    largest_rate: float
    first: float
    second: float
    third: float


def size_moments(sizes: Sizes, num_examples: int) -> SizeMoments:
    """Return Sh_j = (1/T) sum_i s_i^j / (N (N - s_i)^(j-1)) for j = 1, 2, 3, and what goes with them.

    Args:
        sizes: s_i, expected examples per batch, each in [0, N); rounds of size 0 release nothing about data.
        num_examples: N, examples of the client.
    """
    s = np.asarray(sizes, dtype=np.float64)
    if s.ndim != 1 or s.size == 0 or not np.isfinite(s).all() or s.min() < 0 or s.max() <= 0:
        raise ValueError("sizes: expected at least one round, sizes >= 0 and not all 0")
    if s.max() >= num_examples:
        raise ValueError(f"sizes: expected every batch below the {num_examples} examples there are, found {s.max():g}")
    q = s[s > 0] / num_examples
    odds = q / (1.0 - q)
    return SizeMoments(
        rounds=int(q.size),
        gradients=float(s.sum()),
        largest_rate=float(q.max()),
        first=float(q.mean()),
        second=float((q * odds).mean()),
        third=float((q * odds**2).mean()),
    )


def largest_order(sigma: float, largest_rate: float, *, strict: bool = False) -> int:
    """Return the largest integer lambda that Lemma 4 covers with its u0, u1; 0 if there is none.

    lambda <= min(sigma^2, sigma^2 ln(1 / (q sigma))); with `strict` also lambda / sigma^2 <= ln(1 / (q lambda)), which
    the proof uses, and which q <= 1 / (e sigma^2) implies.
    """
    if largest_rate * sigma >= 1.0:
        return 0
    limit = math.floor(sigma**2 * min(1.0, -math.log(largest_rate * sigma)))
    while strict and limit >= 1 and limit > -(sigma**2) * math.log(largest_rate * limit):
        limit -= 1
    return limit


def round_log_moment_bound(q: float, sigma: float, order: int, *, r0: float | None = None) -> float:
    """Return Lemma 4's bound of the log-moment alpha(lambda) of one round.

    alpha(lambda) <= q^2 lambda (lambda + 1) / ((1 - q) sigma^2)
                     + R q^3 lambda^2 (lambda + 1) / ((1 - q)^2 sigma^3)

    Args:
        q: sampling rate s_i / N, in (0, 1).
        sigma: noise multiplier.
        order: lambda >= 1, an integer of at most `largest_order(sigma, q)`.
        r0: bound of sigma q over all rounds; by default that of this round.

    Raises:
        ConditionError: lambda is too large, or u0 or u1 is not below 1.
    """
    _check_sigma(sigma)
    if not 0.0 < q < 1.0:
        raise ValueError(f"q: expected a rate in (0, 1), found {q:g}")
    if order < 1 or order != int(order):
        raise ValueError(f"order: expected an integer >= 1, found {order}")
    limit = largest_order(sigma, q)
    if order > limit:
        raise ConditionError(
            f"condition lambda <= min(sigma^2, sigma^2 ln(1/(q sigma))) of Lemma 4: lambda is {order}, at most {limit} "
            "is covered; take a smaller lambda"
        )
    factor = third_order_factor(sigma, sigma * q if r0 is None else r0)
    odds = q / (1.0 - q)
    second = q * odds * order * (order + 1) / sigma**2
    return second + factor * q * odds**2 * order**2 * (order + 1) / sigma**3


def round_log_moment(q: float, sigma: float, order: float) -> float:
    """Return the exact log-moment alpha(lambda) of one Poisson-sampled Gaussian round, by numerical integration.

    With mu0 = N(0, sigma^2) and mu = (1 - q) mu0 + q N(1, sigma^2):
    alpha(lambda) = max( ln E_mu (mu/mu0)^lambda, ln E_mu0 (mu0/mu)^lambda ), Abadi et al. 2016, equations (3), (4);
    this is lambda times the Renyi divergence of order lambda + 1. For comparison with `round_log_moment_bound`.

    Args:
        q: sampling rate in (0, 1).
        sigma: noise multiplier > 0.
        order: lambda > 0.
    """
    _check_sigma(sigma)
    # The integrands are analytic in a strip of half-width min(sigma, pi sigma^2), so that the trapezoidal rule with a
    # tenth of that as step is exact to rounding; mass beyond 40 sigma of the means is below 1e-300.
    step = min(sigma, sigma**2) / 10.0
    x = np.arange(-order - 1.0 - 40.0 * sigma, order + 2.0 + 40.0 * sigma, step)
    log_mu0 = -0.5 * (x / sigma) ** 2 - math.log(sigma * math.sqrt(2.0 * math.pi)) + math.log(step)
    # ln(mu / mu0) = ln(1 - q + q exp((2x - 1) / (2 sigma^2))), without overflow and without losing q to rounding
    exponent = (2.0 * x - 1.0) / (2.0 * sigma**2)
    log_ratio = np.where(
        exponent < 0.0,
        np.log1p(q * np.expm1(np.minimum(exponent, 0.0))),
        exponent + np.log(q + (1.0 - q) * np.exp(-np.maximum(exponent, 0.0))),
    )
    # Near x = 1/2 the second branch rounds ln(1 + tiny); the first one does not, and is safe while exp() is moderate.
    near = np.abs(exponent) < 1.0
    log_ratio[near] = np.log1p(q * np.expm1(exponent[near]))
    return max(
        _log_mean_exp(order * log_ratio, log_mu0 + log_ratio),
        _log_mean_exp(-order * log_ratio, log_mu0),
    )


def _log_mean_exp(values: NDArray[np.float64], log_weights: NDArray[np.float64]) -> float:
    """Return ln E exp(value) under weights that add up to 1; precise also where it is close to 0."""
    log_mean = float(logsumexp(values + log_weights))
    if log_mean > 0.1:
        return log_mean
    small = values < 1.0
    excess = np.where(small, np.expm1(np.minimum(values, 1.0)) * np.exp(log_weights), 0.0)
    large = np.exp(np.where(small, -np.inf, values + log_weights)) - np.where(small, 0.0, np.exp(log_weights))
    return math.log1p(float(excess.sum() + large.sum()))


@dataclass(frozen=True)
class MomentEpsilon:
    """What the explicit moment accountant found.

    Attributes:
        epsilon: the smallest that one of the orders proves.
        order: lambda, the order that gave it.
        largest_order: the largest lambda that was allowed.
    """

    epsilon: float
    order: int
    largest_order: int


def explicit_moments(
    sizes: Sizes, num_examples: int, sigma: float, delta: float, *, strict: bool = False
) -> MomentEpsilon:
    """Return the explicit moment accountant's epsilon for any sequence of batch sizes, with the order that gave it.

    epsilon = min over integers lambda <= min(sigma^2, sigma^2 ln(1 / (q_max sigma))) of
        ( T Sh_2 lambda (lambda + 1) / sigma^2 + R T Sh_3 lambda^2 (lambda + 1) / sigma^3 + ln(1/delta) ) / lambda,
    R at r0 = sigma q_max: Lemma 4 summed over rounds, and the tail bound of Abadi et al. 2016, Theorem 2. Unlike the
    papers' closed forms it does not give half of epsilon away.

    Args:
        sizes: s_i, each in [0, N).
        num_examples: N.
        sigma: noise multiplier.
        delta: in (0, 1).
        strict: only orders that the proof of Lemma 4 covers without a gap.

    Raises:
        ConditionError: sigma q_max >= 1, u0 or u1 >= 1, or no order is allowed.
    """
    _check_sigma(sigma)
    _check_delta(delta)
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


def moment_form_epsilon(sizes: Sizes, num_examples: int, sigma: float, *, sharp: bool = False) -> float:
    """Return the smallest epsilon for which lambda up to sigma^2 - 1 may be used: the moment form of paper C.

    epsilon >= 2 T (Sh_2 + r Sh_3 / Sh_1), r = r0 R(sigma, r0), r0 = sigma max s_i / N <= 1/e;
    `sharp`: epsilon >= 2 T (Sh_2 + R sigma Sh_3), weaker as Sh_1 <= max s_i / N, and proved by the same lemma.
    Together with sigma >= sqrt(2 (epsilon + ln(1/delta)) / epsilon) it gives (epsilon, delta)-DP.

    Raises:
        ConditionError: r0 > 1/e, sigma < sqrt(2), or u0 or u1 is not below 1.
    """
    _check_sigma(sigma)
    m = size_moments(sizes, num_examples)
    r0 = _checked_r0(sigma, m)
    if sigma**2 < 2.0:
        raise ConditionError(
            f"condition sigma^2 >= 2, without which there is no integer lambda <= sigma^2 - 1: sigma is {sigma:g}; "
            "take more noise"
        )
    factor = third_order_factor(sigma, r0)
    if sharp:
        return 2.0 * m.rounds * (m.second + factor * sigma * m.third)
    return 2.0 * m.rounds * (m.second + r0 * factor * m.third / m.first)


def general_form_delta(
    sizes: Sizes, num_examples: int, sigma: float, epsilon: float, *, as_printed: bool = False
) -> float:
    """Return the smallest delta that Theorem B.2 of paper C (Theorem 3 of paper E) claims at epsilon.

    c(x) = min( (sqrt(2 r rho x + 1) - 1) / (r rho x), 2 / (rhoh x) ), rho = Sh_1 Sh_3 / Sh_2^2, rhoh = Sh_1^2 / Sh_2,
    c_1 = epsilon / (T Sh_1^2), c_0 = c(c_1), Lam = c_0 epsilon sigma^2 / (2 T Sh_2):
    delta = exp(-floor(Lam - 1) epsilon / 2).

    Args:
        sizes: s_i, each in [0, N).
        num_examples: N.
        sigma: noise multiplier.
        epsilon: > 0.
        as_printed: paper E's sigma >= (2 / sqrt(c_0)) sqrt(Sh_2 T ln(1/delta)) / epsilon, that is
            delta = exp(-Lam epsilon / 2), which forgets that lambda + 1 <= Lam is an integer.

    Raises:
        ConditionError: r0 > 1/e, u0 or u1 is not below 1, or no integer lambda >= 1 is left.
    """
    _check_sigma(sigma)
    if not epsilon > 0.0:
        raise ValueError(f"epsilon: expected a number > 0, found {epsilon:g}")
    m = size_moments(sizes, num_examples)
    r0 = _checked_r0(sigma, m)
    r = r0 * third_order_factor(sigma, r0)
    x = epsilon / (m.rounds * m.first**2)
    rho, rhoh = m.first * m.third / m.second**2, m.first**2 / m.second
    y = r * rho * x
    # (sqrt(2 y + 1) - 1) / y, without the cancellation at small y
    c0 = min(2.0 / (math.sqrt(2.0 * y + 1.0) + 1.0), 2.0 / (rhoh * x))
    limit = c0 * epsilon * sigma**2 / (2.0 * m.rounds * m.second)
    if as_printed:
        return math.exp(-limit * epsilon / 2.0)
    # In the second branch Lam is sigma^2, up to rounding that must not cost a whole integer.
    order = math.floor(limit * (1.0 + 1e-12) - 1.0)
    if order < 1:
        raise ConditionError(
            f"condition lambda >= 1 of Theorem B.2: Lam - 1 = {limit - 1.0:.4g} leaves no integer lambda; "
            "take a larger epsilon or more noise"
        )
    return math.exp(-order * epsilon / 2.0)


def _checked_r0(sigma: float, moments: SizeMoments) -> float:
    r0 = sigma * moments.largest_rate
    if r0 > 1.0 / math.e:
        raise ConditionError(
            f"condition r0 <= 1/e of Theorem B.2: r0 = sigma max s_i/N is {r0:.6g}; take batches of at most "
            "N / (e sigma) examples"
        )
    return r0


def _check_sigma(sigma: float) -> None:
    if not (sigma > 0.0 and math.isfinite(sigma)):
        raise ValueError(f"sigma: expected a number > 0, found {sigma:g}")


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta: expected a number in (0, 1), found {delta:g}")
