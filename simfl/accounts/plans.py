"""Noise and epsilon of planned releases: by search, by formulas and by a limit.

Dwork and Roth 2014, "The algorithmic foundations of differential privacy", Theorem A.1,
https://doi.org/10.1561/0400000042; Bu, Dong, Long and Su 2019, "Deep learning with Gaussian differential privacy",
https://arxiv.org/abs/1911.11607.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import scipy

from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.accounting import Accountant, Neighbors, Release, Sampling, epsilon_of
from simfl.privacy.assumptions import REAL
from simfl.privacy.calibration import least_noise
from simfl.privacy.gaussian import gaussian_delta, gaussian_epsilon


@functools.lru_cache(maxsize=256)
def noise_multiplier_for(
    epsilon: float,
    delta: float,
    *,
    steps: int,
    sampling_rate: float = 1.0,
    sampling: Sampling = "poisson",
    neighbors: Neighbors = "add_or_remove",
    accountant: Accountant = "tightest",
) -> float:
    """Return the smallest noise multiplier z that makes `steps` >= 1 releases private.

    z is within 1e-4 of the smallest and not below it, so its epsilon does not exceed the given one. The least z is
    1e-4. `sampling_rate` is q, the share of the examples in each release; `sampling`, `neighbors` and `accountant` are
    as in `simfl.privacy.accounting`.

    Raises:
        ConditionError: no amount of noise is enough.
    """
    checks.positive(epsilon=epsilon)
    checks.whole(1, steps=steps)
    if sampling_rate == 0.0:
        raise ValueError("sampling_rate: expected a number in (0, 1], found 0; releases of no examples need no noise")

    def spent(noise_multiplier: float, by: Accountant) -> float:
        release = Release(noise_multiplier, sampling_rate, sampling)
        return epsilon_of([(release, steps)], delta, neighbors=neighbors, accountant=by)

    return least_noise(spent, epsilon, accountant)


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
    factor = math.sqrt(2.0 * math.log(1.25 / delta))
    high = 1.0

    def excess(epsilon: float) -> float:
        return math.log(gaussian_delta(epsilon, epsilon / factor) / delta)

    while excess(high) <= 0.0:
        high *= 2.0
    return float(scipy.optimize.brentq(excess, high / 2.0, high, xtol=1e-12))


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


def assumptions_of_releases(neighbors: str, sampling: str, rate: float) -> dict[str, str]:
    """Return the assumptions of a number of releases that no run has made."""
    secret = sampling in ("poisson", "without_replacement") and rate < 1.0
    return {
        "unit": "what is clipped: an example, or a user with all its data",
        "neighbors": "one of them " + ("replaced" if neighbors == "replace_one" else "more or less"),
        "draws": f"drawn anew for each release ({sampling}), unknown to the adversary" if secret else "none is secret",
        "availability": "all that are drawn take part; the number of releases is fixed beforehand",
        "floating point": REAL,
        "generator": "draws and noise are unknown to the adversary",
    }
