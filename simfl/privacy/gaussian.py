"""The Gaussian mechanism in closed form.

The privacy of a release of N(value, std^2 I), where one example moves the value by at most `sensitivity` in L2 norm,
depends only on mu = sensitivity / std. The sensitivity includes the neighboring relation: one example more or less
moves a sum of clipped gradients by C, one replaced by 2C.

Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8,
https://arxiv.org/abs/1805.06530; Dong, Roth and Su 2019, "Gaussian differential privacy",
https://arxiv.org/abs/1905.02383.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import NDArray

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


def mixture_delta(epsilon: float, mu: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return delta of Gaussian releases of mu > 0 by chance; which one is known.

    With an error of 1e-14 at most.
    """
    x = epsilon / mu
    terms = scipy.special.ndtr(mu / 2 - x) - np.exp(epsilon + scipy.special.log_ndtr(-mu / 2 - x))
    return float(weights @ np.maximum(terms, 0.0))


def smallest_epsilon(delta: float, delta_of: Callable[[float], float]) -> float:
    """Return the smallest epsilon whose delta is small enough, rounded up by 1e-9."""
    low, high = 0.0, 1.0
    if delta_of(low) <= delta:
        return 0.0
    while delta_of(high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


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
