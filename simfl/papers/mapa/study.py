"""MAPA against AUDP, ASGD and CSGD: accuracy, convergence, parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from simfl.papers.mapa import study_claims as claims
from simfl.papers.mapa import study_figures as figures
from simfl.papers.mapa.study_runs import AHEAD, BETWEEN, CLOSE, NONE, experiments
from simfl.reproduction.evidence import Reading
from simfl.reproduction.papers import Paper, PaperClaim, Runs

#: Figure of the paper, whether it is a headline, the claim, its check.
_CLAIMS: Sequence[tuple[int, bool, str, Callable[[Runs], Iterator[Reading]]]] = (
    (6, True, "LR: MAPA is more accurate than AUDP at small ε", lambda runs: claims.beats_audp(runs, "LR")),
    (6, False, "SVM: MAPA is more accurate than AUDP at small ε", lambda runs: claims.beats_audp(runs, "SVM")),
    (6, False, "CNN: MAPA is more accurate than AUDP at small ε", lambda runs: claims.beats_audp(runs, "CNN")),
    (6, False, "MAPA is more accurate than AUDP in all sub-figures, at every ε", claims.beats_audp_everywhere),
    (6, False, "MAPA's lead over AUDP reaches 20 % in panel (c)", partial(claims.leads_by, panel="c")),
    (6, False, "MAPA's lead over AUDP reaches 100 % in panel (f)", partial(claims.leads_by, panel="f")),
    (6, False, "MAPA's lead over AUDP is larger at small ε", claims.leads_most_at_small_epsilon),
    (6, False, "MAPA's accuracy grows with ε", claims.mapa_grows),
    (6, False, "AUDP's accuracy grows with ε", claims.audp_grows),
    (6, False, "MAPA comes close to ASGD as ε grows, in all sub-figures", claims.near_asgd),
    (6, False, "For LR, MAPA is even more accurate than ASGD", claims.beyond_asgd),
    (5, True, "MAPA ends alike whatever clipping norm it begins with", claims.insensitive),
    (5, False, "MAPA ends about as accurate as AUDP with a good clipping norm", claims.as_good_as_audp),
    (5, False, "AUDP loses accuracy with too small a clipping norm", partial(claims.bad_bound, bad=0.2, least=CLOSE)),
    (5, False, "AUDP loses accuracy with too large a clipping norm", partial(claims.bad_bound, bad=15, least=0.0)),
    (7, False, "The asynchronous algorithms need more iterations the more servers there are", claims.more_servers),
    (7, False, "CSGD needs the fewest iterations", claims.fewest_on_one_machine),
    (7, False, "MAPA needs one to two orders fewer iterations than AUDP at K = 10 and 100", claims.saves_against_audp),
    (7, False, "MAPA needs about two orders fewer iterations than ASGD at K = 100 and 1,000",
     claims.saves_against_asgd),
    (8, False, "On a testbed MAPA is more accurate than AUDP in all cases", claims.on_the_testbed),
    (8, False, "With many servers MAPA is more accurate than ASGD", claims.beyond_asgd_on_the_testbed),
    (8, False, "MAPA and AUDP are almost as accurate as CSGD for the CNN", claims.near_csgd),
    (9, False, "σ does not matter", partial(claims.no_matter, name="σ")),
    (9, False, "δ does not matter", partial(claims.no_matter, name="δ")),
    (9, False, "Larger b is faster at first", partial(claims.rises, name="b", updates=BETWEEN[0])),
    (9, False, "Smaller L is faster at first", partial(claims.rises, name="L", updates=BETWEEN[0], falling=True)),
    (9, False, "b does not matter in the end", partial(claims.no_matter, name="b")),
    (9, False, "L does not matter in the end", partial(claims.no_matter, name="L")),
    (9, False, "ε matters", claims.matters),
    (9, False, "A larger reduction ratio, a smaller θ, ends less accurate",
     partial(claims.rises, name="θ", updates=BETWEEN[-1])),
)  # fmt: skip
_FIGURES = {6: "accuracy", 5: "gradient-norms", 7: "convergence", 8: "testbed", 9: "parameters"}
_INSTEAD = dict.fromkeys((8, 9), "a simulated world for the testbed")
_SHORT: dict[Callable[[Runs], Iterator[Reading]], str] = {
    claims.near_csgd: "runs as long as the paper's: the text does not say how many updates they had, and accuracies "
    f"still rise after {BETWEEN[-1]:,}"
}

PAPER = Paper(
    name="mapa",
    title="Li, Yang, Ren, Zhao: Asynchronous Federated Learning with Differential Privacy for Edge Intelligence",
    page="mapa.md",
    data=("usps", "mnist"),
    minutes=(2, 37),
    experiments=experiments,
    numbers=(
        claims.epsilon_numbers, claims.lead_numbers, claims.norm_numbers, claims.convergence_numbers,
        claims.saving_numbers, claims.network_numbers, claims.joining_numbers, claims.inversion_numbers,
        claims.private_numbers,
    ),
    claims=(
        *(PaperClaim(f"{text} (Figure {number}).", check, headline, _FIGURES[number], _INSTEAD.get(number, ""),
                     _SHORT.get(check, "")) for number, headline, text, check in _CLAIMS),
        PaperClaim("Images inferred from a gradient are blurred at ε = 0.01, and some are seen at 1 (Figure 4).",
                   claims.blurs),
        PaperClaim("New servers can join, and begin with the model of that time (section 3.1).", claims.join),
        PaperClaim("What a server sends in an iteration is ε-differentially private.", claims.private),
        PaperClaim("MAPA keeps the model useful with that privacy.", claims.useful_and_private),
    ),
    figures={
        "accuracy": ("Figure 6: accuracy over ε, σ = 5", figures.draw_accuracy),
        "gradient-norms": ("Figure 5: norms of clipped gradients over updates", figures.draw_norms),
        "convergence": ("Figure 7: updates to converge over the number of edge servers", figures.draw_convergence),
        "testbed": ("Figure 8: accuracy over updates on a simulated testbed", figures.draw_testbed),
        "parameters": ("Figure 9: MAPA's accuracy over updates, one parameter changed", figures.draw_parameters),
    },
    deviations=(
        "The paper prints curves and hardly a number: leads of 20 % and 100 %, and orders of magnitude in Figure 7.",
        "The noise is that of the published code (`laplace_l2_radius_only`): ε is a name for its size. What noise of "
        "the right law leaves is in the last table.",
        "AUDP clips each example's gradient to G, and MAPA to b ΔS/2. Outside of Figure 5 the paper's AUDP and its "
        "code do not clip, and its MAPA clips the mean over the batch, which bounds the sensitivity by b times as "
        "much. Readings have AUDP without clipping, with noise of the code's G = 4, and MAPA as printed (LR, USPS).",
        "G as measured is a bound over all models for LR and SVM: the largest example times the steepest slope of the "
        "loss. For the CNN, which has none, it is the largest gradient of an example at the first models.",
        "The paper does not name LR's two classes: even or odd digits, and below five or not, are nearest to it here. "
        "Its SVM is that of Crammer and Singer (worst class) or of one against the rest (each class).",
        'Models and data sets are parts of one reading where the text says "in all sub-figures". On MNIST, two-way LR '
        "is even or odd, the SVM is that of each class, and AUDP has ε = 0.1 alone; so has the CNN there, without ASGD "
        "and CSGD.",
        f"Leads below {NONE:g} point and ratios of updates below {AHEAD:g} count as none.",
        "The network averages in its pooling layers and applies ReLU after them; the published code has another order.",
        "The next ΔS is θ ΔS, as in Algorithm 1. Table 2's rule makes ΔS grow if its Δ_s is Δ_b; if it is the bound "
        "2 Δ_b/(P(τ+1)) on the squared gradient, the rule is that of the text.",
        "Figure 4 infers single images at LR's first model, from one example's gradient clipped to 1.",
        "Figure 7 is for LR alone, with two or three losses: the paper names none. USPS has too few examples for 1,000 "
        "servers, which have MNIST. Where ASGD's runs do not converge, its count is the least that a convex loss can "
        "need.",
        "The testbed of Figures 8 and 9 is a simulated world whose servers differ in speed, with 10,000 updates; the "
        "text does not say how many the paper's had. σ is 30 there, Figure 9's default. ASGD has 20 servers alone.",
    ),
)  # fmt: skip
