"""Compare setups of runs, and make one setup of those that have one world."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from simfl.algorithms import Training
from simfl.algorithms.training import OptimizerPlan
from simfl.assembly.setup import Setup
from simfl.compression.base import CompressionPlan
from simfl.each import array_for_each, each_of
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.distributed import DiscreteLedger
from simfl.privacy.ledger import Ledger
from simfl.tape import LearningProblem
from simfl.tape.problem import LocalRounds

#: Fields that may differ between runs of one world.
_OF_TRAINING = {
    "initial", "step_size", "noise_std", "noise_scale", "clipping_norm", "optimizer", "server_optimizer", "compression",
    "cohorts",
}  # fmt: skip
_OF_PROBLEM = {
    "augment",
    "data",
    "keys",
    "clipping",
    "correlation",
    "optimizing",
    "rounds",
}  # operations are compared, too
_PLAIN = (bool, int, float, str, bytes, frozenset, Fraction, type(None))
#: The fields of a plan of cohorts that may differ.
_OF_COHORTS = {"noise_scale", "adaptive"}
#: Ledgers whose counts of releases are known to depend on what `_counts` returns, and on the plan of cohorts.
_LEDGERS = (Ledger, CohortLedger, CorrelatedCohortLedger, DiscreteLedger)


def is_one_world(one: Setup, other: Setup) -> bool:
    """Return whether two runs can be played together.

    Their scenarios have equal keys (`simfl.studies.worlds`).
    """
    # Sizes of Poisson batches and drawn rows of tables are on the tape. All else is drawn on the device by keys.
    drawn = set() if one.training.sampling == "poisson" or one.kind.keeps_table else {"streams"}
    return (
        one.dataset is other.dataset
        and one.algorithm is other.algorithm
        and _same_but(one.training, other.training, _OF_TRAINING | drawn)
        and _noisy(one.training) == _noisy(other.training)
        and all(_alike(*parts) for parts in zip(_numbers(one), _numbers(other), strict=True))
        and _same_but(one.problem, other.problem, _OF_PROBLEM)
        and one.problem.operation == other.problem.operation
        and _same_but(one.problem.data, other.problem.data, set())
        and _shapes(one.problem) == _shapes(other.problem)
        and _counts(one.ledger) == _counts(other.ledger) is not None
    )


def together(setups: Sequence[Setup]) -> Setup:
    """Return the setup of the one world; numbers that differ are an `Each`."""
    setup, trainings = copy.copy(setups[0]), [setup.training for setup in setups]
    plans = {
        name: _joined([getattr(training, name) for training in trainings])
        for name in ("optimizer", "server_optimizer", "compression", "cohorts")
    }

    def each_client(values: Sequence[Sequence[Any]]) -> list[Any]:
        return [each_of(map(float, one)) for one in zip(*values, strict=True)]

    stds = [training.each_noise_std() for training in trainings]
    scales = [std if t.noise_scale is None else t.noise_scale for t, std in zip(trainings, stds, strict=True)]
    setup.training = dataclasses.replace(
        setup.training,
        initial=array_for_each([training.initial for training in trainings]),
        step_size=_steps(trainings),
        noise_std=each_client(stds),
        noise_scale=each_client(scales),
        clipping_norm=each_of(float(training.clipping_norm) for training in trainings),
        **plans,
    )
    setup.options = _joined([each.options for each in setups])
    ledgers = [setup.ledger for setup in setups if setup.ledger is not None]
    if ledgers:
        ledger = copy.copy(ledgers[0])  # it only says which releases are of the usual kind
        ledger.levels = each_client([one.levels for one in ledgers])
        if isinstance(ledger, CohortLedger):
            ledger.plan = plans["cohorts"]
        setup.protection = dataclasses.replace(setup.protection, ledger=ledger)
    return setup


def _numbers(setup: Setup) -> list[Any]:
    """Return what may differ in single numbers."""
    training, problem = setup.training, setup.problem
    plans = training.optimizer, training.server_optimizer, training.compression, training.cohorts
    return [setup.options, *plans, problem.rounds]


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are the same, but for single numbers in them."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return bool(one) == bool(other)
        case dict():
            return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
        case OptimizerPlan():
            return _length(one.initial) == _length(other.initial) and _fields_alike(one, other, {"initial"})
        case CohortPlan():
            numbers = [(getattr(one, name), getattr(other, name)) for name in _OF_COHORTS]
            return _same_but(one, other, _OF_COHORTS) and all(_alike(*pair) for pair in numbers)
        case CompressionPlan() | LocalRounds() | AdaptiveNorm():
            return _fields_alike(one, other, set())
    return _same(one, other)


def _length(rows: Any) -> int:
    return -1 if rows is None else len(rows)


def _fields_alike(one: Any, other: Any, names: set[str]) -> bool:
    fields = [field.name for field in dataclasses.fields(one) if field.name not in names]
    return all(_alike(getattr(one, name), getattr(other, name)) for name in fields)


def _joined(values: Sequence[Any]) -> Any:
    """Return one value with an `Each` for each number that differs."""
    match first := values[0]:
        case float():
            return each_of(values)
        case dict():
            return {key: _joined([value[key] for value in values]) for key in first}
        case OptimizerPlan() if first.initial is not None:
            initial = [array_for_each(row) for row in zip(*(plan.initial for plan in values), strict=True)]
            return dataclasses.replace(_fields_joined(values, {"initial"}), initial=initial)
        case CohortPlan():
            return _fields_joined(values, {field.name for field in dataclasses.fields(first)} - _OF_COHORTS)
        case OptimizerPlan() | CompressionPlan() | AdaptiveNorm():
            return _fields_joined(values, set())
    return first


def _fields_joined(values: Sequence[Any], names: set[str]) -> Any:
    fields = [field.name for field in dataclasses.fields(values[0]) if field.name not in names]
    joined = {name: _joined([getattr(value, name) for value in values]) for name in fields}
    return dataclasses.replace(values[0], **joined)


def _steps(trainings: Sequence[Training]) -> Any:
    """Return the step sizes of all settings, as a number or a function."""
    steps: list[Any] = [training.step_size for training in trainings]
    if not any(map(callable, steps)):
        return each_of(map(float, steps))

    def step_size(updates: int, examples: int, epochs: float) -> Any:
        return each_of(step(updates, examples, epochs) if callable(step) else float(step) for step in steps)

    return step_size


def _noisy(training: Training) -> list[bool]:
    scales = training.each_noise_std() if training.noise_scale is None else training.noise_scale
    return [scale > 0.0 for scale in scales]


def _shapes(problem: LearningProblem) -> list[Any]:
    """Return the shapes of what programs read, except for the data."""
    parts: list[Any] = [part and part.arrays() for part in (problem.correlation,)]
    return [
        part and {name: (np.shape(array), np.asarray(array).dtype) for name, array in part.items()} for part in parts
    ]


def _counts(ledger: Ledger | None) -> tuple[Any, ...] | None:
    """Return what the count of releases depends on; None if not known."""
    if ledger is None:
        return ()
    if type(ledger) not in _LEDGERS:
        return None
    terms = ledger.terms
    sizes = ledger.sizes.tolist()
    kept = ledger.batch_size, ledger.sampling, ledger.pure, ledger.tasks, ledger.by_passes, ledger.attackers
    return type(ledger), sizes, *kept, terms.unit, terms.by_server


def _same_but(one: Any, other: Any, names: set[str]) -> bool:
    """Return whether two dataclasses are the same except for some fields."""
    return type(one) is type(other) and all(
        _same(getattr(one, field.name), getattr(other, field.name))
        for field in dataclasses.fields(one)
        if field.name not in names
    )


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same; false where that is not known."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    match one:
        case np.ndarray():
            return (one.dtype, one.shape) == (other.dtype, other.shape) and np.array_equal(one, other)
        case list() | tuple():
            return len(one) == len(other) and all(map(_same, one, other))
        case dict():
            return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if dataclasses.is_dataclass(one):
        return _same_but(one, other, set())
    return (isinstance(one, _PLAIN) or callable(one)) and bool(one == other)
