"""From a scenario to the step sizes, and the stages, that Table 2 of the AUDP and MAPA paper states.

The formulas are in `simfl.theory.mapa`; here is what a run has for their symbols. The noise that counts in
them is the one that the clients really add, unless the paper's second moment is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simfl.algorithms.mapa import StageRule
from simfl.scenario import Scenario
from simfl.scenario.algorithms import Audp, Mapa, ServedSgd, WithPaperSteps
from simfl.scenario.privacy import LaplaceL2, LaplaceL2RadiusOnly
from simfl.scenario.schedules import Constant, Schedule
from simfl.simulation.privacy import Protection
from simfl.theory import mapa

#: Updates that stages are planned for where the run ends at a time: more than any run makes.
MANY = 2**40


@dataclass(frozen=True, slots=True)
class PaperSteps(Schedule):
    """gamma_t of an algorithm of Table 2, t counting updates from 1.

    Args:
        kind: the algorithm.
        problem: what the formulas need to know.
        radius: R, for asynchronous and central SGD.
        variance: Delta_b, for AUDP.
        without_logarithm: rule (11) for AUDP.
    """

    kind: Literal["async_sgd", "centralized_sgd", "audp"]
    problem: mapa.Problem
    radius: float = 1.0
    variance: float = 0.0
    without_logarithm: bool = False

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return gamma_t."""
        t = updates + 1
        if self.kind == "audp":
            return mapa.audp_step_size(self.problem, self.variance, t, without_logarithm=self.without_logarithm)
        rule = mapa.asgd_step_size if self.kind == "async_sgd" else mapa.csgd_step_size
        return rule(self.problem, self.radius, t)


def problem_of(scenario: Scenario, dimension: int = 1) -> mapa.Problem:
    """Return what the paper's formulas need to know about a scenario.

    Args:
        scenario: with an algorithm of Table 2.
        dimension: parameters that carry noise.
    """
    config = scenario.algorithm
    assert isinstance(config, WithPaperSteps)
    staleness = config.largest_staleness if isinstance(config, ServedSgd) else 0
    return mapa.Problem(
        sampling_std=config.sampling_std,
        batch_size=config.batch_size,
        smoothness=config.smoothness,
        staleness=scenario.clients.count if staleness is None else staleness,
        initial_gap=config.initial_gap if isinstance(config, Mapa) else 1.0,
        dimension=dimension,
    )


def paper_steps(scenario: Scenario, noise: Protection, dimension: int) -> Schedule:
    """Return the step sizes that a scenario leaves to the paper.

    Args:
        scenario: with an algorithm of Table 2 whose step size is null.
        noise: what the clients add.
        dimension: parameters that carry noise.
    """
    config = scenario.algorithm
    problem = problem_of(scenario, dimension)
    if isinstance(config, Mapa):
        return Constant(plan(scenario, dimension)[0].step_size)
    if isinstance(config, Audp):
        laplace = isinstance(scenario.privacy, LaplaceL2 | LaplaceL2RadiusOnly)
        if config.second_moment == "paper" and laplace:
            second_moment = 2.0 * max(noise.scales) ** 2
        else:
            second_moment = dimension * max(noise.stds) ** 2
        variance = (config.sampling_std**2 + second_moment / config.batch_size) / config.batch_size
        return PaperSteps("audp", problem, variance=variance, without_logarithm=config.without_logarithm)
    return PaperSteps(config.kind, problem, radius=config.radius)  # type: ignore[arg-type, union-attr]


def plan(scenario: Scenario, dimension: int) -> tuple[mapa.Stage, ...]:
    """Return MAPA's stages, as many as a run can come to, or as many as the scenario allows.

    Args:
        scenario: valid, with algorithm mapa.
        dimension: parameters that carry noise.

    Raises:
        ConditionError: a stage has no finite length.
    """
    config, privacy, stop = scenario.algorithm, scenario.privacy, scenario.stop
    assert isinstance(config, Mapa)
    assert isinstance(privacy, LaplaceL2 | LaplaceL2RadiusOnly)
    levels = privacy.epsilon_per_release
    batch = config.batch_size
    initial = mapa.audp_sensitivity(privacy.clipping_norm, batch)
    if config.failure_probability is not None:
        initial = mapa.initial_sensitivity(config.sampling_std, batch, config.failure_probability)
    exact = config.second_moment == "exact" or (config.second_moment == "auto" and isinstance(privacy, LaplaceL2))
    stages = mapa.stages(
        problem_of(scenario, dimension),
        min(levels) if isinstance(levels, tuple) else levels,
        initial=initial,
        theta=config.reduction,
        steps=MANY if stop.updates is None else stop.updates,
        second_moment="exact" if exact else "paper",
        rule=config.rule,
    )
    return stages[: config.stages]


def stage_rules(scenario: Scenario, dimension: int) -> list[StageRule]:
    """Return what the algorithm needs to know of each stage; arguments as for `plan`."""
    privacy = scenario.privacy
    assert isinstance(privacy, LaplaceL2 | LaplaceL2RadiusOnly)
    nominal = privacy.clipping_norm
    return [
        StageRule(stage.first_step - 1, stage.clipping_norm, stage.clipping_norm / nominal, stage.step_size)
        for stage in plan(scenario, dimension)
    ]


def stage_remarks(scenario: Scenario, dimension: int) -> list[str]:
    """Return lines that the user should read before a run of MAPA; arguments as for `plan`."""
    config = scenario.algorithm
    if not isinstance(config, Mapa):
        return []
    stages = plan(scenario, dimension)
    first = stages[0]
    lines = []
    if config.failure_probability is not None:
        lines.append(
            f"algorithm.failure_probability: clipping begins at {first.clipping_norm:.6g} (Theorem 3); "
            "privacy.clipping_norm is not used"
        )
    total = scenario.stop.updates
    if len(stages) == 1 and config.stages != 1 and total is not None and first.steps >= total:
        lines.append(
            f"algorithm.kind: mapa stays in its first stage, which lasts {first.steps:.6g} updates with steps of "
            f"{first.step_size:.3g}, because the noise of {dimension} parameters is what (15) and (16) look at; "
            "second_moment: paper counts with one dimension"
        )
    return lines
