"""Privacy of async_fl: the noise for growing sample sizes.

Van Dijk et al. 2020, "Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from
Less Aggregated Gaussian Noise", https://arxiv.org/abs/2007.09208, Theorems 3, 4, 6 and appendix D.3.2.

The setting is that of `simfl.papers.moments`: round i of one client draws each of its N examples with probability
q_i = s_i / N and releases the sum of gradients clipped to C plus N(0, (sigma C)^2 I). There are T rounds, K = sum s_i.
Neighbors: one example more or less; local view. The gradients of a round must all be taken at one model: the paper's
proof does not cover its per-gradient local steps. Theorems 4 and 6 take q_i = q (i + m)^p, i = 0, ..., T - 1, with
N q m^p = s_0 examples in the first round.

Everything here is a claim, as printed and as the proof supports it. The proof changes:

- lambda must be an integer: sigma >= sqrt(2 ln(1/delta) / epsilon) becomes sqrt(2 (epsilon + ln(1/delta)) / epsilon).
- K* needs the factor (1 + m/T)^-(1+p), printed with the opposite sign; the worked examples leave it out. Three of the
  five then violate q (T + m)^p <= r0 / sigma, which K <= K* should imply.
- gamma >= m/T needs the actual T, not its upper bound ((p+1) K / s)^(1/(1+p)).

Theorems 4 and 6 are about real numbers N q_i; sizes are these numbers rounded up. `theorem_3` takes the sizes
themselves. It usually claims a much smaller delta, because it has no factor (1 + m/T)^(2+3p).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from simfl.errors import ConditionError
from simfl.papers.moments import SizeMoments, Sizes, size_moments, third_order_factor
from simfl.privacy import checks

Form = Literal["corrected", "worked", "printed"]
"""How Theorems 4 and 6 are read.

corrected: what the proof supports: q (T + m)^p <= r0 / sigma itself instead of K <= K*, gamma = m/T with the T of the
    sizes, and K^- with its dependence on gamma.
worked: as in the paper's examples: K* without gamma, gamma = m/T with the upper bound of T.
printed: as `worked`, K* with Theorem 4's factor (1 + m/T)^(1+p).
"""

LEAST_NOISE = 1.137
"""The smallest sigma for which r0(sigma) is shown to exist."""

_HALF = (math.sqrt(3.0) - 1.0) / 2.0
_CLOSE = 1e-9
_MOST_ITERATIONS = 1000


def c_of(x: float, r: float, rho: float, rho_hat: float) -> float:
    """Return c(x) of Theorem 3.

    c(x) = min( (sqrt(2 r rho x + 1) - 1) / (r rho x), 2 / (rhoh x) ), x > 0; the second from `switch_point` on.
    """
    y = r * rho * x
    return min(2.0 / (math.sqrt(2.0 * y + 1.0) + 1.0), 2.0 / (rho_hat * x))  # the first without cancellation


def switch_point(r: float, rho: float, rho_hat: float) -> float:
    """Return the x from which c(x) = 2 / (rhoh x): 2 / rhoh + 2 r rho / rhoh^2."""
    return 2.0 / rho_hat + 2.0 * r * rho / rho_hat**2


@dataclass(frozen=True)
class Theorem3:
    """Theorem 3's claim for sizes, noise and epsilon."""

    rounds: int  # T
    largest_rate: float  # max s_i / N
    r0: float  # its constant, at least sigma max s_i / N
    r: float  # r0 R(r0, sigma), equation (16)
    rho: float  # Sh_1 Sh_3 / Sh_2^2
    rho_hat: float  # Sh_1^2 / Sh_2
    c1: float  # epsilon / (T Sh_1^2)
    switch: float  # from this c1 on, delta no longer depends on the sizes
    c0: float  # c(c1)
    bound: float  # Lam = c0 epsilon sigma^2 / (2 T Sh_2), which bounds lambda + 1; sigma^2 beyond the switch
    order: int  # lambda = floor(Lam - 1), the integer that the proof may use; below 1 nothing is claimed
    delta: float  # exp(-lambda epsilon / 2)
    claimed_delta: float  # as printed, exp(-Lam epsilon / 2)
    gap_free: bool  # whether max s_i / N <= 1 / (e sigma^2), without which a step of Lemma 4 is not proved


def theorem_3(sizes: Sizes, num_examples: int, epsilon: float, sigma: float, *, r0: float | None = None) -> Theorem3:
    """Return the delta that Theorem 3 claims at epsilon.

    The condition is sigma >= (2 / sqrt(c0)) sqrt(Sh_2 T ln(1/delta)) / epsilon.

    `sizes` are s_i, each in [0, N); sigma is the same in all rounds; r0 is in [sigma max s_i / N, 1/e], by default the
    smallest.

    Raises:
        ConditionError: max s_i / N > r0 / sigma, r0 > 1/e, u0 or u1 is not below 1, or no integer lambda >= 1 is left.
    """
    checks.positive(epsilon=epsilon, sigma=sigma)
    claim = _theorem_3(size_moments(sizes, num_examples), epsilon, sigma, r0)
    if claim.order < 1:
        raise ConditionError(
            f"condition lambda >= 1 of Theorem 3: Lam - 1 = {claim.bound - 1.0:.4g} leaves no integer lambda; take a "
            "larger epsilon, more noise or smaller batches"
        )
    return claim


def _theorem_3(moments: SizeMoments, epsilon: float, sigma: float, r0: float | None) -> Theorem3:
    smallest = sigma * moments.largest_rate
    r0 = smallest if r0 is None else r0
    if smallest > r0 * (1.0 + _CLOSE):
        raise ConditionError(
            f"condition s_i/N <= r0/sigma of Theorem 3: max s_i/N is {moments.largest_rate:.6g}, r0/sigma is "
            f"{r0 / sigma:.6g}; take smaller batches or a larger r0 (at most 1/e)"
        )
    r = _checked_r(sigma, r0, "Theorem 3")
    rho, rho_hat = moments.first * moments.third / moments.second**2, moments.first**2 / moments.second
    c1 = epsilon / (moments.rounds * moments.first**2)
    c0 = c_of(c1, r, rho, rho_hat)
    bound = c0 * epsilon * sigma**2 / (2.0 * moments.rounds * moments.second)
    # Beyond the switch Lam is sigma^2 up to rounding, which must not cost a whole integer.
    order = math.floor(bound * (1.0 + 1e-12) - 1.0)
    delta, claimed_delta = min(1.0, math.exp(-order * epsilon / 2.0)), math.exp(-bound * epsilon / 2.0)
    rate, switch = moments.largest_rate, switch_point(r, rho, rho_hat)
    gap_free = rate <= 1.0 / (math.e * sigma**2)
    return Theorem3(
        moments.rounds, rate, r0, r, rho, rho_hat, c1, switch, c0, bound, order, delta, claimed_delta, gap_free
    )


def theorem_3_noise(
    sizes: Sizes, num_examples: int, epsilon: float, delta: float, *, r0: float | None = None, as_printed: bool = False
) -> float:
    """Return the smallest sigma of Theorem 3 for (epsilon, delta), within 1e-12.

    r depends on sigma, so this searches for Lam >= ceil(2 ln(1/delta) / epsilon) + 1, or Lam >= 2 ln(1/delta) / epsilon
    as printed. Bisection finds it, because Lam grows with sigma: R falls, so sigma R, and with it c0^-2, grows at most
    linearly.

    Args:
        sizes: s_i, each in [0, N).
        num_examples: N.
        epsilon: > 0.
        delta: in (0, 1).
        r0: as in `theorem_3`; by default the smallest one for each sigma.
        as_printed: without lambda being an integer.

    Raises:
        ConditionError: the batches are too large for any sigma that the theorem covers.
    """
    checks.positive(epsilon=epsilon)
    checks.open_unit(delta=delta)
    moments = size_moments(sizes, num_examples)
    orders = -2.0 * math.log(delta) / epsilon
    wanted = orders if as_printed else math.ceil(orders * (1.0 - 1e-12)) + 1.0

    def enough(sigma: float) -> bool:
        try:
            return _theorem_3(moments, epsilon, sigma, r0).bound >= wanted * (1.0 - 1e-12)
        except (ConditionError, OverflowError):  # so little noise that u0 or u1 is not below 1
            return False

    low = math.sqrt(wanted)  # Lam is at most sigma^2
    high = (1.0 / math.e if r0 is None else r0) / moments.largest_rate
    if high < low or not enough(high):
        raise ConditionError(
            f"condition r0 = sigma max s_i/N <= 1/e of Theorem 3: expected sigma above "
            f"{checks.rounded_up(max(low, high))}, which a largest rate of "
            f"{moments.largest_rate:.4g} does not allow; take smaller batches or a larger epsilon"
        )
    if enough(low):
        return low
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _checked_r(sigma: float, r0: float, theorem: str) -> float:
    """Return r = r0 R(r0, sigma) under the conditions that Theorems 3 and 6 share."""
    if r0 > (1.0 + _CLOSE) / math.e:
        raise ConditionError(
            f"condition r0 <= 1/e of {theorem}: r0 is {r0:.6g}; take smaller batches, or less noise, so that "
            "sigma max s_i/N <= 1/e"
        )
    return r0 * third_order_factor(sigma, r0)


def budget_delta(budget: float, epsilon: float, *, as_printed: bool = False) -> float:
    """Return the delta of a budget at epsilon, at most 1.

    The budget is sqrt(2 (epsilon + ln(1/delta)) / epsilon). The paper's sqrt(2 ln(1/delta) / epsilon) (`as_printed`)
    ignores that lambda is an integer.
    """
    return min(1.0, math.exp(-(budget**2 - (0.0 if as_printed else 2.0)) * epsilon / 2.0))


def least_r(p: float, alpha: float = 0.0, gamma: float = 0.0) -> float:
    """Return equation (26), the r of r0(sigma), for alpha = r0 / sigma.

    ((sqrt(3) - 1) / 2) (3p + 1) / ((p + 1)(2p + 1)) (1 - alpha)^2 / (1 + gamma)^(2p) is also the smallest r for which
    case 2 of Theorem 6 is proved.
    """
    shape = (3.0 * p + 1.0) / ((p + 1.0) * (2.0 * p + 1.0))
    return float(_HALF * shape * (1.0 - alpha) ** 2 / (1.0 + gamma) ** (2.0 * p))


def r0_iterates(sigma: float, p: float, *, gamma: float = 0.0) -> tuple[float, ...]:
    """Return 0 and all iterates of r0 up to convergence, appendix D.3.1.

    r0_new = least_r(p, r0_old / sigma, gamma) / R(r0_old, sigma). The paper prints 0.0110, 0.0202 and 0.0247 for
    sigma = 3, 5, 8 and p = 1; the limits are 0.01099, 0.02033 and 0.02480.

    Raises:
        ConditionError: sigma < 1.137, where u1 < 1 is not shown.
    """
    checks.at_least(0.0, p=p)
    if not sigma >= LEAST_NOISE:
        raise ConditionError(
            f"condition sigma >= {LEAST_NOISE} of r0(sigma), Theorem 4: sigma is {sigma:g}; take more noise or give r0"
        )
    iterates = [0.0]
    for _ in range(_MOST_ITERATIONS):
        iterates.append(least_r(p, iterates[-1] / sigma, gamma) / third_order_factor(sigma, iterates[-1]))
        if abs(iterates[-1] - iterates[-2]) <= 1e-15 * iterates[-1]:
            break
    return tuple(iterates)


def r0_of(sigma: float, p: float, *, gamma: float = 0.0) -> float:
    """Return r0(sigma), the limit of `r0_iterates`."""
    return r0_iterates(sigma, p, gamma=gamma)[-1]


def coefficient_b(p: float) -> float:
    """Return B(p) of Theorem 4, for r0 = r0(sigma).

    B(p) = ( ((sqrt(3) - 1) / 2) (2p + 1) )^((1+p)/(1+2p)) / (1 + p). Theorem 6 prints it without the factor 2p + 1.
    """
    return float((_HALF * (2.0 * p + 1.0)) ** _power(p) / (1.0 + p))


def general_a(p: float, r0: float, sigma: float, gamma: float = 0.0) -> float:
    """Return A(p, r0, sigma) of Theorem 6, equation (27).

    A = (p+1)^(-p/(1+2p)) ( r (2p+1)^2 (1+gamma)^(3(1+2p)) / ((3p+1) (1-alpha)^2) )^((1+p)/(1+2p)), alpha = r0 / sigma.
    """
    r, alpha = _checked_r(sigma, r0, "Theorem 6"), r0 / sigma
    inner = r * (2.0 * p + 1.0) ** 2 * (1.0 + gamma) ** (3.0 * (1.0 + 2.0 * p))
    return float((p + 1.0) ** (-p / (1.0 + 2.0 * p)) * (inner / ((3.0 * p + 1.0) * (1.0 - alpha) ** 2)) ** _power(p))


def general_b(p: float, r0: float, sigma: float, gamma: float = 0.0) -> float:
    """Return B(p, r0, sigma) of Theorem 6, equation (28).

    B = A (1+gamma)^(-(1+p)(3+4p)/(1+2p)) ( 2 / (Y^2 - 1) )^((1+p)/(1+2p)),
    Y = 1 + 2 r (p+1)(2p+1)(1+gamma)^(2p) / ((3p+1)(1-alpha)^2). For r0 -> 0 it tends to
    (p + 1/2)^((1+p)/(1+2p)) / (p+1); at r0 = r0(sigma) it is B(p).
    """
    r, alpha = _checked_r(sigma, r0, "Theorem 6"), r0 / sigma
    y = 2.0 * r * (p + 1.0) * (2.0 * p + 1.0) * (1.0 + gamma) ** (2.0 * p) / ((3.0 * p + 1.0) * (1.0 - alpha) ** 2)
    a = general_a(p, r0, sigma, gamma) * (1.0 + gamma) ** (-(3.0 + 4.0 * p) * _power(p))
    return float(a * (2.0 / (y * (y + 2.0))) ** _power(p))


def noise_factor(case: int, p: float, r0: float, sigma: float, gamma: float, k_over_k_plus: float = 1.0) -> float:
    """Return the factor in sigma >= factor sqrt(2 ln(1/delta) / epsilon).

    Case 1: (1+gamma)^(2+3p) / sqrt(1-alpha). Case 2, equation (18):
    (K/K^+)^((1+2p)/(2+2p)) 2 / (1-alpha)^(3/2) sqrt( r (p+1)(2p+1) / (3p+1) ) (1+gamma)^(2(1+2p)), which at r0(sigma)
    and gamma = 0 is 1.21 (K/K^+)^((1+2p)/(2+2p)) times that of case 1.

    Raises:
        ConditionError: in case 2, r is below the bound (26).
    """
    checks.whole(1, 2, case=case)
    alpha = r0 / sigma
    if case == 1:
        return float((1.0 + gamma) ** (2.0 + 3.0 * p) / math.sqrt(1.0 - alpha))
    r, least = _checked_r(sigma, r0, "Theorem 6"), least_r(p, alpha, gamma)
    if r < least * (1.0 - _CLOSE):
        raise ConditionError(
            f"condition (26) of case 2 of Theorem 6: r is {r:.6g}, expected at least "
            f"{checks.rounded_up(least, 6)}; take a larger r0"
        )
    root = math.sqrt(r * (p + 1.0) * (2.0 * p + 1.0) / (3.0 * p + 1.0))
    growth = k_over_k_plus ** ((1.0 + 2.0 * p) / (2.0 + 2.0 * p))
    return float(growth * 2.0 / (1.0 - alpha) ** 1.5 * root * (1.0 + gamma) ** (2.0 * (1.0 + 2.0 * p)))


def rounds_bound(p: float, q: float, epochs: float) -> float:
    """Return the paper's T = ((p+1) (K/N) / q)^(1/(1+p)), which ignores m."""
    return float(((p + 1.0) * epochs / q) ** (1.0 / (1.0 + p)))


def rounds_of(p: float, q: float, m: float, epochs: float) -> float:
    """Return T with the integral of q x^p from m to T + m equal to K/N.

    T = ( (p+1) K/(N q) + m^(p+1) )^(1/(1+p)) - m. Sums of q (i + m)^p over i = 0, ..., T - 1 are at most this
    integral, so T is a little below the number of rounds, and m/T a little above that of the rounds.
    """
    return float(((p + 1.0) * epochs / q + m ** (p + 1.0)) ** (1.0 / (1.0 + p)) - m)


def _power(p: float) -> float:
    return (1.0 + p) / (1.0 + 2.0 * p)


@dataclass(frozen=True)
class Thresholds:
    """Numbers of gradients K that separate the cases of Theorems 4 and 6.

    K* = D q^(-1/p) N implies q (T + m)^p <= r0 / sigma for all K up to it. For p = 0 that condition does not depend
    on K: K* is infinite if it holds, else 0.
    """

    r0: float  # constant of the theorem
    r: float  # r0 R(r0, sigma)
    b: float  # B, of K^-
    a: float  # A, of K^+
    d: float  # D, of K*; NaN for p = 0
    k_minus: float  # K^- = B epsilon^((1+p)/(1+2p)) q^(-1/(1+2p)) N; case 1 is K <= K^-
    k_plus: float  # K^+, the same with A; case 2 is K >= K^+
    k_star: float


@dataclass(frozen=True)
class GrowthClaim:
    """The claim of Theorem 4 or 6 for rates q (i + m)^p."""

    q: float  # how fast rates grow
    m: float  # shift
    rounds: float  # T, of the sizes (corrected) or its upper bound (worked, printed)
    gamma: float  # m/T
    largest_rate: float  # q (T + m)^p
    thresholds: Thresholds  # K^-, K^+, K* at this gamma
    case: int  # 1, 2, or 0 if K^- < K < K^+, which neither case covers
    factor: float  # sigma must be this many times the budget; NaN in case 0
    budget: float  # sigma / factor; NaN in case 0
    delta: float  # that of the budget with an integer lambda, exp(-(budget^2 - 2) epsilon / 2), at most 1
    claimed_delta: float  # as printed, exp(-budget^2 epsilon / 2)


@dataclass(frozen=True)
class GrowthSetting:
    """The inputs of Theorems 4 and 6.

    Args:
        p: power >= 0 of the sizes, which grow like i^p; 0 keeps them constant.
        num_examples: N, examples of the client.
        epsilon: target epsilon > 0.
        sigma: noise multiplier > 0.
        epochs: K/N > 0, gradients per example.
        r0: in (0, 1/e]; by default r0(sigma) (Theorem 4), for which the worked and printed forms take B(p).
        form: what the proof supports (corrected), as in the paper's examples (worked), or Theorem 4's text (printed).
    """

    p: float
    num_examples: int
    epsilon: float
    sigma: float
    epochs: float
    r0: float | None = None
    form: Form = "corrected"

    def __post_init__(self) -> None:
        checks.at_least(0.0, p=self.p)
        checks.positive(epsilon=self.epsilon, sigma=self.sigma, epochs=self.epochs)
        if self.r0 is not None:
            checks.positive(r0=self.r0)
        checks.whole(2, num_examples=self.num_examples)
        checks.one_of(get_args(Form), form=self.form)

    @property
    def gradients(self) -> float:
        """K."""
        return self.epochs * self.num_examples

    @property
    def chosen_r0(self) -> float:
        """The given r0, or r0(sigma)."""
        return r0_of(self.sigma, self.p) if self.r0 is None else self.r0

    def rounds(self, q: float, m: float) -> float:
        """Return T of this form, a real number."""
        if self.form == "corrected":
            return rounds_of(self.p, q, m, self.epochs)
        return rounds_bound(self.p, q, self.epochs)

    def thresholds(self, q: float, gamma: float = 0.0) -> Thresholds:
        """Return K^-, K^+ and K* with constants, for q > 0 and gamma >= m/T.

        D = (r0/sigma)^((1+p)/p) / (p+1) (1+gamma)^e with e = -(1+p) corrected, 0 worked, 1+p printed.

        Raises:
            ConditionError: r0 > 1/e, u0 or u1 is not below 1, or sigma is too small for r0(sigma).
        """
        p, sigma, r0 = self.p, self.sigma, self.chosen_r0
        r = _checked_r(sigma, r0, "Theorem 6")
        if self.r0 is None and self.form != "corrected":
            b = coefficient_b(p)
            a = b * (1.0 + gamma) ** ((3.0 + 4.0 * p) * _power(p))
        else:
            b, a = general_b(p, r0, sigma, gamma), general_a(p, r0, sigma, gamma)
        scale = self.epsilon ** _power(p) * q ** (-1.0 / (1.0 + 2.0 * p)) * self.num_examples
        if p == 0.0:
            d, k_star = math.nan, math.inf if q <= r0 / sigma * (1.0 + _CLOSE) else 0.0
        else:
            exponent = {"corrected": -1.0, "worked": 0.0, "printed": 1.0}[self.form] * (1.0 + p)
            d = (r0 / sigma) ** ((1.0 + p) / p) / (p + 1.0) * (1.0 + gamma) ** exponent
            k_star = d * q ** (-1.0 / p) * self.num_examples
        return Thresholds(r0, r, b, a, d, b * scale, a * scale, k_star)

    def claim(self, q: float, m: float, *, rounds: float | None = None, case: int | None = None) -> GrowthClaim:
        """Return the claim for rates q (i + m)^p; `selection` lists its conditions.

        By default T is that of the form, and the case, 1 or 2, the one that applies to K.
        """
        rounds = self.rounds(q, m) if rounds is None else rounds
        gamma = m / rounds
        limits = self.thresholds(q, gamma)
        if case is None:
            case = 2 if self.gradients >= limits.k_plus * (1.0 - _CLOSE) else 0
            case = 1 if self.gradients <= limits.k_minus * (1.0 + _CLOSE) else case
        factor = budget = delta = claimed = math.nan
        if case != 0:
            factor = noise_factor(case, self.p, limits.r0, self.sigma, gamma, self.gradients / limits.k_plus)
            budget = self.sigma / factor
            delta, claimed = budget_delta(budget, self.epsilon), budget_delta(budget, self.epsilon, as_printed=True)
        largest = q * (rounds + m) ** self.p
        return GrowthClaim(q, m, rounds, gamma, largest, limits, case, factor, budget, delta, claimed)
