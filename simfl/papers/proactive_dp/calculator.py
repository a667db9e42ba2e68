"""Plans a client's further rounds: the largest batch, its rounds and epsilon.

Van Dijk et al. 2021, "Proactive DP", https://arxiv.org/abs/2102.09030, Appendix E.1 and Figure 15, based on Theorem B.4
(see `theorems`). A client runs its rounds and measures its test accuracy. If that is too low, it takes less noise and
plans more gradients, as long as its epsilon budget lasts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.papers.proactive_dp import theorems
from simfl.papers.proactive_dp.theorems import SLACK, Course, RoundsPlan, epsilon_of, g, gam_array, sigma_of
from simfl.privacy import checks

_LEAF = 64  # sizes in a range that is tried exhaustively, in one array
_GRID = 96  # points of epsilon between which the first root is searched


@dataclass(frozen=True)
class Stop:
    """The client stops participating: every batch size exceeds its budget."""

    condition: str  # that fails at the nearest size
    reason: str  # one line with numbers


@dataclass(frozen=True)
class Calculator:
    """A client that plans further rounds after those it has run.

    If the noise decreases, all earlier rounds are accounted with the new, smaller sigma, which overstates their cost.

    The paper tries s' = 1, 2, ... and stops before the first size that fails. But the valid sizes need not begin at 1
    or be consecutive. After rounds with large batches, small ones make theta = max s_i / mean s_i large. The number of
    rounds ceil(K' / s') jumps. Without a given sigma, (32) may fail in the middle. This search covers all sizes, with
    bounds that exclude whole ranges.
    """

    num_examples: int  # N
    delta: float  # in (0, 1)
    budget: float  # the largest epsilon that the client accepts
    sigma: float | None = None  # noise multiplier; None to determine it, for a first series of rounds
    done: theorems.BatchSchedule = ()  # (size, rounds) of earlier rounds, with noise of at least `sigma`
    exact: bool = False  # Gam without the paper's error

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
        """Return the plan with the largest batch for K' > 0 gradients, or Stop."""
        largest = self._largest(gradients)
        if largest is not None:
            return self.try_batch(largest, gradients)
        # The nearest size is the largest so far: smaller ones raise theta, larger ones max s_i.
        nearest = min(self._before.largest or 1, self._most(gradients))
        stop = self._settle(nearest, gradients)
        assert isinstance(stop, Stop), "every size fails"
        return stop

    def try_batch(self, batch: int, gradients: int) -> RoundsPlan:
        """Return the plan for K' gradients in batches of s'.

        T' = ceil(K' / s') rounds; the last one is smaller if s' does not divide K'. epsilon is the smallest that
        Theorem B.4 claims. With sigma None it is the smallest with epsilon = k a Gam(sigma(epsilon), a),
        a = theta^2 k / T, where sigma(epsilon) is the main equation.

        Raises:
            ConditionError: a condition fails, or the budget is too small.
        """
        settled = self._settle(batch, gradients)
        if isinstance(settled, Stop):
            raise ConditionError(settled.reason)
        course, epsilon, sigma = settled
        larger = self._settle(batch + 1, gradients) if batch < self._most(gradients) else Stop("K", "")
        bound_by = larger.condition if isinstance(larger, Stop) else ""
        return theorems.checked_plan(
            course, epsilon=epsilon, delta=self.delta, sigma=sigma, exact=self.exact, batch=batch,
            rounds=gradients // batch, last_batch=gradients % batch, gradients=gradients, asked=gradients,
            done=tuple(self.done), bound_by=bound_by,
        )  # fmt: skip

    def _most(self, gradients: int) -> int:
        checks.whole(1, gradients=gradients)
        return min(gradients, self.num_examples - 1)

    def _settle(self, batch: int, gradients: int) -> tuple[Course, float, float] | Stop:
        """Return all rounds, the smallest claimed epsilon and its sigma, or Stop."""
        checks.whole(1, self._most(gradients), batch=batch)
        before = self._before
        rounds, largest = before.rounds - (-gradients // batch), max(before.largest, batch)
        course = Course(rounds, before.gradients + gradients, largest, self.num_examples)
        if self.sigma is not None and self._too_little_noise:
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
    def _before(self) -> Course:
        return Course.of(self.done, self.num_examples) if self.done else Course(0, 0, 0, self.num_examples)

    @property
    def _too_little_noise(self) -> bool:
        return self.sigma is not None and (self.sigma**2 <= 2.0 or epsilon_of(self.sigma, self.delta) > self._limit)

    @property
    def _limit(self) -> float:
        return self.budget * (1.0 + SLACK)

    def _epsilons(self, share: NDArray[np.float64], epochs: float) -> NDArray[np.float64]:
        """Return the smallest epsilon for each share a = theta^2 k / T; inf for none.

        It does not decrease in a; the search relies on that.
        """
        if self.sigma is None:
            return _smallest_epsilons(share, epochs, self.delta, self._limit, self.exact)
        bound = epochs * share * gam_array(np.float64(self.sigma), share, self.exact)
        return np.maximum(bound, epsilon_of(self.sigma, self.delta))

    def _largest(self, gradients: int) -> int | None:
        """Return the largest batch size that fulfills all conditions; None for none."""
        most = self._most(gradients)
        if self._too_little_noise:
            return None
        before = self._before
        K = before.gradients + gradients
        epochs = K / self.num_examples

        def share(largest: NDArray[np.int64], rounds: NDArray[np.float64]) -> NDArray[np.float64]:
            return (largest / K) * rounds * (largest / self.num_examples)

        def cap(epsilon: float) -> float:
            """Return the largest batch that (32) allows at this epsilon's sigma."""
            return self.num_examples * g(self.sigma or sigma_of(epsilon, self.delta))

        def accepted(sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
            largest = np.maximum(sizes, before.largest)
            rounds = np.asarray(before.rounds - (-gradients // sizes), dtype=np.float64)
            epsilon = self._epsilons(share(largest, rounds), epochs)
            within = epsilon <= self._limit
            caps = [cap(value) if ok else 0.0 for value, ok in zip(epsilon, within, strict=True)]
            return within & (largest <= np.array(caps) * (1.0 + SLACK))

        def excluded(low: int, high: int) -> bool:
            """Return whether bounds exclude all sizes from low to high."""
            ends = np.array([low, high], dtype=np.int64)
            largest = np.maximum(ends, before.largest)
            fewest, most_rounds = before.rounds - (-gradients // high), before.rounds - (-gradients // low)
            # max(s_0, s)^2 (T_0 + K'/s) decreases up to s_0 and increases after it.
            turn = min(max(before.largest, low), high)
            smooth = before.rounds + gradients / np.array([turn], dtype=np.float64)
            at_turn = share(np.array([max(turn, before.largest)]), smooth)
            least = np.maximum(share(largest[:1], np.array([float(fewest)])), at_turn)
            greatest = share(largest[1:], np.array([float(most_rounds)]))
            epsilon = self._epsilons(np.concatenate([least, greatest]), epochs)
            if epsilon[0] > self._limit * (1.0 + SLACK):
                return True
            # The cap of (32) by 1/(e sigma) is largest at the least noise, which is at the greatest epsilon.
            sigma = self.sigma or sigma_of(min(float(epsilon[1]), self._limit), self.delta)
            return bool(largest[0] > self.num_examples / (math.e * sigma) * (1.0 + 2.0 * SLACK))

        ranges = [(1, most)]  # a stack, with the ranges of larger sizes on top
        while ranges:
            low, high = ranges.pop()
            if excluded(low, high):
                continue
            if high - low < _LEAF:
                sizes = np.arange(low, high + 1)
                valid = sizes[accepted(sizes)]
                if valid.size:
                    return int(valid[-1])
                continue
            middle = (low + high) // 2
            ranges += [(low, middle), (middle + 1, high)]
        return None


def _smallest_epsilons(
    share: NDArray[np.float64], epochs: float, delta: float, limit: float, exact: bool
) -> NDArray[np.float64]:
    """Return the smallest epsilon <= limit for each a; inf for none.

    The condition is epsilon >= k a Gam(sigma(epsilon), a). Near 0 the right side is larger, because sigma is unbounded
    there and Gam >= 2. Bisection refines the first change of sign on a grid of epsilon.
    """
    log_inverse_delta = theorems.log_inverse(delta)
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
