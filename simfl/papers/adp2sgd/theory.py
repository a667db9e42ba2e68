"""A(DP)²SGD: the paper's convergence and privacy, and the accountant's.

Xu, Zhang and Wang 2020, "A(DP)²SGD: Asynchronous Decentralized Parallel Stochastic Gradient Descent with Differential
Privacy", https://arxiv.org/abs/2008.09246. Names: K workers with n examples each (the smallest, n_(1), counts), batches
of B, T mini-batches in all, per-example gradients of norm at most G (the clipping norm), noise of standard deviation
sigma on each of d coordinates, staleness of at most tau.

Before you use a number from here:

- Theorem 2's sigma is for the mean of a batch (sensitivity 2G/B). Algorithm 1 adds it to the sum, which is B times too
  little noise. The results below have both. In the convergence bounds `noise_std` is the noise on the sum.
- Theorem 2 assumes that the active worker is unknown, with sampling rate B / (K n). The exchange protocol shows
  it. `Theorem2.accounted` says what is certified for an adversary who sees every update with its sender. A hidden
  sender does not help where updates show their worker: `Theorem2.least_delta` refutes the claim there, too.
- Proposition 1 prints 64 tau²/K² where its proof needs 64 tau⁴/K²; its number of steps is astronomical either way.
- Remark 1 lacks a condition on the order, which `Theorem2.remark1_from_step` adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.privacy import checks
from simfl.privacy.accounting import Accountant, Neighbors, Release, Sampling, epsilon_of
from simfl.privacy.losses import summed

Mixing = Literal["random_pair", "bipartite", "ring_edge"]
View = Literal["local_transcript", "global_hidden"]
_Floats = NDArray[np.float64]

#: The noise that Lemma 2 needs: (sigma B / 2G)² >= 1.5.
_LEAST_ZETA_SQUARED = 1.5
#: Bins of a privacy loss, at most; and its rounding over all updates of a worker, as a share of epsilon.
_MOST_BINS, _ROUNDED = 2**18, 0.01


def spectral_rho(num_workers: int, mixing: Mixing = "bipartite") -> float:
    """Return rho of Assumption 2 for one averaging pair per step.

    It is the second largest eigenvalue of E[A^T A].

    Averaging a pair is a projection, so E[A^T A] = E[A] = I - E[(e_i - e_j)(e_i - e_j)^T] / 2:

    - `random_pair`, any two of K workers: rho = 1 - 1/(K-1);
    - `bipartite`, a random sender and a random receiver of K/2 each (the paper's randomized mode): rho = 1 - 1/K;
    - `ring_edge`, two neighbors on a ring: rho = 1 - (1 - cos(2 pi/K)) / K.

    Args:
        num_workers: K >= 1; even for `bipartite`. Up to two workers are one after averaging: rho = 0.
        mixing: which pair of workers averages.
    """
    K = num_workers
    checks.whole(1, num_workers=K)
    checks.one_of(get_args(Mixing), mixing=mixing)
    if mixing == "bipartite" and K > 1 and K % 2:
        raise ValueError(f"num_workers: expected an even number for bipartite mixing, found {K}; use random_pair")
    if K <= 2:
        return 0.0
    if mixing == "random_pair":
        return 1.0 - 1.0 / (K - 1)
    return 1.0 - 1.0 / K if mixing == "bipartite" else 1.0 - (1.0 - math.cos(2.0 * math.pi / K)) / K


def rhobar(num_workers: int, rho: float) -> float:
    """Return rho-bar of Theorem 1, of rho in [0, 1) from `spectral_rho`.

    rho-bar = (K-1)/K (1/(1-rho) + 2 sqrt(rho) / (1-sqrt(rho))²).
    """
    checks.whole(1, num_workers=num_workers)
    if not 0.0 <= rho < 1.0:
        raise ValueError(f"rho: expected a number in [0, 1), found {rho:g}")
    root = math.sqrt(rho)
    return (num_workers - 1) / num_workers * (1.0 / (1.0 - rho) + 2.0 * root / (1.0 - root) ** 2)


@dataclass(frozen=True)
class DecentralizedProblem:
    """The constants of the convergence bounds.

    Attributes:
        num_workers: K.
        batch_size: B, examples per mini-batch; gradients are sums over them.
        smoothness: L, Lipschitz constant of the gradients.
        initial_gap: F(w0) - F*, distance of the loss from its optimum.
        sampling_variance: varsigma², of one example's gradient around its worker's.
        worker_variance: upsilon², of the workers' gradients around the mean of all.
        dimension: d, number of parameters.
        staleness: tau, the largest.
        rho: see `spectral_rho`.
    """

    num_workers: int
    batch_size: int
    smoothness: float
    initial_gap: float
    sampling_variance: float
    worker_variance: float
    dimension: int
    staleness: float
    rho: float

    def __post_init__(self) -> None:
        checks.whole(1, num_workers=self.num_workers, batch_size=self.batch_size, dimension=self.dimension)
        checks.positive(smoothness=self.smoothness)
        checks.at_least(0.0, initial_gap=self.initial_gap, staleness=self.staleness)
        checks.at_least(0.0, sampling_variance=self.sampling_variance, worker_variance=self.worker_variance)
        rhobar(self.num_workers, self.rho)

    @property
    def rhobar(self) -> float:
        """rho-bar of Theorem 1."""
        return rhobar(self.num_workers, self.rho)

    @property
    def delay(self) -> float:
        """tau (K-1)/K + rho-bar, which staleness and slow mixing enter as."""
        return self.staleness * (self.num_workers - 1) / self.num_workers + self.rhobar


@dataclass(frozen=True)
class Constants:
    """C1, C2 and C3 of Theorem 1 at one step size."""

    c1: float  # must be > 0
    c2: float  # must be >= 0
    c3: float  # must be <= 1

    @property
    def violated(self) -> str | None:
        """The first condition that fails, with its value; None if all hold."""
        if not self.c1 > 0.0:
            return f"condition C1 > 0: C1 is {self.c1:.4g}"
        if not self.c2 >= 0.0:
            return f"condition C2 >= 0: C2 is {self.c2:.4g}"
        return None if self.c3 <= 1.0 else f"condition C3 <= 1: C3 is {self.c3:.4g}"


def constants(problem: DecentralizedProblem, step_size: float) -> Constants:
    """Return C1, C2 and C3 of Theorem 1, with h = eta B.

    C1 = 1 - 24 h² L² (tau (K-1)/K + rho-bar)
    C2 = -(h L²/K + 6 h² L³/K² + 12 h³ L⁴ tau²/K³) 4 h² (tau (K-1)/K + rho-bar)/C1
         + h/(2K) - h² L/K² - 2 h³ L² tau²/K³
    C3 = 1/2 + h L tau²/K + (6 h² L² + h K L + 12 h³ L³ tau²/K) 2 rho-bar/C1

    `step_size` is eta > 0, of sums of gradients; that of means is eta B. Where C1 <= 0, C2 and C3 have no meaning: they
    are -inf and inf.
    """
    checks.positive(step_size=step_size)
    K, L, tau = problem.num_workers, problem.smoothness, problem.staleness
    h = step_size * problem.batch_size
    c1 = 1.0 - 24.0 * h**2 * L**2 * problem.delay
    if c1 <= 0.0:
        return Constants(c1, -math.inf, math.inf)
    drift = h * L**2 / K + 6.0 * h**2 * L**3 / K**2 + 12.0 * h**3 * L**4 * tau**2 / K**3
    c2 = -drift * 4.0 * h**2 * problem.delay / c1
    c2 += h / (2.0 * K) - h**2 * L / K**2 - 2.0 * h**3 * L**2 * tau**2 / K**3
    spread = 6.0 * h**2 * L**2 + h * K * L + 12.0 * h**3 * L**3 * tau**2 / K
    c3 = 0.5 + h * L * tau**2 / K + spread * 2.0 * problem.rhobar / c1
    return Constants(c1, c2, c3)


def largest_step_size(problem: DecentralizedProblem) -> float:
    """Return the largest step size of Theorem 1, to 1e-12 of itself."""
    low, high = 0.0, 1.0 / (problem.batch_size * problem.smoothness)
    while constants(problem, high).violated is None:
        low, high = high, 2.0 * high
    while low == 0.0 or high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if constants(problem, middle).violated is None else (low, middle)
    return low


@dataclass(frozen=True)
class Convergence:
    """A bound on the mean over steps t of E||grad F(theta^t)||².

    theta^t is the mean of all workers' models.
    """

    bound: float  # the sum of the next three
    start: float  # contribution of the distance to the optimum
    gradients: float  # contribution of the variance of gradients
    noise: float  # contribution of the privacy noise
    step_size: float  # eta
    steps: int  # T, mini-batches of all workers together


def theorem1(problem: DecentralizedProblem, *, step_size: float, steps: int, noise_std: float = 0.0) -> Convergence:
    """Return Theorem 1's bound.

    (1/T) sum_t E||grad F(theta^t)||²
        <= 2 (F(w0) - F*) K/(eta T B) + (2 eta L/(B K)) (varsigma² B + 6 upsilon² B² + d sigma²)

    `step_size` is eta > 0, of sums of gradients; `steps` is T >= 1, mini-batches of all workers together; `noise_std`
    is sigma on the sum, B times that on the mean.

    Raises:
        ConditionError: C1 > 0, C2 >= 0 or C3 <= 1 fails: the step size is too large.
    """
    checks.whole(1, steps=steps)
    checks.at_least(0.0, noise_std=noise_std)
    violated = constants(problem, step_size).violated
    if violated is not None:
        raise ConditionError(
            f"Theorem 1: {violated} at step size {step_size:.4g}; use at most "
            f"{checks.rounded_down(largest_step_size(problem))}"
        )
    return _bound(problem, step_size, steps, noise_std)


def _bound(problem: DecentralizedProblem, step_size: float, steps: int, noise_std: float) -> Convergence:
    K, B = problem.num_workers, problem.batch_size
    start = 2.0 * problem.initial_gap * K / (step_size * steps * B)
    factor = 2.0 * step_size * problem.smoothness / (B * K)
    gradients = factor * (problem.sampling_variance * B + 6.0 * problem.worker_variance * B**2)
    noise = factor * problem.dimension * noise_std**2
    return Convergence(start + gradients + noise, start, gradients, noise, step_size, steps)


def minimal_steps(problem: DecentralizedProblem, *, as_printed: bool = False) -> float:
    """Return T_min of Proposition 1.

    From it on, eta = K / (B sqrt(T)) meets Theorem 1's conditions.

    T_min = L² K² max{ 192 (tau (K-1)/K + rho-bar), 1024 K² rho-bar², 64 tau⁴/K²,
                       (K-1)^(1/2) K^(-1/6) (8 sqrt(6) tau^(2/3) + 8)² (tau + rho-bar K/(K-1))^(2/3) }

    It is not a practical run length: 2.2e14 for 16 workers, tau = 16 and L = 1. `largest_step_size` asks for much less.
    K must be at least 2: for K = 1 all terms but one vanish. `as_printed` takes the paper's 64 tau²/K² for 64 tau⁴/K²,
    with which C3 <= 1 may fail.
    """
    K, tau, bar = problem.num_workers, problem.staleness, problem.rhobar
    if K < 2:
        raise ValueError(f"num_workers: expected an integer >= 2 for Proposition 1, found {K}; use Theorem 1")
    mixing = (8.0 * math.sqrt(6.0) * tau ** (2.0 / 3.0) + 8.0) ** 2
    terms: tuple[float, ...] = (
        192.0 * problem.delay,
        1024.0 * K**2 * bar**2,
        64.0 * (tau**2 if as_printed else tau**4) / K**2,
        math.sqrt(K - 1) * K ** (-1.0 / 6.0) * mixing * (tau + bar * K / (K - 1)) ** (2.0 / 3.0),
    )
    return problem.smoothness**2 * K**2 * max(terms)


@dataclass(frozen=True)
class AccountedView:
    """The account of Theorem 2's noise in one view and neighboring relation."""

    view: View  # local_transcript: every update is seen with its sender; global_hidden: the active worker is unknown
    neighbors: Neighbors
    sampling: Sampling  # of batches: without replacement as in the paper, Poisson where that has no epsilon
    sampling_rate: float  # q of one release
    steps: int  # releases that are composed
    epsilon: float  # at the claim's delta
    certified: bool  # whether the epsilon is proven: amplification by a secret choice of the worker is not
    claim_holds: bool  # whether the epsilon is at most the one that Theorem 2 claims


@dataclass(frozen=True)
class Theorem2:
    """Theorem 2: with this noise A(DP)²SGD is (epsilon, delta)-DP, by replacement."""

    epsilon: float  # claimed
    delta: float  # claimed
    num_workers: int  # K
    examples: int  # n_(1), of the worker with the fewest
    batch_size: int  # B
    steps: int  # T, mini-batches of all workers together
    gradient_bound: float  # G, the clipping norm
    mu: float  # share of epsilon for the noise; the rest is for the conversion from Renyi divergence
    alpha: float  # the order of that divergence
    largest_alpha: float  # the largest order that condition (7) allows
    noise_std_for_mean: float  # sigma, on the mean of a batch's gradients, per coordinate: Theorem 2's
    noise_std_for_sum: float  # B sigma, on the sum: what Algorithm 1 has to add, although it prints sigma
    noise_multiplier: float  # z = B sigma / G, noise on the sum over the clipping norm: what a scenario takes
    zeta: float  # B sigma / (2 G) = z / 2, noise over the sensitivity when one example is replaced
    neighbors: Neighbors = "replace_one"
    view: View = "global_hidden"

    def remark1_from_step(self) -> int:
        """Return the first step t of Remark 1: w^t is (sqrt(t/T) epsilon, delta)-DP.

        The order alpha_t = 1 + (alpha - 1) sqrt(T/t), at which it is proven, must satisfy (7); the paper omits that.
        """
        share = ((self.alpha - 1.0) / (self.largest_alpha - 1.0)) ** 2
        return max(1, math.ceil(self.steps * share * (1.0 - 1e-12)))

    def least_delta(self, printed: bool = False) -> float:
        """Return a delta that the claimed epsilon has at least on some data, 0 if unknown.

        Let the gradients of worker 1 be -G e1, one of them G e1 in the neighboring data, and those of the others G e2.
        An update then shows whether worker 1 sent it, seen or hidden: by (e1 + e2) x, up to an error of
        Phi(-(B-1) / (2 sqrt(2) zeta)). In 1 of K updates, the losses are those of (1-q) N(0) + q N(2G) against N(0).
        Each is rounded down. With next to no noise, delta is that of the test whether some update exceeds G.

        Args:
            printed: whether sigma is added to the sum, as Algorithm 1 prints it.
        """
        zeta, q = self.zeta / (self.batch_size if printed else 1), self.batch_size / self.examples
        share, growth = 1.0 / self.num_workers, math.exp(min(self.epsilon, 700.0))
        unsure = scipy.special.ndtr(-(self.batch_size - 1) / (math.sqrt(8.0) * zeta)) if self.num_workers > 1 else 0.0
        if printed:
            wrong = scipy.special.ndtr(-0.5 / zeta)
            exceeds = -math.expm1(self.steps * math.log1p(-share * q * (1.0 - wrong)))
            least = exceeds - growth * self.steps * share * wrong
        else:
            least = _least_delta(self.epsilon, zeta, q, share, self.steps)
        return max(0.0, float(least - (1.0 + growth) * self.steps * unsure))

    def accounted(self, accountant: Accountant = "tightest") -> tuple[AccountedView, ...]:
        """Return the accounts of this noise in both views and relations.

        - `local_transcript`: one worker's releases, rate B/n, T/K of them (rounded). Certified.
        - `global_hidden`: all releases, rate B/(K n), T of them, as in the theorem's proof. Not certified: it would
          need a hidden worker, and updates whose distributions agree among workers.

        Batches are drawn without replacement, as in the proof, under replace_one; add_or_remove has an epsilon under
        Poisson sampling only.
        """
        return tuple(
            self._account(view, neighbors, accountant)
            for neighbors in get_args(Neighbors)[::-1]
            for view in get_args(View)
        )

    def certified(self) -> AccountedView:
        """Return the certified account under the theorem's neighboring relation."""
        return self._account("local_transcript", self.neighbors, "tightest")

    def _account(self, view: View, neighbors: Neighbors, accountant: Accountant) -> AccountedView:
        share = 1 if view == "local_transcript" else self.num_workers
        rate = self.batch_size / (share * self.examples)
        steps = max(1, round(self.steps * share / self.num_workers))
        sampling: Sampling = "without_replacement" if neighbors == "replace_one" else "poisson"
        release = Release(self.noise_multiplier, rate, sampling)
        epsilon = epsilon_of([(release, steps)], self.delta, neighbors=neighbors, accountant=accountant)
        certified = view == "local_transcript"
        return AccountedView(view, neighbors, sampling, rate, steps, epsilon, certified, epsilon <= self.epsilon)


def _least_delta(epsilon: float, zeta: float, rate: float, share: float, steps: int) -> float:
    """Return a lower bound on delta of steps, a share of which release something.

    These release a sampled Gaussian of noise zeta over the distance of its means.
    M = (1-q) N(0) + q N(1) against N(0) has the loss l at x = zeta² ln((e^l - 1 + q) / q) + 1/2.
    """
    from dp_accounting.pld import pld_pmf

    far = (10.0 * zeta + 0.5) / zeta**2
    rest = min(rate, 1.0 - 1e-15)
    ends = max(math.log1p(-rest), -far), float(np.logaddexp(math.log1p(-rest), math.log(rate) + far))
    width = max(_ROUNDED * epsilon / max(1.0, share * steps), (ends[1] - ends[0]) / _MOST_BINS)
    lowest = math.floor(ends[0] / width)
    left = np.expm1(width * np.arange(lowest, math.ceil(ends[1] / width) + 1)) + rate
    x = zeta**2 * np.log(np.maximum(left, 1e-300) / rate) + 0.5
    above = (1.0 - rate) * scipy.special.ndtr(-x / zeta) + rate * scipy.special.ndtr((1.0 - x) / zeta)
    masses = share * -np.diff(above, append=0.0)
    masses[-lowest] += 1.0 - share
    losses = pld_pmf.DensePLDPmf(width, lowest, masses, 0.0, False)
    with np.errstate(all="ignore"):  # the tail bounds of dp-accounting overflow at some points, and skip these
        losses = summed(losses, steps) if steps > 1 else losses
    return float(losses.get_delta_for_epsilon(epsilon)) - 1e-15 * steps  # what the Fourier transform may misplace


@dataclass(frozen=True)
class _Setting:
    """The inputs of Theorem 2: k = 5 B² T / (K n)², rate gamma = B / (K n)."""

    log_delta: float
    strength: float
    rate: float

    def orders(self, mu: _Floats, epsilon: _Floats | float) -> tuple[_Floats, _Floats, _Floats]:
        """Return alpha, the largest alpha of condition (7), and zeta².

        alpha = ln(1/delta) / ((1 - mu) eps) + 1, and zeta² = (sigma B / 2G)², with sigma² = 20 G² T alpha / (K² n² mu
        eps). Condition (7) is alpha <= ln(K n / (B (1 + zeta²))).
        """
        alpha = self.log_delta / ((1.0 - mu) * epsilon) + 1.0
        zeta_squared = self.strength * alpha / (mu * epsilon)
        return alpha, -math.log(self.rate) - np.log1p(zeta_squared), zeta_squared

    def orders_at(self, mu: float, epsilon: float) -> tuple[float, float, float]:
        """Return `orders` of one mu."""
        alpha, largest, zeta_squared = self.orders(np.array([mu]), epsilon)
        return float(alpha[0]), float(largest[0]), float(zeta_squared[0])


# Large epsilon and small rates need small mu, so that the grid is fine there, too.
_GRID = np.unique(np.concatenate((np.geomspace(1e-60, 1e-2, 16_001), np.linspace(1e-2, 1.0, 4002)[:-1])))


def theorem2(
    epsilon: float,
    delta: float,
    *,
    num_workers: int,
    examples: int,
    batch_size: int,
    steps: int,
    gradient_bound: float = 1.0,
    mu: float | None = None,
) -> Theorem2:
    """Return the smallest noise for which Theorem 2 claims (epsilon, delta).

    sigma² = 20 G² T alpha / (K² n² mu eps) for the mean, alpha = ln(1/delta) / ((1 - mu) eps) + 1, if some mu in (0, 1)
    satisfies eps <= 10 B² T alpha / (3 K² n² mu), which is (B sigma / 2G)² >= 1.5, and
    (7): alpha <= ln(K n / (B (1 + (B sigma / 2G)²))).
    Without one, mu is found on a grid and refined around the best.

    With unequal workers K n stands for min over k of n_k / p_k, p_k being the share of updates by worker k; for equal
    shares that is K n_(1), as printed.

    Args:
        epsilon: > 0, to be claimed.
        delta: in (0, 1).
        num_workers: K >= 1, number of workers.
        examples: n, examples of the worker who has fewest.
        batch_size: B, examples per mini-batch, at most n.
        steps: T >= 1, mini-batches of all workers together.
        gradient_bound: G > 0, to which each example's gradient is clipped.
        mu: in (0, 1), share of epsilon that the noise pays for; by default that of the least noise.

    Raises:
        ConditionError: no mu satisfies the conditions; the message names the smallest admissible epsilon.
    """
    checks.positive(epsilon=epsilon, gradient_bound=gradient_bound)
    setting = _setting(delta, num_workers, examples, batch_size, steps)
    if mu is None:
        mu = _best_mu(setting, epsilon)
    else:
        _check_mu(setting, epsilon, mu)
    if mu is None:
        smallest = _smallest_epsilon(setting)
        advice = (
            "no epsilon is admissible: the batches are too large a part of all examples, or delta is too small"
            if math.isinf(smallest)
            else f"expected at least epsilon = {checks.rounded_up(smallest)}; ask for that, or take fewer steps or "
            "smaller batches"
        )
        raise ConditionError(f"Theorem 2: {_violated(setting, epsilon)} at epsilon = {epsilon:g}; {advice}")
    alpha, largest_alpha, zeta_squared = setting.orders_at(mu, epsilon)
    zeta = math.sqrt(zeta_squared)
    on_sum = 2.0 * gradient_bound * zeta
    given = (epsilon, delta, num_workers, examples, batch_size, steps, gradient_bound)
    return Theorem2(*given, mu, alpha, largest_alpha, on_sum / batch_size, on_sum, 2.0 * zeta, zeta)


def smallest_admissible_epsilon(delta: float, *, num_workers: int, examples: int, batch_size: int, steps: int) -> float:
    """Return the smallest epsilon that Theorem 2 can claim, inf if it can claim none.

    For each mu, condition (7) holds from some epsilon on. The result is the smallest of these epsilons at which the
    noise is also large enough. The arguments are those of `theorem2`.
    """
    return _smallest_epsilon(_setting(delta, num_workers, examples, batch_size, steps))


def _setting(delta: float, num_workers: int, examples: int, batch_size: int, steps: int) -> _Setting:
    checks.open_unit(delta=delta)
    checks.whole(1, num_workers=num_workers, examples=examples, steps=steps)
    checks.whole(1, examples, batch_size=batch_size)
    rate = batch_size / (num_workers * examples)
    return _Setting(-math.log(delta), 5.0 * steps * rate**2, rate)


def _check_mu(setting: _Setting, epsilon: float, mu: float) -> None:
    """Reject a mu with which one of the two conditions fails."""
    checks.open_unit(mu=mu)
    alpha, largest, zeta_squared = setting.orders_at(mu, epsilon)
    if zeta_squared < _LEAST_ZETA_SQUARED * (1.0 - 1e-9):
        raise ConditionError(
            f"Theorem 2: condition (B sigma / 2G)² >= 1.5: it is {zeta_squared:.4g} at mu = {mu:g}; take a smaller mu"
        )
    if alpha > largest:
        raise ConditionError(
            f"Theorem 2: condition (7) at mu = {mu:g}: alpha is {alpha:.4g}, at most {largest:.4g} is allowed; leave "
            "mu out for the best one"
        )


def _around(grid: _Floats, point: int, count: int) -> _Floats:
    """Return a finer grid between the neighbors of a grid point."""
    return np.linspace(grid[max(0, point - 1)], grid[min(len(grid) - 1, point + 1)], count)


def _best_mu(setting: _Setting, epsilon: float) -> float | None:
    """Return the mu of the least noise under both conditions; None without one."""

    def best(grid: _Floats) -> int | None:
        alpha, largest, zeta_squared = setting.orders(grid, epsilon)
        fits = (zeta_squared >= _LEAST_ZETA_SQUARED) & (alpha <= largest)
        return int(np.argmin(np.where(fits, zeta_squared, np.inf))) if fits.any() else None

    grid = _GRID
    point = best(grid)
    if point is None:  # close to the smallest admissible epsilon, the feasible mu may lie between two grid points
        alpha, largest, zeta_squared = setting.orders(grid, epsilon)
        excess = np.where(zeta_squared >= _LEAST_ZETA_SQUARED, alpha - largest, np.inf)
        grid = _around(grid, int(np.argmin(excess)), 4001)
        point = best(grid)
        if point is None:
            return None
    refined = _around(grid, point, 4001)
    again = best(refined)
    return float(grid[point] if again is None else refined[again])


def _violated(setting: _Setting, epsilon: float) -> str:
    alpha, largest, _ = setting.orders(_GRID, epsilon)
    if not (alpha <= largest).any():
        near = int(np.argmin(alpha - largest))
        where = f"alpha is {alpha[near]:.4g}, at most {largest[near]:.4g} is allowed"
        return f"condition (7) holds for no mu (nearest at mu = {_GRID[near]:.3g}: {where})"
    return "condition (7) and epsilon <= 10 B² T alpha / (3 K² n² mu) hold for no mu together"


def _smallest_epsilon(setting: _Setting) -> float:
    def smallest(grid: _Floats) -> _Floats:
        """Return the smallest epsilon of condition (7) for each mu, inf for none."""

        def holds(epsilon: _Floats) -> NDArray[np.bool_]:
            alpha, largest, _ = setting.orders(grid, epsilon)
            return np.less_equal(alpha, largest)

        low, high = np.full_like(grid, 1e-9), np.full_like(grid, 1e9)
        possible = holds(high)
        for _ in range(100):  # bisection in logarithms, down to rounding
            middle = np.sqrt(low * high)
            enough = holds(middle)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        noisy = setting.orders(grid, high)[2] >= _LEAST_ZETA_SQUARED
        return np.where(possible & noisy, high, np.inf)

    grid = _GRID
    epsilons = smallest(grid)
    for _ in range(2):
        if np.isinf(epsilons.min()):
            return math.inf
        grid = _around(grid, int(np.argmin(epsilons)), 1001)
        epsilons = smallest(grid)
    return float(epsilons.min())


@dataclass(frozen=True)
class Proposition2:
    """Proposition 2's claim about a run of the longest useful length."""

    steps: int  # T of equation (8)
    bound: float
    """C4 G sqrt(d L (F(w0) - F* + L (varsigma²/B + 6 upsilon²)) ln(1/delta)) / (K n eps), for a random iterate."""
    c4: float  # the constant in it
    exact_bound: float  # Proposition 1's bound at T with Theorem 2's own noise; the closed form drops the 1 in alpha
    step_size: float  # eta = K / (B sqrt(T))
    theorem2: Theorem2  # the noise
    minimal_steps: float  # T_min of Proposition 1
    long_enough: bool  # whether T >= T_min, without which the bound is not proven


def proposition2(
    problem: DecentralizedProblem,
    epsilon: float,
    delta: float,
    *,
    examples: int,
    gradient_bound: float = 1.0,
    mu: float | None = None,
    as_printed: bool = False,
) -> Proposition2:
    """Return Proposition 2's number of steps and bound.

    T = 2 (F(w0) - F* + L (varsigma²/B + 6 upsilon²)) K² n² eps² / (40 d L G² ln(1/delta)), rounded down.

    With the noise where it belongs, B sigma on the sum, C4 = 4 sqrt(5) (1 + 1/(mu (1-mu))). The paper has sigma on the
    sum and C4 = 4 sqrt(5) (1 + 1/(B² mu (1-mu))), for which there is no privacy.
    The bound is that of an iterate drawn at random: the paper's sum over theta^t is a misprint.

    The problem has at least two workers; the other arguments are those of `theorem2`. `as_printed` takes the paper's
    C4, its sigma on the sum, and its condition on T.

    Raises:
        ConditionError: Theorem 2 cannot claim this epsilon for a run of that length, or T is below 1. A T below
            Proposition 1's (in practice it always is) is not an error; see `long_enough`.
    """
    K, B, L, d = problem.num_workers, problem.batch_size, problem.smoothness, problem.dimension
    checks.positive(epsilon=epsilon, gradient_bound=gradient_bound)
    setting = _setting(delta, K, examples, B, 1)
    gap = problem.initial_gap + L * (problem.sampling_variance / B + 6.0 * problem.worker_variance)
    worth = (K * examples * epsilon) ** 2 / (d * L * gradient_bound**2 * setting.log_delta)
    steps = math.floor(gap * worth / 20.0)
    if steps < 1:
        raise ConditionError(
            f"Proposition 2: condition T >= 1: equation (8) gives T = {gap * worth / 20.0:.4g}; "
            "ask for a larger epsilon, or take more examples or fewer parameters"
        )
    noise = theorem2(
        epsilon, delta, num_workers=K, examples=examples, batch_size=B, steps=steps, gradient_bound=gradient_bound,
        mu=mu,
    )  # fmt: skip
    on_sum = noise.noise_std_for_mean if as_printed else noise.noise_std_for_sum
    c4 = 4.0 * math.sqrt(5.0) * (1.0 + 1.0 / ((B**2 if as_printed else 1.0) * noise.mu * (1.0 - noise.mu)))
    needed, step_size = minimal_steps(problem, as_printed=as_printed), K / (B * math.sqrt(steps))
    bound = c4 * gradient_bound * math.sqrt(d * L * gap * setting.log_delta) / (K * examples * epsilon)
    exact = _bound(problem, step_size, steps, on_sum).bound
    return Proposition2(steps, bound, c4, exact, step_size, noise, needed, steps >= needed)
