"""Without-replacement SGD: Theorems 3, 4, 6 and 7.

Jin, He, Dai 2018, https://arxiv.org/abs/1809.02727, equations (7), (8), (13) and (15). The set of models is a ball onto
which steps are projected, with R its diameter; L and B are bounds of gradients on it, of the drawn examples. F(w) - F*
is of the global model at evaluations at equal distances.

The paper forgets the dimension d in the noise, so that bounds are judged with and without it. Theorem 4 prints an
undefined G² for B². Theorem 6 loses 1/T in the noise, and bounds a mixture of the global model with a local one, whose
part is not negative: what is measured is p_G times the mean of F(w^G) - F*. Theorem 7 has no constant: only its rate
can be judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from simfl.errors import ConditionError
from simfl.papers.theorems.judging import PRINTED, Curve, Statement, averages
from simfl.papers.theorems.problems import Problem, problem_of
from simfl.papers.without_replacement import theory
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS
from simfl.reproduction.papers import Experiment, Section

BASE = "theorems/without-replacement.yaml"
SIZES = (2_000, 8_000, 32_000)
"""n of the runs of Theorems 3 and 6, with steps 0.1 · (32,000/n)^(1/2)."""
COIN = "algorithm={kind: deep_q_sgd, batch_size: 50, explore_from: 1, explore_to: 1, step_clip: null, projection: 2, "
STRONGLY = ("model={kind: logistic, intercept: false, l2: 1}", "algorithm.projection=1", "privacy.lipschitz=6",
            "algorithm.step_size=null")  # fmt: skip
"""Strongly convex with gamma = 1; steps 2/(gamma t), not clipped."""


def _checked(run: Run) -> tuple[Problem, float, float]:
    """Return the problem, the diameter R and the bound of gradients on the ball.

    Raises:
        ConditionError: the optimum is outside, or gradients may be clipped.
    """
    known, ball = problem_of(run.scenario), float(run.scenario["algorithm"]["projection"])
    bound = known.lipschitz + run.scenario["model"]["l2"] * ball
    if known.optimum_norm > ball:
        raise ConditionError(f"|w*| is {known.optimum_norm:.3g}, and the set of models a ball of radius {ball:g}")
    if bound > run.scenario["privacy"]["lipschitz"]:
        raise ConditionError(f"gradients may exceed L = {run.scenario['privacy']['lipschitz']:g}")
    return known, 2.0 * ball, bound


def _curve(run: Run, theorem: str, as_printed: bool) -> Curve:
    """Return the mean over steps of F - F* and a theorem's bound, for every T."""
    known, diameter, bound = _checked(run)
    batch = run.scenario["algorithm"]["batch_size"]
    common = {
        "examples": known.examples, "batch_size": batch, "noise_std": float(run.updates["noise_std"].max()) / batch,
        "dimension": known.dimension, "gradient_bound": bound, "as_printed": as_printed,
    }  # fmt: skip
    steps = run.metrics["updates"].to_numpy(np.float64)
    gaps = run.metrics["suboptimality"].to_numpy(np.float64)
    if theorem == "4":
        common["strong_convexity"] = known.strong_convexity
    else:
        step = float(run.scenario["algorithm"]["step_size"]["value"])
        common |= {"radius": diameter, "lipschitz": bound, "step_size": step}
    if theorem == "6":
        common["nodes"] = run.scenario["clients"]["count"]
    bound_of: Callable[..., theory.Utility] = getattr(theory, f"theorem{theorem}")
    more = [{"global_steps": T / 2} if theorem == "6" else {} for T in steps[1:]]
    values = [bound_of(steps=int(T), **common, **own).bound for T, own in zip(steps[1:], more, strict=True)]
    share = 0.5 if theorem == "6" else 1.0  # p_G of a coin
    return Curve(steps[1:], share * averages(steps, gaps), np.array(values), share * float(gaps[0]))


def seventh(run: Run) -> Curve:
    """Return |w^G - w*|² and ln(t)/t, to which Theorem 7 gives no constant."""
    _checked(run)
    steps = run.metrics["updates"].to_numpy(np.float64) / run.scenario["clients"]["count"]
    squares = run.metrics["distance"].to_numpy(np.float64) ** 2
    later = steps > 1
    return Curve(steps[later], squares[later], np.log(steps[later]) / steps[later], float(squares[0]))


def _forms(theorem: str) -> dict[str, partial[Curve]]:
    return {
        PRINTED: partial(_curve, theorem=theorem, as_printed=True),
        "with d": partial(_curve, theorem=theorem, as_printed=False),
    }


GAP, PASS = "mean of F - F*", "n, with one pass and η ~ 1/√n"
THEOREM3 = Statement(
    Section("Without replacement, Theorem 3", ("n = {}",)), _forms("3"), GAP, rate=-0.5, swept=True, axis=PASS
)
THEOREM4 = Statement(Section("Without replacement, Theorem 4"), _forms("4"), GAP, axis="T, batches")
THEOREM6 = Statement(
    Section("Without replacement, Theorem 6", ("n = {}",)), _forms("6"), f"p_G × {GAP}", -0.5, swept=True, axis=PASS
)
THEOREM7 = Statement(
    Section("Without replacement, Theorem 7"), {PRINTED: seventh}, "|w^G - w*|² (bound: ln t / t)", axis="t, rounds"
)
STATEMENTS = (THEOREM3, THEOREM4, THEOREM6)


def experiments(quick: bool) -> Iterator[Experiment]:
    """Yield single passes of Algorithm 1 and of Algorithm 2 by coin."""
    for n in SIZES:
        step, data = 0.1 * (32_000 / n) ** 0.5, f"data.samples={n}"
        yield Experiment(THEOREM3.section, ("logistic", n), BASE, (data, f"algorithm.step_size={step}"), SEEDS)
        if not quick:
            coin = f"{COIN}order: random, step_size: {step}}}"
            yield Experiment(THEOREM6.section, ("logistic", n), BASE, (data, coin), SEEDS)
    yield Experiment(THEOREM4.section, ("logistic",), BASE, STRONGLY, SEEDS)
    if not quick:
        coin = f"{COIN}order: rounds}}"
        yield Experiment(THEOREM7.section, ("logistic",), BASE, (coin, *STRONGLY), SEEDS)
