"""Asynchronous FL: Theorems 2 and 5 (convergence) and 4 (privacy).

Van Dijk et al. 2020, https://arxiv.org/abs/2007.09208. Theorems 2 and 5 assume losses of examples that are convex and
L-smooth, a mean of them that is mu-strongly convex, examples drawn independently, and a delay of at most tau(t), which
the recipe's sizes keep under the gate of d rounds. They hold from a step T_0 on. The only T_0 that the paper gives,
exp(2 (1 + (L + mu) alpha / mu)) of Appendix C.2.2 with Delta = 1, is beyond every run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simfl.errors import ConditionError
from simfl.papers.async_fl.privacy import GrowthSetting
from simfl.papers.async_fl.selection import select_parameters
from simfl.papers.async_fl.sizes import ALPHA, StronglyConvexRecipe
from simfl.papers.theorems.judging import PRINTED, Curve, Floats, Statement
from simfl.papers.theorems.problems import Problem, problem_of
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS, Reading, exactly
from simfl.reproduction.papers import Experiment, Runs, Section

BASE = "theorems/async-fl.yaml"
PROBLEMS: dict[str, tuple[str, ...]] = {
    "quadratic": (),
    "logistic": (
        "data={set: logistic, samples: 1000, dimension: 5, condition_number: 10}",
        "model={kind: logistic, l2: 0.5, intercept: false}",
        "algorithm.sizes.smoothness=6",
        "algorithm.sizes.strong_convexity=0.5",
    ),
}
"""The name of a problem -> changes to the base scenario."""


def theorem2_bound(steps: Floats, noise: float, strong_convexity: float) -> Floats:
    """Return Theorem 2's bound of E|w_t - w*|².

    8 alpha² N / (mu² t) with N = 2 E|grad f(w*; xi)|² and alpha = 36; `noise` is N/2.
    """
    bound: Floats = 8.0 * ALPHA**2 * 2.0 * noise / (strong_convexity**2 * steps)
    return bound


def theorem5_bound(steps: Floats, noise: float, strong_convexity: float, m: int, m1: float) -> Floats:
    """Return Theorem 5's bound of E|w_t - w*|².

    8 alpha² N / mu² t / (t + 2 M1 + sqrt(x / ln x) - 1)², x = (m+1)²/4 + t.
    """
    x = (m + 1) ** 2 / 4.0 + steps
    denominator = steps + 2.0 * m1 + np.sqrt(x / np.log(x)) - 1.0
    bound: Floats = theorem2_bound(steps, noise, strong_convexity) * steps**2 / denominator**2
    return bound


def _measured(run: Run) -> tuple[Floats, Floats, StronglyConvexRecipe, Problem]:
    """Return t, gradients of all clients, |w_t - w*|², the recipe and the problem."""
    sizes, known = run.scenario["algorithm"]["sizes"], problem_of(run.scenario)
    smooth, convex = sizes["smoothness"], sizes["strong_convexity"] or run.scenario["model"]["l2"]
    if known.smoothness > smooth * (1 + 1e-6) or known.strong_convexity < convex * (1 - 1e-6):
        raise ConditionError(
            f"the recipe is for L = {smooth:g} and mu = {convex:g}; the problem has {known.smoothness:.3g} and "
            f"{known.strong_convexity:.3g}"
        )
    recipe = StronglyConvexRecipe(smooth, convex, m=sizes["shift"], d=sizes["ahead"])
    return (
        run.metrics["epochs"].to_numpy(np.float64) * known.examples,
        run.metrics["distance"].to_numpy(np.float64) ** 2,
        recipe,
        known,
    )


def theorem2(run: Run) -> Curve:
    """Return |w_t - w*|² and Theorem 2's bound."""
    steps, squares, recipe, known = _measured(run)
    return Curve(
        steps[1:], squares[1:], theorem2_bound(steps[1:], known.noise, recipe.strong_convexity), float(squares[0])
    )


def theorem5(run: Run) -> Curve:
    """Return |w_t - w*|² and Theorem 5's bound."""
    steps, squares, recipe, known = _measured(run)
    bound = theorem5_bound(steps[1:], known.noise, recipe.strong_convexity, recipe.m, recipe.sizes.offset)
    return Curve(steps[1:], squares[1:], bound, float(squares[0]))


CONVERGENCE, PRIVACY = Section("Asynchronous FL, Theorem 5"), Section("Asynchronous FL, Theorem 4")
AXIS = "t, gradients of all clients"
THEOREM2 = Statement(
    Section("Asynchronous FL, Theorem 2"), {PRINTED: theorem2}, "|w - w*|²", rate=-1.0, of=CONVERGENCE, axis=AXIS
)
THEOREM5 = Statement(CONVERGENCE, {PRINTED: theorem5}, "|w - w*|²", axis=AXIS)
STATEMENTS = (THEOREM2, THEOREM5)
PLAN = select_parameters(GrowthSetting(p=1.0, num_examples=25_000, epsilon=1.0, sigma=8.0, epochs=2.0), 4)
"""Sizes for Theorem 4 whose delta is below 1/N, which is so of none of the paper's examples of this theorem."""
DELTAS = {PRINTED: PLAN.claim.claimed_delta, "with an integer λ": PLAN.claim.delta}
"""A form of Theorem 4 -> the smallest delta that this sigma allows at this epsilon; its proof needs an integer λ."""


def experiments(quick: bool) -> Iterator[Experiment]:
    """Yield the runs of Theorems 2 and 5, which are the same, and those of Theorem 4."""
    few = ("algorithm.gradients=10000",) * quick
    for problem, changes in PROBLEMS.items():
        yield Experiment(CONVERGENCE, (problem,), BASE, (*changes, *few), SEEDS)
    if quick:
        return
    sizes, setting = PLAN.sizes(), PLAN.setting
    growing = (
        "clients=1", f"data={{set: quadratic, samples: {setting.num_examples}, dimension: 5}}",
        f"algorithm.sizes={{kind: shifted_power, slope: {sizes.s}, shift: {sizes.m}}}",
        f"algorithm.rounds={PLAN.rounds}", "algorithm.gradients=null", "algorithm.step_size=0.001",
        "evaluate.every.epochs=1",
    )  # fmt: skip
    for form, delta in DELTAS.items():
        privacy = (
            f"privacy={{mechanism: gaussian, clipping_norm: 1, noise_multiplier: {setting.sigma}, delta: {delta}}}"
        )
        yield Experiment(PRIVACY, (form,), BASE, (*growing, privacy))


def theorem4(runs: Runs) -> Iterator[Reading]:
    """Judge whether the certified epsilon of a run is at most that of Theorem 4."""
    claimed = PLAN.setting.epsilon
    for (form,) in runs.cells(PRIVACY):
        epsilon = runs.epsilon(PRIVACY, (form,))[0]
        text = f"certified epsilon {epsilon:.3f} at delta {DELTAS[form]:.2g}, where the theorem says {claimed:g}"
        yield Reading({"theorem": form}, [exactly(epsilon <= claimed, text)], own=form == PRINTED)
