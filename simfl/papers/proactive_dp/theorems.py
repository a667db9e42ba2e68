"""Proactive DP: noise, batch size and rounds in closed form.

Van Dijk et al. 2021, "Proactive DP: A Multiple Target Optimization Framework for DP-SGD",
https://arxiv.org/abs/2102.09030: Theorems 3.1 and B.4 and the simplified calculator of Appendix D.4. The calculator of
Appendix E.1, which accounts for earlier rounds, is in `calculator`; Theorem B.2 and the moments are in `moments`.

The setting: a client has N examples. Round i draws each of them with probability s_i / N (Poisson), sums their
gradients at one model, each clipped to norm C, adds N(0, (sigma C)^2 I) and sends the sum. Neighboring data sets differ
by one example more or less. The adversary sees everything that the client sends (local view). `sigma` is the paper's
name of the noise multiplier z. T rounds, K = sum s_i gradients, k = K / N epochs, theta = max s_i / (K / T).

    sigma = sqrt(2 (epsilon + ln(1/delta)) / epsilon)   and   T >= gamma theta^2 k^2 / epsilon,

where gamma, about 2 to 10, is the smallest solution of gamma >= Gam(sigma, epsilon / (gamma k)). With abar = epsilon /
(gamma k) that is epsilon = k abar Gam(sigma, abar), which grows with abar, and the bound on T is abar >= theta^2 k / T.
So the smallest epsilon of T rounds with a given sigma has a closed form: k a Gam(sigma, a) at a = theta^2 k / T.

These claims are loose: accountants certify an epsilon that is two to five times smaller for the same rounds. The bound
on T is sufficient, not necessary; with T far above it the rounds are far more private than claimed.

The paper's Gam has an error: (1 - sqrt a)^2 in the place of (1 - a)(1 - u0) = 1 - a - 2 sqrt a. This makes gamma a few
per cent too small, which the slack of the bound absorbs; `exact=True` uses the corrected Gam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.privacy import accounting, checks

GammaRule = Literal["fixed-point", "one-shot"]
BatchSchedule = Sequence[tuple[int, int]]
"""Batch sizes of all rounds in order, as (size, rounds) pairs."""

SLACK = 1e-9
"""Relative tolerance, so that a condition with equality does not fail by rounding."""


def log_inverse(delta: float) -> float:
    """Return ln(1/delta) of a delta in (0, 1)."""
    checks.open_unit(delta=delta)
    return -math.log(delta)


def sigma_of(epsilon: float, delta: float) -> float:
    """Return sigma = sqrt(2 (epsilon + ln(1/delta)) / epsilon), equation (6)."""
    checks.positive(epsilon=epsilon)
    return math.sqrt(2.0 * (epsilon + log_inverse(delta)) / epsilon)


def epsilon_of(sigma: float, delta: float) -> float:
    """Return epsilon = 2 ln(1/delta) / (sigma^2 - 2).

    Raises:
        ConditionError: sigma <= sqrt(2), which no epsilon reaches.
    """
    checks.positive(sigma=sigma)
    if sigma * sigma <= 2.0:
        raise ConditionError(
            f"condition (35) of Theorem B.4: sigma >= sqrt(2 (epsilon + ln(1/delta)) / epsilon) > sqrt(2) for every "
            f"epsilon, and sigma is {sigma:g}; take more noise"
        )
    return 2.0 * log_inverse(delta) / (sigma * sigma - 2.0)


def h(x: float) -> float:
    """Return h(x) = (sqrt(1 + (e/x)^2) - e/x)^2.

    It is the a at which sigma (1 - a) = 2 e sqrt(a) for sigma = x.
    """
    checks.positive(x=x)
    ratio = math.e / x
    return (math.sqrt(1.0 + ratio**2) + ratio) ** -2  # sqrt(1 + r^2) - r, without the cancellation at small x


def g(x: float) -> float:
    """Return g(x) = min(1 / (e x), h(x)), the largest share max s_i / N of (32)."""
    return min(1.0 / (math.e * x), h(x))


def largest_share(sigma: float, *, exact: bool = False) -> float:
    """Return the a below which Gam(sigma, a) is finite: h(sigma), or less if exact."""
    return min(h(sigma), (math.sqrt(2.0) - 1.0) ** 2) if exact else h(sigma)


def gam(sigma: float, a: float, *, exact: bool = False) -> float:
    """Return Gam(sigma, a) for a in [0, 1); inf for a >= `largest_share`.

    Gam = 2/(1-a) + (16 a/(1-a)) [ sigma/(1-sqrt a)^2 + e^3 / (sigma (sigma (1-a) - 2 e sqrt a)) ] exp(3/sigma^2)

    `exact` has 1 - a - 2 sqrt(a) in place of (1 - sqrt a)^2, as in the derivation.
    """
    checks.positive(sigma=sigma)
    if not 0.0 <= a < 1.0:
        raise ValueError(f"a: expected a share in [0, 1), found {a:g}")
    return float(gam_array(np.float64(sigma), np.float64(a), exact))


def gam_array(
    sigma: NDArray[np.float64] | np.float64, a: NDArray[np.float64] | np.float64, exact: bool
) -> NDArray[np.float64]:
    """Return Gam for arrays of sigma and a, infinite outside its domain."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        root = np.sqrt(a)
        first = 1.0 - a - 2.0 * root if exact else (1.0 - root) ** 2
        second = sigma * (1.0 - a) - 2.0 * math.e * root
        inner = sigma / first + math.e**3 / (sigma * second)
        value = (2.0 + 16.0 * a * inner * np.exp(3.0 / sigma**2)) / (1.0 - a)
    return np.where((a < 1.0) & (first > 0.0) & (second > 0.0), value, np.inf)


def gamma_one_shot(sigma: float, epsilon: float, epochs: float, *, exact: bool = False) -> float:
    """Return Gam(sigma, epsilon / (2k)), the bound of gamma in the paper's tables.

    Raises:
        ConditionError: (33) with gamma = 2 does not hold.
    """
    checks.positive(epsilon=epsilon, epochs=epochs)
    share, limit = epsilon / (2.0 * epochs), largest_share(sigma, exact=exact)
    if share >= limit:
        raise ConditionError(
            f"condition (33) of Theorem B.4: k > epsilon / (gamma h(sigma)), at gamma = 2 k must be above "
            f"{checks.rounded_up(epsilon / (2.0 * limit))}, and k is {epochs:.4g}; take more epochs, or the fixed "
            "point of gamma"
        )
    return gam(sigma, share, exact=exact)


def gamma_fixed_point(sigma: float, epsilon: float, epochs: float, *, exact: bool = False) -> float:
    """Return the smallest gamma with gamma >= Gam(sigma, epsilon / (gamma k)).

    It is epsilon / (k abar) at the abar with k abar Gam(sigma, abar) = epsilon. The left side grows from 0 without
    bound on the domain of Gam, so abar is unique. It fulfills (33).
    """
    checks.positive(epsilon=epsilon, epochs=epochs)
    high = min(epsilon / (2.0 * epochs), largest_share(sigma, exact=exact))
    low = high
    while epochs * low * gam(sigma, low, exact=exact) >= epsilon:
        low /= 2.0
    while high - low > 1e-15 * high:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if epochs * middle * gam(sigma, middle, exact=exact) < epsilon:
            low = middle
        else:
            high = middle
    return epsilon / (epochs * low)


@dataclass(frozen=True)
class Condition:
    """One condition of a theorem, in the form found >= needed."""

    name: str  # its number in the paper
    statement: str  # the inequality
    found: float  # left side
    needed: float  # right side
    advice: str  # what to do if it fails

    @property
    def holds(self) -> bool:
        """Whether the condition holds, up to a relative rounding error of 1e-9."""
        return self.found >= self.needed * (1.0 - SLACK)

    def require(self, theorem: str) -> None:
        """Raise a ConditionError that names the condition if it fails."""
        if not self.holds:
            raise ConditionError(
                f"condition {self.name} of {theorem}: {self.statement}, found {self.found:.6g}, needed "
                f"{self.needed:.6g}; {self.advice}"
            )


@dataclass(frozen=True)
class Course:
    """The numbers of a schedule that Theorem B.4 uses."""

    rounds: int  # T
    gradients: int  # K
    largest: int  # max s_i
    num_examples: int  # N

    @classmethod
    def of(cls, schedule: BatchSchedule, num_examples: int) -> Course:
        """Summarize a schedule, whose batches must have 1 to N - 1 examples."""
        checks.whole(2, num_examples=num_examples)
        for size, rounds in schedule:
            if rounds < 1 or not 1 <= size < num_examples:
                raise ValueError(
                    f"schedule: expected batches of 1 to {num_examples - 1} examples and at least one round, "
                    f"found {size}x{rounds}"
                )
        if not schedule:
            raise ValueError("schedule: expected at least one round")
        sizes, rounds_of = zip(*schedule, strict=True)
        gradients = sum(size * rounds for size, rounds in schedule)
        return cls(sum(rounds_of), gradients, max(sizes), num_examples)

    @property
    def epochs(self) -> float:
        """Epochs k = K / N."""
        return self.gradients / self.num_examples

    @property
    def theta(self) -> float:
        """Largest over mean batch size, theta = max s_i / (K / T)."""
        return self.largest * self.rounds / self.gradients

    @property
    def share(self) -> float:
        """The least abar = epsilon / (gamma k) by (34): theta^2 k / T."""
        return self.theta * self.largest / self.num_examples


def sizes_of(schedule: BatchSchedule) -> NDArray[np.int64]:
    """Return the batch size of every round, int [T], for `simfl.papers.moments`."""
    if not schedule:
        return np.zeros(0, dtype=np.int64)
    sizes, rounds = zip(*schedule, strict=True)
    return np.repeat(np.array(sizes, dtype=np.int64), rounds)


def conditions_b4(course: Course, epsilon: float, delta: float, sigma: float, gamma: float) -> tuple[Condition, ...]:
    """Return (32), (33), (34), (35) of Theorem B.4, with both sides of each."""
    k, rounds = course.epochs, gamma * course.theta**2 * course.epochs**2 / epsilon
    advice = "take more rounds of smaller batches, or a larger epsilon"
    equation = "sigma >= sqrt(2 (epsilon + ln(1/delta)) / epsilon)"
    limit = epsilon / (gamma * h(sigma))
    return (
        condition_32(course, sigma),
        Condition("(33)", "k >= epsilon / (gamma h(sigma))", k, limit, "take more epochs or noise"),
        Condition("(34)", "T >= gamma theta^2 k^2 / epsilon", course.rounds, rounds, advice),
        Condition("(35)", equation, sigma, sigma_of(epsilon, delta), "take more noise or a larger epsilon"),
    )


def claimed_epsilon(
    schedule: BatchSchedule, num_examples: int, *, sigma: float, delta: float, exact: bool = False
) -> float:
    """Return the smallest epsilon that Theorem B.4 claims for the rounds.

    epsilon = max( 2 ln(1/delta) / (sigma^2 - 2), k a Gam(sigma, a) ), a = theta^2 k / T.

    If the second term is larger, more noise raises it, because Gam grows with sigma. The claim at less noise holds too.

    Raises:
        ConditionError: (32) or (35) fails for every epsilon, or (33) and (34) exclude each other.
    """
    course = Course.of(schedule, num_examples)
    least = epsilon_of(sigma, delta)
    condition_32(course, sigma).require("Theorem B.4")
    bound = course.epochs * float(gam_array(np.float64(sigma), np.float64(course.share), exact))
    if math.isinf(bound):
        raise ConditionError(
            f"conditions (33) and (34) of Theorem B.4: theta^2 k / T < {largest_share(sigma, exact=exact):.6g}, found "
            f"{course.share:.6g}, so that no epsilon fulfils both; take batches that are smaller or closer to one size"
        )
    return max(least, course.share * bound)


def condition_32(course: Course, sigma: float) -> Condition:
    """Return (32) of Theorem B.4, which involves neither epsilon nor gamma."""
    statement = "T >= theta k / g(sigma), that is max s_i/N <= g(sigma)"
    advice = f"take batches of at most {math.floor(course.num_examples * g(sigma)):,} examples"
    return Condition("(32)", statement, course.rounds, course.theta * course.epochs / g(sigma), advice)


@dataclass(frozen=True)
class RoundsPlan:
    """The next rounds, and Theorem B.4's claim for all rounds up to their end."""

    num_examples: int  # N
    epsilon: float  # claimed for `done` and the new rounds together; add-or-remove-one, Poisson, local view
    delta: float
    sigma: float  # noise multiplier of the new rounds; earlier rounds had at least that
    gamma: float  # the constant of (34)
    batch: int  # size of the new rounds' batches, the largest that the theorem allows
    rounds: int  # new rounds with that size
    last_batch: int  # size of one more round for the rest of the gradients; 0 for none
    gradients: int  # number that the new rounds compute
    asked: int  # number that was requested; without earlier rounds, a rest that does not fill a batch is left out
    done: tuple[tuple[int, int], ...]  # (size, rounds) of earlier rounds
    theta: float  # max s_i over mean s_i, over all rounds
    bound_by: str  # the condition that limits the batch, "(32)" or "(34)"; "K" if a batch holds all gradients
    conditions: tuple[Condition, ...]  # (32) to (35), with both sides

    @property
    def schedule(self) -> tuple[tuple[int, int], ...]:
        """(size, rounds) of all rounds, including earlier ones."""
        new = ((self.batch, self.rounds), (self.last_batch, 1))
        return self.done + tuple((size, rounds) for size, rounds in new if size > 0 and rounds > 0)

    @property
    def epochs(self) -> float:
        """K / N over all rounds."""
        return Course.of(self.schedule, self.num_examples).epochs

    @property
    def total_rounds(self) -> int:
        """T over all rounds."""
        return Course.of(self.schedule, self.num_examples).rounds


def checked_plan(
    course: Course, *, epsilon: float, delta: float, sigma: float, exact: bool, gamma: float | None = None, **new: Any
) -> RoundsPlan:
    """Return the plan of `new` rounds if all rounds together fulfill Theorem B.4.

    Raises:
        ConditionError: a condition fails.
    """
    smallest = gamma_fixed_point(sigma, epsilon, course.epochs, exact=exact)
    conditions = conditions_b4(course, epsilon, delta, sigma, smallest)
    for condition in conditions:
        condition.require("Theorem B.4")
    gamma = smallest if gamma is None else gamma
    about = {"theta": course.theta, "conditions": conditions, **new}
    return RoundsPlan(course.num_examples, epsilon, delta, sigma, gamma, **about)


def plan_rounds(
    num_examples: int,
    *,
    epochs: float | None = None,
    gradients: int | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    sigma: float | None = None,
    gamma: GammaRule = "fixed-point",
    exact: bool = False,
) -> RoundsPlan:
    """Return the largest constant batch and its rounds for a new client.

    s = floor( min( epsilon N^2 / (gamma K), N g(sigma) ) ),  T = floor(K / s)

    sigma and epsilon determine each other by the main equation. All batches are full: up to s - 1 of the K gradients
    are left out, because (34) might fail with them.

    Args:
        num_examples: N, examples of the client.
        epochs: k = K/N, further gradients per example; or the gradients.
        gradients: K = k N, further gradients; exactly one of the two.
        delta: in (0, 1), 1/N by default.
        epsilon: > 0.
        sigma: noise multiplier > sqrt(2); exactly one of the two.
        gamma: fixed-point, or one-shot, which gives smaller batches, those of the paper's tables.
        exact: Gam without the paper's error.

    Raises:
        ConditionError: a condition of Theorem B.4 fails even for batches of one example.
    """
    total = gradients_of(num_examples, epochs, gradients)
    delta = delta_or_default(delta, num_examples)
    if sigma is None and epsilon is not None:
        sigma = sigma_of(epsilon, delta)
    elif sigma is not None and epsilon is None:
        epsilon = epsilon_of(sigma, delta)
    else:
        raise ValueError("expected exactly one of epsilon and sigma")
    checks.one_of(get_args(GammaRule), gamma=gamma)
    gamma_of = gamma_fixed_point if gamma == "fixed-point" else gamma_one_shot
    value = gamma_of(sigma, epsilon, total / num_examples, exact=exact)
    limits = {
        "(34)": epsilon * num_examples**2 / (value * total),
        "(32)": num_examples * g(sigma),
        "K": float(min(total, num_examples - 1)),
    }
    bound_by = min(limits, key=limits.__getitem__)
    batch = math.floor(limits[bound_by])
    if batch < 1:
        conditions_b4(Course.of([(1, total)], num_examples), epsilon, delta, sigma, value)[2].require("Theorem B.4")
        raise ConditionError(
            f"condition {bound_by} of Theorem B.4: batches of at most {limits[bound_by]:.3g} examples; "
            "take a larger epsilon or fewer epochs"
        )
    rounds = total // batch
    return checked_plan(
        Course(rounds, rounds * batch, batch, num_examples), epsilon=epsilon, delta=delta, sigma=sigma, exact=exact,
        gamma=value, batch=batch, rounds=rounds, last_batch=0, gradients=rounds * batch, asked=total, done=(),
        bound_by=bound_by,
    )  # fmt: skip


def gradients_of(num_examples: int, epochs: float | None, gradients: int | None) -> int:
    """Return K from exactly one of `gradients` and `epochs`, k = K / N."""
    checks.whole(2, num_examples=num_examples)
    if epochs is not None and gradients is None:
        checks.positive(epochs=epochs)
        gradients = round(epochs * num_examples)
    elif epochs is not None or gradients is None:
        raise ValueError("expected exactly one of epochs and gradients")
    checks.whole(1, gradients=gradients)
    return gradients


def delta_or_default(delta: float | None, num_examples: int) -> float:
    """Return delta, or the paper's 1/N."""
    if delta is not None:
        checks.open_unit(delta=delta)
    return 1.0 / num_examples if delta is None else delta


def simplified_plan(
    num_examples: int,
    gradients: int,
    *,
    epsilon: float | None = None,
    sigma: float | None = None,
    gamma: GammaRule = "one-shot",
    exact: bool = False,
) -> RoundsPlan:
    """Return the plan of Appendix D.4's simplified calculator.

    delta = 1/N, T = gamma k^2 / epsilon, s = K / T.

    It replaces (32) and (33) by inequality (7). One pass of its loop gives the paper's tables.

    Raises:
        ConditionError: (7) fails, and only more epochs can fulfill it, or a condition of Theorem B.4 fails.
    """
    log_n, left = math.log(num_examples), (2.0 / math.e) ** 2 * (gradients / num_examples) ** 2 - 0.5
    advice = f"take at least {checks.rounded_up(math.e / 2.0 * math.sqrt(log_n + 0.5))} epochs"
    Condition("(7)", "(2/e)^2 k^2 - 1/2 >= ln N", left, log_n, advice).require("Theorem 3.1")
    return plan_rounds(num_examples, gradients=gradients, epsilon=epsilon, sigma=sigma, gamma=gamma, exact=exact)


@dataclass(frozen=True)
class CertifiedRounds:
    """The certified epsilon of a plan's rounds, for an adversary who sees all of them.

    The claim does not cover batches of fixed size, for which replacing an example changes the sum by up to 2 C.
    """

    poisson: float  # Poisson batches, one example more or less: the setting of the claim
    fixed_size: float  # batches of fixed size, one example replaced by another


def accounted(
    schedule: BatchSchedule,
    num_examples: int,
    *,
    sigma: float,
    delta: float,
    accountant: accounting.Accountant = "tightest",
) -> CertifiedRounds:
    """Return the certified epsilon at delta, for both ways to draw batches."""
    Course.of(schedule, num_examples)
    poisson = [(accounting.Release(sigma, size / num_examples), rounds) for size, rounds in schedule]
    fixed = [(replace(release, sampling="without_replacement"), rounds) for release, rounds in poisson]
    return CertifiedRounds(
        accounting.epsilon_of(poisson, delta, accountant=accountant),
        accounting.epsilon_of(fixed, delta, neighbors="replace_one", accountant=accountant),
    )


def tightness_probe(num_examples: int, gradients: int, epsilon: float, *, gamma: float = 0.5) -> int:
    """Return the batch size s = floor(epsilon N^2 / (gamma K)) of Appendix D.4.

    With gamma below 2 the theorem does not cover these rounds: their epsilon shows how tight the theorem is.
    """
    checks.positive(epsilon=epsilon, gamma=gamma)
    checks.whole(1, num_examples=num_examples, gradients=gradients)
    batch = math.floor(epsilon * num_examples**2 / (gamma * gradients))
    if batch < 1:
        raise ValueError(f"epsilon: {epsilon:g} allows no batch of one example at gamma = {gamma:g}")
    return batch
