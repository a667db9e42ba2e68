"""MAPA's paper: Theorems 2 and 4, of AUDP.

Li, Yang, Ren, Zhao 2019, https://arxiv.org/abs/1912.07902, Sections 5.1 and 5.2. Delta_b = sigma²/b + E|noise|², for
which the paper takes 2 (dS/epsilon)². That is the second moment in one dimension; noise of its density has d (d + 1)
(dS/epsilon)², so that both are judged. Sigma² is that of the drawn problem, R is the largest |x_t - x*| of the run, tau
its largest staleness. The printed ln T must be 1 + ln T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from simfl.errors import ConditionError
from simfl.papers.mapa.theory import AsynchronousProblem, SecondMoment, audp_sensitivity, theorem2
from simfl.papers.theorems.judging import PRINTED, Curve, Floats, Statement, averages
from simfl.papers.theorems.problems import problem_of, squares_of
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS
from simfl.reproduction.papers import Experiment, Section

BASE = "theorems/mapa.yaml"
LONG = 60_000
"""Updates of Theorem 4's runs: at the end, the variance outweighs the starting model."""
#: Theorem 2's steps (10) with the paper's Delta_b, in few and in many dimensions.
PROBLEMS = {
    "logistic in 5 dimensions": (),
    "logistic in 40 dimensions": ("data={set: logistic, samples: 1000, dimension: 40, condition_number: 40}",
                         "privacy.clipping_norm=6.5", "algorithm.sampling_std=4", "algorithm.smoothness=11"),
}  # fmt: skip
CONSTANT = ("algorithm.step_size=0.01", "algorithm.smoothness=1", "evaluate.every.updates=50")
QUADRATIC = ("data={set: quadratic, samples: 1000, dimension: 5, condition_number: 1}", "model=quadratic",
             "privacy.clipping_norm=20", "privacy.epsilon_per_release=10")  # fmt: skip
NOISES = {"quadratic in 5 dimensions": (), "quadratic in 5 dimensions at ε of 1": ("privacy.epsilon_per_release=1",)}
"""At ε = 10 drawing examples adds most of the variance, at ε = 1 the noise does."""


def _constants(run: Run, moment: SecondMoment) -> tuple[AsynchronousProblem, float, float, float, Floats, Floats]:
    """Return the constants, Delta_b, R, G, and t with the gaps f(x_t) - f*.

    Raises:
        ConditionError: a gradient may exceed G, to which it is clipped.
    """
    known, config, privacy = problem_of(run.scenario), run.scenario["algorithm"], run.scenario["privacy"]
    radius, G = float(run.metrics["distance"].max()), float(privacy["clipping_norm"])
    if min(known.lipschitz, known.gradient_bound(radius)) > G:
        raise ConditionError(f"gradients may exceed {G:g}, to which they are clipped")
    gaps = run.metrics["suboptimality"].to_numpy(np.float64)
    loss = known.variance**0.5, config["batch_size"], known.smoothness
    staleness = float(run.updates["staleness"].max())
    problem = AsynchronousProblem(*loss, staleness, initial_gap=float(gaps[0]), dimension=known.dimension)
    return problem, _variance(problem, run, moment), radius, G, run.metrics["updates"].to_numpy(np.float64), gaps


def second(run: Run) -> Curve:
    """Return (1/T) sum_t f(x_t) - f* ≥ f(x_ave) - f*, and Theorem 2's bound.

    Its sigma, L and tau are those of the steps (10), which must be at least the measured ones.
    """
    config = run.scenario["algorithm"]
    problem, _, radius, G, steps, gaps = _constants(run, config["second_moment"])
    sigma, smooth, tau = config["sampling_std"], config["smoothness"], config["largest_staleness"]
    if problem.sampling_std > sigma or problem.smoothness > smooth or problem.staleness > tau:
        raise ConditionError("the steps (10) are for a smaller σ, L or τ than the problem's")
    stated = replace(problem, sampling_std=sigma, smoothness=smooth, staleness=tau)
    variance = _variance(stated, run, config["second_moment"])
    bounds = [theorem2(stated, variance, radius=radius, gradient_bound=G, steps=int(T)) for T in steps[1:]]
    values = [bound.claimed if config["second_moment"] == "paper" else bound.bound for bound in bounds]
    return Curve(steps[1:], averages(steps, gaps), np.array(values), float(gaps[0]))


def _variance(problem: AsynchronousProblem, run: Run, moment: SecondMoment) -> float:
    privacy = run.scenario["privacy"]
    sensitivity = audp_sensitivity(privacy["clipping_norm"], problem.batch_size)
    return problem.variance(sensitivity, privacy["epsilon_per_release"], moment)


def fourth(run: Run, moment: SecondMoment) -> Curve:
    """Return (1/T) sum_t |grad f(x_t)|², or more, and Theorem 4's bound (14).

    It is 2 (f(x_1) - f*) / (T gamma) + 2 Delta_b L gamma.
    """
    problem, variance, _, _, steps, _ = _constants(run, moment)
    step = float(run.scenario["algorithm"]["step_size"]["value"])
    if step > problem.largest_step_size:
        raise ConditionError(f"condition (13): γ is {step:g}, and 1/(2 L (τ + 1)) is {problem.largest_step_size:.3g}")
    _, squares = squares_of(run, problem_of(run.scenario))
    bound = 2.0 * problem.initial_gap / (steps[1:] * step) + 2.0 * variance * problem.smoothness * step
    return Curve(steps[1:], averages(steps, squares), bound, float(squares[0]))


EXACT = "with d (d + 1) (ΔS/ε)²"
THEOREM2 = Statement(Section("MAPA, Theorem 2"), {PRINTED: second}, "mean of f(x_t) - f*", -0.5, axis="T, updates")
THEOREM4 = Statement(
    Section("MAPA, Theorem 4"),
    {PRINTED: partial(fourth, moment="paper"), EXACT: partial(fourth, moment="exact")},
    "mean of |∇f|²",
    axis="T, updates",
)
STATEMENTS = (THEOREM2, THEOREM4)


def experiments(quick: bool) -> Iterator[Experiment]:
    """Yield runs with the steps (10), and with a constant step."""
    short = ("stop.updates=4000",) * quick
    for problem, changes in list(PROBLEMS.items())[: 1 if quick else None]:
        for moment in ("paper",) if quick else ("paper", "exact"):
            cell = problem + f", {EXACT}" * (moment == "exact")
            steps = (*changes, *short, f"algorithm.second_moment={moment}")
            yield Experiment(THEOREM2.section, (cell,), BASE, steps, SEEDS)
    updates = short or (f"stop.updates={LONG}",)
    for problem, privacy in list(NOISES.items())[: 1 if quick else None]:
        yield Experiment(THEOREM4.section, (problem,), BASE, (*QUADRATIC, *CONSTANT, *privacy, *updates), SEEDS)
