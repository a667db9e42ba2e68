"""From the options of async_fl to the objects of a run: sizes of rounds, gates, step sizes, and what budgets allow."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simfl.build.kinds.base import Kind
from simfl.build.setup import Setup
from simfl.errors import ConditionError, ScenarioError
from simfl.papers.async_fl.config import AsyncFl
from simfl.papers.async_fl.round_sizes import DelayGate, Gate, RoundsGate, RoundSizes, check_gate, check_size
from simfl.papers.async_fl.sample_sizes import (
    ConstantSize,
    Lemma1Size,
    OverLogSize,
    PolynomialSize,
    RoundsAhead,
    ShiftedPowerSize,
    Theorem5Size,
    WithinDelay,
    WithinOwnDelay,
)
from simfl.papers.async_fl.sizes import (
    AbstractSizes,
    ConstantSizes,
    DelaySizes,
    OverLogSizes,
    PolynomialSizes,
    ShiftedPowerSizes,
    StronglyConvexRecipe,
)
from simfl.privacy.calibration import releases_within
from simfl.privacy.ledger import Composition, Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import Passes
from simfl.scenario import Scenario
from simfl.scenario.schedules import InverseRootStep, InverseStep, Schedule
from simfl.streams import Streams
from simfl.tape.problem import LocalRounds

#: Rounds of clients that are looked at before a run, at most: of those that it begins in any case, and of those that it
#: may begin.
MOST_CHECKS = 200_000
MOST_POSSIBLE = 20_000


def sequence_of(scenario: Scenario) -> AbstractSizes:
    """Return s_i as the scenario says, of all clients together or of each one.

    Raises:
        ConditionError: a condition of the lemma or theorem is violated.
    """
    config = _config(scenario)
    sizes = config.sizes
    match sizes:
        case None:
            return ConstantSizes(config.batch_size)
        case ConstantSize():
            return ConstantSizes(sizes.value)
        case PolynomialSize():
            return PolynomialSizes(sizes.a, sizes.power, sizes.b, sizes.start)
        case OverLogSize():
            return OverLogSizes(sizes.a, sizes.b, sizes.start)
        case ShiftedPowerSize():
            return ShiftedPowerSizes(sizes.slope, sizes.shift, sizes.power)
        case Lemma1Size():
            return DelaySizes(sizes.g, _one if sizes.growth == "constant" else _four_log, sizes.shift, sizes.ahead)
        case Theorem5Size():
            return recipe_of(scenario).sizes


def _one(z: float) -> float:
    return 1.0


def _four_log(z: float) -> float:
    return max(8.0, 4.0 * math.log(z)) if z > 0.0 else 8.0


def recipe_of(scenario: Scenario) -> StronglyConvexRecipe:
    """Return Theorem 5's sizes and step sizes."""
    sizes = cast(Theorem5Size, _config(scenario).sizes)
    convexity = scenario.model.l2 if sizes.strong_convexity is None else sizes.strong_convexity
    if not convexity:
        raise ScenarioError(
            "algorithm.sizes.strong_convexity: expected a number > 0, or model.l2 > 0 in its place, found neither; "
            "Theorem 5 is about strongly convex problems"
        )
    if sizes.smoothness < convexity:
        raise ScenarioError(
            f"algorithm.sizes.smoothness: expected at least the strong convexity, which is {convexity:g}, found "
            f"{sizes.smoothness:g}"
        )
    return StronglyConvexRecipe(sizes.smoothness, convexity, sizes.shift, sizes.ahead)


def _config(scenario: Scenario) -> AsyncFl:
    return cast(AsyncFl, scenario.algorithm)


def round_sizes(scenario: Scenario, examples: NDArray[np.int64]) -> RoundSizes:
    """Return s_{i,c} of every round and client."""
    config = _config(scenario)
    weights: Sequence[float] = [1.0] * len(examples)
    if config.weights == "data":
        weights = [float(n) for n in examples]
    elif config.weights != "uniform":
        weights = [float(weight) for weight in config.weights]
    each = config.sizes is None or config.sizes_of == "each"
    return RoundSizes(sequence_of(scenario), weights, Streams(scenario.seed), config.assignment, each)


def gate_of(scenario: Scenario) -> Gate:
    """Return when clients wait."""
    gate = _config(scenario).gate
    match gate:
        case RoundsAhead():
            return RoundsGate(gate.ahead)
        case WithinDelay():
            return DelayGate(_RootDelay(gate.offset, gate.scale, gate.power))
        case WithinOwnDelay():  # the schema asks for sizes that have a delay
            return DelayGate(cast(DelaySizes, sequence_of(scenario)).delay)


@dataclass(frozen=True)
class _RootDelay:
    """tau(t) = offset + scale t^power."""

    offset: float
    scale: float
    power: float

    def __call__(self, t: float) -> float:
        return self.offset + self.scale * float(t**self.power)


@dataclass(frozen=True)
class RecipeSteps(Schedule):
    """Theorem 5's step sizes as a schedule: what it is called with as `updates` is the round."""

    recipe: StronglyConvexRecipe

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return etabar_i for round i."""
        return self.recipe.steps(updates)


def steps_of(scenario: Scenario) -> Schedule:
    """Return the step sizes of rounds: called with the round, the gradients before it, and the same in epochs.

    By default Theorem 5's with its sizes, and else the paper's Table 1: 0.1 / (1 + 0.001 t) with a penalty, and
    0.1 / (1 + 0.01 sqrt(t)) without, t counting gradients.
    """
    config = _config(scenario)
    if config.step_size is not None:
        return config.step_size
    if config.sizes is not None and config.sizes.kind == "theorem5":
        return RecipeSteps(recipe_of(scenario))
    if scenario.model.l2 > 0.0:
        return InverseStep(initial=0.1, beta=0.001, count="examples")
    return InverseRootStep(initial=0.1, beta=0.01, count="examples")


def power_of(scenario: Scenario) -> float:
    """Return p of eta_0 / (1 + beta t^p), how steps fall from gradient to gradient."""
    return 0.5 if isinstance(steps_of(scenario), InverseRootStep) else 1.0


def last_round(scenario: Scenario, sizes: RoundSizes) -> int | None:
    """Return T, None for no end."""
    config = _config(scenario)
    return config.rounds if config.gradients is None else sizes.rounds_for(config.gradients)


def releases_after(ledger: Ledger, sizes: RoundSizes, rounds: Sequence[int], in_order: bool = True) -> Releases:
    """Return what every client has released after so many rounds.

    Args:
        ledger: that accounts for it.
        sizes: of the rounds.
        rounds: of each client.
        in_order: whether they are one after the other from the first on, so that it is known which parts of shuffled
            data they took; else only what holds for any order is said.
    """
    count = len(ledger.sizes)
    passes = [Passes(int(n)) for n in ledger.sizes] if in_order and ledger.by_passes else None
    releases = Releases([0] * count, passes=passes)
    for client in range(count):
        start = 0
        for i in range(rounds[client]):
            size = sizes.of(i, client)
            if size:
                releases.add(client, size, ledger.levels[client])
                if passes is not None:
                    passes[client].add(start, size)
                start += size
    return releases


class AsyncFlKind(Kind[AsyncFl]):
    """Asynchronous federated learning."""

    kinds = ("async_fl",)
    usual_sampling = "with_replacement"

    @property
    def local(self) -> bool:
        """With local steps, those between two models are one operation."""
        return self.config.local_steps

    @property
    def refusal(self) -> str | None:
        """Nothing is certified with local steps."""
        if not self.config.local_steps:
            return None
        return (
            "local_steps has no proof: an example also acts through the local steps after it, which clipping its own "
            "gradient does not bound; use local_steps: false"
        )

    @property
    def released_whole(self) -> bool:
        """A round is summed in pieces."""
        return False

    def step_size(self, setup: Setup) -> Schedule:
        """Return the step size of each round."""
        return steps_of(self.scenario)

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return that steps within local rounds fall as a power, and that updates may be masked."""
        rounds = LocalRounds(power_of(self.scenario)) if self.local else None
        return {"rounds": rounds, "blocks": self.config.mask}

    def options(self, setup: Setup) -> dict[str, Any]:
        """Put objects in the place of sizes and gate, and rounds in the place of gradients."""
        config, sizes = self.config, round_sizes(self.scenario, setup.sizes)
        decay = None
        if config.step_per == "gradient":
            schedule = steps_of(self.scenario)
            if not isinstance(schedule, InverseStep | InverseRootStep) or schedule.count != "examples":
                raise ScenarioError(
                    "algorithm.step_per: expected a step_size of kind inverse or inverse_sqrt with count: examples "
                    "beside gradient, found another; use step_per: round"
                )
            decay = schedule.initial, schedule.beta
        gate = gate_of(self.scenario)
        self._check_rounds(setup, sizes, gate, range(self._rounds_begun(sizes, setup.sizes, gate)[0]), MOST_CHECKS)
        return {
            **super().options(setup),
            "sizes": sizes,
            "gate": gate,
            "rounds": last_round(self.scenario, sizes),
            "decay": decay,
        }

    def _check_rounds(self, setup: Setup, sizes: RoundSizes, gate: Gate, rounds: range, most: int) -> None:
        """Refuse rounds that nobody can make, of at most so many rounds of clients.

        Raises:
            ConditionError: a round draws more examples than a client has, or the gate lets nobody begin it.
        """
        allowed, nominal = setup.training.allowances, self.config.batch_size
        bounded = self.sampling in ("poisson", "without_replacement")
        # Where all have rounds of one size, what holds for who has the fewest examples holds for all.
        clients = [int(np.argmin(setup.sizes))] if sizes.each_client else range(len(setup.sizes))
        for i in rounds[: max(1, most // len(clients))]:
            for client in clients:
                if allowed is not None and i >= allowed[client]:
                    continue
                size = sizes.of(i, client)
                if bounded:
                    check_size(i, client, size, int(setup.sizes[client]))
                check_gate(gate, sizes, i, client, min(size, nominal) if self.local else size)

    def _rounds_begun(self, sizes: RoundSizes, examples: NDArray[np.int64], gate: Gate) -> tuple[int, int]:
        """Return how many rounds the run begins in any case, and how many it may begin."""
        stop, last = self.scenario.stop, last_round(self.scenario, sizes)
        ends = [] if stop.updates is None else [math.ceil(stop.updates / len(examples))]
        if stop.epochs is not None:
            ends.append(sizes.rounds_for(stop.epochs * float(examples.sum())))
        if isinstance(gate, RoundsGate):  # who is fast is ahead by so much
            ends = [end + gate.ahead for end in ends]
        most = min([*ends, *([MOST_CHECKS] if last is None else [last])])
        return 1 if stop.time is not None else most, most

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Yield what fails where a run that ends at a time comes far enough."""
        sizes, gate = round_sizes(self.scenario, setup.sizes), gate_of(self.scenario)
        certain, most = self._rounds_begun(sizes, setup.sizes, gate)
        try:
            self._check_rounds(setup, sizes, gate, range(certain, most), MOST_POSSIBLE)
        except ConditionError as error:
            yield f"{error}; a run that is not over by then fails there"

    def releases_within(self, ledger: Ledger, budgets: Sequence[float], most: int = 100_000) -> list[int]:
        """Return how many releases each client may make within its budget, at most `most` or one per round."""
        sizes = round_sizes(self.scenario, ledger.sizes)
        end = last_round(self.scenario, sizes)
        most = most if end is None else end
        # A round draws no more examples than there are, unless it goes on with the next pass; what is beyond is
        # another error's matter.
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        drawn = []
        for client, n in enumerate(ledger.sizes.tolist()):
            same = n, 0 if sizes.each_client else client
            if same not in found:
                each = (sizes.of(i, client) for i in range(most))
                fits = functools.partial(operator.ge, math.inf if ledger.by_passes else n)
                found[same] = tuple(itertools.takewhile(fits, each))
            drawn.append(found[same])
        tight = ledger.affords(budgets, [len(set(own) - {0}) for own in drawn])
        allowed: dict[tuple[Any, ...], int] = {}
        result = []
        for client, own in enumerate(drawn):
            kind, limit = (int(ledger.sizes[client]), ledger.levels[client], budgets[client], own), len(own)
            if kind not in allowed:

                def after(rounds: int, client: int = client) -> Releases:
                    made = [0] * len(drawn)
                    made[client] = rounds
                    return releases_after(ledger, sizes, made, in_order=False)  # who joins late begins elsewhere

                def composed(rounds: int, client: int = client, after: Any = after) -> Composition:
                    return ledger.compositions(after(rounds), "local_transcript")[client]

                def spent(rounds: int, client: int = client, after: Any = after) -> float:
                    return float(ledger.epsilon(after(rounds), "local_transcript")[client])

                if tight:
                    within = ledger.lasts(composed, budgets[client], limit, ledger.terms.accountant)
                else:
                    enough = min(1, limit)
                    while enough < limit and spent(enough) <= budgets[client]:  # more may be of more sizes
                        enough = min(limit, 2 * enough)
                    within = releases_within(spent, budgets[client], enough, enough)
                allowed[kind] = sum(size > 0 for size in own[:within])
            result.append(allowed[kind])
        return result

    def planned(self, setup: Setup) -> Releases:
        """Return what every client releases in the planned rounds, as many as the run's end or T makes them."""
        ledger = setup.ledger
        assert ledger is not None, "without privacy nothing is counted"
        sizes = round_sizes(self.scenario, ledger.sizes)
        stop, count = self.scenario.stop, len(ledger.sizes)
        ends = [] if stop.updates is None else [math.ceil(stop.updates / count)]
        if stop.epochs is not None:
            ends.append(sizes.rounds_for(stop.epochs * float(ledger.sizes.sum())))
        end = last_round(self.scenario, sizes)
        if end is None:
            self.check_planned()
        rounds = min([*ends, *([] if end is None else [end])])
        allowed = setup.training.allowances
        return releases_after(
            ledger, sizes, [rounds if allowed is None else min(rounds, allowed[client]) for client in range(count)]
        )
