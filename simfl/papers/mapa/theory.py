"""AUDP and MAPA: the paper's stages, steps and bounds, and the noise's value.

Li, Yang, Ren and Zhao 2019, "Asynchronous federated learning with differential privacy for edge intelligence",
https://arxiv.org/abs/1912.07902. Names: K edge servers, batches of b examples, mean gradients of sensitivity dS (one
example of the batch replaced), noise of density proportional to exp(-epsilon ||eta|| / dS) on the mean, staleness of at
most tau, L-Lipschitz gradients of variance sigma² for one example. MAPA runs in stages: with dS falls the noise.

Before you use a number from here:

- The paper normalizes its noise as in one dimension and counts with E||eta||² = 2 (dS/epsilon)² everywhere. Noise of
  that density has d (d + 1) (dS/epsilon)². `second_moment` chooses: "paper", with which the paper's numbers come out,
  or "exact". With the exact one P >= 8 d (d + 1) / ((tau + 1) b² epsilon² theta²) whatever dS, and for models of
  thousands of parameters the recipe asks for steps and run lengths of no use.
- The published code draws a norm ~ Exponential(dS/epsilon), which has the paper's second moment and is private for no
  epsilon: see `radius_only_delta`.
- Algorithm 1 clips the averaged gradient to b dS/2, which leaves a sensitivity of up to b dS: its epsilon is b times
  the claimed one (`printed_epsilon`). Clip each example's gradient to b dS/2 instead.
- Theorem 3 bounds the sensitivity with a certain probability over the data, by Chebyshev: that is not differential
  privacy. Clipping makes dS a bound for all data, and then delta = 0.
- The claim is epsilon for each iteration, with respect to the examples in its batch. `total` says what a run costs.
- Three rules for the next dS are printed, see `NextSensitivity`. Table 2's makes dS grow if its Delta_s is Delta_b; if
  it is the bound 2 Delta_b/(P (tau + 1)) on the squared gradient, it is the text's.
- Remark 2's condition on (11) must read gamma_t - L gamma_t² - L (tau+1)² gamma_t² >= 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import scipy

from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.pure import advanced_epsilon, amplified_epsilon, composed_epsilon

SecondMoment = Literal["paper", "exact"]
"""E||eta||²: 2 (dS/epsilon)² as in one dimension, or d (d + 1) (dS/epsilon)²."""

NextSensitivity = Literal["algorithm1", "text", "table2"]
"""The next stage's dS: theta dS (Algorithm 1); 2 sqrt(2 D/(P (tau+1)))/b (Section 6.2), which is theta dS where P > 1;
2 sqrt(D)/b, with P of the first dS in all stages (Table 2). D is Delta_b."""


@dataclass(frozen=True)
class AsynchronousProblem:
    """The constants of the recipes and bounds.

    Attributes:
        sampling_std: sigma, standard deviation of one example's gradient: E||grad F(x; xi) - grad f(x)||² <= sigma².
        batch_size: b, examples per mini-batch.
        smoothness: L, Lipschitz constant of gradients.
        staleness: tau, the largest. The paper sets K in its simulations, where it is K - 1.
        initial_gap: f(x_1) - f*; of use for the length of stages and for Theorem 4.
        dimension: d, parameters of the model.
    """

    sampling_std: float
    batch_size: int
    smoothness: float
    staleness: float
    initial_gap: float = 1.0
    dimension: int = 1

    def __post_init__(self) -> None:
        checks.whole(1, batch_size=self.batch_size, dimension=self.dimension)
        checks.at_least(0.0, sampling_std=self.sampling_std, staleness=self.staleness)
        checks.positive(smoothness=self.smoothness, initial_gap=self.initial_gap)

    def variance(self, sensitivity: float, epsilon: float, second_moment: SecondMoment = "paper") -> float:
        """Return Delta_b = sigma²/b + E||eta||², of a noisy mean gradient.

        `sensitivity` is dS > 0 of the mean, `epsilon` is epsilon_0, the smallest of all clients.
        """
        noise = noise_second_moment(sensitivity, epsilon, self.dimension, second_moment)
        return self.sampling_std**2 / self.batch_size + noise

    @property
    def largest_step_size(self) -> float:
        """1/(2 L (tau + 1)), condition (13) of Theorem 4."""
        return 1.0 / (2.0 * self.smoothness * (self.staleness + 1.0))


def noise_second_moment(
    sensitivity: float, epsilon: float, dimension: int, second_moment: SecondMoment = "exact"
) -> float:
    """Return E||eta||² of noise of scale dS/epsilon in d = `dimension` dimensions.

    It is d (d + 1) (dS/epsilon)² ("exact"), or 2 (dS/epsilon)² ("paper"), that of the radius-only sampler.
    """
    checks.positive(sensitivity=sensitivity, epsilon=epsilon)
    checks.whole(1, dimension=dimension)
    checks.one_of(get_args(SecondMoment), second_moment=second_moment)
    return (2.0 if second_moment == "paper" else dimension * (dimension + 1.0)) * (sensitivity / epsilon) ** 2


def radius_only_delta(dimension: int, nominal_epsilon: float, epsilon: float | None = None) -> float:
    """Return the smallest delta of a release with the published sampler.

    For neighbors dS apart and norms ~ Exponential(dS / nominal_epsilon). In units of that scale the data sets are s =
    nominal_epsilon apart, the densities are r^{-(d-1)} e^{-r} and r'^{-(d-1)} e^{-r'}, with r and r' the distances to
    the two true values, and the privacy loss is (d-1) ln(r'/r) + r' - r. It exceeds epsilon where r' > n W((r/n)
    e^{(r+epsilon)/n}), with n = d - 1 and W of Lambert. The direction is uniform: the probabilities of that set under
    both are integrals over one radius, of the distribution of one coordinate of a uniform direction (an incomplete beta
    function).

    Args:
        dimension: d >= 1. In one dimension it is Laplace noise, and delta is 0 at the nominal epsilon.
        nominal_epsilon: of the scale, from 1e-9 to 300.
        epsilon: in question, from 0 to 300; the nominal one by default.

    Returns:
        delta, to about 1e-8.
    """
    checks.whole(1, dimension=dimension)
    epsilon = nominal_epsilon if epsilon is None else epsilon
    for name, value, least in (("nominal_epsilon", nominal_epsilon, 1e-9), ("epsilon", epsilon, 0.0)):
        if not least <= value <= 300.0:  # beyond, e^epsilon leaves no digits
            raise ValueError(f"{name}: expected a number from {least:g} to 300, found {value:g}")
    if dimension == 1:
        return max(0.0, -math.expm1(0.5 * (epsilon - nominal_epsilon)))
    n, shift = dimension - 1, nominal_epsilon

    def cosine(r: float, gain: float) -> float:
        """Return the cosine of the angle at which the loss is epsilon, from distance r."""
        other = n * float(scipy.special.wrightomega(math.log(r / n) + (r + gain) / n)) if r > 0.0 else 0.0
        return min(1.0, max(-1.0, (r - other) * (r + other) / (2.0 * r * shift) + 0.5 * shift / r))

    def below(c: float) -> float:
        return float(scipy.special.betainc(0.5 * n, 0.5 * n, 0.5 * (1.0 + c)))

    here = _integral(lambda r: math.exp(-r) * below(cosine(r, epsilon)), shift)
    there = _integral(lambda r: math.exp(epsilon - r) * below(-cosine(r, -epsilon)), shift)
    return min(1.0, max(0.0, here - there))


def _integral(f: Callable[[float], float], scale: float) -> float:
    """Integrate over radii a function that falls as e^-r, steep near `scale`."""
    edges = sorted(
        {0.0, *(scale * factor for factor in (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)), 1.0, 10.0, 40.0, 80.0 + scale}
    )
    pieces = (
        scipy.integrate.quad(f, low, high, limit=200, epsabs=1e-12, epsrel=1e-10)[0]
        for low, high in itertools.pairwise(edges)
    )
    return float(sum(pieces))


def initial_sensitivity(sampling_std: float, batch_size: int, failure_probability: float) -> float:
    """Return the smallest dS of Theorem 3, by equation (12).

    (1 - 4 sigma²/(b² dS²))² >= 1 - delta.

    dS = 2 sigma / (b sqrt(1 - sqrt(1 - delta))). The gradients of two random examples are then within b dS of each
    other with probability 1 - delta, which promises nothing to the others: clip them.

    Args:
        sampling_std: sigma > 0.
        batch_size: b.
        failure_probability: delta of Theorem 3 in (0, 1), for the first dS.
    """
    checks.positive(sampling_std=sampling_std)
    checks.whole(1, batch_size=batch_size)
    checks.open_unit(failure_probability=failure_probability)
    shortfall = -math.expm1(0.5 * math.log1p(-failure_probability))  # 1 - sqrt(1 - delta), all digits kept
    return 2.0 * sampling_std / (batch_size * math.sqrt(shortfall))


def failure_probability(sensitivity: float, sampling_std: float, batch_size: int) -> float:
    """Return the smallest delta of (12) for dS; 1 below 2 sigma/b.

    It is 1 - (1 - 4 sigma²/(b² dS²))².
    """
    checks.positive(sensitivity=sensitivity, sampling_std=sampling_std)
    checks.whole(1, batch_size=batch_size)
    tail = min(1.0, (2.0 * sampling_std / (batch_size * sensitivity)) ** 2)
    return tail * (2.0 - tail)


def clipping_norm(sensitivity: float, batch_size: int) -> float:
    """Return b dS/2, the norm at which a mean over b has sensitivity dS."""
    return 0.5 * batch_size * sensitivity


def audp_sensitivity(gradient_bound: float, batch_size: int) -> float:
    """Return dS = 2 G/b of Theorem 1, valid if gradients are clipped to G."""
    checks.positive(gradient_bound=gradient_bound)
    checks.whole(1, batch_size=batch_size)
    return 2.0 * gradient_bound / batch_size


def printed_epsilon(epsilon: float, batch_size: int) -> float:
    """Return the epsilon of a release whose mean is clipped to b dS/2: b epsilon.

    Line 5 of Algorithm 1 clips the mean over the batch. One example that is replaced can turn it round, by b dS, and
    noise of the density exp(-epsilon ||x||/dS) then has the epsilon b dS/(dS/epsilon).
    """
    checks.positive(epsilon=epsilon)
    checks.whole(1, batch_size=batch_size)
    return batch_size * epsilon


@dataclass(frozen=True)
class Stage:
    """One stage of MAPA."""

    number: int  # from 1
    first_step: int  # t at which it begins, from 1
    sensitivity: float  # dS, of the mean
    clipping_norm: float  # b dS/2, for each example's gradient
    variance: float  # Delta_b
    coefficient: float  # P of (16), at least 1
    step_size: float  # gamma of (13), for mean gradients
    steps: int  # T_s of (15), updates of the model in this stage
    gradient_bound: float  # sqrt(2 Delta_b/(P (tau+1))), of the gradient's norm after these steps, by Theorem 4
    text_sensitivity: float  # 2 gradient_bound/b, the next dS of Section 6.2; theta dS if P > 1, else smaller
    table2_sensitivity: float  # 2 sqrt(Delta_b)/b, the next dS as Table 2 prints it


def coefficient(problem: AsynchronousProblem, variance: float, sensitivity: float, theta: float) -> float:
    """Return P = max{8 Delta_b / ((tau+1) b² dS² theta²), 1}, (16) and Table 2.

    `variance` is Delta_b, `sensitivity` the current dS (the first one in Table 2), and `theta` in (0, 1) the factor
    from this dS to the next.
    """
    checks.positive(sensitivity=sensitivity)
    checks.open_unit(theta=theta)
    root = math.sqrt(8.0 * variance / (problem.staleness + 1.0)) / (problem.batch_size * sensitivity * theta)
    return max(root * root, 1.0)


def stage_steps(problem: AsynchronousProblem, variance: float, p: float) -> int:
    """Return T_s = ceil(4 P² L (tau+1)² (f(x_1) - f*) / Delta_b), equation (15)."""
    checks.positive(variance=variance)
    length = 4.0 * p * p * problem.smoothness * (problem.staleness + 1.0) ** 2 * problem.initial_gap / variance
    if not math.isfinite(length):
        raise ConditionError(f"stage of MAPA: (15) asks for T_s = {length:g} updates; expected a finite number")
    return max(1, math.ceil(length))


def stages(
    problem: AsynchronousProblem,
    epsilon: float,
    *,
    initial: float,
    theta: float = 0.5,
    steps: int | None = None,
    count: int | None = None,
    second_moment: SecondMoment = "paper",
    rule: NextSensitivity = "algorithm1",
) -> tuple[Stage, ...]:
    """Return the stages of Algorithm 1, for `steps` updates or `count` stages.

    Args:
        epsilon: epsilon_0, the smallest of all clients, of one release.
        initial: dS of the first stage, see `initial_sensitivity`; b dS/2 is the first clipping norm.
        theta: in (0, 1), by which dS falls from stage to stage.
        steps: T, updates of the model in all. The last stage is listed in full.
        second_moment: E||eta||² of the noise: 2 (dS/epsilon)² (paper), or d (d + 1) (dS/epsilon)² (exact).
        rule: for the next dS.
    """
    if (steps is None) == (count is None):
        raise ValueError("stages: expected either steps or count")
    checks.whole(1, **{name: value for name, value in (("steps", steps), ("count", count)) if value is not None})
    checks.one_of(get_args(NextSensitivity), rule=rule)
    planned: list[Stage] = []
    sensitivity, first = initial, 1
    while (len(planned) < count) if count is not None else (first <= (steps or 0)):
        variance = problem.variance(sensitivity, epsilon, second_moment)
        p = coefficient(problem, variance, initial if rule == "table2" else sensitivity, theta)
        gradient = math.sqrt(2.0 * variance / (p * (problem.staleness + 1.0)))
        batch, following = problem.batch_size, {"algorithm1": theta * sensitivity}
        following |= {"text": 2.0 * gradient / batch, "table2": 2.0 * math.sqrt(variance) / batch}
        stage = Stage(
            len(planned) + 1, first, sensitivity, clipping_norm(sensitivity, batch), variance, coefficient=p,
            step_size=problem.largest_step_size / p, steps=stage_steps(problem, variance, p), gradient_bound=gradient,
            text_sensitivity=following["text"], table2_sensitivity=following["table2"],
        )  # fmt: skip
        planned.append(stage)
        sensitivity, first = following[rule], first + stage.steps
    return tuple(planned)


def audp_step_size(
    problem: AsynchronousProblem, variance: float, step: int, *, without_logarithm: bool = False
) -> float:
    """Return AUDP's gamma_t by equation (10).

    1/gamma_t = L (tau+1) + sqrt(Delta_b + 1) sqrt(t).

    `variance` is Delta_b, with the noise of the client with the smallest epsilon; `step` is t >= 1. With
    `without_logarithm` it is equation (11), L ((tau+1)² + 1) in the first term, whose bound has no ln T.
    """
    checks.at_least(0.0, variance=variance)
    checks.whole(1, step=step)
    delay = (problem.staleness + 1.0) ** 2 + 1.0 if without_logarithm else problem.staleness + 1.0
    return 1.0 / (problem.smoothness * delay + math.sqrt(variance + 1.0) * math.sqrt(step))


@dataclass(frozen=True)
class AudpBound:
    """Theorem 2's bounds of E f(mean of x_1..x_T) - f*, for convex f."""

    delay: float  # R G tau/T
    drift: float  # L (Delta_b + G²)/(2 (Delta_b + 1)) (tau+1)² (1 + ln T)/T; its proof needs the 1
    rest: float  # ((4 + R²) sqrt(Delta_b + 1) + R²/gamma_1) / (2 sqrt(T))
    bound: float  # the sum of these three
    claimed: float  # as printed, with ln T for 1 + ln T


def theorem2(
    problem: AsynchronousProblem, variance: float, *, radius: float, gradient_bound: float, steps: int
) -> AudpBound:
    """Return the bound of Theorem 2.

    `variance` is Delta_b.

    Args:
        radius: R, with ||x_t - x*|| <= R for all t. AUDP does not project, so this is an assumption.
        gradient_bound: G, with ||grad f|| <= G: to which gradients are clipped.
        steps: T, updates of the model in all.
    """
    checks.at_least(0.0, variance=variance)
    checks.positive(radius=radius, gradient_bound=gradient_bound)
    checks.whole(1, steps=steps)
    stale = problem.staleness + 1.0
    delay = radius * gradient_bound * problem.staleness / steps
    growth = problem.smoothness * (variance + gradient_bound**2) / (2.0 * (variance + 1.0)) * stale**2 / steps
    first = audp_step_size(problem, variance, 1)
    rest = ((4.0 + radius**2) * math.sqrt(variance + 1.0) + radius**2 / first) / (2.0 * math.sqrt(steps))
    drift = growth * (1.0 + math.log(steps))
    return AudpBound(delay, drift, rest, delay + drift + rest, delay + growth * math.log(steps) + rest)


@dataclass(frozen=True)
class RunCost:
    """The cost of all releases of one client, by replacement, all visible.

    It holds for noise of the right law and gradients clipped one by one: each release is then epsilon-DP. Amplified
    numbers need batches drawn at random for each release, without replacement, and hidden from the adversary.
    """

    epsilon: float  # of one release; the paper's claim
    releases: int  # T_k
    sampling_rate: float  # q = b/n_k
    delta: float  # of the advanced and certified (epsilon, delta) below
    amplified: float  # of one release, with respect to all of the client's data: ln(1 + q (e^epsilon - 1))
    basic: float  # T_k epsilon, delta = 0: the total that the paper mentions
    amplified_basic: float  # T_k times `amplified`, delta = 0
    advanced: float  # advanced composition without amplification
    amplified_advanced: float  # advanced composition with it
    certified: float  # the smallest epsilon that follows from each release being epsilon-DP, without amplification
    amplified_certified: float  # the same with amplification


def total(epsilon: float, releases: int, *, sampling_rate: float = 1.0, delta: float = 1e-5) -> RunCost:
    """Return the cost of T_k releases of one client together.

    Args:
        epsilon: > 0, of one release with respect to the examples in its batch.
        releases: T_k >= 0; T/K of T updates of a cyclic run.
        sampling_rate: q = b/n_k in (0, 1].
        delta: in (0, 1), for the totals of a run.
    """
    checks.positive(epsilon=epsilon)
    less = amplified_epsilon(epsilon, sampling_rate)
    advanced, certified = ([of(one, releases, delta) for one in (epsilon, less)]
                           for of in (advanced_epsilon, composed_epsilon))  # fmt: skip
    return RunCost(
        epsilon, releases, sampling_rate, delta, less, releases * epsilon, releases * less, *advanced, *certified
    )
