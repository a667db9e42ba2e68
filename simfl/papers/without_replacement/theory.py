"""Decentralized one-pass SGD: the paper's noise and bounds, and epsilon.

Jin, He and Dai 2018, "Decentralized Differentially Private Without-Replacement Stochastic Gradient Descent",
https://arxiv.org/abs/1809.02727; theorems are numbered as in the version that has Algorithm 2. Names: M nodes, n
examples in all, batches of b, T steps, losses that are L-Lipschitz, gamma-strongly convex and mu-smooth, gradients of
norm at most B in the bounds; N_t is the noise on the mean gradient of a batch, which the step size multiplies:
w <- w - eta_t (g + N_t).

Neighboring data sets differ in one example that is replaced, which moves a mean gradient by 2L/b. Every example is in
one batch only, so that all releases together cost what one costs (parallel composition) - as long as no other node
holds the example (`OnePassNoise.joint`), no second model is trained on it (one against all), and nothing else that is
visible depends on it. The policy of Algorithm 2 does: a Q-network fed with private losses decides who steps when. Only
a policy that does not look at the data is covered here.

Calibration "classic" is the paper's, sqrt(2 ln(1.25/delta)) sensitivity / epsilon, stated for epsilon < 1;
"analytic" is exact for every epsilon (see `simfl.privacy.gaussian`).

The paper forgets the dimension d in its bounds (E||N||² = d std²); `as_printed` prints them its way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from simfl.accounts.plans import classic_std
from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.gaussian import analytic_std, gaussian_epsilon

Calibration = Literal["classic", "analytic"]

#: The constant 2 + 12 sqrt(2) of the bounds, from transductive Rademacher complexity.
SAMPLING_CONSTANT = 2.0 + 12.0 * math.sqrt(2.0)


@dataclass(frozen=True)
class LossConstants:
    """The constants L, mu and gamma of a loss, which determine the noise."""

    lipschitz: float
    smoothness: float
    strong_convexity: float


def logistic_constants(l2: float = 0.0, radius: float | None = None) -> LossConstants:
    """Return the constants of ln(1 + exp(-y w.x)) + lambda/2 ||w||² for ||x|| <= 1.

    lambda = 0: L = mu = 1, gamma = 0; else L = 1 + lambda R, mu = 1 + lambda, gamma = lambda. The paper misprints
    lambda <= 0. Its algorithms never project onto ||w|| <= R, which L needs: clip gradients to L instead.

    Args:
        l2: lambda >= 0 of the logistic loss.
        radius: R > 0, of the ball of models; by default 1/lambda as in the paper, so that L = 2.
    """
    checks.at_least(0.0, l2=l2)
    if radius is not None:
        checks.positive(radius=radius)
    if l2 == 0.0:
        return LossConstants(1.0, 1.0, 0.0)
    return LossConstants(1.0 + l2 * radius if radius is not None else 2.0, 1.0 + l2, l2)


@dataclass(frozen=True)
class OnePassNoise:
    """The noise of one release, and the epsilon of all releases.

    Attributes:
        epsilon: claimed for the whole run.
        delta: claimed for the whole run.
        calibration: of the noise.
        step_epsilon: epsilon of one release, for which the noise is made.
        step_delta: delta of one release.
        visits: how often an example may be used.
        sensitivity: 2L/b, of the mean gradient, one example being replaced.
        noise_std: std(N_t), of the noise on the mean gradient, per coordinate.
        noise_multiplier: z = b noise_std / L, noise on the sum over the clipping norm L; what a scenario says.
        proven: whether the calibration's theorem covers step_epsilon.
        exact_epsilon: of the whole run at `delta`, by the exact curve of Gaussian noise; certified.
        claim_holds: whether exact_epsilon is at most epsilon.
    """

    epsilon: float
    delta: float
    calibration: Calibration
    step_epsilon: float
    step_delta: float
    visits: int
    sensitivity: float
    noise_std: float
    noise_multiplier: float
    proven: bool
    exact_epsilon: float
    claim_holds: bool

    def scaled(self, step_size: float) -> float:
        """Return the std of eta_t N_t, the paper's noise in Theorems 2 and 5."""
        checks.positive(step_size=step_size)
        return step_size * self.noise_std

    def joint(self, *, models: int = 1, copies: int = 1) -> float:
        """Return the exact epsilon of an example used more often than counted.

        One Gaussian release with sensitivity sqrt(models copies visits) times that of one.

        Args:
            models: c, trained on the same examples and all released (one against all: one for each class).
            copies: nodes that hold the example; parallel composition assumes one.
        """
        checks.whole(1, models=models, copies=copies)
        return gaussian_epsilon(
            self.delta, math.sqrt(models * copies * self.visits) * self.sensitivity / self.noise_std
        )


def algorithm1_noise(
    epsilon: float, delta: float, *, batch_size: int, lipschitz: float = 1.0, calibration: Calibration = "classic"
) -> OnePassNoise:
    """Return the noise of Algorithm 1, every batch of every node used once.

    Lemma 4: one step moves the model by at most 2 eta_t L/b, so that std(N_t) = c 2L / (b epsilon) with
    c = sqrt(2 ln(1.25/delta)), for every step size. Theorem 2: the whole run is (epsilon, delta)-private.

    Each example's gradient is clipped to L, `lipschitz`, if the loss does not guarantee that bound. The other arguments
    are those of `dp_sgd_noise`.
    """
    return _noise(epsilon, delta, 1, batch_size, lipschitz, calibration)


def dp_sgd_noise(
    epsilon: float,
    delta: float,
    *,
    batch_size: int,
    visits: int = 5,
    lipschitz: float = 1.0,
    calibration: Calibration = "classic",
) -> OnePassNoise:
    """Return the noise of DP-SGD-k, whose examples may be visited k times.

    Each visit has (epsilon/k, delta/k), and basic composition adds them up:
    std = sqrt(2 ln(1.25 k/delta)) 2L/b k/epsilon. That is expensive: `exact_epsilon` has what k Gaussians amount to.

    Args:
        epsilon: > 0, that is wanted for the whole run.
        delta: in (0, 1), of all visits.
        batch_size: b >= 1, examples per batch.
        visits: k >= 1.
        lipschitz: L > 0.
        calibration: the noise of one visit: the paper's formula, or the exact one.
    """
    checks.whole(1, visits=visits)
    return _noise(epsilon, delta, visits, batch_size, lipschitz, calibration)


def _noise(
    epsilon: float, delta: float, visits: int, batch_size: int, lipschitz: float, calibration: Calibration
) -> OnePassNoise:
    checks.whole(1, batch_size=batch_size)
    checks.positive(lipschitz=lipschitz)
    sensitivity = 2.0 * lipschitz / batch_size
    step_epsilon, step_delta = epsilon / visits, delta / visits
    checks.positive(epsilon=step_epsilon)
    checks.one_of(get_args(Calibration), calibration=calibration)
    if calibration == "classic":
        std = classic_std(step_epsilon, step_delta, sensitivity, beyond=True)
    else:
        std = analytic_std(step_epsilon, step_delta, sensitivity)
    exact = gaussian_epsilon(delta, math.sqrt(visits) * sensitivity / std)
    level, proven = 2.0 * std / sensitivity, calibration == "analytic" or step_epsilon < 1.0
    claimed, step = (epsilon, delta, calibration), (step_epsilon, step_delta, visits)
    return OnePassNoise(*claimed, *step, sensitivity, std, level, proven, exact, exact <= epsilon * (1.0 + 1e-9))


@dataclass(frozen=True)
class Utility:
    """A bound on the mean over steps of E F(w_t) - F(w*), the sum of its parts.

    Attributes:
        bound: the sum.
        start: the part of the diameter of the set of models.
        gradients: the part of the size of gradients.
        noise: the part of the privacy noise.
        sampling: the part of drawing without replacement.
    """

    bound: float
    start: float
    gradients: float
    noise: float
    sampling: float


def theorem3(
    *,
    examples: int,
    batch_size: int,
    steps: int,
    step_size: float,
    noise_std: float,
    dimension: int = 1,
    radius: float = 1.0,
    gradient_bound: float = 1.0,
    lipschitz: float = 1.0,
    as_printed: bool = False,
) -> Utility:
    """Return Theorem 3's bound: Algorithm 1, convex loss, eta_t = eta.

    R²/(2 eta T) + B² eta/2 + d eta std²/2 + (2 (2 + 12 sqrt 2) R L/3) (sqrt(bT)/n + 2/(sqrt n + sqrt(n - bT)))

    With the paper's noise, d eta std²/2 = d 4 ln(1.25/delta) eta L²/(eps² b²). The arguments are those of `theorem6`;
    `as_printed` omits the factor d, as the paper does.

    Raises:
        ConditionError: T > n/b: there is more than one pass.
    """
    checks.at_least(0.0, radius=radius, gradient_bound=gradient_bound, lipschitz=lipschitz)
    _check_utility("Theorem 3", examples, batch_size, steps, noise_std, dimension)
    checks.positive(step_size=step_size)
    return _utility(
        start=radius**2 / (2.0 * step_size * steps),
        gradients=gradient_bound**2 * step_size / 2.0,
        noise=(1 if as_printed else dimension) * step_size * noise_std**2 / 2.0,
        sampling=_sampling(examples, batch_size, steps, radius, lipschitz),
    )


def theorem4(
    *,
    examples: int,
    batch_size: int,
    steps: int,
    noise_std: float,
    strong_convexity: float,
    dimension: int = 1,
    gradient_bound: float = 1.0,
    as_printed: bool = False,
) -> Utility:
    """Return Theorem 4's bound: Algorithm 1, strongly convex, eta_t = 2/(gamma t).

    (2 (2 + 12 sqrt 2)² B²/(gamma T)) (3/(2b) + 4/n + (1/b + 2/n) ln(n/(n - b(T-1))))
        + 2 B² (ln T + 1)/(gamma T) + d std² (ln T + 1)/(gamma T)

    With the paper's noise, d std² = d 8 ln(1.25/delta) L²/(b² eps²). The theorem prints G² for the second B².
    `strong_convexity` is gamma > 0. The other arguments are those of `theorem6`; `as_printed` omits the factor d, as
    the paper does.

    Raises:
        ConditionError: T > n/b: there is more than one pass.
    """
    checks.at_least(0.0, gradient_bound=gradient_bound)
    _check_utility("Theorem 4", examples, batch_size, steps, noise_std, dimension)
    if not strong_convexity > 0.0:
        raise ValueError(f"strong_convexity: expected a number > 0, found {strong_convexity:g}; use Theorem 3")
    n, b, T = examples, batch_size, steps
    per_step = 1.0 / (strong_convexity * T)
    spread = 1.5 / b + 4.0 / n + (1.0 / b + 2.0 / n) * math.log(n / (n - b * (T - 1)))
    return _utility(
        start=0.0,
        gradients=2.0 * gradient_bound**2 * (math.log(T) + 1.0) * per_step,
        noise=(1 if as_printed else dimension) * noise_std**2 * (math.log(T) + 1.0) * per_step,
        sampling=2.0 * (SAMPLING_CONSTANT * gradient_bound) ** 2 * per_step * spread,
    )


def theorem6(
    *,
    examples: int,
    batch_size: int,
    steps: int,
    nodes: int,
    global_steps: float,
    step_size: float,
    noise_std: float,
    dimension: int = 1,
    radius: float = 1.0,
    gradient_bound: float = 1.0,
    lipschitz: float = 1.0,
    as_printed: bool = False,
) -> Utility:
    """Return Theorem 6's bound: Algorithm 2, convex, for the mixture of models.

    (M+1) R²/(4 T eta) + eta B² + d eta std² n_G/(2T)
        + (2 (2 + 12 sqrt 2) R L/3) (sqrt(bT)/n + 2/(sqrt n + sqrt(n - bT)))

    Args:
        examples: n, of all nodes.
        batch_size: b.
        steps: T, at most n/b.
        nodes: M >= 1, number of nodes.
        global_steps: n_G, the expected number of Global steps, at most T.
        step_size: eta > 0.
        noise_std: std(N_t), on the mean gradient; of `algorithm1_noise`, which Global steps add.
        dimension: d, parameters of the model.
        radius: R, diameter of the set of models.
        gradient_bound: B, of the norm of every gradient.
        lipschitz: L.
        as_printed: as the paper prints it, without the factor d and the 1/T of the noise that its proof has.

    Raises:
        ConditionError: T > n/b: there is more than one pass.
    """
    checks.at_least(0.0, radius=radius, gradient_bound=gradient_bound, lipschitz=lipschitz)
    _check_utility("Theorem 6", examples, batch_size, steps, noise_std, dimension)
    checks.positive(step_size=step_size)
    checks.whole(1, nodes=nodes)
    if not 0.0 <= global_steps <= steps:
        raise ValueError(f"global_steps: expected a number from 0 to {steps}, found {global_steps:g}")
    noise = (1 if as_printed else dimension) * step_size * noise_std**2 * global_steps / 2.0
    return _utility(
        start=(nodes + 1) * radius**2 / (4.0 * steps * step_size),
        gradients=step_size * gradient_bound**2,
        noise=noise if as_printed else noise / steps,
        sampling=_sampling(examples, batch_size, steps, radius, lipschitz),
    )


def _utility(start: float, gradients: float, noise: float, sampling: float) -> Utility:
    return Utility(start + gradients + noise + sampling, start, gradients, noise, sampling)


def _sampling(examples: int, batch_size: int, steps: int, radius: float, lipschitz: float) -> float:
    n, used = examples, batch_size * steps
    return (
        2.0 * SAMPLING_CONSTANT * radius * lipschitz / 3.0
        * (math.sqrt(used) / n + 2.0 / (math.sqrt(n) + math.sqrt(n - used)))
    )  # fmt: skip


def _check_utility(theorem: str, examples: int, batch_size: int, steps: int, noise_std: float, dimension: int) -> None:
    checks.whole(1, examples=examples, batch_size=batch_size, steps=steps, dimension=dimension)
    checks.at_least(0.0, noise_std=noise_std)
    if steps * batch_size > examples:
        raise ConditionError(
            f"{theorem}: condition of one pass: {steps} steps of {batch_size} examples need {steps * batch_size}, "
            f"found {examples}; take at most {examples // batch_size} steps"
        )
