"""Convergence theorems of the papers, on problems whose constants are known."""

from __future__ import annotations

from collections.abc import Sequence

from simfl.papers.theorems import adp2sgd, async_fl, mapa, proactive_dp, without_replacement
from simfl.papers.theorems.judging import claims_of, drawing_of, worth_of
from simfl.studies.papers import Experiment, Paper, PaperClaim

PARTS = (async_fl, adp2sgd, without_replacement, mapa, proactive_dp)


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the runs of all theorems."""
    return [experiment for part in PARTS for experiment in part.experiments(quick)]


PAPER = Paper(
    name="theorems",
    title="Convergence theorems of the papers, on problems of known constants",
    page="theorems.md",
    minutes=(1, 12),
    experiments=experiments,
    numbers=(
        *(statement.numbers for part in PARTS for statement in part.STATEMENTS),
        without_replacement.THEOREM7.numbers,
        async_fl.theorem4_numbers,
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
        "async_fl": ("Asynchronous FL: squared distance from the optimum beside the bounds of Theorems 2 and 5",
                     drawing_of(*async_fl.STATEMENTS)),
        "adp2sgd": ("A(DP)²SGD: squared gradients beside the bounds of Theorem 1 and Propositions 1 and 2",
                    drawing_of(*adp2sgd.STATEMENTS)),
        "without_replacement": ("Without replacement: suboptimality beside the bounds of Theorems 3, 4 and 6, and the "
                                "rate of 7", drawing_of(*without_replacement.STATEMENTS, without_replacement.THEOREM7)),
        "mapa": ("MAPA: suboptimality and squared gradients beside the bounds of Theorems 2 and 4",
                 drawing_of(*mapa.STATEMENTS)),
        "proactive_dp": ("Proactive DP: the utility graph's best case, and the runs that should lie above it",
                         drawing_of(*proactive_dp.STATEMENTS)),
    },
    deviations=(
        "Theorem 5 of asynchronous FL is proved from a step T_0 on. The only T_0 that the paper gives, "
        "exp(2 (1 + 36 (L + μ)/μ)), is beyond every run; curves are compared from the first evaluation on.",
        "Chosen after trial runs were seen: the drawn problems, the lengths of runs, the constant steps of A(DP)²SGD "
        "and MAPA, the numbers of seeds, and the rule for slopes (last tenfold of steps, flatter by at most 0.1).",
        "Theorem 4 of asynchronous FL is judged at ε = 1, σ = 8, N = 25,000, s_0 = 4 and two epochs, where its δ is "
        "below 1/N. A trial at the inputs of the paper's example 4 had δ 45 to 330 times 1/N, which tests little.",
        "|∇F|² is not recorded. 2 L (F - F*), which is measured, is at least as large; it is equal on the quadratics.",
        "Of Theorem 6's mixture only the global model is measured; the local model's part is not negative. Theorem 7 "
        "has no constant, so that only its rate is judged.",
        "Proactive DP has no bound of the loss. Its utility graph has a best case, which is a number on a quadratic.",
    ),
)  # fmt: skip
