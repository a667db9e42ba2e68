"""Step sizes and stages of Table 2 of the AUDP and MAPA paper.

The formulas are in `simfl.papers.mapa.theory`; this module evaluates them with the values of a run. They use the noise
that the clients actually add, unless the scenario selects the paper's second moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from simfl.assembly.kinds.served import ServedSgdKind
from simfl.assembly.setup import Setup
from simfl.papers.mapa import theory as mapa
from simfl.papers.mapa.config import Audp, LaplaceL2RadiusOnly, Mapa
from simfl.papers.mapa.mapa import StageRule
from simfl.scenario import Scenario
from simfl.scenario.privacy import LaplaceL2
from simfl.scenario.schedules import ConstantStep, Schedule

#: Number of updates for which stages are planned if the run ends at a time: more than any run makes.
MANY = 2**40


@dataclass(frozen=True, slots=True)
class AudpSteps(Schedule):
    """gamma_t of AUDP, t counting updates from 1."""

    problem: mapa.AsynchronousProblem
    variance: float  # Delta_b
    without_logarithm: bool  # rule (11)

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return gamma_t."""
        return mapa.audp_step_size(self.problem, self.variance, updates + 1, without_logarithm=self.without_logarithm)


def formulas(
    kind: ServedSgdKind[Audp] | ServedSgdKind[Mapa], dimension: int, initial_gap: float = 1.0
) -> mapa.AsynchronousProblem:
    """Return the inputs of the paper's formulas; `dimension` counts noisy parameters."""
    config = kind.config
    drawn = config.sampling_std, config.batch_size
    return mapa.AsynchronousProblem(*drawn, config.smoothness, kind.staleness, initial_gap, dimension)


class AudpKind(ServedSgdKind[Audp]):
    """Step sizes of AUDP."""

    sections = (Audp,)

    def theory_steps(self, setup: Setup) -> Schedule:
        """Return the step sizes (10) or (11) for the noise that the clients add."""
        config, noise, privacy = self.config, setup.protection, self.scenario.privacy
        if config.second_moment == "paper" and privacy is not None and privacy.second_moment is not None:
            second_moment = 2.0 * max(noise.scales) ** 2
        else:
            second_moment = setup.dimension * max(noise.stds) ** 2
        variance = (config.sampling_std**2 + second_moment / config.batch_size) / config.batch_size
        return AudpSteps(formulas(self, setup.dimension), variance, config.without_logarithm)


class MapaKind(ServedSgdKind[Mapa]):
    """Stages of MAPA, each with a step size and a clipping norm."""

    sections = (Mapa,)

    def theory_steps(self, setup: Setup) -> Schedule:
        """Return the first stage's step size; `options` passes those of all stages."""
        return ConstantStep(value=plan(self.scenario, setup.dimension)[0].step_size)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the stages."""
        return {**super().options(setup), "stages": stage_rules(self.scenario, setup.dimension)}

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Warn about the stages of the scenario."""
        return stage_warnings(self.scenario, setup.dimension)


def _sections(scenario: Scenario) -> tuple[Mapa, LaplaceL2 | LaplaceL2RadiusOnly]:
    return cast(Mapa, scenario.algorithm), cast("LaplaceL2 | LaplaceL2RadiusOnly", scenario.privacy)


def plan(scenario: Scenario, dimension: int) -> tuple[mapa.Stage, ...]:
    """Return MAPA's stages, up to those that a run can reach and the scenario allows.

    The scenario is valid and has algorithm mapa; `dimension` counts the parameters with noise.

    Raises:
        ConditionError: a stage has no finite length.
    """
    config, privacy = _sections(scenario)
    levels, stop = privacy.epsilon_per_release, scenario.stop
    batch = config.batch_size
    initial = mapa.audp_sensitivity(privacy.clipping_norm, batch)
    if config.failure_probability is not None:
        initial = mapa.initial_sensitivity(config.sampling_std, batch, config.failure_probability)
    epsilon = min(levels) if isinstance(levels, tuple) else levels
    if privacy.protects == "client":  # the listing clips the mean, to the norm of examples, and takes dS for 2C/b
        epsilon /= batch
    moment = privacy.second_moment if config.second_moment == "auto" else config.second_moment
    steps, problem = stop.updates or MANY, formulas(MapaKind(scenario), dimension, config.initial_gap)
    how: dict[str, Any] = {"steps": steps, "second_moment": moment, "rule": config.rule}
    return mapa.stages(problem, epsilon, initial=initial, theta=config.reduction, **how)[: config.stages]


def stage_rules(scenario: Scenario, dimension: int) -> list[StageRule]:
    """Return the rules of the stages. See `plan` for the arguments."""
    nominal = _sections(scenario)[1].clipping_norm
    return [
        StageRule(stage.first_step - 1, stage.clipping_norm, stage.clipping_norm / nominal, stage.step_size)
        for stage in plan(scenario, dimension)
    ]


def stage_warnings(scenario: Scenario, dimension: int) -> Iterator[str]:
    """Yield warnings before a run of MAPA. See `plan` for the arguments."""
    config, total = _sections(scenario)[0], scenario.stop.updates
    stages = plan(scenario, dimension)
    first = stages[0]
    if config.failure_probability is not None:
        yield (
            f"algorithm.failure_probability: clipping begins at {first.clipping_norm:.6g} (Theorem 3); "
            "privacy.clipping_norm is not used"
        )
    if len(stages) == 1 and config.stages != 1 and total is not None and first.steps >= total:
        yield (
            f"algorithm.kind: mapa stays in its first stage, which lasts {first.steps:.6g} updates with steps of "
            f"{first.step_size:.3g}, because the noise of {dimension} parameters is what (15) and (16) look at; "
            "second_moment: paper counts with one dimension"
        )
