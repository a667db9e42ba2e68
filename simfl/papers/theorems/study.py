"""Convergence theorems of the papers, on problems whose constants are known."""

from __future__ import annotations

from collections.abc import Sequence

from simfl.papers.theorems import adp2sgd, async_fl, mapa, proactive_dp, without_replacement
from simfl.papers.theorems.judging import claims_of, drawing_of, worth_of
from simfl.reproduction.papers import Experiment, Paper, PaperClaim

PARTS = (async_fl, adp2sgd, without_replacement, mapa, proactive_dp)


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the runs of all theorems."""
    return [experiment for part in PARTS for experiment in part.experiments(quick)]


PAPER = Paper(
    name="theorems",
    title="Convergence theorems of the papers, on problems of known constants",
    page="theorems.md",
    minutes=(1, 2),
    experiments=experiments,
    numbers=(
        *(statement.numbers for part in PARTS for statement in part.STATEMENTS),
        without_replacement.THEOREM7.numbers,
    ),
    claims=(
        *claims_of("async_fl", *async_fl.STATEMENTS),
        PaperClaim("Asynchronous FL, Theorem 4: growing sizes with this noise are (ε, δ)-private.", async_fl.theorem4),
        *worth_of("Asynchronous FL", "async_fl", async_fl.STATEMENTS, async_fl.STATEMENTS),
        *claims_of("adp2sgd", *adp2sgd.STATEMENTS),
        *worth_of("A(DP)²SGD", "adp2sgd", adp2sgd.STATEMENTS, (adp2sgd.PROPOSITION1,)),
        *claims_of("without_replacement", *without_replacement.STATEMENTS),
        *worth_of("Without replacement", "without_replacement", without_replacement.STATEMENTS,
                  (*without_replacement.STATEMENTS, without_replacement.THEOREM7)),
        *claims_of("mapa", *mapa.STATEMENTS),
        *worth_of("MAPA", "mapa", mapa.STATEMENTS, (mapa.THEOREM2,)),
        *claims_of("proactive_dp", *proactive_dp.STATEMENTS),
    ),
    figures={
        "async_fl": ("Asynchronous FL", drawing_of(*async_fl.STATEMENTS)),
        "adp2sgd": ("A(DP)²SGD", drawing_of(*adp2sgd.STATEMENTS)),
        "without_replacement": ("Without replacement", drawing_of(*without_replacement.STATEMENTS,
                                                                  without_replacement.THEOREM7)),
        "mapa": ("MAPA", drawing_of(*mapa.STATEMENTS)),
        "proactive_dp": ("Proactive DP", drawing_of(*proactive_dp.STATEMENTS)),
    },
    deviations=(
        "Chosen after trial runs were seen: the drawn problems, the lengths of runs, constant steps, the number of "
        "seeds, the rule for slopes, and the inputs of Theorem 4 of asynchronous FL.",
    ),
)  # fmt: skip
