"""The Gaussian mechanism in closed form: exact curves and textbook bounds.

The privacy of a release of N(value, std^2 I), where one example moves the value by at most `sensitivity` in L2 norm,
depends only on mu = sensitivity / std. The sensitivity includes the neighboring relation: one example more or less
moves a sum of clipped gradients by C, one replaced by 2C.

Dwork and Roth 2014, "The algorithmic foundations of differential privacy", Theorem A.1 and Theorem 3.20,
https://doi.org/10.1561/0400000042; Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy",
Theorem 8, https://arxiv.org/abs/1805.06530; Dong, Roth and Su 2019, "Gaussian differential privacy",
https://arxiv.org/abs/1905.02383.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.privacy import checks

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_LOG_SQRT_TAU = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(math.pi / 2.0)
_FAR = 100.0  # from here on 1 - t R(t) is taken from its expansion, exact to 1e-9 and better
_TINY = 1e-300


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which a Gaussian release is (epsilon, delta)-DP.

    delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), in [0, 1], with a relative error of 1e-9, also where the two
    terms nearly cancel. Balle and Wang 2018, Theorem 8. `epsilon` >= 0; `mu` >= 0 is infinite without noise.
    """
    checks.not_negative(epsilon=epsilon, mu=mu)
    if mu == 0.0 or math.isinf(epsilon) or epsilon / mu - 0.5 * mu > 40.0:  # Phi(-40) is less than any float64
        return 0.0
    return 1.0 if math.isinf(mu) else min(1.0, math.exp(_log_delta(epsilon, mu)))


@functools.lru_cache(maxsize=4096)
def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the smallest epsilon at which a Gaussian release is (epsilon, delta)-DP.

    epsilon >= 0 with a relative error of 1e-9; 0 if delta alone covers the release, inf without noise. See
    `gaussian_delta`.
    """
    checks.open_unit(delta=delta)
    checks.not_negative(mu=mu)
    if math.isinf(mu):
        return math.inf
    if mu == 0.0 or gaussian_delta(0.0, mu) <= delta:
        return 0.0
    log_delta = math.log(delta)
    # The privacy loss is normal with mean mu^2/2 and standard deviation mu: delta exceeds the mass beyond `tail` of
    # these.
    tail = math.sqrt(-2.0 * log_delta)
    if mu < 1.0:
        return _root(lambda epsilon: log_delta - _log_delta(epsilon, mu), 0.0, mu * (0.5 * mu + tail))
    return mu * (0.5 * mu + _root(lambda x: log_delta - _log_delta_at(x, mu), -0.5 * mu, tail))


def analytic_std(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest standard deviation for (epsilon, delta); exact.

    Balle and Wang 2018, Algorithm 1 ("analytic Gaussian mechanism"), with a relative error of 1e-9, for every epsilon
    >= 0, delta in (0, 1) and L2 sensitivity >= 0.
    """
    checks.at_least(0.0, epsilon=epsilon, sensitivity=sensitivity)
    checks.open_unit(delta=delta)
    log_delta = math.log(delta)
    tail = math.sqrt(-2.0 * log_delta)
    # mu with mu (mu/2 + tail) = epsilon is small enough (see `gaussian_epsilon`); it is 0 at epsilon = 0.
    low = 2.0 * epsilon / (math.sqrt(tail * tail + 2.0 * epsilon) + tail)
    low = max(low, 1e-3 * delta)  # delta(0) = erf(mu / sqrt 8) < mu, so this is small enough too
    high = 2.0 * low
    while _log_delta(epsilon, high) < log_delta:
        high *= 2.0
    return sensitivity / _root(lambda mu: _log_delta(epsilon, mu) - log_delta, low, high)


def classic_std(epsilon: float, delta: float, sensitivity: float = 1.0, *, beyond: bool = False) -> float:
    """Return the classical sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon.

    Dwork and Roth 2014, Theorem A.1, which proves it for epsilon < 1 only. It is also sufficient for larger epsilon up
    to `classic_limit` (7.46 for delta = 1e-3, 9.75 for 2.8e-10), but not beyond. `analytic_std` is smaller and always
    valid. `beyond` permits the formula outside of its theorem, as papers use it.

    Raises:
        ConditionError: epsilon >= 1 without `beyond`.
    """
    checks.positive(epsilon=epsilon)
    checks.at_least(0.0, sensitivity=sensitivity)
    checks.open_unit(delta=delta)
    if epsilon >= 1.0 and not beyond:
        raise ConditionError(
            f"classical Gaussian noise: condition epsilon < 1 of its theorem: epsilon is {epsilon:g}; "
            "use analytic noise, which holds for every epsilon (or beyond=True for the formula all the same)"
        )
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def classic_limit(delta: float) -> float:
    """Return the largest epsilon for which the classical formula is valid.

    It is computed, not proved: at this epsilon the exact delta of `classic_std` reaches the given delta. Near delta = 1
    the formula is never valid.
    """
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta: expected a number between 0 and 0.5, found {delta:g}")
    log_delta = math.log(delta)
    factor = math.sqrt(2.0 * math.log(1.25 / delta))
    high = 1.0
    while _log_delta(high, high / factor) <= log_delta:
        high *= 2.0
    return _root(lambda epsilon: _log_delta(epsilon, epsilon / factor) - log_delta, high / 2.0, high)


def gdp_central_limit_mu(
    noise_multiplier: float, sampling_rate: float, steps: int, sampling: Literal["poisson", "uniform"] = "poisson"
) -> float:
    """Return the mu that many sampled Gaussian releases approach in the central limit.

    Poisson: mu = q sqrt(T) sqrt(e^(1/z^2) - 1); uniform, a batch of fixed size:
    mu = sqrt(2) q sqrt(T) sqrt(e^(1/z^2) Phi(1.5/z) + 3 Phi(-0.5/z) - 2).
    Bu, Dong, Long and Su 2019, "Deep learning with Gaussian differential privacy", https://arxiv.org/abs/1911.11607.

    `noise_multiplier` is z > 0, for one example more or less; `sampling_rate` is q in [0, 1]. `steps`, T >= 0, need not
    be an integer: papers use fractional numbers of rounds.
    """
    checks.positive(noise_multiplier=noise_multiplier)
    checks.unit(sampling_rate=sampling_rate)
    checks.at_least(0.0, steps=steps)
    checks.one_of(("poisson", "uniform"), sampling=sampling)
    precision = 1.0 / noise_multiplier / noise_multiplier
    if precision > 700.0:  # e^700 is near the largest float64
        return math.inf if sampling_rate * steps > 0.0 else 0.0
    if sampling == "poisson":
        variance = math.expm1(precision)
    else:
        z = noise_multiplier
        # The constants of the sum cancel and are left out: Phi(x) - 1/2 = erf(x / sqrt 2) / 2.
        half = math.erf(1.5 / z / math.sqrt(2.0)) - 3.0 * math.erf(0.5 / z / math.sqrt(2.0))
        variance = 2.0 * (math.expm1(precision) * float(scipy.special.ndtr(1.5 / z)) + 0.5 * half)
    return sampling_rate * math.sqrt(steps * variance)


def gdp_central_limit_epsilon(
    delta: float,
    noise_multiplier: float,
    *,
    sampling_rate: float,
    steps: int,
    sampling: Literal["poisson", "uniform"] = "poisson",
) -> float:
    """Return epsilon by the central limit: an approximation, not a bound.

    A diagnostic only: TensorFlow Privacy's `gdp_accountant` computed it, and papers compare with it. See
    `gaussian_epsilon` and `gdp_central_limit_mu` for the arguments.
    """
    return gaussian_epsilon(delta, gdp_central_limit_mu(noise_multiplier, sampling_rate, steps, sampling))


def _log_delta(epsilon: float, mu: float) -> float:
    """Return ln delta of a Gaussian, without cancellation or underflow.

    With x = eps/mu - mu/2 and phi(x) = e^eps phi(x + mu), delta = phi(x) (R(x) - R(x + mu)), where R = (1 - Phi) / phi
    is Mills' ratio. For small mu the difference is the integral of -R'(t) = 1 - t R(t).
    """
    return _log_delta_at(epsilon / mu - 0.5 * mu, mu)


def _log_delta_at(x: float, mu: float) -> float:
    """Return ln delta at epsilon = mu (x + mu/2), without losing digits of x."""
    if mu < 1.0:
        t = x + 0.5 * mu * (1.0 + _NODES)
        near = 1.0 - t * _mills(np.minimum(t, _FAR))
        inverse = 1.0 / np.maximum(t, _FAR) ** 2
        far = inverse * (1.0 - 3.0 * inverse + 15.0 * inverse**2)
        difference = 0.5 * mu * float(_WEIGHTS @ np.where(t > _FAR, far, near))
        return -0.5 * x * x - _LOG_SQRT_TAU + math.log(difference)
    here, there = _mills(np.array([max(x, 0.0), x + mu])).tolist()
    if x > 0.0:
        return -0.5 * x * x - _LOG_SQRT_TAU + math.log(here - there)
    return math.log(float(scipy.special.ndtr(-x)) - math.exp(-0.5 * x * x - _LOG_SQRT_TAU) * there)


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x)."""
    ratio: NDArray[np.float64] = _SQRT_HALF_PI * scipy.special.erfcx(x / math.sqrt(2.0))
    return ratio


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(scipy.optimize.brentq(function, low, high, xtol=_TINY, rtol=1e-13, maxiter=500))
