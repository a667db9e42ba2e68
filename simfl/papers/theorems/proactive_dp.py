"""Proactive DP: its utility graph's best case, beside runs.

Van Dijk et al. 2021, https://arxiv.org/abs/2102.09030, Sections 3.3 and 4.1. The paper has no bound of the loss: "we do
not have a closed form to describe the relation between the utility of the model and sigma". It has a "best case",
which neglects the noise of all rounds but the last: the model w* + n, with n ~ N(0, a² C² sigma² I). On a quadratic it
is a number, E f(w* + n) - f* = a² C² sigma² tr(H) / 2, and the runs must lie above it. The text says that the noise is
added to the final model by the last update, so that a is the last step size; the figures' captions have a = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from simfl.papers.theorems.judging import Curve, Statement
from simfl.papers.theorems.problems import problem_of
from simfl.records import Run
from simfl.reproduction.evidence import SEEDS
from simfl.reproduction.papers import Experiment, Section

BASE = "theorems/proactive-dp.yaml"
SIGMAS = (2.0, 4.0, 8.0, 16.0, 32.0)
"""Noise multipliers of the graph."""


def best_case(trace: float, scale: float) -> float:
    """Return E f(w* + n) - f* = s² tr(H)/2 of a quadratic, with n ~ N(0, s² I)."""
    return 0.5 * scale**2 * trace


def graph(run: Run, captioned: bool) -> Curve:
    """Return the best case, and f(w) - f* at the end, which should be its upper bound."""
    updates, gaps = run.updates, run.metrics["suboptimality"].to_numpy(np.float64)
    step = 1.0 if captioned else float(updates["step_size"].iloc[-1])
    best = best_case(problem_of(run.scenario).trace, step * float(updates["noise_std"].iloc[-1]))
    return Curve(run.metrics["updates"].to_numpy(np.float64)[-1:], np.array([best]), gaps[-1:], float(gaps[0]))


UTILITY = Section("Proactive DP, utility graph", ("σ = {:g}",))
GRAPH = Statement(
    UTILITY,
    {"a = the last step, by the text": partial(graph, captioned=False),
     "a = 1, by the captions": partial(graph, captioned=True)},
    "best case (bound: the run)", swept=True, axis="σ",
)  # fmt: skip
STATEMENTS = (GRAPH,)


def experiments(quick: bool) -> Iterator[Experiment]:
    """Yield runs over the noise multiplier."""
    for sigma in SIGMAS[:: 2 if quick else 1]:
        yield Experiment(UTILITY, ("quadratic", sigma), BASE, (f"privacy.noise_multiplier={sigma}",), SEEDS)
