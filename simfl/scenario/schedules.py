"""Schedules of step sizes: sections that are also functions.

The count t is global: all updates (mini-batches) applied so far, all examples used so far, or all passes over the
whole training set (epochs, a fraction during a pass).
"""

from __future__ import annotations

import bisect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from simfl.scenario.fields import ByKind, Config, NonNegative, OpenShare, Positive, Share, option, variant
from simfl.scenario.problems import Problem, invalid


class Schedule(ABC):
    """A step size as a function of the run's progress; frozen and hashable."""

    @abstractmethod
    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return the step size of the next update.

        Args:
            updates: mini-batches applied so far, by all clients together.
            examples: examples used so far, by all clients together.
            epochs: passes over the whole training set so far.
        """

    def simplified(self) -> float | Schedule:
        """Return the step size if it never changes, else the schedule."""
        return self


class ConstantStep(Config, Schedule):
    """The same step size throughout."""

    kind: Literal["constant"] = variant("constant")
    value: NonNegative = Field(description="step size on the mean gradient of a mini-batch, >= 0")

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return the value."""
        return self.value

    def simplified(self) -> float:
        """Return the value."""
        return self.value


def _increasing(boundaries: tuple[float, ...]) -> tuple[float, ...]:
    for index, (before, after) in enumerate(itertools.pairwise(boundaries), start=1):
        if after <= before:
            expected, advice = f"an epoch after {before:g}", "sort the boundaries"
            raise invalid(expected, f"{after:g}", advice, (index,))
    return boundaries


class StepsByEpochs(Config, Schedule):
    """Steps down (or up) at given epochs."""

    kind: Literal["by_epochs"] = variant("by_epochs")
    values: tuple[NonNegative, ...] = Field(description="step sizes, one more than there are boundaries")
    boundaries: Annotated[tuple[Positive, ...], AfterValidator(_increasing)] = option(
        (), "epochs at which the next value begins, increasing"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless there is one value more than boundaries."""
        expected_number = len(self.boundaries) + 1
        if len(self.values) != expected_number:
            expected = f"one step size more than boundaries, that is {expected_number}"
            advice = "give one value before, between and after the boundaries"
            yield Problem(expected, str(len(self.values)), advice, ("values",))

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return values[i] between boundaries[i-1] (included) and boundaries[i] epochs."""
        return self.values[bisect.bisect_right(self.boundaries, epochs)]


Counted = Annotated[
    Literal["updates", "examples", "epochs"],
    Field(description="what t counts: updates, examples or epochs of all clients together"),
]


def _counted(count: str, updates: int, examples: int, epochs: float) -> float:
    return {"updates": updates, "examples": examples, "epochs": epochs}[count]


class InverseStep(Config, Schedule):
    """Falls as initial / (1 + beta t)."""

    kind: Literal["inverse"] = variant("inverse")
    initial: NonNegative = Field(description="step size at t = 0")
    beta: NonNegative = Field(description="how fast it falls, per unit of `count`")
    count: Counted = "updates"

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return self.initial / (1.0 + self.beta * _counted(self.count, updates, examples, epochs))


class InverseRootStep(Config, Schedule):
    """Falls as initial / (1 + beta sqrt(t))."""

    kind: Literal["inverse_sqrt"] = variant("inverse_sqrt")
    initial: NonNegative = Field(description="step size at t = 0")
    beta: NonNegative = Field(description="how fast it falls, per square root of a unit of `count`")
    count: Counted = "updates"

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        return self.initial / (1.0 + self.beta * math.sqrt(_counted(self.count, updates, examples, epochs)))


def _cosine(initial: float, final: float, begin: float, end: float, t: float) -> float:
    """Return half a cosine from `initial` at `begin` to `final` at `end`.

    Loshchilov and Hutter 2017, https://arxiv.org/abs/1608.03983, without restarts.
    """
    share = min(1.0, max(0.0, (t - begin) / (end - begin)))
    return final + (initial - final) * 0.5 * (1.0 + math.cos(math.pi * share))


class CosineStep(Config, Schedule):
    """Falls from `initial` to `final` along half a cosine, then constant."""

    kind: Literal["cosine"] = variant("cosine")
    initial: NonNegative = Field(description="step size at t = 0")
    final: NonNegative = option(0.0, "step size from t = length on")
    length: Positive = Field(description="how long it falls, in units of `count`")
    count: Counted = "updates"

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t."""
        t = _counted(self.count, updates, examples, epochs)
        return _cosine(self.initial, self.final, 0.0, self.length, t)


class ExponentialStep(Config, Schedule):
    """Falls by a factor in equal times."""

    kind: Literal["exponential"] = variant("exponential")
    initial: NonNegative = Field(description="step size at t = 0")
    rate: Share = Field(description="factor by which it falls")
    every: Positive = Field(description="in this many units of `count`")
    final: NonNegative = option(0.0, "the smallest step size")
    count: Counted = "updates"

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t = max(final, initial * rate^(t / every))."""
        t = _counted(self.count, updates, examples, epochs)
        return max(self.final, self.initial * math.pow(self.rate, t / self.every))


class OneCycleStep(Config, Schedule):
    """Rises to a peak along half a cosine, and falls along another.

    The end is far below the start.
    """

    kind: Literal["one_cycle"] = variant("one_cycle")
    peak: NonNegative = Field(description="the largest step size")
    length: Positive = Field(description="length of the cycle, in units of `count`")
    rise: OpenShare = option(0.3, "fraction of the cycle in which it grows")
    begin: Share = option(0.04, "step size at t = 0, as a fraction of the peak")
    end: Share = option(4e-6, "step size from t = length on, as a fraction of the peak")
    count: Counted = "updates"

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return eta_t: Smith and Topin 2018, https://arxiv.org/abs/1708.07120."""
        t = _counted(self.count, updates, examples, epochs)
        top = self.rise * self.length
        if t < top:
            return _cosine(self.peak * self.begin, self.peak, 0.0, top, t)
        return _cosine(self.peak, self.peak * self.end, top, self.length, t)


_Falling = ConstantStep | StepsByEpochs | InverseStep | InverseRootStep | CosineStep | ExponentialStep

SettledStep = Annotated[_Falling, ByKind(scalar="constant")]


class WarmUpStep(Config, Schedule):
    """Grows linearly from `initial` to another schedule during the first epochs."""

    kind: Literal["warm_up"] = variant("warm_up")
    initial: NonNegative = Field(description="step size at the very beginning")
    epochs: Positive = Field(description="length of the warm-up, in epochs")
    then: SettledStep = Field(description="the schedule that is met at the end of the warm-up and kept from there")

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return initial + (then_t - initial) e / epochs in the warm-up, then then_t.

        Goyal et al. 2017, section 2.2, https://arxiv.org/abs/1706.02677 ("gradual warmup"), for any schedule. The
        target is the value of `then` at the same moment, so the step size does not jump when the warm-up ends.
        """
        target = self.then(updates, examples, epochs)
        return target if epochs >= self.epochs else self.initial + (target - self.initial) * epochs / self.epochs


StepSize = Annotated[_Falling | OneCycleStep | WarmUpStep, ByKind(scalar="constant")]
