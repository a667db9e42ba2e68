"""Convergence theorems of the papers, on problems whose constants are known."""

from __future__ import annotations

from collections.abc import Sequence

from simfl.papers.theorems import async_fl
from simfl.papers.theorems.judging import drawing_of
from simfl.studies.papers import Experiment, Paper, PaperClaim


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the runs of all theorems."""
    return [*async_fl.experiments(quick)]


PAPER = Paper(
    name="theorems",
    title="Convergence theorems of the papers, on problems of known constants",
    page="known_optima.md",
    minutes=(1, 2),
    experiments=experiments,
    numbers=(async_fl.THEOREM5.numbers, async_fl.THEOREM2.numbers, async_fl.theorem4_numbers),
    claims=(
        PaperClaim("Asynchronous FL, Theorem 5: with the recipe's sizes and steps, E|w - w*|² is below its bound.",
                   async_fl.THEOREM5.holds, True, "async_fl"),
        PaperClaim("Asynchronous FL, Theorem 2: E|w - w*|² is at most 8 · 36² N / (μ² t).", async_fl.THEOREM2.holds,
                   figure="async_fl"),
        PaperClaim("Asynchronous FL, Theorem 5: E|w - w*|² falls as fast as its bound.", async_fl.THEOREM5.falls,
                   figure="async_fl"),
        PaperClaim("Asynchronous FL, Theorem 4: growing sizes with this noise are (ε, δ)-private.", async_fl.theorem4),
    ),
    figures={"async_fl": ("Asynchronous FL: squared distance from the optimum beside the bound of Theorem 5",
                          drawing_of(async_fl.THEOREM5))},
    deviations=(
        "Theorem 5 of asynchronous FL is proved from a step T_0 on. The only T_0 that the paper gives, "
        "exp(2 (1 + 36 (L + μ)/μ)), is beyond every run; curves are compared from the first evaluation on.",
    ),
)  # fmt: skip
