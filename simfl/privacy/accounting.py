"""What releases cost together: (epsilon, delta) by dp-accounting, for the samplings that occur in simfl.

A `Release` is one noisy sum as the adversary sees it. Its noise multiplier z is the standard deviation of the noise
over the clipping norm C, whatever the neighboring relation: replacing an example moves a sum of clipped gradients by up
to 2C, and the accountants here know that.

What holds when (q is the share of examples in a batch):

- `poisson`, each example independently with probability q. Under add_or_remove the subsampled Gaussian; under
  replace_one the pair (1-q) N(0) + q N(C) and (1-q) N(0) + q N(-C).
- `without_replacement`, a batch of fixed size. Certified under replace_one only, by the Poisson pair with doubled
  sensitivity: amplification by subsampling, e^eps' = 1 + q (e^eps - 1), delta' = q delta (Balle, Barthe and Gaboardi
  2018, Theorem 9), applied to a Gaussian of sensitivity 2C is exactly that pair.
- `one_pass`, disjoint batches: an example is in one release at most, so that all of them together cost what the
  dearest one costs (parallel composition). Certified under replace_one only: with an example more or less, every
  later batch would be another one.
- `none`: every example is in every release as far as the adversary knows; no amplification.

A pure mechanism (Laplace) is given by the epsilon of one release on data that is not sampled, under the neighboring
relation in question.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.pure import amplified_epsilon, composed_epsilon

Neighbors = Literal["add_or_remove", "replace_one"]
Sampling = Literal["poisson", "without_replacement", "one_pass", "none"]
Accountant = Literal["tightest", "renyi", "pld"]

#: Orders of the Renyi accountant where many kinds of releases are composed: all integers.
_INTEGER_ORDERS = np.array([*range(2, 65), *range(68, 129, 4), *range(144, 257, 16), 320, 384, 512, 768, 1024])
#: So many kinds of releases are described by dp-accounting (27 ms each, fractional orders too), more in closed form.
_FEW_KINDS = 24


@dataclass(frozen=True)
class Release:
    """One kind of noisy release.

    Attributes:
        noise_multiplier: z, standard deviation of the noise on each coordinate over the clipping norm C.
        sampling_rate: q in (0, 1], the share of examples in a batch.
        sampling: how the batch is drawn.
        pure_epsilon: of a pure mechanism, the epsilon of one release without sampling; z does not count then.
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


@dataclass(frozen=True)
class Pair:
    """A release as the accountants take it: a sampled Gaussian, or a pure mechanism with its amplified epsilon.

    Attributes:
        noise_multiplier: z.
        rate: q of Poisson sampling; 1 for a pure mechanism, whose epsilon is amplified already.
        replace: whether neighbors replace an example; else one is added or removed.
        pure_epsilon: of a pure mechanism, amplified.
    """

    noise_multiplier: float
    rate: float
    replace: bool = False
    pure_epsilon: float | None = None

    @property
    def private(self) -> bool:
        """Whether there is any noise, or nothing to hide."""
        return self.rate == 0.0 or self.noise_multiplier > 0.0 or self.pure_epsilon is not None


def refusal(sampling: str, neighbors: Neighbors) -> str | None:
    """Return why releases with this sampling have no epsilon under this neighboring relation, None if they have."""
    if sampling == "with_replacement":
        return "sampling with_replacement may take one example several times into one batch; use sampling: poisson"
    if neighbors == "add_or_remove" and sampling in ("without_replacement", "one_pass"):
        return (
            f"sampling {sampling} has no epsilon under neighbors: add_or_remove, because the size of a batch is fixed; "
            "use neighbors: replace_one, or sampling: poisson"
        )
    return None


def pairs_of(composition: Composition, neighbors: Neighbors) -> list[tuple[Pair, int]]:
    """Translate releases; those of one pass become the dearest of them, once."""
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
            pure = release.pure_epsilon
            pair = Pair(0.0, 1.0, replace, amplified_epsilon(pure, rate))
        elif release.sampling == "without_replacement" and rate < 1.0:
            pair = Pair(release.noise_multiplier / 2, rate)
        else:
            pair = Pair(release.noise_multiplier, rate, replace)
        if release.sampling == "one_pass":
            once.append(pair)
        else:
            pairs[pair] = pairs.get(pair, 0) + int(count)
    if once:
        gaussian = [pair for pair in once if pair.pure_epsilon is None]
        pure_ones = [pair for pair in once if pair.pure_epsilon is not None]
        if gaussian and pure_ones:
            raise ConditionError(
                "accounting: one pass with Gaussian and pure releases side by side: account them apart"
            )
        dearest = (
            min(gaussian, key=lambda pair: pair.noise_multiplier)
            if gaussian
            else max(pure_ones, key=lambda pair: pair.pure_epsilon or 0.0)
        )
        pairs[dearest] = pairs.get(dearest, 0) + 1
    return list(pairs.items())


# -- Renyi -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _library_renyi(noise_multiplier: float, rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Renyi divergences of one sampled Gaussian by dp-accounting: (orders, RDP at each order)."""
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


def integer_renyi(noise_multipliers: NDArray[np.float64], rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Renyi divergences of many Poisson-sampled Gaussians at integer orders, [kinds, orders], in closed form.

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
            log_choose = special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
            # 0 * log(0) is 0 here: at q = 1 only the last term is left
            rest = np.where(k == order, 0.0, (order - k) * log_rest)
            terms = log_choose + k * log_q + rest + (k * k - k) / (2 * z * z)
            columns.append(special.logsumexp(terms, axis=1) / (order - 1))
    divergences: NDArray[np.float64] = np.maximum(np.stack(columns, axis=1), 0.0)
    return divergences


def _pure_renyi(epsilon: float, orders: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest Renyi divergence of any eps-DP mechanism, that of randomized response.

    Mironov 2017, "Renyi differential privacy", Proposition 5: D_alpha = ln(p^alpha (1-p)^(1-alpha) + (1-p)^alpha
    p^(1-alpha)) / (alpha - 1) with p = e^eps / (1 + e^eps).
    """
    log_p, log_rest = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    one = orders * log_p + (1 - orders) * log_rest
    other = orders * log_rest + (1 - orders) * log_p
    divergence: NDArray[np.float64] = np.logaddexp(one, other) / (orders - 1)
    return np.minimum(divergence, epsilon)


class RenyiTable:
    """Renyi divergences of the kinds of releases seen so far, [kinds, orders]: composing is a sum.

    Args:
        neighbors: the relation under which the divergences hold.
        closed_form: whether to take only integer orders, which is fast for hundreds of kinds.
    """

    def __init__(self, neighbors: Neighbors, closed_form: bool = False) -> None:
        self.neighbors = neighbors
        self.closed_form = closed_form
        self.orders = _INTEGER_ORDERS.astype(np.float64) if closed_form else _library_renyi(1.0, 1.0)[0]
        self._rows: dict[Pair, NDArray[np.float64]] = {}

    def divergences(self, pairs: Iterable[Pair]) -> NDArray[np.float64]:
        """Return the divergences of some pairs, [pairs, orders]; those that are new are computed together."""
        wanted = list(pairs)
        new = [pair for pair in dict.fromkeys(wanted) if pair not in self._rows]
        sampled = []
        for pair in new:
            if pair.pure_epsilon is not None:
                self._rows[pair] = _pure_renyi(pair.pure_epsilon, self.orders)
            elif not pair.private:
                self._rows[pair] = np.full(len(self.orders), math.inf)
            else:
                sampled.append(pair)
        # Replacing one example moves the sum by up to 2C: the Poisson pair of doubled sensitivity bounds it.
        effective = [(pair.noise_multiplier / (2 if pair.replace else 1), pair.rate) for pair in sampled]
        if sampled and self.closed_form:
            z, q = np.array(effective).T
            for pair, row in zip(sampled, integer_renyi(z, q), strict=True):
                self._rows[pair] = row
        else:
            for pair, (noise_multiplier, rate) in zip(sampled, effective, strict=True):
                orders, row = _library_renyi(noise_multiplier, rate)
                full = np.full(len(self.orders), math.inf)
                full[np.searchsorted(self.orders, orders)] = row
                self._rows[pair] = full
        return np.stack([self._rows[pair] for pair in wanted]) if wanted else np.zeros((0, len(self.orders)))


def renyi_to_epsilon(
    orders: NDArray[np.float64], divergences: NDArray[np.float64], delta: float
) -> NDArray[np.float64]:
    """Return epsilon at delta of mechanisms with the given Renyi divergences, float [...].

    eps = min over alpha of D_alpha + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1): Canonne, Kamath and Steinke 2020,
    "The discrete Gaussian for differential privacy", Proposition 12, as in dp-accounting, for many clients at once.

    Args:
        orders: alpha > 1, [orders].
        divergences: [..., orders].
        delta: in (0, 1).
    """
    usable = orders > 1.01  # below, the bound is numerically worthless
    alpha, d = orders[usable], divergences[..., usable]
    epsilon = d + np.log1p(-1 / alpha) - math.log(delta) / (alpha - 1) - np.log(alpha) / (alpha - 1)
    # Bretagnolle-Huber: so small a divergence means a total variation below delta.
    epsilon = np.where(delta**2 + np.expm1(-d) > 0, 0.0, epsilon)
    best: NDArray[np.float64] = np.maximum(0.0, np.min(epsilon, axis=-1))
    return best


def _renyi_epsilon(pairs: list[tuple[Pair, int]], delta: float) -> float:
    table = RenyiTable("add_or_remove", closed_form=len(pairs) > _FEW_KINDS)
    counts = np.array([count for _, count in pairs], dtype=np.float64)
    total = counts @ table.divergences(pair for pair, _ in pairs)
    return float(renyi_to_epsilon(table.orders, total, delta))


# -- privacy loss distributions --------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _loss_distribution(pair: Pair, interval: float) -> Any:
    """The privacy loss distribution of one release, by dp-accounting (pessimistic: it never understates)."""
    import dp_accounting
    from dp_accounting.pld import common, privacy_loss_distribution

    if pair.pure_epsilon is not None:
        return privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(pair.pure_epsilon, 0.0), value_discretization_interval=interval
        )
    relation = dp_accounting.NeighboringRelation
    return privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=pair.noise_multiplier,
        sampling_prob=pair.rate,
        value_discretization_interval=interval,
        neighboring_relation=relation.REPLACE_ONE if pair.replace else relation.ADD_OR_REMOVE_ONE,
    )


@functools.lru_cache(maxsize=4)
def _composed_distribution(pairs_given: tuple[tuple[Pair, int], ...], interval: float) -> Any:
    """The loss of all releases together; kept, since a curve asks the same composition for many deltas."""
    pairs = list(pairs_given)
    gaussian = _as_one_gaussian(pairs)
    if gaussian is not None:
        pairs = [(gaussian, 1)]
    whole = None
    for pair, count in pairs:
        part = _loss_distribution(pair, interval)
        part = part.self_compose(count) if count > 1 else part
        whole = part if whole is None else whole.compose(part)
    return whole


def _as_one_gaussian(pairs: list[tuple[Pair, int]]) -> Pair | None:
    """Gaussians without sampling compose to one Gaussian: 1 / z^2 = sum of 1 / z_j^2."""
    if any(pair.rate < 1.0 or pair.pure_epsilon is not None for pair, _ in pairs):
        return None
    precision = sum(count / pair.noise_multiplier**2 for pair, count in pairs)
    return Pair(1 / math.sqrt(precision), 1.0, pairs[0][0].replace)


def _exact_gaussian(pairs: list[tuple[Pair, int]]) -> float | None:
    """mu = sensitivity / standard deviation of what unsampled Gaussians amount to; None if there is anything else."""
    one = _as_one_gaussian(pairs)
    return None if one is None else (2.0 if one.replace else 1.0) / one.noise_multiplier


def _interval(expected: float) -> float:
    """Width of a bin of privacy loss: fine enough for 1e-3 of epsilon, coarse enough to be quick."""
    return 1e-5 if expected < 0.5 else 1e-4 if expected < 20 else 1e-3


# -- what one asks ---------------------------------------------------------------------------


def epsilon_of(
    composition: Composition,
    delta: float,
    *,
    neighbors: Neighbors = "add_or_remove",
    accountant: Accountant = "tightest",
) -> float:
    """Return epsilon at delta of releases composed; inf where nothing protects.

    Args:
        composition: kinds of releases, each with how often it occurred.
        delta: in (0, 1).
        neighbors: what neighboring data sets are.
        accountant: `renyi` (cheap), `pld` (numerical composition of privacy loss distributions), or the smaller of the
            two, which is exact to 1e-6 for Gaussian releases without sampling.

    Raises:
        ConditionError: if nothing can be certified for this sampling under this relation.
        ValueError: for arguments out of range.
    """
    checks.open_unit(delta=delta)
    checks.one_of(get_args(Accountant), accountant=accountant)
    return _epsilon(tuple(pairs_of(composition, neighbors)), delta, accountant)


@functools.lru_cache(maxsize=65536)
def _epsilon(pairs_given: tuple[tuple[Pair, int], ...], delta: float, accountant: Accountant) -> float:
    pairs = list(pairs_given)
    if not pairs:
        return 0.0
    if not all(pair.private for pair, _ in pairs):
        return math.inf
    mu = _exact_gaussian(pairs)
    if mu is not None and accountant != "renyi":
        from simfl.privacy.gaussian import gaussian_epsilon

        return gaussian_epsilon(delta, mu)
    bounds = []
    if accountant != "pld":
        bounds.append(_renyi_epsilon(pairs, delta))
    if all(pair.pure_epsilon is not None for pair, _ in pairs):
        if len(pairs) == 1:  # exact for releases of one kind
            return composed_epsilon(pairs[0][0].pure_epsilon or 0.0, pairs[0][1], delta)
        # The sum of the epsilons holds with delta = 0.
        bounds.append(sum(count * (pair.pure_epsilon or 0.0) for pair, count in pairs))
    if accountant != "renyi":
        expected = min(bounds) if bounds else _renyi_epsilon(pairs, delta)
        # Beyond that, finer bins cost memory without end, and nobody cares for the digits.
        if expected < 300:
            bounds.append(float(_composed_distribution(pairs_given, _interval(expected)).get_epsilon_for_delta(delta)))
        elif not bounds:
            bounds.append(expected)
    return min(bounds)


def delta_of(composition: Composition, epsilon: float, *, neighbors: Neighbors = "add_or_remove") -> float:
    """Return delta at epsilon >= 0 of releases composed, by their privacy loss distribution.

    Raises:
        ConditionError: if nothing can be certified for this sampling under this relation.
    """
    checks.not_negative(epsilon=epsilon)
    pairs = pairs_of(composition, neighbors)
    if not pairs:
        return 0.0
    if not all(pair.private for pair, _ in pairs):
        return 1.0
    mu = _exact_gaussian(pairs)
    if mu is not None:
        from simfl.privacy.gaussian import gaussian_delta

        return gaussian_delta(epsilon, mu)
    return float(_composed_distribution(tuple(pairs), _interval(epsilon)).get_delta_for_epsilon(epsilon))
