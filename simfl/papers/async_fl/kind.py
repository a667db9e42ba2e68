"""Builds sizes, gates, step sizes and budgets of async_fl."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.kinds.base import Kind
from simfl.assembly.setup import Setup, check_planned
from simfl.errors import ConditionError, ScenarioError
from simfl.papers.async_fl import config as sections
from simfl.papers.async_fl import sizes as sequences
from simfl.papers.async_fl.config import AsyncFl, Lemma1Size, OverLogSize, RoundsAhead, Theorem5Size, WithinDelay
from simfl.papers.async_fl.round_sizes import DelayGate, Gate, RoundsGate, RoundSizes, check_gate, check_size
from simfl.papers.async_fl.sizes import AbstractSizes, ConstantSizes, DelaySizes, StronglyConvexRecipe, log_growth
from simfl.privacy.calibration import releases_within
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import Passes
from simfl.scenario import Scenario
from simfl.scenario.schedules import InverseRootStep, InverseStep, Schedule
from simfl.streams import Streams
from simfl.tape.problem import LocalRounds

MOST_CHECKS = 200_000
"""Largest number of (round, client) pairs checked before a run, among those that it certainly begins."""
MOST_POSSIBLE = 20_000
"""Largest number of (round, client) pairs checked among those that a run may begin."""
MOST_PLANNED = 100_000
"""Largest number of rounds for which a budget is planned if the scenario sets no limit."""


def sequence_of(scenario: Scenario) -> AbstractSizes:
    """Return the s_i of all stages, for all clients together or for each client."""
    stages, first = _config(scenario).stages, _first_stage(scenario)
    return sequences.StagedSizes(first, tuple((one.begin, one.size) for one in stages)) if stages else first


def _first_stage(scenario: Scenario) -> AbstractSizes:
    """Return the scenario's s_i without later stages.

    Raises:
        ConditionError: a condition of the lemma or theorem is violated.
    """
    sizes = _config(scenario).sizes
    match sizes:
        case None:
            return ConstantSizes(_config(scenario).batch_size)
        case sections.ConstantSize():
            return ConstantSizes(sizes.value)
        case sections.PolynomialSize():
            return sequences.PolynomialSizes(sizes.a, sizes.power, sizes.b, sizes.start)
        case OverLogSize():
            return sequences.OverLogSizes(sizes.a, sizes.b, sizes.start)
        case sections.ShiftedPowerSize():
            return sequences.ShiftedPowerSizes(sizes.slope, sizes.shift, sizes.power)
        case Lemma1Size():
            growth = sequences.constant_growth if sizes.growth == "constant" else log_growth
            return DelaySizes(sizes.g, growth, sizes.shift, sizes.ahead)
        case Theorem5Size():
            return recipe_of(scenario).sizes


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
    """Return s_{i,c}, the size of round i at client c."""
    config = _config(scenario)
    named = {"uniform": [1.0] * len(examples), "data": examples.tolist()}
    weights = named[config.weights] if isinstance(config.weights, str) else config.weights
    each = config.sizes is None or config.sizes_of == "each"
    noise = [(stage.begin, stage.noise_factor) for stage in config.stages]
    return RoundSizes(sequence_of(scenario), weights, Streams(scenario.seed), config.assignment, each, noise)


def gate_of(scenario: Scenario) -> Gate:
    """Return the gate, which decides when clients wait."""
    gate = _config(scenario).gate
    match gate:
        case RoundsAhead():
            return RoundsGate(gate.ahead)
        case WithinDelay():
            return DelayGate(lambda t: gate.offset + gate.scale * float(t**gate.power))
        case sections.WithinOwnDelay():  # the schema requires sizes that have a delay
            return DelayGate(cast(DelaySizes, sequence_of(scenario)).delay)


@dataclass(frozen=True)
class RecipeSteps(Schedule):
    """Theorem 5's step sizes as a schedule, called with the round as `updates`."""

    recipe: StronglyConvexRecipe

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return etabar_i for round i."""
        return self.recipe.steps(updates)


def steps_of(scenario: Scenario) -> Schedule:
    """Return the step size as a function of round, and gradients and epochs before it.

    The default is that of Theorem 5 with Theorem 5's sizes. With other sizes it is that of the paper's Table 1:
    0.1 / (1 + 0.001 t) with a penalty, and 0.1 / (1 + 0.01 sqrt(t)) without, where t counts gradients.
    """
    config = _config(scenario)
    if config.step_size is not None:
        return config.step_size
    if isinstance(config.sizes, Theorem5Size):
        return RecipeSteps(recipe_of(scenario))
    if scenario.model.l2 > 0.0:
        return InverseStep(initial=0.1, beta=0.001, count="examples")
    return InverseRootStep(initial=0.1, beta=0.01, count="examples")


def power_of(scenario: Scenario) -> float:
    """Return p of eta_0 / (1 + beta t^p), by which steps fall between gradients."""
    return 0.5 if isinstance(steps_of(scenario), InverseRootStep) else 1.0


def last_round(scenario: Scenario, sizes: RoundSizes) -> int | None:
    """Return T, the number of rounds; None if there is no limit."""
    config = _config(scenario)
    return config.rounds if config.gradients is None else sizes.rounds_for(config.gradients)


def releases_after(ledger: Ledger, sizes: RoundSizes, rounds: Sequence[int], in_order: bool = True) -> Releases:
    """Return the releases of all clients after `rounds[c]` rounds of each client c.

    `in_order` says that the rounds are consecutive from the first, so that it is known which parts of shuffled data
    they used. If it is false, the result holds for any order.
    """
    passes = [Passes(int(n)) for n in ledger.sizes] if in_order and ledger.by_passes else None
    releases = Releases([0] * len(rounds), passes=passes)
    for client, count in enumerate(rounds):
        start = 0
        for i, size in ((i, sizes.of(i, client)) for i in range(count)):
            if size:
                factor = sizes.noise_factor(i)
                level = ledger.levels[client] / factor if ledger.pure else ledger.levels[client] * factor
                releases.add(client, size, level)
                if passes is not None:
                    passes[client].add(start, size)
                start += size
    return releases


class AsyncFlKind(Kind[AsyncFl]):
    """Asynchronous federated learning."""

    sections = (AsyncFl,)
    usual_sampling = "with_replacement"

    @property
    def local(self) -> bool:
        """Whether clients take local steps, one operation between two models."""
        return self.config.local_steps

    @property
    def refusal(self) -> str | None:
        """The reason why nothing is certified with local steps; None without them."""
        if not self.config.local_steps:
            return None
        return (
            "local_steps has no proof: an example also acts through the local steps after it, which clipping its own "
            "gradient does not bound; use local_steps: false"
        )

    @property
    def resized(self) -> bool:
        """Whether rounds have sizes of their own."""
        return self.config.sizes is not None or bool(self.config.stages)

    @property
    def released_whole(self) -> bool:
        """False: a round is summed in pieces."""
        return False

    def step_size(self, setup: Setup) -> Schedule:
        """Return the step size of each round."""
        return steps_of(self.scenario)

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return the power of step sizes in local rounds, and the blocks of a mask."""
        rounds = LocalRounds(power_of(self.scenario)) if self.local else None
        return {"rounds": rounds, "blocks": self.config.mask}

    def options(self, setup: Setup) -> dict[str, Any]:
        """Replace sizes and gate by objects, and gradients by rounds."""
        sizes, gate, decay = round_sizes(self.scenario, setup.sizes), gate_of(self.scenario), None
        if self.config.step_per == "gradient":
            schedule = steps_of(self.scenario)
            if not isinstance(schedule, InverseStep | InverseRootStep) or schedule.count != "examples":
                raise ScenarioError(
                    "algorithm.step_per: expected a step_size of kind inverse or inverse_sqrt with count: examples "
                    "beside gradient, found another; use step_per: round"
                )
            decay = schedule.initial, schedule.beta
        self._check_rounds(setup, sizes, gate, range(self._rounds_begun(sizes, setup.sizes, gate)[0]), MOST_CHECKS)
        rounds = last_round(self.scenario, sizes)
        return {**super().options(setup), "sizes": sizes, "gate": gate, "rounds": rounds, "decay": decay}

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Yield the error of a round that a run may reach if it ends at a time."""
        sizes, gate = round_sizes(self.scenario, setup.sizes), gate_of(self.scenario)
        try:
            self._check_rounds(setup, sizes, gate, range(*self._rounds_begun(sizes, setup.sizes, gate)), MOST_POSSIBLE)
        except ConditionError as error:
            yield f"{error}; a run that is not over by then fails there"

    def _check_rounds(self, setup: Setup, sizes: RoundSizes, gate: Gate, rounds: range, most: int) -> None:
        """Reject rounds that a client cannot make; checks at most `most` pairs.

        Raises:
            ConditionError: a round draws more examples than a client has, or the gate lets no client begin it.
        """
        allowed, nominal = setup.training.allowances, self.config.batch_size
        bounded = self.sampling in ("poisson", "without_replacement")
        # If rounds have one size, checking the client with the fewest examples is enough.
        clients = [int(np.argmin(setup.sizes))] if sizes.each_client else range(len(setup.sizes))
        for i, client in itertools.product(rounds[: max(1, most // len(clients))], clients):
            if allowed is not None and i >= allowed[client]:
                continue
            size = sizes.of(i, client)
            if bounded:
                check_size(i, client, size, int(setup.sizes[client]))
            check_gate(gate, sizes, i, client, min(size, nominal) if self.local else size)

    def _rounds_begun(self, sizes: RoundSizes, examples: NDArray[np.int64], gate: Gate) -> tuple[int, int]:
        """Return how many rounds the run certainly begins, and how many it may begin."""
        ahead = gate.ahead if isinstance(gate, RoundsGate) else 0
        last = last_round(self.scenario, sizes)
        most = min([*(end + ahead for end in self._ends(sizes, examples)), MOST_CHECKS if last is None else last])
        return 1 if self.scenario.stop.time is not None else most, most

    def _ends(self, sizes: RoundSizes, examples: NDArray[np.int64]) -> list[int]:
        """Return the rounds after which updates and epochs end the run."""
        stop = self.scenario.stop
        ends = [] if stop.updates is None else [math.ceil(stop.updates / len(examples))]
        return ends if stop.epochs is None else [*ends, sizes.rounds_for(stop.epochs * float(examples.sum()))]

    def planned(self, setup: Setup) -> Releases:
        """Return every client's releases in the planned rounds."""
        ledger = setup.ledger
        assert ledger is not None, "without privacy nothing is counted"
        sizes = round_sizes(self.scenario, ledger.sizes)
        ends, last = self._ends(sizes, ledger.sizes), last_round(self.scenario, sizes)
        if last is None:
            check_planned(self.scenario)
        rounds = min(ends if last is None else [*ends, last])
        allowed = setup.training.allowances or [rounds] * len(ledger.sizes)
        return releases_after(ledger, sizes, [min(rounds, most) for most in allowed])

    def releases_within(self, ledger: Ledger, budgets: Sequence[float]) -> list[int]:
        """Return each client's releases within its budget, at most one per round."""
        sizes = round_sizes(self.scenario, ledger.sizes)
        last = last_round(self.scenario, sizes)

        @functools.cache
        def drawn(n: int, client: int) -> tuple[int, ...]:
            # Without passes, a round draws at most all examples; `_check_rounds` rejects larger ones.
            every = (sizes.of(i, client) for i in range(MOST_PLANNED if last is None else last))
            return tuple(itertools.takewhile(lambda size: ledger.by_passes or size <= n, every))

        sequences = [drawn(n, 0 if sizes.each_client else client) for client, n in enumerate(ledger.sizes.tolist())]
        tight = ledger.affords(budgets, [len(set(sequence) - {0}) for sequence in sequences])
        kinds = list(zip(ledger.sizes.tolist(), ledger.levels, budgets, sequences, strict=True))
        allowed: dict[tuple[Any, ...], int] = {}
        for client, kind in enumerate(kinds):
            if kind not in allowed:
                budget, sequence = kind[2:]
                rounds = self._within(ledger, sizes, client, budget, len(sequence), tight)
                allowed[kind] = sum(size > 0 for size in sequence[:rounds])
        return [allowed[kind] for kind in kinds]

    def _within(self, ledger: Ledger, sizes: RoundSizes, client: int, budget: float, limit: int, tight: bool) -> int:
        """Return how many rounds a client may make within its budget, at most `limit`."""

        def after(rounds: int) -> Releases:
            made = [0] * len(ledger.sizes)
            made[client] = rounds
            return releases_after(ledger, sizes, made, in_order=False)  # clients that join late start later

        def spent(rounds: int) -> float:
            return float(ledger.epsilon(after(rounds), "local_transcript")[client])

        if tight:
            return ledger.lasts(
                lambda rounds: ledger.compositions(after(rounds), "local_transcript")[client],
                budget,
                limit,
                ledger.terms.accountant,
            )
        enough = min(1, limit)
        while enough < limit and spent(enough) <= budget:  # later rounds may have other sizes
            enough = min(limit, 2 * enough)
        return releases_within(spent, budget, enough, enough)
