"""The calculator with a memory: largest batch, rounds and epsilon for what a client wants to do next.

Van Dijk et al. 2021, "Proactive DP", https://arxiv.org/abs/2102.09030, Appendix E.1 and Figure 15, on Theorem B.4
(`theorems` beside this, which says what is claimed about what). A client runs its rounds, looks at its test accuracy,
and if that is not enough takes less noise and plans more gradients, as long as its budget of epsilon lasts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.papers.proactive_dp.theorems import (
    SLACK,
    BatchSchedule,
    Course,
    RoundsPlan,
    conditions_b4,
    epsilon_of,
    g,
    gam_array,
    gamma_fixed_point,
    log_inverse,
    sigma_of,
)
from simfl.privacy import checks

_LEAF = 64  # so few sizes are tried one by one (all at once, in one array)
_GRID = 96  # points of epsilon among which the first root is looked for


@dataclass(frozen=True)
class Stop:
    """The client takes part no longer: no batch size keeps it within its budget.

    Attributes:
        condition: what fails, at the size that comes nearest.
        reason: one line with numbers.
    """

    condition: str
    reason: str


@dataclass(frozen=True)
class Calculator:
    """A client that plans ahead, knowing what it has done.

    With less noise than before, all earlier rounds are accounted as if they had had the new, smaller sigma too, which
    only overstates what they gave away.

    The paper tries s' = 1, 2, ... and ends before the first size that fails. But the sizes that do not fail need
    neither begin at 1 nor be in a row: after rounds with large batches, small ones make theta = max s_i / mean s_i
    large, the number of rounds ceil(K' / s') jumps, and with sigma left open (32) may fail in the middle. Here the
    largest size is found among all, by bounds that exclude whole ranges.

    Attributes:
        num_examples: N.
        delta: in (0, 1).
        budget: the largest epsilon that the client accepts.
        sigma: noise multiplier; None to find it for a first series of rounds.
        done: (size, rounds) of what was run, with noise of at least `sigma`.
        exact: Gam without the paper's slip.
    """

    num_examples: int
    delta: float
    budget: float
    sigma: float | None = None
    done: BatchSchedule = ()
    exact: bool = False

    def __post_init__(self) -> None:
        checks.whole(2, num_examples=self.num_examples)
        checks.open_unit(delta=self.delta)
        checks.positive(budget=self.budget)
        if self.sigma is not None:
            checks.positive(sigma=self.sigma)
        if self.done:
            Course.of(self.done, self.num_examples)
            if self.sigma is None:
                raise ValueError("sigma: expected the noise multiplier of the rounds that were done, found none")

    def next_plan(self, gradients: int) -> RoundsPlan | Stop:
        """Return the plan with the largest batch for K' further gradients, or Stop where every size fails.

        Args:
            gradients: K' > 0.
        """
        best = self._largest(gradients)
        if best is not None:
            return self.try_batch(best, gradients)
        # The size that comes nearest is the largest there was: smaller ones raise theta, larger ones max s_i.
        nearest = min(max((size for size, _ in self.done), default=1), self._most(gradients))
        refused = self._settle(nearest, gradients)
        assert isinstance(refused, Stop), "a size that does not fail has just been searched for"
        return refused

    def try_batch(self, batch: int, gradients: int) -> RoundsPlan:
        """Return the plan for K' further gradients in batches of s', whether or not that is the largest size.

        T' = ceil(K' / s') rounds, the last of which is smaller where s' does not divide K'. epsilon is the smallest
        that Theorem B.4 claims; with sigma None it is the smallest with epsilon = k a Gam(sigma(epsilon), a),
        a = theta^2 k / T, where sigma(epsilon) is the main equation.

        Raises:
            ConditionError: names the condition that fails, or the budget.
        """
        found = self._settle(batch, gradients)
        if isinstance(found, Stop):
            raise ConditionError(found.reason)
        course, epsilon, sigma = found
        gamma = gamma_fixed_point(sigma, epsilon, course.epochs, exact=self.exact)
        conditions = conditions_b4(course, epsilon, self.delta, sigma, gamma)
        for condition in conditions:
            condition.require("Theorem B.4")
        return RoundsPlan(
            num_examples=self.num_examples,
            epsilon=epsilon,
            delta=self.delta,
            sigma=sigma,
            gamma=gamma,
            batch=batch,
            rounds=gradients // batch,
            last_batch=gradients % batch,
            gradients=gradients,
            asked=gradients,
            done=tuple(self.done),
            theta=course.theta,
            bound_by=self._refused_by(batch + 1, gradients),
            conditions=conditions,
        )

    def _most(self, gradients: int) -> int:
        checks.whole(1, gradients=gradients)
        return min(gradients, self.num_examples - 1)

    def _refused_by(self, batch: int, gradients: int) -> str:
        """Return which condition refuses a batch size, "" if none does."""
        if batch > self._most(gradients):
            return "K"
        found = self._settle(batch, gradients)
        return found.condition if isinstance(found, Stop) else ""

    def _settle(self, batch: int, gradients: int) -> tuple[Course, float, float] | Stop:
        """Return all rounds together, the smallest epsilon claimed for them and its sigma; or what fails."""
        most = self._most(gradients)
        checks.whole(1, most, batch=batch)
        before = Course.of(self.done, self.num_examples) if self.done else Course(0, 0, 0, self.num_examples)
        course = Course(
            before.rounds - (-gradients // batch),
            before.gradients + gradients,
            max(before.largest, batch),
            self.num_examples,
        )
        if self.sigma is not None and (self.sigma**2 <= 2.0 or epsilon_of(self.sigma, self.delta) > self._limit):
            return Stop(
                "(35)",
                f"condition (35) of Theorem B.4: within epsilon {self.budget:.6g} sigma must be at least "
                f"{checks.rounded_up(sigma_of(self.budget, self.delta), 6)}, and it is {self.sigma:.6g}; stop "
                "participating",
            )
        share = np.array([course.share])
        epsilon = float(self._epsilons(share, course.epochs)[0])
        sigma = self.sigma if self.sigma is not None else sigma_of(min(epsilon, self.budget), self.delta)
        if course.largest > self.num_examples * g(sigma) * (1.0 + SLACK):
            return Stop(
                "(32)",
                f"condition (32) of Theorem B.4: max s_i/N <= g(sigma), found "
                f"{course.largest / self.num_examples:.6g}, needed at most {g(sigma):.6g} at sigma {sigma:.6g}; "
                "stop participating",
            )
        if epsilon > self._limit:
            takes = f"they take epsilon {epsilon:.6g}" if math.isfinite(epsilon) else "they take more"
            return Stop(
                "(34)",
                f"condition (34) of Theorem B.4: {course.rounds:,} rounds of {course.epochs:.4g} epochs together, with "
                f"theta {course.theta:.4g}: {takes}, and the budget is {self.budget:.6g}; stop participating",
            )
        return course, epsilon, sigma

    @property
    def _limit(self) -> float:
        return self.budget * (1.0 + SLACK)

    def _epsilons(self, share: NDArray[np.float64], epochs: float) -> NDArray[np.float64]:
        """Return the smallest epsilon for each share a = theta^2 k / T; infinite where there is none.

        It never falls where a grows, on which the search relies.
        """
        if self.sigma is None:
            return _own_epsilons(share, epochs, self.delta, self._limit, self.exact)
        bound = epochs * share * gam_array(np.float64(self.sigma), share, self.exact)
        return np.maximum(bound, epsilon_of(self.sigma, self.delta))

    def _largest(self, gradients: int) -> int | None:
        """Return the largest batch size that no condition refuses."""
        most = self._most(gradients)
        if self.sigma is not None and (self.sigma**2 <= 2.0 or epsilon_of(self.sigma, self.delta) > self._limit):
            return None
        before = Course.of(self.done, self.num_examples) if self.done else Course(0, 0, 0, self.num_examples)
        K = before.gradients + gradients
        epochs = K / self.num_examples

        def share(largest: NDArray[np.int64], rounds: NDArray[np.float64]) -> NDArray[np.float64]:
            return (largest / K) * rounds * (largest / self.num_examples)

        def accepted(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
            largest = np.maximum(sizes, before.largest)
            rounds = np.asarray(before.rounds - (-gradients // sizes), dtype=np.float64)
            epsilon = self._epsilons(share(largest, rounds), epochs)
            within = epsilon <= self._limit
            caps = np.array([self._cap(value) if ok else 0.0 for value, ok in zip(epsilon, within, strict=True)])
            return within & (largest <= caps * (1.0 + SLACK))

        def hopeless(low: int, high: int) -> bool:
            """Whether bounds exclude all sizes from low to high."""
            ends = np.array([low, high], dtype=np.int64)
            largest = np.maximum(ends, before.largest)
            fewest, most_rounds = before.rounds - (-gradients // high), before.rounds - (-gradients // low)
            # max(s_0, s)^2 (T_0 + K'/s) falls up to s_0 and rises from there on
            turn = min(max(before.largest, low), high)
            smooth = before.rounds + gradients / np.array([turn], dtype=np.float64)
            least = np.maximum(
                share(largest[:1], np.array([float(fewest)])),
                share(np.array([max(turn, before.largest)]), smooth),
            )
            greatest = share(largest[1:], np.array([float(most_rounds)]))
            epsilon = self._epsilons(np.concatenate([least, greatest]), epochs)
            if epsilon[0] > self._limit * (1.0 + SLACK):
                return True
            # The cap of (32) by 1/(e sigma) is largest at the least noise, which is at the greatest epsilon.
            sigma = self.sigma or sigma_of(min(float(epsilon[1]), self._limit), self.delta)
            return bool(largest[0] > self.num_examples / (math.e * sigma) * (1.0 + 2.0 * SLACK))

        ranges = [(1, most)]  # a stack, so that the ranges of larger sizes come first
        while ranges:
            low, high = ranges.pop()
            if hopeless(low, high):
                continue
            if high - low < _LEAF:
                sizes = np.arange(low, high + 1)
                fine = np.flatnonzero(accepted(sizes))
                if fine.size:
                    return int(sizes[fine[-1]])
                continue
            middle = (low + high) // 2
            ranges += [(low, middle), (middle + 1, high)]
        return None

    def _cap(self, epsilon: float) -> float:
        """Return the largest batch that (32) allows at this epsilon's sigma."""
        return self.num_examples * g(self.sigma or sigma_of(epsilon, self.delta))


def _own_epsilons(
    share: NDArray[np.float64], epochs: float, delta: float, limit: float, exact: bool
) -> NDArray[np.float64]:
    """Return the smallest epsilon <= limit with epsilon >= k a Gam(sigma(epsilon), a) for each a; infinite if none.

    Near 0 the right side is larger, as sigma has no bound there and Gam >= 2. The first change of sign on a grid of
    epsilon is refined by bisection.
    """
    log_inverse_delta = log_inverse(delta)
    a = share[:, None]

    def lacking(epsilon: NDArray[np.float64]) -> NDArray[np.bool_]:
        sigma = np.sqrt(2.0 * (epsilon + log_inverse_delta) / epsilon)
        return epochs * a * gam_array(sigma, np.broadcast_to(a, sigma.shape), exact) > epsilon

    start = np.minimum(2.0 * epochs * a, limit)
    grid = start * (limit / start) ** np.linspace(0.0, 1.0, _GRID)
    grid[:, -1] = limit
    enough = ~lacking(grid)
    first = np.argmax(enough, axis=1)
    rows = np.arange(share.size)
    high = grid[rows, first][:, None]
    low = grid[rows, np.maximum(first - 1, 0)][:, None]
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = lacking(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(enough.any(axis=1), high[:, 0], np.inf)
