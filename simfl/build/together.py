"""Compare setups of runs, and make one setup of those that have one world."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Training
from simfl.algorithms.optimizers import OptimizerPlan
from simfl.build.setup import Setup
from simfl.compression.base import CompressionPlan
from simfl.each import array_for_each, each_of
from simfl.errors import ScenarioError
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.distributed import DiscreteLedger
from simfl.privacy.ledger import Ledger
from simfl.scenario.fields import ARITHMETIC
from simfl.scenario.together import world_key
from simfl.symbols import Name
from simfl.tape import LearningProblem
from simfl.tape.problem import LocalRounds

#: Fields that may differ between runs of one world.
_OF_TRAINING = {
    "initial", "step_size", "noise_std", "noise_scale", "clipping_norm", "optimizer", "server_optimizer", "compression",
    "cohorts",
}  # fmt: skip
_OF_PROBLEM = {
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

    Their scenarios have equal keys (`simfl.scenario.together`).
    """
    # Sizes of Poisson batches are on the tape. All other mini-batches, and noise, are drawn on the device by keys.
    drawn = set() if one.training.sampling == "poisson" else {"streams"}
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


def options_for_models(setup: Setup) -> set[str]:
    """Return the algorithm's options that are numbers which reach models alone."""
    config = setup.scenario.algorithm
    marked = {name for name, field in type(config).model_fields.items() if ARITHMETIC in field.metadata}
    return marked | {*setup.kind.numbers_for_models}


def check_taped(setup: Setup) -> None:
    """Reject `record.tape` where numbers may decide when something happens.

    Raises:
        ScenarioError: they may.
    """
    scenario = setup.scenario
    if world_key(scenario.replace({"record.tape": False})) is None:
        reason = "its events may depend on numbers: by the stop, hostile clients, or code or objects of your own"
    elif _counts(setup.ledger) is None or not _alike(setup.options, copy.deepcopy(setup.options)):
        reason = f"{scenario.algorithm.kind} has an account of privacy, or options, of its own kind"
    else:
        return
    raise ScenarioError(f"record.tape: expected false in a run like this one, found true; {reason}")


class Joining:
    """Makes one number, or array, of those of all settings; `name` says which it is."""

    def number(self, name: Name, values: Sequence[float]) -> Any:
        """Return a number, or an `Each`."""
        return each_of(values)

    def array(self, name: Name, values: Sequence[NDArray[Any]]) -> Any:
        """Return an array, or an `EachArray`."""
        return array_for_each(values)


def together(setups: Sequence[Setup], joining: Joining = Joining()) -> Setup:  # noqa: B008
    """Return the setup of the one world; numbers that differ are an `Each`."""
    setup, trainings, join = copy.copy(setups[0]), [setup.training for setup in setups], joining
    plans = {
        name: _joined([getattr(training, name) for training in trainings], (name,), join)
        for name in ("optimizer", "server_optimizer", "compression", "cohorts")
    }

    def each_client(name: str, values: Sequence[Sequence[Any]]) -> list[Any]:
        return [join.number((name, k), [*map(float, one)]) for k, one in enumerate(zip(*values, strict=True))]

    stds = [training.each_noise_std() for training in trainings]
    scales = [std if t.noise_scale is None else t.noise_scale for t, std in zip(trainings, stds, strict=True)]
    setup.training = dataclasses.replace(
        setup.training,
        initial=join.array(("initial",), [training.initial for training in trainings]),
        step_size=_steps(trainings, join),
        noise_std=each_client("noise_std", stds),
        noise_scale=each_client("noise_scale", scales),
        clipping_norm=join.number(("clipping_norm",), [float(training.clipping_norm) for training in trainings]),
        **plans,
    )
    setup.options = _joined([each.options for each in setups], ("option",), join)
    ledgers = [setup.ledger for setup in setups if setup.ledger is not None]
    if ledgers:
        ledger = copy.copy(ledgers[0])  # it only says which releases are of the usual kind
        ledger.levels = each_client("level", [one.levels for one in ledgers])
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
    if isinstance(one, float):
        return bool(one) == bool(other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, OptimizerPlan):
        return _length(one.initial) == _length(other.initial) and _fields_alike(one, other, {"initial"})
    if isinstance(one, CohortPlan):
        numbers = [(getattr(one, name), getattr(other, name)) for name in _OF_COHORTS]
        return _same_but(one, other, _OF_COHORTS) and all(_alike(*pair) for pair in numbers)
    if isinstance(one, CompressionPlan | LocalRounds | AdaptiveNorm):
        return _fields_alike(one, other, set())
    return _same(one, other)


def _length(rows: Any) -> int:
    return -1 if rows is None else len(rows)


def _fields_alike(one: Any, other: Any, names: set[str]) -> bool:
    fields = [field.name for field in dataclasses.fields(one) if field.name not in names]
    return all(_alike(getattr(one, name), getattr(other, name)) for name in fields)


def _joined(values: Sequence[Any], at: Name, join: Joining) -> Any:
    """Return one value with an `Each` for each number that differs."""
    first = values[0]
    if isinstance(first, float):
        return join.number(at, values)
    if isinstance(first, dict):
        return {key: _joined([value[key] for value in values], (*at, key), join) for key in first}
    if isinstance(first, OptimizerPlan) and first.initial is not None:
        rows = enumerate(zip(*(plan.initial for plan in values), strict=True))
        initial = [join.array((*at, "initial", number), row) for number, row in rows]
        return dataclasses.replace(_fields_joined(values, at, join, {"initial"}), initial=initial)
    if isinstance(first, CohortPlan):
        kept = {field.name for field in dataclasses.fields(first)} - _OF_COHORTS
        return _fields_joined(values, at, join, kept)
    numbered = OptimizerPlan | CompressionPlan | AdaptiveNorm
    return _fields_joined(values, at, join, set()) if isinstance(first, numbered) else first


def _fields_joined(values: Sequence[Any], at: Name, join: Joining, names: set[str]) -> Any:
    fields = [field.name for field in dataclasses.fields(values[0]) if field.name not in names]
    joined = {name: _joined([getattr(value, name) for value in values], (*at, name), join) for name in fields}
    return dataclasses.replace(values[0], **joined)


def step_at(training: Training, updates: int, examples: int, epochs: float) -> float:
    """Return a run's step size at a moment."""
    step = training.step_size
    return step(updates, examples, epochs) if callable(step) else float(step)


def _steps(trainings: Sequence[Training], join: Joining) -> Any:
    """Return the step sizes of all settings, as a number or a function."""
    if not any(callable(training.step_size) for training in trainings):
        return join.number(("step",), [float(training.step_size) for training in trainings])  # type: ignore[arg-type]

    def step_size(updates: int, examples: int, epochs: float) -> Any:
        moment = updates, examples, epochs
        return join.number(("step", *moment), [step_at(training, *moment) for training in trainings])

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
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape) == (other.dtype, other.shape) and np.array_equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if dataclasses.is_dataclass(one):
        return _same_but(one, other, set())
    return (isinstance(one, _PLAIN) or callable(one)) and bool(one == other)
