"""A(DP)²SGD: Theorem 1 and Propositions 1 and 2.

Xu, Zhang, Wang 2020, https://arxiv.org/abs/2008.09246, Section 4. The constants of (5) and (6) are those of the drawn
problem and of the run: staleness and the matrix E[A^T A] are counted from its updates. |grad F|² is not recorded;
`squares_of` bounds it from above.

The three conditions C1 > 0, C2 >= 0 and C3 <= 1 are on the step size. Proposition 1 prints 64 tau²/K² in T_min where
its proof needs 64 tau⁴/K²; Proposition 2 has Theorem 2's noise, made for the mean, on the sum. With batches of one
example both are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simfl.errors import ConditionError
from simfl.papers.adp2sgd.theory import DecentralizedProblem, minimal_steps, proposition2, theorem1
from simfl.papers.theorems.judging import PRINTED, Curve, Floats, Statement, averages
from simfl.papers.theorems.problems import Problem, problem_of, squares_of
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS
from simfl.reproduction.papers import Experiment, Section
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load

BASE = "theorems/adp2sgd.yaml"
LOGISTIC = (
    "model={kind: logistic, intercept: false}",
    "data={set: logistic, samples: 400, curvature: [0.2, 0.16, 0.12, 0.08, 0.05], owners: 4, heterogeneity: 0.5}",
)
FLAT = (
    "clients.count=3", "privacy.noise_multiplier=0.01",
    "data={set: quadratic, samples: 300, curvature: [0.02, 0.02, 0.02], owners: 3, heterogeneity: 0.5}",
)  # fmt: skip
"""Three workers and L = 0.02: T_min grows as L² K⁴, and runs of its length remain short."""
LENGTHS = (6_000, 12_000, 24_000)
"""T of Proposition 1's runs."""
PRIVATE = (
    "clients.count=3", "model={kind: logistic, intercept: false}", "algorithm.batch_size=1",
    "data={set: logistic, samples: 240, curvature: [0.008, 0.008, 0.008], owners: 3, noise: 0.2}",
)  # fmt: skip
EPSILON, DELTA, EACH, BOUND = 5.0, 1e-3, 80, 0.5
"""Of Proposition 2's runs: the budget, n, and G, to which gradients are clipped. No gradient exceeds it."""


def mixing_of(run: Run) -> float:
    """Return rho of (6), of the pairs that averaged in a run.

    E[A^T A] = I - E[(e_i - e_j)(e_i - e_j)^T] / 2 over steps, as averaging a pair is a projection.
    """
    pairs, count = run.updates[["client", "peer"]].to_numpy(np.int64), run.scenario["clients"]["count"]
    mean = np.eye(count)
    met, times = np.unique(pairs[pairs[:, 1] >= 0], axis=0, return_counts=True)
    for (i, j), share in zip(met.tolist(), times / len(pairs), strict=True):
        apart = np.eye(count)[i] - np.eye(count)[j]
        mean -= share * np.outer(apart, apart) / 2
    return float(max(0.0, np.sort(np.abs(np.linalg.eigvalsh(mean)))[-2]))


def problem_for(known: Problem, scenario: Mapping[str, Any], tau: float, rho: float) -> DecentralizedProblem:
    """Return the constants of the bounds."""
    count, batch = scenario["clients"]["count"], scenario["algorithm"]["batch_size"]
    loss = known.smoothness, known.gap, known.spread, known.drift, known.dimension
    return DecentralizedProblem(count, batch, *loss, staleness=tau, rho=rho)


def constants_of(run: Run) -> tuple[DecentralizedProblem, Floats, Floats]:
    """Return a run's constants, t, and |grad F|² or more at evaluations.

    Raises:
        ConditionError: a gradient may have been clipped, which the theorem does not know.
    """
    known, clip = problem_of(run.scenario), run.scenario["privacy"]["clipping_norm"]
    radius = float((run.metrics["distance"] + 2 * run.metrics["consensus_distance"]).max())
    if min(known.lipschitz, known.gradient_bound(radius)) > clip:
        raise ConditionError(f"gradients may exceed {clip:g}, to which they are clipped")
    problem = problem_for(known, run.scenario, float(run.updates["staleness"].max()), mixing_of(run))
    return problem, *squares_of(run, known)


def first(run: Run) -> Curve:
    """Return (1/T) sum_t |grad F|² for every T, and Theorem 1's bound."""
    problem, steps, squares = constants_of(run)
    eta = run.scenario["algorithm"]["step_size"]["value"] / problem.batch_size
    noise = float(run.updates["noise_std"].max())
    bounds = [theorem1(problem, step_size=eta, steps=int(T), noise_std=noise).bound for T in steps[1:]]
    return Curve(steps[1:], averages(steps, squares), np.array(bounds), float(squares[0]))


def second(run: Run) -> Curve:
    """Return (1/T) sum_t |grad F|² and Proposition 1's bound."""
    problem, steps, squares = constants_of(run)
    T, noise = steps[-1:], float(run.updates["noise_std"].max())
    needed = minimal_steps(problem, as_printed=True)
    if T[0] < needed:
        raise ConditionError(f"T = {T[0]:,.0f} is below T_min = {needed:,.0f}")
    spread = problem.sampling_variance / problem.batch_size + 6.0 * problem.worker_variance
    spread += problem.dimension * noise**2 / problem.batch_size**2
    bound = (2.0 * problem.initial_gap + 2.0 * problem.smoothness * spread) / np.sqrt(T)
    return Curve(T, averages(steps, squares)[-1:], bound, float(squares[0]))


def third(run: Run) -> Curve:
    """Return (1/T) sum_t |grad F|² and Proposition 2's bound, the same for all T."""
    problem, steps, squares = constants_of(run)
    claim = proposition2(problem, EPSILON, DELTA, examples=EACH, gradient_bound=BOUND, as_printed=True)
    T, noise = steps[-1:], float(run.updates["noise_std"].max())
    if not claim.long_enough:
        raise ConditionError(f"T = {claim.steps:,} of (8) is below T_min = {claim.minimal_steps:,.0f}")
    if abs(T[0] / claim.steps - 1) > 0.01 or abs(noise / claim.theorem2.noise_std_for_mean - 1) > 0.01:
        stated = f"{claim.steps:,} and {claim.theorem2.noise_std_for_mean:.3g}"
        raise ConditionError(f"T and σ are {T[0]:,.0f} and {noise:.3g}; (8) and Theorem 2 have {stated}")
    return Curve(T, averages(steps, squares)[-1:], np.array([claim.bound]), float(squares[0]))


def private(seed: int) -> tuple[str, ...]:
    """Return changes to the base scenario: T by (8), η, and Theorem 2's noise."""
    scenario = load(scenarios_folder() / BASE, (*PRIVATE, f"seed={seed}")).resolved()
    known = problem_of(scenario)
    problem = problem_for(known, scenario, tau=3.0, rho=0.5)
    claim = proposition2(problem, EPSILON, DELTA, examples=EACH, gradient_bound=BOUND, as_printed=True)
    return (
        *PRIVATE, f"stop.updates={claim.steps}", f"evaluate.every.updates={claim.steps // 100}",
        f"algorithm.step_size={problem.num_workers / claim.steps**0.5}", f"privacy.delta={DELTA}",
        f"privacy.clipping_norm={BOUND}", f"privacy.noise_multiplier={claim.theorem2.noise_multiplier}",
    )  # fmt: skip


AXIS = "T, mini-batches of all workers"
THEOREM1 = Statement(Section("A(DP)²SGD, Theorem 1"), {PRINTED: first}, "mean of |∇F|²", axis=AXIS)
PROPOSITION1 = Statement(
    Section("A(DP)²SGD, Proposition 1", ("T = {}",)), {PRINTED: second}, "mean of |∇F|²", -0.5, swept=True, axis=AXIS
)
PROPOSITION2 = Statement(
    Section("A(DP)²SGD, Proposition 2", ("seed {}",)), {PRINTED: third}, "mean of |∇F|²", axis=AXIS
)
STATEMENTS = (THEOREM1, PROPOSITION1, PROPOSITION2)


def experiments(quick: bool) -> Iterator[Experiment]:
    """Yield runs with a constant step, with steps K/√T, and with Theorem 2's noise."""
    short = ("stop.updates=4000",) * quick
    for problem, changes in {"quadratic": (), "logistic": LOGISTIC}.items():
        yield Experiment(THEOREM1.section, (problem,), BASE, (*changes, *short), SEEDS)
    if quick:
        return
    for length in LENGTHS:
        steps = (f"stop.updates={length}", f"evaluate.every.updates={length // 100}",
                 f"algorithm.step_size={3 / length**0.5}")  # fmt: skip
        yield Experiment(PROPOSITION1.section, ("quadratic", length), BASE, (*FLAT, *steps), SEEDS)
    for seed in range(2, SEEDS + 2):  # of seed 1, T of (8) is below T_min
        yield Experiment(PROPOSITION2.section, ("logistic", seed), BASE, private(seed), first=seed)
