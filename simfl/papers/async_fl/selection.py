"""Parameter selection of async_fl: sizes, rounds and claims for given noise.

Van Dijk et al. 2020, https://arxiv.org/abs/2007.09208, "Parameter selection" of section 3 and appendix D.3.2, with the
theorems of `simfl.papers.async_fl.privacy`. Given the power p of the sizes, the first size s_0, N, epsilon, sigma and
K, it finds the fastest growth q for which the theorems hold, and the budget that this leaves for delta.

The paper lets sizes grow because this reduces the noise aggregated over all rounds, sqrt(T) sigma, compared with sizes
that stay s_0. Compared with constant sizes and the same number of rounds, it gains nothing (`simfl privacy async-fl`
shows both).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from simfl.accounts.plans import noise_multiplier_for
from simfl.errors import ConditionError
from simfl.papers.async_fl.privacy import GrowthClaim, GrowthSetting, rounds_of
from simfl.papers.async_fl.sizes import ShiftedPowerSizes
from simfl.papers.moments import u0, u1
from simfl.privacy import accounting, checks

_CLOSE = 1e-9
_MOST_ITERATIONS = 1000
_MOST_GAMMA = 1e3
_MOST_SHIFT = 1e100


@dataclass(frozen=True)
class Inequality:
    """A condition of the theorems, left <= right, and whether a plan satisfies it."""

    name: str  # in the paper's symbols
    left: float
    right: float
    holds: bool
    what_for: str  # the result that needs it


@dataclass(frozen=True)
class Selection:
    """The result of the parameter selection."""

    setting: GrowthSetting
    first_size: int  # s_0
    iterates: tuple[GrowthClaim, ...]  # every pass of the selection; the last one is the plan
    rounds: int  # T, the number of rounds that the sizes, which are integers, need for K gradients
    last_size: int  # size of the last round
    gradients: int  # sum of the sizes, K or a little more
    aggregated_noise: float  # sqrt(T) sigma, standard deviation of the sum of all noise over C
    conditions: tuple[Inequality, ...]

    @property
    def claim(self) -> GrowthClaim:
        """The last iterate."""
        return self.iterates[-1]

    def sizes(self) -> ShiftedPowerSizes:
        """Return s_i = ceil(N q (i + m)^p), i = 0, 1, ..."""
        return ShiftedPowerSizes(self.setting.num_examples * self.claim.q, self.claim.m, self.setting.p)


def select_parameters(
    setting: GrowthSetting,
    first_size: int,
    *,
    excess: float | None = None,
    iterations: int | None = None,
    whole_rounds: bool = False,
) -> Selection:
    """Choose q and m by the paper's parameter selection, appendix D.3.2.

    Repeats, from gamma = 0: the largest q with K <= K^- and with q (T + m)^p <= r0 / sigma (K <= K* in the worked and
    printed forms); m from s_0 = N q m^p; T; gamma = m/T. The budget is sigma over the factor of case 1.

    Example 3 of the paper is `select_parameters(GrowthSetting(1, 10_000, 1.0, 8.0, 2.5, r0=1 / math.e, form="worked"),
    16, iterations=3, whole_rounds=True)`: it stops at the third pass and rounds T up.

    Args:
        setting: p, N, epsilon, sigma, K/N, r0 and form. With p = 0 there is nothing to choose: q is s_0 / N. A larger
            r0 allows larger q where q (T + m)^p decides, and smaller q where K^- decides.
        first_size: s_0, examples in the first round, from 1 to N - 1.
        excess: k >= 1, which chooses q for case 2, K <= k K^+, with more noise, instead of case 1.
        iterations: number of passes; by default until q settles (to 1e-13). The paper takes 3.
        whole_rounds: round T up in every pass, before gamma = m/T, as the paper does.

    Raises:
        ConditionError: s_0 / N exceeds r0 / sigma or, with p = 0, what K^- allows; the passes do not settle;
            or what `GrowthSetting.thresholds` raises.
    """
    checks.whole(1, setting.num_examples - 1, first_size=first_size)
    if excess is not None:
        checks.at_least(1.0, excess=excess)
    if iterations is not None:
        checks.whole(1, iterations=iterations)
    iterates: list[GrowthClaim] = []
    gamma = 0.0
    for _ in range(_MOST_ITERATIONS if iterations is None else iterations):
        q, m = _choose(setting, first_size / setting.num_examples, gamma, excess)
        rounds = setting.rounds(q, m)
        rounds = float(math.ceil(rounds)) if whole_rounds else rounds
        gamma = m / rounds if rounds > 0 else math.inf  # for large m, T is the small difference of (T + m) and m
        if gamma > _MOST_GAMMA:
            break
        iterates.append(setting.claim(q, m, rounds=rounds, case=1 if excess is None else None))
        if iterations is None and len(iterates) > 1 and abs(q - iterates[-2].q) <= 1e-13 * q:
            break
    else:
        if iterations is None:
            gamma = math.inf
    if gamma > _MOST_GAMMA:
        raise ConditionError(
            f"parameter selection: expected m/T to settle, found that it grows without end (pass {len(iterates)}): "
            "sizes would hardly grow; take a smaller first size, a smaller p, or a larger r0 (at most 1/e)"
        )
    return _plan(setting, first_size, tuple(iterates))


def _choose(setting: GrowthSetting, rate: float, gamma: float, excess: float | None) -> tuple[float, float]:
    """Return the largest (q, m) with N q m^p = s_0 that this gamma allows."""
    p, epochs = setting.p, setting.epochs
    limits = setting.thresholds(1.0, gamma)
    allowed = limits.r0 / setting.sigma
    if rate >= allowed:
        raise ConditionError(
            f"condition q (T+m)^p <= r0/sigma of Theorem 6: s_0/N is {rate:.6g} already, r0/sigma is {allowed:.6g}; "
            "take a smaller first size or a larger r0 (at most 1/e)"
        )
    # K^- and K^+ are proportional to q^(-1/(1+2p)).
    at_one = limits.k_minus if excess is None else excess * limits.k_plus
    log_largest = (1.0 + 2.0 * p) * math.log(at_one / setting.gradients)
    largest = (at_one / setting.gradients) ** (1.0 + 2.0 * p) if log_largest < 700.0 else math.inf
    if p == 0.0:
        if rate > largest:
            raise ConditionError(
                f"condition K <= K^- of Theorem 6 for constant sizes: s_0/N is {rate:.6g}, at most "
                f"{checks.rounded_down(largest, 6)} is covered; take a smaller size or a larger epsilon"
            )
        return rate, 0.0
    if setting.form == "corrected":
        # q (T + m)^p <= r0/sigma, with T of `rounds_of` and q m^p = s_0/N, solved for q
        room = allowed ** ((p + 1.0) / p) - rate ** ((p + 1.0) / p)
        q = min(largest, (room / ((p + 1.0) * epochs)) ** p)
    else:
        q = min(largest, (limits.d / epochs) ** p)
    m = (rate / q) ** (1.0 / p) if q > 0.0 and math.log(rate / q) / p < 700.0 else math.inf
    if not m < _MOST_SHIFT:
        raise ConditionError(
            f"parameter selection: expected a shift m below {_MOST_SHIFT:g}, found {m:.3g}: sizes would hardly grow; "
            "take fewer epochs, a larger epsilon or power, or --power 0, constant sizes"
        )
    return float(q), float(m)


def _plan(setting: GrowthSetting, first_size: int, iterates: tuple[GrowthClaim, ...]) -> Selection:
    claim = iterates[-1]
    sizes = ShiftedPowerSizes(setting.num_examples * claim.q, claim.m, setting.p)
    rounds = sizes.rounds_for(setting.gradients)
    last = sizes.size(rounds - 1)
    noise, conditions = aggregated_noise(setting.sigma, rounds), _conditions(setting, claim, last)
    return Selection(setting, first_size, iterates, rounds, last, sizes.total(rounds), noise, conditions)


def _conditions(setting: GrowthSetting, claim: GrowthClaim, last_size: int) -> tuple[Inequality, ...]:
    limits, sigma, p = claim.thresholds, setting.sigma, setting.p
    alpha = limits.r0 / sigma
    inequalities = [
        ("r0 <= 1/e", limits.r0, 1.0 / math.e, "Theorem 3"),
        ("u0 < 1", u0(sigma, limits.r0), 1.0, "Lemma 4"),
        ("u1 < 1", u1(sigma, limits.r0), 1.0, "Lemma 4"),
    ]
    if setting.form != "corrected":
        inequalities.append(("q (T+m)^p <= r0/sigma", claim.largest_rate, alpha, "printed T"))
    largest = claim.q * (rounds_of(p, claim.q, claim.m, setting.epochs) + claim.m) ** p
    inequalities.append(("q (T+m)^p <= r0/sigma", largest, alpha, "Theorem 6"))
    if claim.case == 2:
        inequalities.append(("K^+ <= K", limits.k_plus, setting.gradients, "case 2"))
    else:
        inequalities.append(("K <= K^-", setting.gradients, limits.k_minus, "case 1"))
    if p > 0.0:
        inequalities.append(("1 <= m", 1.0, claim.m, "sums from i = 0"))
    rate, most = last_size / setting.num_examples, 1.0 / (math.e * sigma**2)
    inequalities += [
        ("2 <= budget^2", 2.0, claim.budget**2, "an integer lambda"),
        ("max s_i/N <= 1/(e sigma^2)", rate, most, "proof gap"),
    ]
    return tuple(
        Inequality(name, left, right, left < right if " < " in name else left <= right * (1.0 + _CLOSE), what_for)
        for name, left, right, what_for in inequalities
    )


_SAMPLING: dict[accounting.Neighbors, accounting.Sampling] = {
    "add_or_remove": "poisson",
    "replace_one": "without_replacement",
}


def epsilon_of_sizes(
    sizes: Iterable[int],
    num_examples: int,
    sigma: float,
    delta: float,
    *,
    neighbors: accounting.Neighbors = "add_or_remove",
    accountant: accounting.Accountant = "tightest",
) -> float:
    """Return the certified epsilon of rounds of sizes s_i, all of which are visible.

    With add_or_remove, batches are Poisson samples; with replace_one, they have a fixed size and are drawn without
    replacement. Privacy-loss distributions take some 30 ms for each distinct size.
    """
    composition = [
        (accounting.Release(sigma, size / num_examples, _SAMPLING[neighbors]), rounds)
        for size, rounds in Counter(sizes).items()
    ]
    return accounting.epsilon_of(composition, delta, neighbors=neighbors, accountant=accountant)


@dataclass(frozen=True)
class Alternative:
    """Constant sizes with the same certified epsilon."""

    size: int  # s
    rounds: int  # T, for the same number of gradients
    noise_multiplier: float  # sigma that the accountant requires
    aggregated_noise: float  # sqrt(T) sigma


def constant_alternative(
    plan: Selection,
    size: int,
    epsilon: float,
    delta: float,
    *,
    neighbors: accounting.Neighbors = "add_or_remove",
    accountant: accounting.Accountant = "tightest",
) -> Alternative:
    """Return the noise of a constant size over as many gradients as the plan."""
    num_examples = plan.setting.num_examples
    checks.whole(1, num_examples, size=size)
    rounds = math.ceil(plan.setting.gradients / size)
    sigma = noise_multiplier_for(
        epsilon, delta, steps=rounds, sampling_rate=size / num_examples, sampling=_SAMPLING[neighbors],
        neighbors=neighbors, accountant=accountant,
    )  # fmt: skip
    return Alternative(size, rounds, sigma, aggregated_noise(sigma, rounds))


def aggregated_noise(sigma: float, rounds: float) -> float:
    """Return sqrt(T) sigma, the std over C of the noise of T rounds together."""
    return math.sqrt(rounds) * sigma
