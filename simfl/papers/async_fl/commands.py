"""`simfl privacy async-fl`: growing sizes, their claims and certified epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.cli.privacy.shared import (
    Accountant,
    Arguments,
    AsJson,
    ChosenAccountant,
    ChosenNeighbors,
    Neighbors,
    OptionsOf,
    Row,
    present,
    show,
)

if TYPE_CHECKING:
    from simfl.papers.async_fl.privacy import Theorem3
    from simfl.papers.async_fl.selection import Alternative, Selection

_RELATION = {"add_or_remove": "one more or less", "replace_one": "one replaced"}
_THEORY = "simfl.papers.async_fl"


def command(
    growth: Annotated[
        Arguments,
        OptionsOf(
            f"{_THEORY}.privacy:GrowthSetting",
            rename={"p": "power", "num_examples": "examples", "sigma": "noise_multiplier"},
            leave_out=("r0",),
            defaults={"p": 1.0},
        ),
    ],
    selection: Annotated[
        Arguments,
        OptionsOf(f"{_THEORY}.selection:select_parameters", rename={"iterations": "passes"}, leave_out=("setting",)),
    ],
    r0: Annotated[
        str,
        typer.Option("--r0", metavar="sigma|1/e|NUMBER", help="Constant of the theorems: r0(sigma), 1/e, or a number."),
    ] = "sigma",
    gate: Annotated[
        int | None,
        typer.Option("--gate", help="d: check condition (3) for clients up to d rounds ahead.", show_default=False),
    ] = None,
    clients: Annotated[int, typer.Option("--clients", help="Clients with these sizes, for --gate.")] = 1,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", help="Where to compare epsilons; the delta claimed, or 1/N, by default.", show_default=False
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also the noise that constant sizes need for the certified epsilon.")
    ] = False,
    neighbors: ChosenNeighbors = "add_or_remove",
    accountant: ChosenAccountant = "tightest",
    as_json: AsJson = False,
) -> None:
    """Asynchronous FL with growing rounds: sizes, rounds and delta for given noise.

    Van Dijk et al. 2020, Theorem 4 and its parameter selection. The accountant of
    privacy-loss distributions takes seconds; --accountant renyi is quick.
    """
    from simfl.papers.async_fl.privacy import GrowthSetting
    from simfl.papers.async_fl.selection import select_parameters

    setting = GrowthSetting(**growth, r0=_r0(r0))
    plan = select_parameters(setting, **selection)
    # Epsilons are compared at the delta of the claim, or at 1/N where that is smaller or nothing is claimed.
    at = min(1.0 / setting.num_examples, plan.claim.delta) if delta is None else delta  # the claim's may be NaN
    evidence = _Evidence(plan, at, neighbors, accountant, compare)
    gated = None if gate is None else _gate(plan, gate, clients)
    rows = [*_plan_rows(plan), *_claim_rows(plan, evidence), *_epsilon_rows(plan, evidence, neighbors)]
    rows += [*_condition_rows(plan), *_noise_rows(plan, evidence)]
    if gated is not None:
        rows += _gate_rows(gated)
    result: dict[str, Any] = {
        "plan": plan,
        "theorem3": evidence.theorem_3,
        "delta": at,
        "moment_epsilon": evidence.moments,
        "theorem3_sigma": evidence.noise,
        "certified_epsilon": evidence.certified,
        "constant_sizes": evidence.alternatives,
        "gate": gated,
    }
    gradients = show(float(round(setting.gradients)))
    kind = "Constant sizes" if setting.p == 0.0 else f"Sizes that grow like i^{setting.p:g}"
    title = f"{kind}, Theorem 4: {setting.num_examples:,} examples, {gradients} gradients"
    present(title, rows, notes=_notes(plan, evidence, delta), result=result, as_json=as_json)


class _Evidence:
    """The claims of Theorem 3, the moments, and the certified epsilon of sizes."""

    def __init__(
        self, plan: Selection, delta: float, neighbors: Neighbors, accountant: Accountant, compare: bool
    ) -> None:
        from simfl.errors import ConditionError
        from simfl.papers.async_fl.privacy import theorem_3, theorem_3_noise
        from simfl.papers.async_fl.selection import certified_epsilon, constant_alternative
        from simfl.papers.moments import explicit_moment_epsilon

        setting, self.delta = plan.setting, delta
        sizes = plan.sizes().first(plan.rounds)
        self.theorem_3: Theorem3 | None = None
        self.moments: float | None = None
        self.noise: float | None = None
        self.why_not: list[str] = []
        try:
            self.theorem_3 = theorem_3(sizes, setting.num_examples, setting.epsilon, setting.sigma)
            self.moments = explicit_moment_epsilon(sizes, setting.num_examples, setting.sigma, delta)
            self.noise = theorem_3_noise(sizes, setting.num_examples, setting.epsilon, delta)
        except ConditionError as error:
            self.why_not.append(str(error))
        how: dict[str, Any] = {"neighbors": neighbors, "accountant": accountant}
        self.certified = certified_epsilon(plan, delta, **how)
        self.alternatives: list[Alternative] = []
        if compare and 0.0 < self.certified < math.inf:
            mean = round(plan.gradients / plan.rounds)
            self.alternatives = [
                constant_alternative(plan, size, self.certified, delta, **how)
                for size in dict.fromkeys((plan.first_size, mean))
            ]


def _r0(text: str) -> float | None:
    if text == "sigma":
        return None
    if text == "1/e":
        return 1.0 / math.e
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--r0: expected sigma, 1/e or a number, found {text!r}") from None


def _plan_rows(plan: Selection) -> list[Row | str]:
    from simfl.papers.async_fl.privacy import rounds_bound

    setting, claim = plan.setting, plan.claim
    sizes = [f"{size:,}" for size in plan.sizes().first(min(4, plan.rounds))]
    if plan.rounds > 4:
        sizes[3:] = ["…", f"{plan.last_size:,}"]
    bound = rounds_bound(setting.p, claim.q, setting.epochs)
    return [
        "What to run",
        ("sizes, ⌈N q (i + m)^p⌉", ", ".join(sizes), f"{plan.gradients:,} gradients"),
        ("slope, N q", setting.num_examples * claim.q, f"q = {show(claim.q)}"),
        ("shift, m", claim.m, f"m/T = {show(claim.gamma)}"),
        ("rounds, T", plan.rounds, f"the paper's formula: {math.ceil(bound):,}"),
        ("noise multiplier, sigma", setting.sigma, "noise on the sum over C"),
    ]


def _claim_rows(plan: Selection, evidence: _Evidence) -> list[Row | str]:
    claim = plan.claim
    case = {1: "case 1", 2: "case 2", 0: "neither case"}[claim.case]
    third = evidence.theorem_3
    return [
        f"Delta at epsilon = {show(plan.setting.epsilon)}",
        ("claim of Theorem 4", claim.delta, "with an integer lambda"),
        ("as the paper computes it", claim.claimed_delta, "claim, lambda not an integer"),
        ("budget, sigma/factor", claim.budget, f"factor {show(claim.factor)}, {case}"),
        ("claim of Theorem 3", None if third is None else third.delta, "for the sizes as they are"),
    ]


def _epsilon_rows(plan: Selection, evidence: _Evidence, neighbors: Neighbors) -> list[Row | str]:
    share = evidence.certified / plan.setting.epsilon
    part = f"{share:.{0 if share >= 0.1 else 1}%} of it" if share < 10.0 else f"{share:.4g} times it"
    return [
        f"Epsilon at delta = {show(evidence.delta)}",
        ("asked for", plan.setting.epsilon, ""),
        ("claim of the moments", evidence.moments, "best integer lambda of Lemma 4"),
        ("certified", evidence.certified, f"{part}; {_RELATION[neighbors]}"),
        ("sigma by Theorem 3", evidence.noise, "claim, for this epsilon"),
    ]


def _condition_rows(plan: Selection) -> list[Row | str]:
    rows: list[Row | str] = ["Conditions"]
    for condition in plan.conditions:
        sign = "<" if " < " in condition.name else "≤"
        relation = sign if condition.holds else {"<": "≥", "≤": ">"}[sign]
        compared = f"{_short(condition.left)} {relation} {_short(condition.right)} ({condition.what_for})"
        rows.append((condition.name.replace("<=", "≤"), "holds" if condition.holds else "violated", compared))
    return rows


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1e3 <= value < 1e9 else f"{value:.4g}"


def _noise_rows(plan: Selection, evidence: _Evidence) -> list[Row | str]:
    from simfl.papers.async_fl.selection import aggregated_noise

    setting, size = plan.setting, plan.first_size
    rows: list[Row | str] = [
        "Noise of all rounds, sqrt(T) sigma",
        ("these sizes", plan.aggregated_noise, f"{plan.rounds:,} rounds, {setting.sigma:.4g} each"),
    ]
    if plan.claim.delta < 1.0:
        rounds, budget = math.ceil(setting.gradients / size), plan.claim.budget
        note = f"{rounds:,} rounds, {budget:.4g} each"
        rows.append((f"constant {size}, claimed", aggregated_noise(budget, rounds), note))
    for other in evidence.alternatives:
        note = f"{other.rounds:,} rounds, {other.noise_multiplier:.4g} each"
        rows.append((f"constant {other.size}, certified", other.aggregated_noise, note))
    return rows


def _gate(plan: Selection, d: int, clients: int) -> dict[str, Any]:
    """Check condition (3) with the largest delay of equation (14)."""
    from simfl.papers.async_fl import sizes as sequences
    from simfl.privacy import checks

    checks.whole(1, clients=clients)
    sizes = plan.sizes()
    if d + 1 >= plan.rounds:
        raise ValueError(f"gate: expected an integer below the {plan.rounds} rounds less one, found {d}")

    def allowed(i: int) -> float:  # tau at the iterations of all clients together
        return sequences.largest_delay(float(clients * sizes.total(i + 1)))

    def lacks(i: int) -> int:
        return clients * sequences.gate_delay(sizes, d, i)

    violated = [i for i in range(d + 1, plan.rounds) if lacks(i) > allowed(i)]
    at = violated[0] if violated else plan.rounds - 1
    return {
        "d": d,
        "clients": clients,
        "first_violated_round": violated[0] if violated else None,
        "violated_rounds": len(violated),
        "round": at,
        "may_lack": lacks(at),
        "allowed": allowed(at),
    }


def _gate_rows(gate: dict[str, Any]) -> list[Row | str]:
    holds = gate["first_violated_round"] is None
    relation = "≤" if holds else ">"
    note = f"{gate['may_lack']:,} {relation} {_short(gate['allowed'])} updates in round {gate['round']:,}"
    return [
        f"Gate: clients at most {gate['d']} rounds ahead",
        ("(3), delay of (14)", "holds" if holds else "violated", note),
        ("rounds that violate it", gate["violated_rounds"], "theory for strongly convex"),
    ]


def _notes(plan: Selection, evidence: _Evidence, delta: float | None) -> list[str]:
    setting, claim = plan.setting, plan.claim
    notes = [
        "For gradients clipped one by one, all at one model per round, and an adversary who sees all that the client "
        "sends. Local steps within a round, as in the paper's Algorithm 1, are not covered by its proof.",
    ]
    violated = [condition.name for condition in plan.conditions if not condition.holds]
    if claim.case == 0:
        notes.append("K is between K^- and K^+, where Theorem 6 claims nothing; take a larger --excess, or none.")
    elif claim.delta >= 1.0:
        notes.append("The budget is too small for an integer lambda, so that Theorem 4 claims nothing.")
    elif claim.delta > 1.0 / setting.num_examples:
        notes.append("The delta of the claim is above 1/N; take a larger epsilon, or more noise.")
    if delta is None and evidence.delta != claim.delta:
        notes.append("Epsilons are those at delta = 1/N.")
    if any(name.startswith(("q (T", "K")) for name in violated):
        advice = "let the passes settle" if setting.form == "corrected" else "--form corrected respects them"
        notes.append(f"The claim of Theorem 4 has no proof here, as conditions of it are violated; {advice}.")
    if "max s_i/N <= 1/(e sigma^2)" in violated:
        notes.append(
            "The proof of Lemma 4 has a gap unless max s_i/N ≤ 1/(e sigma^2). Its bound held wherever it was compared "
            "with the exact moments; what is certified does not need it."
        )
    better = [other for other in evidence.alternatives if other.aggregated_noise < plan.aggregated_noise]
    if better:
        sizes = " and ".join(str(other.size) for other in better)
        notes.append(f"Constant sizes of {sizes} need less noise in all for what is certified here.")
    return [*notes, *(f"Not claimed: {reason}" for reason in evidence.why_not)]
