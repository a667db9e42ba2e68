"""Step sizes that change over a run: what a scenario says about them, and the plain function that the run calls.

The count t is global: all updates (mini-batches) applied so far, all examples used so far, or all passes over the
whole training set (epochs, a fraction while a pass is under way).
"""

from __future__ import annotations

import bisect
import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from simfl.scenario.fields import ByKind, Config, NonNegative, OpenShare, Positive, Share, variant
from simfl.scenario.problems import InvalidValueError, Problem

Counted = Literal["updates", "examples", "epochs"]


class Schedule(ABC):
    """A step size as a function of the run's progress. Implementations are frozen and hashable."""

    @abstractmethod
    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return the step size of the update that comes after `updates` updates.

        Args:
            updates: mini-batches applied so far, by all clients together.
            examples: examples used so far, by all clients together.
            epochs: passes over the whole training set so far.
        """

    def simplified(self) -> float | Schedule:
        """Return the step size where it never changes, else the schedule."""
        return self


@dataclass(frozen=True, slots=True)
class Constant(Schedule):
    """eta_t = value."""

    value: float

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return the value, whatever the progress."""
        return self.value

    def simplified(self) -> float | Schedule:
        """Return the value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Piecewise(Schedule):
    """eta_t = values[i] from boundaries[i-1] epochs (included) to boundaries[i] epochs (excluded).

    Args:
        values: one more than there are boundaries.
        boundaries: increasing, in epochs.
    """

    values: tuple[float, ...]
    boundaries: tuple[float, ...]

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return the value of the interval that `epochs` lies in."""
        return self.values[bisect.bisect_right(self.boundaries, epochs)]


@dataclass(frozen=True, slots=True)
class Decaying(Schedule):
    """eta_t = initial / (1 + beta t), or initial / (1 + beta sqrt(t)).

    Args:
        initial: eta_0.
        beta: how fast it falls, per unit of `count`.
        count: what t counts.
        root: take the square root of t.
    """

    initial: float
    beta: float
    count: Counted
    root: bool

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        t = _counted(self.count, updates, examples, epochs)
        return self.initial / (1.0 + self.beta * (math.sqrt(t) if self.root else t))


def _counted(count: Counted, updates: int, examples: int, epochs: float) -> float:
    return updates if count == "updates" else examples if count == "examples" else epochs


@dataclass(frozen=True, slots=True)
class Cosine(Schedule):
    """eta_t goes from `initial` at t = begin to `final` at t = end along half a cosine, and is constant outside.

    Loshchilov and Hutter 2017, https://arxiv.org/abs/1608.03983, without restarts.
    """

    initial: float
    final: float
    begin: float
    end: float
    count: Counted

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        t = _counted(self.count, updates, examples, epochs)
        share = min(1.0, max(0.0, (t - self.begin) / (self.end - self.begin)))
        return self.final + (self.initial - self.final) * 0.5 * (1.0 + math.cos(math.pi * share))


@dataclass(frozen=True, slots=True)
class OneCycle(Schedule):
    """Up along half a cosine, and down along another: Smith and Topin 2018, https://arxiv.org/abs/1708.07120."""

    up: Cosine
    down: Cosine

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        t = _counted(self.up.count, updates, examples, epochs)
        return (self.up if t < self.up.end else self.down)(updates, examples, epochs)


@dataclass(frozen=True, slots=True)
class Exponential(Schedule):
    """eta_t = max(final, initial * rate^(t / every))."""

    initial: float
    rate: float
    every: float
    final: float
    count: Counted

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        t = _counted(self.count, updates, examples, epochs)
        return max(self.final, self.initial * math.pow(self.rate, t / self.every))


@dataclass(frozen=True, slots=True)
class RootOfCount(Schedule):
    """eta_t = initial / sqrt(t), t counting updates from 1."""

    initial: float

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return self.initial / math.sqrt(updates + 1)


@dataclass(frozen=True, slots=True)
class Capped(Schedule):
    """eta_t = min(then_t, largest)."""

    largest: float
    then: Schedule

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return min(self.largest, self.then(updates, examples, epochs))

    def simplified(self) -> float | Schedule:
        """Return the smaller of two numbers, where both are."""
        then = self.then.simplified()
        return min(self.largest, then) if isinstance(then, float) else self


@dataclass(frozen=True, slots=True)
class WarmUp(Schedule):
    """eta_t = initial + (then_t - initial) e / epochs while e < epochs, and then_t afterwards; e counts epochs.

    Goyal et al. 2017, section 2.2, https://arxiv.org/abs/1706.02677 ("gradual warmup"), for any schedule after it:
    aiming at the value that `then` has at the same moment leaves no jump where the warm-up ends.
    """

    initial: float
    epochs: float
    then: Schedule

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        target = self.then(updates, examples, epochs)
        return target if epochs >= self.epochs else self.initial + (target - self.initial) * epochs / self.epochs


class ConstantStep(Config):
    """The same step size throughout; a plain number is short for it."""

    kind: Literal["constant"] = variant("constant")
    value: NonNegative = Field(description="step size on the mean gradient of a mini-batch, >= 0")

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Constant(self.value)


def _increasing(boundaries: tuple[float, ...]) -> tuple[float, ...]:
    for index, (before, after) in enumerate(itertools.pairwise(boundaries), start=1):
        if after <= before:
            expected, advice = f"an epoch after {before:g}", "sort the boundaries"
            raise InvalidValueError(Problem(expected, f"{after:g}", advice, (index,)))
    return boundaries


class StepsByEpochs(Config):
    """Steps down (or up) at given epochs."""

    kind: Literal["by_epochs"] = variant("by_epochs")
    values: tuple[NonNegative, ...] = Field(description="step sizes, one more than there are boundaries")
    boundaries: Annotated[tuple[Positive, ...], AfterValidator(_increasing)] = Field(
        default=(), description="epochs at which the next value begins, increasing"
    )

    @model_validator(mode="after")
    def _one_more(self) -> Self:
        wanted = len(self.boundaries) + 1
        if len(self.values) != wanted:
            expected = f"one step size more than boundaries, that is {wanted}"
            advice = "give one value before, between and after the boundaries"
            raise InvalidValueError(Problem(expected, str(len(self.values)), advice, ("values",)))
        return self

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Piecewise(self.values, self.boundaries)


class InverseStep(Config):
    """Falls as initial / (1 + beta t)."""

    kind: Literal["inverse"] = variant("inverse")
    initial: NonNegative = Field(description="step size at t = 0")
    beta: NonNegative = Field(description="how fast it falls, per unit of `count`")
    count: Counted = Field(
        default="updates", description="what t counts: updates, examples or epochs of all clients together"
    )

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Decaying(self.initial, self.beta, self.count, root=False)


class InverseRootStep(Config):
    """Falls as initial / (1 + beta sqrt(t))."""

    kind: Literal["inverse_sqrt"] = variant("inverse_sqrt")
    initial: NonNegative = Field(description="step size at t = 0")
    beta: NonNegative = Field(description="how fast it falls, per square root of a unit of `count`")
    count: Counted = Field(
        default="updates", description="what t counts: updates, examples or epochs of all clients together"
    )

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Decaying(self.initial, self.beta, self.count, root=True)


class CosineStep(Config):
    """Falls from `initial` to `final` along half a cosine, and stays there."""

    kind: Literal["cosine"] = variant("cosine")
    initial: NonNegative = Field(description="step size at t = 0")
    final: NonNegative = Field(default=0.0, description="step size from t = length on")
    length: Positive = Field(description="how long it falls, in units of `count`")
    count: Counted = Field(
        default="updates", description="what t counts: updates, examples or epochs of all clients together"
    )

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Cosine(self.initial, self.final, 0.0, self.length, self.count)


class ExponentialStep(Config):
    """Falls by a factor in equal times."""

    kind: Literal["exponential"] = variant("exponential")
    initial: NonNegative = Field(description="step size at t = 0")
    rate: Share = Field(description="factor by which it falls")
    every: Positive = Field(description="in so many units of `count`")
    final: NonNegative = Field(default=0.0, description="the smallest step size")
    count: Counted = Field(
        default="updates", description="what t counts: updates, examples or epochs of all clients together"
    )

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return Exponential(self.initial, self.rate, self.every, self.final, self.count)


class OneCycleStep(Config):
    """Grows to a peak along half a cosine and falls along another, far below where it began."""

    kind: Literal["one_cycle"] = variant("one_cycle")
    peak: NonNegative = Field(description="the largest step size")
    length: Positive = Field(description="of the cycle, in units of `count`")
    rise: OpenShare = Field(default=0.3, description="share of the cycle in which it grows")
    begin: Share = Field(default=0.04, description="step size at t = 0, as a share of the peak")
    end: Share = Field(default=4e-6, description="step size from t = length on, as a share of the peak")
    count: Counted = Field(
        default="updates", description="what t counts: updates, examples or epochs of all clients together"
    )

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        top, low, last = self.rise * self.length, self.peak * self.begin, self.peak * self.end
        up = Cosine(low, self.peak, 0.0, top, self.count)
        return OneCycle(up, Cosine(self.peak, last, top, self.length, self.count))


_Falling = ConstantStep | StepsByEpochs | InverseStep | InverseRootStep | CosineStep | ExponentialStep

SettledStep = Annotated[_Falling, ByKind(scalar="constant")]


class WarmUpStep(Config):
    """Grows linearly from `initial` to another schedule during the first epochs."""

    kind: Literal["warm_up"] = variant("warm_up")
    initial: NonNegative = Field(description="step size at the very beginning")
    epochs: Positive = Field(description="length of the warm-up, in epochs")
    then: SettledStep = Field(description="the schedule that is met at the end of the warm-up and kept from there")

    def schedule(self) -> Schedule:
        """Return the function that the run calls."""
        return WarmUp(self.initial, self.epochs, self.then.schedule())


StepSize = Annotated[_Falling | OneCycleStep | WarmUpStep, ByKind(scalar="constant")]
