"""Sequences of growing sample sizes and falling step sizes.

Van Dijk et al. 2020, "Asynchronous Federated Learning with Reduced Number of Rounds and with Differential Privacy from
Less Aggregated Gaussian Noise", https://arxiv.org/abs/2007.09208; "equation", "Lemma" and "Theorem" below are theirs.

Rounds are counted from 0. s_i is the size of round i, of all clients together or of one client; the caller decides.
S_i = s_0 + ... + s_(i-1) gradients precede round i. A delay function tau(t) bounds how many of the latest updates the
model of iteration t may lack. A client may work on round i while its model contains all rounds below i - d of all
clients (the gate: it waits while i > k + d, where k rounds are complete). It then lacks at most s_(i-d) + ... + s_i
updates, and condition (3) requires that tau allows this.
"""

from __future__ import annotations

import bisect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from simfl.errors import ConditionError
from simfl.privacy import checks

_ROUNDING = 1e-12


def ceiling(value: float) -> int:
    """Return the smallest integer >= value, within a relative 1e-12.

    N q m^p, the first size of the paper's recipe, is an integer that floating point can miss by a rounding error.
    """
    nearest = round(value)
    return nearest if abs(value - nearest) <= _ROUNDING * max(1.0, abs(value)) else math.ceil(value)


@dataclass(frozen=True)
class AbstractSizes(ABC):
    """A sequence of sample sizes s_0, s_1, ..., integers >= 1, computed on demand."""

    _totals: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)

    @abstractmethod
    def _size(self, i: int) -> int:
        """Return s_i for i >= 0."""

    def size(self, i: int) -> int:
        """Return s_i, the size of round i >= 0."""
        checks.whole(0, i=i)
        return self._positive(i)

    def _positive(self, i: int) -> int:
        if (size := self._size(i)) < 1:
            raise ValueError(f"sizes: expected at least 1 example in every round, found {size} in round {i}")
        return size

    def _add_round(self) -> None:
        self._totals.append(self._totals[-1] + self._positive(len(self._totals) - 1))

    def total(self, i: int) -> int:
        """Return S_i = s_0 + ... + s_(i-1), the gradients before round i; S_0 = 0."""
        checks.whole(0, i=i)
        while len(self._totals) <= i:
            self._add_round()
        return self._totals[i]

    def rounds_for(self, gradients: float) -> int:
        """Return T, the smallest number of rounds with S_T >= K gradients."""
        checks.at_least(0.0, gradients=gradients)
        while self._totals[-1] < gradients:
            self._add_round()
        return bisect.bisect_left(self._totals, gradients)

    def first(self, rounds: int) -> list[int]:
        """Return [s_0, ..., s_(rounds-1)]."""
        return [self.size(i) for i in range(rounds)]


@dataclass(frozen=True)
class ConstantSizes(AbstractSizes):
    """s_i = s, as in the original federated learning."""

    s: int  # integer >= 1

    def __post_init__(self) -> None:
        checks.whole(1, s=self.s)

    def _size(self, i: int) -> int:
        return self.s

    def total(self, i: int) -> int:
        """Return i s."""
        checks.whole(0, i=i)
        return i * self.s

    def rounds_for(self, gradients: float) -> int:
        """Return ceil(K / s)."""
        checks.at_least(0.0, gradients=gradients)
        return math.ceil(gradients / self.s)


@dataclass(frozen=True)
class StagedSizes(AbstractSizes):
    """The sizes of `first`, and those of later stages from their first round on.

    `later` has (first round, size) in order; a size of None is that of `first`.
    """

    first_stage: AbstractSizes
    later: tuple[tuple[int, int | None], ...]

    def _size(self, i: int) -> int:
        own = [size for begin, size in self.later if begin <= i]
        return self.first_stage.size(i) if not own or own[-1] is None else own[-1]


@dataclass(frozen=True)
class PolynomialSizes(AbstractSizes):
    """Sizes ceil(a i^c + b), i = r + start; "O(i) method" of App. E.2.2, Table 1.

    The paper does not say where i begins. With b = 0, i = 0 would be an empty round, so rounds start at i = 1 here;
    `start=0` makes b the size of the first round.
    """

    a: float  # >= 0, examples
    c: float = 1.0  # power >= 0; the paper takes 0 to 1
    b: float = 0.0  # >= 0, examples
    start: int = 1  # i of the first round, >= 0

    def __post_init__(self) -> None:
        checks.at_least(0.0, a=self.a, c=self.c, b=self.b)
        checks.whole(0, start=self.start)
        self.size(0)

    def _size(self, i: int) -> int:
        return ceiling(self.a * float(i + self.start) ** self.c + self.b)


@dataclass(frozen=True)
class OverLogSizes(AbstractSizes):
    """Sizes ceil(a i / ln i + b), i = r + start; "O(i / ln i)" of App. E.2.2.

    The logarithm is 0 at i = 1 and undefined at i = 0, so rounds start at i = 2, which reproduces the number of rounds
    of Figure 3. The sequence falls once, from i = 2 (2.885 a) to i = 3 (2.731 a), and grows from there.
    """

    a: float  # >= 0, examples
    b: float = 0.0  # >= 0, examples
    start: int = 2  # i of the first round, >= 2

    def __post_init__(self) -> None:
        checks.at_least(0.0, a=self.a, b=self.b)
        checks.whole(2, start=self.start)
        self.size(0)

    def _size(self, i: int) -> int:
        index = i + self.start
        return ceiling(self.a * index / math.log(index) + self.b)


@dataclass(frozen=True)
class ShiftedPowerSizes(AbstractSizes):
    """s_i = ceil(s (i + m)^p): Table 2, and Theorems 4 and 6 with s = N q."""

    s: float  # slope N q > 0, examples
    m: float  # shift >= 0, any real number; with a larger m, sizes grow more slowly relative to the first one
    p: float = 1.0  # power >= 0

    def __post_init__(self) -> None:
        checks.at_least(0.0, m=self.m, p=self.p)
        checks.positive(s=self.s)
        self.size(0)

    def _size(self, i: int) -> int:
        return ceiling(self.s * (i + self.m) ** self.p)


@dataclass(frozen=True)
class DelaySizes(AbstractSizes):
    """Lemma 1: sample sizes that satisfy a given delay function, for any gate d.

    s_i = ceil( S((m + i + 1) / (d + 1)) / (d + 1) ),  S(x) = ( x (g - 1) / (g omega(x)) )^(1 / (g - 1)),
    omega(x) = gam( (x (g - 1) / g)^(g / (g - 1)) ), satisfies condition (3) for
    tau(t) = M1 + ( (t + M0) / gam(t + M0) )^(1/g).

    gam(z) for z >= 0 is at least 1, does not decrease, and gam(z) >= z gam'(z) g / (g - 1), that is, gam(z) /
    z^((g-1)/g) does not increase. This is checked at 400 points from 0 to 1e16.

    Raises:
        ConditionError: an assumption of the lemma is violated.
    """

    g: float  # > 1. tau grows like t^(1/g), sizes like i^(1/(g-1))
    gam: Callable[[float], float]
    m: int  # integer >= 0, how far into the sequence to start
    d: int  # gate, integer >= 0
    m0: float | None = None  # M0 >= ((m + 1) (g - 1) / g)^(g / (g - 1)), or >= 0 if m = 0; by default that bound
    m1: float | None = None  # M1 >= d + 1; by default that bound

    def __post_init__(self) -> None:
        checks.whole(0, m=self.m, d=self.d)
        if not 1.0 < self.g < math.inf:
            raise ConditionError(f"condition g > 1 of Lemma 1: g is {self.g:g}; take for example g = 2")
        _check_gam(self.gam, self.g)
        if self.shift < (1.0 - _ROUNDING) * self._least_shift():
            raise ConditionError(
                f"condition M0 >= ((m+1)(g-1)/g)^(g/(g-1)) of Lemma 1: M0 is {self.shift:g}, expected at least "
                f"{checks.rounded_up(self._least_shift(), 6)}; take that"
            )
        if self.offset < self.d + 1:
            raise ConditionError(
                f"condition M1 >= d + 1 of Lemma 1: M1 is {self.offset:g}, d + 1 is {self.d + 1}; take a larger M1"
            )

    def _least_shift(self) -> float:
        return 0.0 if self.m == 0 else self._integral_argument(self.m + 1.0)

    def _integral_argument(self, x: float) -> float:
        """Return (x (g - 1) / g)^(g / (g - 1)), like an integral of z^(1/(g-1))."""
        return float((x * (self.g - 1.0) / self.g) ** (self.g / (self.g - 1.0)))

    @property
    def shift(self) -> float:
        """M0."""
        return self._least_shift() if self.m0 is None else self.m0

    @property
    def offset(self) -> float:
        """M1."""
        return self.d + 1.0 if self.m1 is None else self.m1

    def _size(self, i: int) -> int:
        x = (self.m + i + 1) / (self.d + 1)
        omega = self.gam(self._integral_argument(x))
        return ceiling((x * (self.g - 1.0) / (self.g * omega)) ** (1.0 / (self.g - 1.0)) / (self.d + 1))

    def delay(self, t: float) -> float:
        """Return tau(t), t >= 0, the delay function of these sizes."""
        z = t + self.shift
        return float(self.offset + (z / self.gam(z)) ** (1.0 / self.g))


def largest_delay(t: float) -> float:
    """Return sqrt((t / ln t) (1 - 1 / ln t)), equation (14); 0 for t <= e.

    For large t, this is the largest delay that keeps the leading term of the convergence rate of strongly convex
    problems. Sizes of order i / ln i can stay below it; those of order i cannot.
    """
    if t <= math.e:
        return 0.0
    log = math.log(t)
    return math.sqrt(t / log * (1.0 - 1.0 / log))


def gate_delay(sizes: AbstractSizes, d: int, i: int) -> int:
    """Return s_(i-d) + ... + s_i, the most gradients a model may lack under gate d."""
    checks.whole(0, d=d)
    checks.whole(d, i=i)
    return sizes.total(i + 1) - sizes.total(i - d)


@dataclass(frozen=True)
class RoundSteps:
    """Lemma 2: the step size of a round for eta_t = alpha_t / (t + E_t)^q.

    etabar_i = a0 / (S_i + Ebar_(i-1))^q with Ebar_(i-1) = E at t = S_i. It is eta_t with a0 <= alpha_t <= a1 if
    E_t >= 1 does not decrease, s_0 - 1 <= E_0, and Ebar_i <= 2 Ebar_(i-1). The last is checked in every round.

    Raises:
        ConditionError: E_0 < 1, or s_0 - 1 > E_0; when called, E falls or more than doubles in an earlier round.
    """

    sizes: DelaySizes  # of Lemma 1
    offset: Callable[[float], float]  # E_t as a function of t
    numerator: float  # a0 > 0
    power: float = 1.0  # q >= 0
    _offsets: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.at_least(0.0, power=self.power)
        checks.positive(numerator=self.numerator)
        start, size = self.offset(0.0), self.sizes.size(0)
        if not start >= 1.0:
            raise ConditionError(f"condition E_t >= 1 of Lemma 2: E_0 is {start:g}; take a larger E")
        if size - 1 > start:
            raise ConditionError(
                f"condition s_0 - 1 <= E_0 of Lemma 2: s_0 is {size}, E_0 is {start:g}; take a larger E or a smaller m"
            )
        self._offsets.append(start)

    def __call__(self, i: int) -> float:
        """Return etabar_i for round i >= 0."""
        checks.whole(0, i=i)
        while len(self._offsets) <= i:
            before, now = self._offsets[-1], self.offset(float(self.sizes.total(len(self._offsets))))
            if not before <= now <= 2.0 * before:
                raise ConditionError(
                    f"condition Ebar_(i-1) <= Ebar_i <= 2 Ebar_(i-1) of Lemma 2: in round {len(self._offsets) - 1} E "
                    f"goes from {before:g} to {now:g}; take an E that grows more slowly"
                )
            self._offsets.append(now)
        return float(self.numerator / (self.sizes.total(i) + self._offsets[i]) ** self.power)


ALPHA = 36.0
"""alpha of Theorem 5, three times the smallest alpha_t for which its rate is proved."""


@dataclass(frozen=True)
class StronglyConvexRecipe:
    """Theorem 5: sizes ~ i / ln i, steps ~ ln i / i^2, optimal up to a constant.

    Lemmas 1 and 2 with g = 2, gam(z) = 4 ln z, M0 = (m + 1)^2 / 4, E_t = 2 tau(t), a0 = 12 / mu, q = 1:
        s_i = ceil( (m + i + 1) / (16 (d + 1)^2 ln((m + i + 1) / (2 (d + 1)))) ),
        etabar_i = (12 / mu) / ( S_i + 2 M1 + sqrt(x_i / ln x_i) ),  x_i = (m + 1)^2 / 4 + S_i,
        M1 = max(d + 1, 2 L alpha / mu, s_0 / 2).
    Below z = e^2, 4 ln z is not a valid gam for Lemma 1: it grows too fast and falls below 1. With m + 1 >= 2 e (d + 1)
    no smaller z occurs, and max(8, 4 ln z), which satisfies the lemma, gives the same sequence.

    Raises:
        ConditionError: m is too small.
    """

    smoothness: float  # L > 0, of the loss of each example, which is convex
    strong_convexity: float  # mu in (0, L], of the mean loss
    m: int  # integer >= 2 e (d + 1) - 1
    d: int = 1  # gate, integer >= 0
    sizes: DelaySizes = field(init=False, repr=False, compare=False)
    steps: RoundSteps = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.positive(smoothness=self.smoothness)
        if not 0.0 < self.strong_convexity <= self.smoothness:
            raise ValueError(
                f"strong_convexity: expected a number in (0, L = {self.smoothness:g}], found {self.strong_convexity}"
            )
        checks.whole(0, m=self.m, d=self.d)
        if self.m + 1 < 2.0 * math.e * (self.d + 1):
            raise ConditionError(
                f"condition m + 1 >= 2 e (d + 1), without which ln is below 1 in Theorem 5: m is {self.m}, d is "
                f"{self.d}; take m >= {math.ceil(2.0 * math.e * (self.d + 1)) - 1}"
            )
        first = DelaySizes(2.0, log_growth, self.m, self.d).size(0)
        m1 = max(self.d + 1.0, 2.0 * self.smoothness * ALPHA / self.strong_convexity, first / 2.0)
        sizes = DelaySizes(2.0, log_growth, self.m, self.d, m1=m1)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(
            self, "steps", RoundSteps(sizes, lambda t: 2.0 * sizes.delay(t), 12.0 / self.strong_convexity)
        )


def constant_growth(z: float) -> float:
    """Return gam(z) = 1 of Lemma 1."""
    return 1.0


def log_growth(z: float) -> float:
    """Return gam(z) = max(8, 4 ln z) of Lemma 1, which Theorem 5 uses."""
    return max(8.0, 4.0 * math.log(z)) if z > 0.0 else 8.0


def _check_gam(gam: Callable[[float], float], g: float) -> None:
    """Check Lemma 1's assumptions on gam on [0, 1e16], without using its derivative."""
    z = np.concatenate(([0.0], np.logspace(-6, 16, 400)))
    values = np.array([gam(float(point)) for point in z])
    scaled = values[1:] / z[1:] ** ((g - 1.0) / g)
    conditions = {
        "gam(z) finite": ~np.isfinite(values),
        "gam(z) >= 1": values < 1.0,
        "gam not decreasing": np.append(False, values[1:] < (1.0 - _ROUNDING) * values[:-1]),
        "gam(z) >= z gam'(z) g/(g-1)": np.append([False, False], scaled[1:] > (1.0 + _ROUNDING) * scaled[:-1]),
    }
    for condition, violated in conditions.items():
        if violated.any():
            at = int(np.argmax(violated))
            raise ConditionError(
                f"condition {condition} of Lemma 1: violated at z = {z[at]:.4g}, where gam is {values[at]:.4g}; "
                "take a gam that is constant up to there"
            )
