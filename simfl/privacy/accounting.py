"""Account for releases together: (epsilon, delta) by dp-accounting.

A `Release` is one noisy sum as the adversary sees it. Its noise multiplier z is the standard deviation of the noise
over the clipping norm C under every neighboring relation. Replacing an example moves a sum of clipped gradients by up
to 2C; the accountants here count that.

The account by sampling (q is the share of examples in a batch):

- `poisson`: each example is in the batch independently with probability q. Under add_or_remove this is the subsampled
  Gaussian, under replace_one the pair (1-q) N(0) + q N(C) and (1-q) N(0) + q N(-C).
- `without_replacement`: a batch of fixed size, certified under replace_one only. Let M be (1-q) N(0) + q N(2C). One
  release has delta(eps) = E_eps(M || N(0)) for eps >= 0 (amplification by subsampling, Balle, Barthe and Gaboardi 2018,
  Theorem 9). Composition needs delta at eps < 0 too. The relation is symmetric, so there it is
  1 - e^eps + e^eps delta(-eps) (Zhu, Dong and Wang 2022, "Optimal accounting of differential privacy via characteristic
  function", Theorem 11, https://arxiv.org/abs/2106.08567). The pair (M, N(0)) itself gives less for eps < 0; it does
  not bound more than one release.
- `one_pass`: batches are disjoint. An example is in at most one release, so all of them together cost as much as the
  most expensive one (parallel composition). Certified under replace_one only: one example more or less would change
  every later batch.
- `none`: every example is in every release as far as the adversary knows; no amplification.

A pure mechanism (Laplace) has the epsilon of one release on data that is not sampled, under the given neighboring
relation.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.privacy import checks, losses
from simfl.privacy.gaussian import analytic_std, gaussian_delta, gaussian_epsilon
from simfl.privacy.pure import amplified_epsilon, composed_epsilon

Neighbors = Literal["add_or_remove", "replace_one"]
Sampling = Literal["poisson", "without_replacement", "one_pass", "none"]
Accountant = Literal["tightest", "renyi", "pld"]

#: The change of a sum of clipped vectors by neighbors, in clipping norms.
MOVED: Mapping[Neighbors, float] = {"add_or_remove": 1.0, "replace_one": 2.0}

#: Less noise than the first counts as none; more than the second counts as the second, so that squares stay finite.
_NO_NOISE, _MOST_NOISE = 1e-100, 1e100
#: Orders of the Renyi accountant for many kinds of releases: integers only.
_INTEGER_ORDERS = np.array([*range(2, 65), *range(68, 129, 4), *range(144, 257, 16), 320, 384, 512, 768, 1024])
#: Maximum number of kinds of releases whose divergences dp-accounting computes (27 ms each, fractional orders too); for
#: more, the closed form at integer orders is used.
_FEW_KINDS = 24


@dataclass(frozen=True)
class Release:
    """One kind of noisy release.

    Attributes:
        noise_multiplier: z, standard deviation of the noise on each coordinate over the clipping norm C.
        sampling_rate: q in (0, 1], the share of examples in a batch.
        pure_epsilon: for a pure mechanism, the epsilon of one release without sampling; z is not used then.
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    sampling: Sampling = "poisson"
    pure_epsilon: float | None = None

    def __post_init__(self) -> None:
        checks.unit(sampling_rate=self.sampling_rate)
        if self.pure_epsilon is None:
            checks.not_negative(noise_multiplier=self.noise_multiplier)
        else:
            checks.not_negative(pure_epsilon=self.pure_epsilon)


Composition = Sequence[tuple[Release, int]]
Pairs = Sequence[tuple["Pair", int]]


@dataclass(frozen=True)
class Pair:
    """A release for accountants: a sampled Gaussian, or a pure mechanism.

    A pure mechanism has rate 1, and a `pure_epsilon` that already includes amplification. `replace`: neighbors replace
    an example; otherwise one is added or removed. `fixed`: batches with a rate below 1 have a fixed size; otherwise
    they are Poisson.
    """

    noise_multiplier: float
    rate: float
    replace: bool = False
    pure_epsilon: float | None = None
    fixed: bool = False

    @property
    def private(self) -> bool:
        """Whether the release has noise, or nothing to protect."""
        return self.rate == 0.0 or self.noise_multiplier > _NO_NOISE or self.pure_epsilon is not None

    @property
    def over_distance(self) -> float:
        """The noise over the distance of the two means."""
        return self.noise_multiplier / (2.0 if self.replace and (self.fixed or self.rate == 1.0) else 1.0)


def refusal(sampling: str, neighbors: Neighbors) -> str | None:
    """Return why such releases have no epsilon; None if they have one.

    Sampling `none` and `one_pass` do not amplify.
    """
    if sampling == "with_replacement":
        return "sampling with_replacement may take one example several times into one batch; use sampling: poisson"
    if neighbors == "add_or_remove" and sampling in ("without_replacement", "one_pass", "shuffle"):
        return (
            f"sampling {sampling} has no epsilon under neighbors: add_or_remove, because the size of a batch is fixed; "
            "use neighbors: replace_one, or sampling: poisson"
        )
    return None


def pairs_of(composition: Composition, neighbors: Neighbors) -> list[tuple[Pair, int]]:
    """Translate releases; releases of one pass become the most expensive one of them."""
    checks.one_of(get_args(Neighbors), neighbors=neighbors)
    replace = neighbors == "replace_one"
    pairs: dict[Pair, int] = {}
    once: list[Pair] = []
    for release, count in composition:
        checks.whole(0, releases=count)
        if count == 0 or release.sampling_rate == 0.0:
            continue
        reason = refusal(release.sampling, neighbors)
        if reason is not None:
            raise ConditionError(f"accounting: {reason}")
        rate = 1.0 if release.sampling in ("one_pass", "none") else release.sampling_rate
        if release.pure_epsilon is not None:
            pair = Pair(0.0, 1.0, replace, amplified_epsilon(release.pure_epsilon, rate))
        else:
            fixed = release.sampling == "without_replacement" and rate < 1.0
            pair = Pair(min(release.noise_multiplier, _MOST_NOISE), rate, replace, fixed=fixed)
        if release.sampling == "one_pass":
            once.append(pair)
        else:
            pairs[pair] = pairs.get(pair, 0) + int(count)
    if once:
        if len({pair.pure_epsilon is None for pair in once}) > 1:
            raise ConditionError(
                "accounting: one pass with Gaussian and pure releases side by side: account them apart"
            )
        dearest = min(once, key=lambda pair: (-(pair.pure_epsilon or 0.0), pair.noise_multiplier))
        pairs[dearest] = pairs.get(dearest, 0) + 1
    return list(pairs.items())


# -- Renyi -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _library_renyi(noise_multiplier: float, rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (orders, Renyi divergences) of one sampled Gaussian, by dp-accounting."""
    import dp_accounting
    from dp_accounting import rdp

    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(min(noise_multiplier, 1e9))
    if rate < 1.0:
        event = dp_accounting.PoissonSampledDpEvent(rate, event)
    # dp-accounting warns of every fractional order at which its series does not converge, and omits it. That is sound:
    # epsilon is the minimum over the other orders.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant = rdp.RdpAccountant()
        accountant.compose(event)
    finally:
        logger.setLevel(level)
    return np.asarray(accountant.orders, dtype=np.float64), np.asarray(accountant.rdp, dtype=np.float64)


#: Maximum number of terms of sums in memory at once; a thousand kinds of releases would need about a hundred million.
_TERMS = 2**20


def integer_renyi(noise_multipliers: NDArray[np.float64], rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Renyi divergences of Poisson-sampled Gaussians, [kinds, integer orders].

    A_alpha = sum_k C(alpha, k) (1-q)^(alpha-k) q^k exp((k^2 - k) / (2 z^2)), RDP = ln(A_alpha) / (alpha - 1).
    Mironov, Talwar and Zhang 2019, "Renyi differential privacy of the sampled Gaussian mechanism", Section 3.3,
    https://arxiv.org/abs/1908.10530.
    """
    z, q = noise_multipliers[:, None], rates[:, None]
    columns = []
    with np.errstate(divide="ignore", invalid="ignore"):
        log_q, log_rest = np.log(q), np.log1p(-q)
        for order in _INTEGER_ORDERS.tolist():
            k = np.arange(order + 1)
            log_choose = (
                scipy.special.gammaln(order + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(order - k + 1)
            )
            sums = []
            rows = max(1, _TERMS // (order + 1))
            for some in (slice(first, first + rows) for first in range(0, len(z), rows)):
                # 0 * log(0) counts as 0: at q = 1 only the last term remains
                rest = np.where(k == order, 0.0, (order - k) * log_rest[some])
                terms = log_choose + k * log_q[some] + rest + (k * k - k) / (2 * z[some] ** 2)
                sums.append(scipy.special.logsumexp(terms, axis=1) / (order - 1))
            columns.append(np.concatenate(sums))
    divergences: NDArray[np.float64] = np.maximum(np.stack(columns, axis=1), 0.0)
    return divergences


#: Nodes and weights of a panel of the quadrature; a panel is at most as wide as the noise and its square.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
#: End of the integration, in standard deviations of the noise.
_FAR = 12.0
#: Divergence of the unsampled Gaussian above which amplification by sampling is not computed.
_HOPELESS = 5000.0


def replaced_renyi(pair: Pair, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Renyi divergences of a sampled Gaussian, an example replaced, [orders].

    Both samplings have a dominating pair (P, Q) that is its own mirror image, delta(-eps) = 1 - e^-eps + e^-eps
    delta(eps). So with the privacy loss L = ln(P/Q), for every order alpha > 1,

        A_alpha = E_Q[e^(alpha L)] = 1 + E_P[(e^((alpha-1) L) - 1) (1 - e^(-alpha L)); L > 0],
        D_alpha = ln(A_alpha) / (alpha - 1).

    (By Sason and Verdu 2016, "f-divergence inequalities", f(r) = r^alpha - 1 - alpha (r - 1) is integrated over L > 0,
    and r f(1/r) in the place of L < 0.) With C = 1:

    - Poisson: P = (1-q) N(0) + q N(1), Q = (1-q) N(0) + q N(-1), L > 0 is y > 0.
    - Fixed size: delta(eps) for eps > 0 is that of P = (1-q) N(0) + q N(2) and N(0), see the top of this file;
      L > 0 is y > 0 with y the distance from 1.

    The integrand is positive and analytic. Gauss-Legendre quadrature in panels no wider than min(s, s^2), s the noise
    over the distance of the means, agrees with arithmetic of 40 digits to 1e-14, for q from 1e-6 to 0.5; 1e-10 of the
    result is added. Sampling never increases the divergence, so the one without it, 2 alpha / z^2, is a bound too. It
    is returned where it is too large to be useful.
    """
    z, q = pair.noise_multiplier, pair.rate
    bound: NDArray[np.float64] = 2.0 * orders / z / z
    wanted = np.flatnonzero(bound < 4.0 * _HOPELESS)
    if not wanted.size or q == 1.0:
        return bound
    s = z / 2.0 if pair.fixed else z
    width = min(s, s * s)
    panels = math.ceil((orders[wanted].max() + _FAR * s) / width)
    y = ((np.arange(panels)[:, None] + 0.5 * (1.0 + _NODES)) * width).ravel()
    growth, small = y / s**2, y / s**2 < 30.0
    log_q, log_rest = math.log(q), math.log1p(-q)
    if pair.fixed:
        near = np.log1p(q * np.expm1(np.where(small, growth, 0.0)))
        loss = np.where(small, near, np.logaddexp(log_rest, log_q + growth))
        log_p = -0.5 * ((y + 0.5) / s) ** 2 + loss
    else:
        peak = log_q - 0.5 / s**2
        above = np.logaddexp(log_rest, peak + growth)
        below = (1.0 - q) + np.exp(peak - growth)
        difference = 2.0 * np.exp(peak) * np.sinh(np.where(small, growth, 0.0))
        loss = np.where(small, np.log1p(difference / below), above - np.log(below))
        log_p = -0.5 * (y / s) ** 2 + above
    log_p += np.tile(np.log(0.5 * width * _WEIGHTS / (s * math.sqrt(2.0 * math.pi))), panels)
    for index in wanted.tolist():
        alpha = orders[index]
        until = int(np.searchsorted(y, alpha + _FAR * s))
        part = loss[:until]
        terms = log_p[:until] + (alpha - 1.0) * part
        terms += np.log(-np.expm1((1.0 - alpha) * part) * -np.expm1(-alpha * part))
        divergence = (1.0 + 1e-10) * np.logaddexp(0.0, scipy.special.logsumexp(terms)) / (alpha - 1.0)
        bound[index] = min(bound[index], divergence)
    return bound


@functools.lru_cache(maxsize=4096)
def _replaced_row(pair: Pair, orders: tuple[float, ...]) -> NDArray[np.float64]:
    return replaced_renyi(pair, np.array(orders))


def _pure_renyi(epsilon: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest Renyi divergence of any eps-DP mechanism.

    Mironov 2017, "Renyi differential privacy", Proposition 5: D_alpha = ln(p^alpha (1-p)^(1-alpha) + (1-p)^alpha
    p^(1-alpha)) / (alpha - 1) with p = e^eps / (1 + e^eps).
    """
    log_p, log_rest = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    one = orders * log_p + (1 - orders) * log_rest
    other = orders * log_rest + (1 - orders) * log_p
    divergence: NDArray[np.float64] = np.logaddexp(one, other) / (orders - 1)
    return np.minimum(divergence, epsilon)


class RenyiTable:
    """Renyi divergences of kinds of releases; composition adds them.

    With `closed_form` it has integer orders only, which is fast for hundreds of kinds.
    """

    def __init__(self, closed_form: bool = False) -> None:
        self.closed_form = closed_form
        self.orders = _INTEGER_ORDERS.astype(np.float64) if closed_form else _library_renyi(1.0, 1.0)[0]
        self._rows: dict[Pair, NDArray[np.float64]] = {}

    def divergences(self, pairs: Iterable[Pair]) -> NDArray[np.float64]:
        """Return the divergences of pairs, [pairs, orders]; compute new ones together."""
        wanted = list(pairs)
        new = [pair for pair in dict.fromkeys(wanted) if pair not in self._rows]
        sampled = []
        for pair in new:
            if pair.pure_epsilon is not None:
                self._rows[pair] = _pure_renyi(pair.pure_epsilon, self.orders)
            elif not pair.private:
                self._rows[pair] = np.full(len(self.orders), math.inf)
            elif pair.replace:
                self._rows[pair] = _replaced_row(pair, tuple(self.orders.tolist()))
            else:
                sampled.append(pair)
        if sampled and self.closed_form:
            z, q = np.array([(pair.noise_multiplier, pair.rate) for pair in sampled]).T
            for pair, row in zip(sampled, integer_renyi(z, q), strict=True):
                self._rows[pair] = row
        else:
            for pair in sampled:
                orders, row = _library_renyi(pair.noise_multiplier, pair.rate)
                full = np.full(len(self.orders), math.inf)
                full[np.searchsorted(self.orders, orders)] = row
                self._rows[pair] = full
        return np.stack([self._rows[pair] for pair in wanted]) if wanted else np.zeros((0, len(self.orders)))


def renyi_to_epsilon(
    orders: NDArray[np.float64], divergences: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return epsilon at delta of mechanisms with these Renyi divergences, float [...].

    eps = min over alpha of D_alpha + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1): Canonne, Kamath and Steinke 2020,
    "The discrete Gaussian for differential privacy", Proposition 12, as in dp-accounting, for many clients at once.

    `orders` are alpha > 1, `divergences` [..., orders].
    """
    usable = orders > 1.01  # at smaller orders the bound is numerically useless
    alpha, d = orders[usable], divergences[..., usable]
    epsilon = d + np.log1p(-1 / alpha) - math.log(delta) / (alpha - 1) - np.log(alpha) / (alpha - 1)
    # Bretagnolle-Huber: such a small divergence implies a total variation below delta.
    epsilon = np.where(delta**2 + np.expm1(-d) > 0, 0.0, epsilon)
    best: NDArray[np.float64] = np.maximum(0.0, np.min(epsilon, axis=-1))
    return best


def _total(pairs: Pairs, table: RenyiTable) -> NDArray[np.float64]:
    """Return the Renyi divergences of releases composed, [orders]."""
    return np.array([count for _, count in pairs], np.float64) @ table.divergences(pair for pair, _ in pairs)


def _composed_renyi(pairs: Pairs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (orders, Renyi divergences) of releases composed."""
    table = RenyiTable(closed_form=len(pairs) > _FEW_KINDS)
    return table.orders, _total(pairs, table)


def _renyi_epsilon(pairs: Pairs, delta: float) -> float:
    return float(renyi_to_epsilon(*_composed_renyi(pairs), delta))


def _slope(pairs: Pairs) -> float:
    """Return 2 D_alpha / alpha near alpha = 1, about the variance of the total loss."""
    table = RenyiTable()
    return 2.0 * float(_total(pairs, table)[0]) / float(table.orders[0])


# -- privacy loss distributions --------------------------------------------------------------

#: Maximum number of bins of one release, and of all together; for more, bins become coarser.
_MOST_BINS = 2**18, 2**19
#: Mass that rounding in the Fourier transform may misplace, per release.
_ROUNDING = 1e-15
#: Epsilon above which distributions are not computed: their bins would need unbounded memory for irrelevant digits.
_MOST_EPSILON = 300.0


@functools.lru_cache(maxsize=32)
def _loss_distribution(pair: Pair, interval: float) -> Any:
    """Return the pessimistic privacy loss distribution of one release.

    The bins are those of its pessimistic connect-the-dots (Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380,
    Algorithm 1). A loss of -eps under P has e^-eps times the mass of eps under Q, also in bins. This keeps the digits
    that delta(-eps) = 1 - e^-eps + e^-eps delta'(eps) would lose.
    """
    from dp_accounting.pld import common, pld_pmf, privacy_loss_distribution

    if pair.pure_epsilon is not None:
        return privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(pair.pure_epsilon, 0.0), value_discretization_interval=interval
        )
    sides: list[tuple[NDArray[np.float64], float]] = []
    for largest in _largest_losses(pair):
        eps: NDArray[np.float64] = interval * np.arange(math.ceil(largest / interval) + 1, dtype=np.float64)
        delta = hockey_sticks(pair, eps)[len(sides)]
        delta = np.minimum.accumulate(np.maximum(delta, 0.0))
        falls = -np.diff(delta, append=delta[-1])
        bins = (falls[:-1] * math.exp(interval) - falls[1:]) / math.expm1(interval)
        sides.append((np.maximum(bins, 0.0), float(delta[-1])))

    def of(one: int, other: int) -> Any:
        (up, beyond), down = sides[one], sides[other][0]
        down = (down * np.exp(-interval * np.arange(1, len(down) + 1)))[::-1]
        middle = max(0.0, 1.0 - float(beyond + up.sum() + down.sum()))
        return pld_pmf.DensePLDPmf(interval, -len(down), np.concatenate([down, [middle], up]), beyond, True)

    return privacy_loss_distribution.PrivacyLossDistribution(of(0, -1), None if len(sides) == 1 else of(1, 0))


def hockey_sticks(pair: Pair, eps: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return delta at eps >= 0 of one Gaussian release, in each direction, [eps].

    With noise s and M = (1-q) N(0) + q N(1); M / N(0) exceeds e^eps above t = s^2 ln((e^eps - 1 + q) / q) + 1/2:

    - An example removed or added: of (M, N(0)), q Phi((1-t)/s) - (e^eps - 1 + q) Phi(-t/s), and of (N(0), M), with t
      at -eps, e^eps ((e^-eps - 1 + q) Phi(t/s) - q Phi((t-1)/s)) up to eps = -ln(1-q), then 0.
    - An example replaced in batches of fixed size: the first of these, s = z/2, both ways.
    - An example replaced under Poisson sampling: P / Q exceeds e^eps above y = s^2 ln w, q k (w - e^eps/w) =
      (1-q) (e^eps - 1) with k = e^(-1/(2 s^2)): q Phi((1-y)/s) - (1-q) (e^eps - 1) Phi(-y/s) - e^eps q Phi(-(1+y)/s).
    """
    s, q = pair.over_distance, pair.rate
    log_q = math.log(q)
    with np.errstate(divide="ignore"):
        log_growth = np.where(eps < 30.0, np.log(np.expm1(np.minimum(eps, 30.0))), eps)
    if pair.replace and not pair.fixed and q < 1.0:
        log_even, log_peak = math.log1p(-q) + log_growth, log_q - 0.5 / (s * s)
        log_root = 0.5 * np.logaddexp(2.0 * log_even, 2.0 * (math.log(2.0) + log_peak) + eps)
        y = s * s * (np.logaddexp(log_even, log_root) - math.log(2.0) - log_peak)
        taken = np.exp(log_even + scipy.special.log_ndtr(-y / s)) + np.exp(
            log_q + eps + scipy.special.log_ndtr(-(1.0 + y) / s)
        )
        return (q * scipy.special.ndtr((1.0 - y) / s) - taken,)
    log_excess = np.logaddexp(log_growth, log_q)
    t = s * s * (log_excess - log_q) + 0.5
    removed = q * scipy.special.ndtr((1.0 - t) / s) - np.exp(log_excess + scipy.special.log_ndtr(-t / s))
    if pair.replace:
        return (removed,)
    left = np.maximum(np.expm1(-eps) + q, 0.0)
    with np.errstate(divide="ignore"):
        t = s * s * (np.log(left) - log_q) + 0.5
    added = np.exp(eps + np.log(np.maximum(left, 1e-300)) + scipy.special.log_ndtr(t / s))
    added -= np.exp(eps + log_q + scipy.special.log_ndtr((t - 1.0) / s))
    return removed, np.where(left > 0.0, added, 0.0)


def _largest_losses(pair: Pair) -> tuple[float, ...]:
    """Return the loss at ten standard deviations above 1, in each direction."""
    s, q = pair.over_distance, pair.rate
    growth = (10.0 * s + 0.5) / (s * s)
    if q == 1.0:
        return (growth,) if pair.replace else (growth, growth)
    above = float(np.logaddexp(math.log1p(-q), math.log(q) + growth))
    if not pair.replace:
        return above, min(-math.log1p(-q), growth)
    return (above if pair.fixed else above - math.log1p(-q),)


def _width(pair: Pair) -> float:
    """Return the approximate range of the privacy loss of one release."""
    if pair.pure_epsilon is not None:
        return 2.0 * pair.pure_epsilon
    return sum(_largest_losses(pair)) * (2.0 if pair.replace else 1.0)


@functools.lru_cache(maxsize=4)
def _composed_distribution(pairs: tuple[tuple[Pair, int], ...], interval: float) -> Any:
    """Return the distribution of the total loss; cached for curves over many deltas."""
    whole = None
    for pair, count in pairs:
        part = _loss_distribution(pair, interval)
        with np.errstate(all="ignore"):  # the tail bounds of dp-accounting overflow at some points, and skip these
            part = losses.self_composed(part, count) if count > 1 else part
            whole = part if whole is None else whole.compose(part)
    return whole


def _exact_gaussian(pairs: Pairs) -> float | None:
    """Return mu of unsampled Gaussians composed; None for other releases.

    They compose to one Gaussian: 1 / z^2 = sum of 1 / z_j^2.
    """
    if any(pair.rate < 1.0 or pair.pure_epsilon is not None for pair, _ in pairs):
        return None
    return _without_sampling(pairs)[0]


def _without_sampling(pairs: Pairs) -> tuple[float, float]:
    """Return (mu, epsilon) of Gaussian and of pure releases as if none was sampled.

    Sampling never costs more: the pair of a sampled release is a mixture of that of the whole release and of two equal
    laws, and hockey-stick divergences are jointly convex.
    """
    pure = sum(count * pair.pure_epsilon for pair, count in pairs if pair.pure_epsilon is not None)
    gaussian = [(pair, count) for pair, count in pairs if pair.pure_epsilon is None]
    precision = sum(count / pair.noise_multiplier / pair.noise_multiplier for pair, count in gaussian)
    return (2.0 if pairs[0][0].replace else 1.0) / (1 / math.sqrt(precision) if precision else math.inf), pure


def _interval(pairs: Pairs, near: float) -> float:
    """Return the bin width of privacy loss, fine enough for 1e-3 of an epsilon.

    Rounding to the ends of a bin adds up to width^2 / 6 to the variance of each loss. The sum of these over many
    releases must be negligible. All releases together have losses up to about their Renyi epsilon at 1e-15, the
    truncated mass. dp-accounting keeps at least 3.5 times the range of one release, and the variance of all over that
    range, or all of it.
    """
    interval = 1e-5 if near < 0.5 else 1e-4 if near < 20 else 1e-3
    many = math.sqrt(sum(count for _, count in pairs))
    while near > 0.0 and interval * many * 20.0 > near:
        interval /= 2.0
    one = max(_width(pair) for pair, _ in pairs)
    everything = sum(count * _width(pair) for pair, count in pairs)
    variance = _slope(pairs)
    whole = min(everything, max(2.0 * _renyi_epsilon(pairs, 1e-15), 3.5 * one, variance / one))
    needed = max(one / _MOST_BINS[0], whole / _MOST_BINS[1])
    return interval * 2.0 ** max(0, math.ceil(math.log2(needed / interval))) if needed > interval else interval


def _distribution_epsilon(pairs: Pairs, delta: float, near: float) -> float:
    """Return epsilon, given a near bound; infinite if bins are too coarse for delta."""
    many = sum(count for _, count in pairs)
    delta -= _ROUNDING * many
    if delta <= 0.0 or near > _MOST_EPSILON:
        return math.inf
    interval = _interval(pairs, near)
    if interval * math.sqrt(many) > max(near, 1.0):
        return math.inf
    return losses.epsilon_at(_composed_distribution(tuple(pairs), interval), delta)


# -- epsilon and delta -----------------------------------------------------------------------


def epsilon_of(
    composition: Composition,
    delta: float,
    *,
    neighbors: Neighbors = "add_or_remove",
    accountant: Accountant = "tightest",
) -> float:
    """Return epsilon at delta of releases composed; inf without protection.

    `accountant`: `renyi` (cheap), `pld` (numerical composition of privacy loss distributions), or `tightest`, the
    smallest of these two and of the closed form without sampling. `pld` is `tightest` where distributions lack the
    precision, and above an epsilon of 300. Both are exact to 1e-6 for Gaussian releases without sampling.

    Raises:
        ConditionError: nothing can be certified for this sampling under this relation.
        ValueError: an argument is out of range.
    """
    checks.open_unit(delta=delta)
    checks.one_of(get_args(Accountant), accountant=accountant)
    return _epsilon(tuple(pairs_of(composition, neighbors)), delta, accountant)


@functools.lru_cache(maxsize=65536)
def _epsilon(pairs: tuple[tuple[Pair, int], ...], delta: float, accountant: Accountant) -> float:
    if not pairs:
        return 0.0
    if not all(pair.private for pair, _ in pairs):
        return math.inf
    mu = _exact_gaussian(pairs)
    if mu is not None and accountant != "renyi":
        return gaussian_epsilon(delta, mu)
    pure = all(pair.pure_epsilon is not None for pair, _ in pairs)
    if pure and len(pairs) == 1:  # exact for releases of one kind
        return composed_epsilon(pairs[0][0].pure_epsilon or 0.0, pairs[0][1], delta)
    by_renyi = _renyi_epsilon(pairs, delta)
    mu, added = _without_sampling(pairs)
    if pure:  # the sum of the epsilons holds with delta = 0
        by_renyi = min(by_renyi, added)
    if accountant == "renyi" or by_renyi == 0.0:
        return by_renyi
    bound = min(by_renyi, gaussian_epsilon(delta, mu) + added)
    by_distribution = _distribution_epsilon(pairs, delta, bound)
    return by_distribution if accountant == "pld" and by_distribution < math.inf else min(bound, by_distribution)


def delta_of(composition: Composition, epsilon: float, *, neighbors: Neighbors = "add_or_remove") -> float:
    """Return delta at epsilon >= 0 of releases composed.

    Raises:
        ConditionError: nothing can be certified for this sampling under this relation.
    """
    checks.not_negative(epsilon=epsilon)
    pairs = pairs_of(composition, neighbors)
    if not pairs:
        return 0.0
    if not all(pair.private for pair, _ in pairs):
        return 1.0
    mu = _exact_gaussian(pairs)
    if mu is not None:
        return gaussian_delta(epsilon, mu)
    bound = _renyi_delta(pairs, epsilon)
    mu, pure = _without_sampling(pairs)
    if epsilon >= pure:
        bound = min(bound, gaussian_delta(epsilon - pure, mu))
    interval, many = _interval(pairs, max(epsilon, _renyi_epsilon(pairs, 0.1))), sum(count for _, count in pairs)
    if interval > 1.0 or bound == 0.0:
        return bound
    delta = float(_composed_distribution(tuple(pairs), interval).get_delta_for_epsilon(epsilon))
    return min(bound, delta + _ROUNDING * many)


def _renyi_delta(pairs: Pairs, epsilon: float) -> float:
    """Return delta from RDP, min over alpha; the inverse of `_epsilon`."""
    alpha, divergence = _composed_renyi(pairs)
    least = np.min((alpha - 1.0) * (divergence - epsilon + np.log1p(-1.0 / alpha)) - np.log(alpha))
    return math.exp(min(0.0, float(least)))


def central_releases(composition: Composition, epsilon: float, delta: float, *, neighbors: Neighbors) -> int:
    """Return approximately how often a composition fits into (epsilon, delta).

    Many releases approach a Gaussian with mu^2 = 2 D_alpha / alpha of each, alpha near 1 (Dong, Roth and Su 2019,
    Theorem 3.4). It is compared with the mu that is (epsilon, delta)-private.
    """
    pairs = pairs_of(composition, neighbors)
    if epsilon <= 0.0 or not all(pair.private for pair, _ in pairs):
        return 1
    each = _slope(pairs)
    wanted = analytic_std(epsilon, delta) ** -2
    return max(1, int(min(wanted / each, 2.0**62))) if each > 0.0 else 2**62
