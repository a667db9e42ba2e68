"""The output of `simfl privacy async-fl`: claims, epsilons, conditions, noise."""

from __future__ import annotations

import math
from typing import Any

from simfl.accounts.shared import Accountant, Neighbors, Row, show
from simfl.errors import ConditionError
from simfl.papers.async_fl.privacy import rounds_bound, theorem_3, theorem_3_noise
from simfl.papers.async_fl.selection import Selection, aggregated_noise, constant_alternative, epsilon_of_sizes
from simfl.papers.async_fl.sizes import gate_delay, largest_delay
from simfl.papers.moments import explicit_moment_epsilon
from simfl.privacy import checks

Result = dict[str, Any]
"""The command's JSON result: values by name, see `measure`."""
_RELATION = {"add_or_remove": "one more or less", "replace_one": "one replaced"}


def measure(
    plan: Selection, delta: float, neighbors: Neighbors, accountant: Accountant, compare: bool
) -> tuple[Result, list[str]]:
    """Return a plan's claims and certified epsilon by name, and unmet conditions.

    Epsilons are compared at `delta`. `compare` adds constant sizes of the same certified epsilon.
    """
    setting, sizes = plan.setting, plan.sizes().first(plan.rounds)
    how: dict[str, Any] = {"neighbors": neighbors, "accountant": accountant}
    result: Result = dict.fromkeys(("plan", "theorem3", "delta", "moment_epsilon", "theorem3_sigma"))
    result.update(plan=plan, delta=delta)
    unmet = []
    try:
        result["theorem3"] = theorem_3(sizes, setting.num_examples, setting.epsilon, setting.sigma)
        result["moment_epsilon"] = explicit_moment_epsilon(sizes, setting.num_examples, setting.sigma, delta)
        result["theorem3_sigma"] = theorem_3_noise(sizes, setting.num_examples, setting.epsilon, delta)
    except ConditionError as error:
        unmet.append(str(error))
    epsilon = epsilon_of_sizes(sizes, setting.num_examples, setting.sigma, delta, **how)
    mean = round(plan.gradients / plan.rounds)
    others = dict.fromkeys((plan.first_size, mean)) if compare and 0.0 < epsilon < math.inf else {}
    result["certified_epsilon"] = epsilon
    result["constant_sizes"] = [constant_alternative(plan, size, epsilon, delta, **how) for size in others]
    return result, unmet


def check_gate(plan: Selection, d: int, clients: int) -> dict[str, Any]:
    """Check condition (3) with the largest delay of equation (14)."""
    checks.whole(1, clients=clients)
    if d + 1 >= plan.rounds:
        raise ValueError(f"gate: expected an integer below the {plan.rounds} rounds less one, found {d}")
    sizes = plan.sizes()
    lacking = {i: clients * gate_delay(sizes, d, i) for i in range(d + 1, plan.rounds)}
    allowed = {i: largest_delay(float(clients * sizes.total(i + 1))) for i in lacking}  # in all clients' iterations
    violated = [i for i in lacking if lacking[i] > allowed[i]]
    first = violated[0] if violated else None
    at = plan.rounds - 1 if first is None else first
    rounds = {"first_violated_round": first, "violated_rounds": len(violated), "round": at}
    return {"d": d, "clients": clients, **rounds, "may_lack": lacking[at], "allowed": allowed[at]}


def rows_of(result: Result, neighbors: Neighbors) -> list[Row | str]:
    """Return the lines of the table; `result["gate"]` is that of `check_gate` or None."""
    plan: Selection = result["plan"]
    setting, claim, third = plan.setting, plan.claim, result["theorem3"]
    sizes = [f"{size:,}" for size in plan.sizes().first(min(4, plan.rounds))]
    if plan.rounds > 4:
        sizes[3:] = ["…", f"{plan.last_size:,}"]
    bound = math.ceil(rounds_bound(setting.p, claim.q, setting.epochs))
    case = {1: "case 1", 2: "case 2", 0: "neither case"}[claim.case]
    share = result["certified_epsilon"] / setting.epsilon
    part = f"{share:.{0 if share >= 0.1 else 1}%} of it" if share < 10.0 else f"{share:.4g} times it"
    return [
        "What to run",
        ("sizes, ⌈N q (i + m)^p⌉", ", ".join(sizes), f"{plan.gradients:,} gradients"),
        ("slope, N q", setting.num_examples * claim.q, f"q = {show(claim.q)}"),
        ("shift, m", claim.m, f"m/T = {show(claim.gamma)}"),
        ("rounds, T", plan.rounds, f"the paper's formula: {bound:,}"),
        ("noise multiplier, sigma", setting.sigma, "noise on the sum over C"),
        f"Delta at epsilon = {show(setting.epsilon)}",
        ("claim of Theorem 4", claim.delta, "with an integer lambda"),
        ("as the paper computes it", claim.claimed_delta, "claim, lambda not an integer"),
        ("budget, sigma/factor", claim.budget, f"factor {show(claim.factor)}, {case}"),
        ("claim of Theorem 3", None if third is None else third.delta, "for the sizes as they are"),
        f"Epsilon at delta = {show(result['delta'])}",
        ("asked for", setting.epsilon, ""),
        ("claim of the moments", result["moment_epsilon"], "best integer lambda of Lemma 4"),
        ("certified", result["certified_epsilon"], f"{part}; {_RELATION[neighbors]}"),
        ("sigma by Theorem 3", result["theorem3_sigma"], "claim, for this epsilon"),
        *_condition_rows(plan),
        *_noise_rows(result),
        *_gate_rows(result["gate"]),
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


def _noise_rows(result: Result) -> list[Row | str]:
    plan: Selection = result["plan"]
    setting, size = plan.setting, plan.first_size
    noises = [("these sizes", setting.sigma, plan.rounds)]
    if plan.claim.delta < 1.0:
        noises.append((f"constant {size}, claimed", plan.claim.budget, math.ceil(setting.gradients / size)))
    for other in result["constant_sizes"]:
        noises.append((f"constant {other.size}, certified", other.noise_multiplier, other.rounds))
    rows: list[Row | str] = ["Noise of all rounds, sqrt(T) sigma"]
    for label, sigma, rounds in noises:
        rows.append((label, aggregated_noise(sigma, rounds), f"{rounds:,} rounds, {sigma:.4g} each"))
    return rows


def _gate_rows(gate: dict[str, Any] | None) -> list[Row | str]:
    if gate is None:
        return []
    holds = gate["first_violated_round"] is None
    relation = "≤" if holds else ">"
    note = f"{gate['may_lack']:,} {relation} {_short(gate['allowed'])} updates in round {gate['round']:,}"
    return [
        f"Gate: clients at most {gate['d']} rounds ahead",
        ("(3), delay of (14)", "holds" if holds else "violated", note),
        ("rounds that violate it", gate["violated_rounds"], "theory for strongly convex"),
    ]


def notes_of(result: Result, unmet: list[str], delta: float | None) -> list[str]:
    """Return the sentences below the table; `delta` is the one that was given, if any."""
    plan: Selection = result["plan"]
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
    if delta is None and result["delta"] != claim.delta:
        notes.append("Epsilons are those at delta = 1/N.")
    if any(name.startswith(("q (T", "K")) for name in violated):
        advice = "let the passes settle" if setting.form == "corrected" else "--form corrected respects them"
        notes.append(f"The claim of Theorem 4 has no proof here, as conditions of it are violated; {advice}.")
    if "max s_i/N <= 1/(e sigma^2)" in violated:
        notes.append(
            "The proof of Lemma 4 has a gap unless max s_i/N ≤ 1/(e sigma^2). Its bound held wherever it was compared "
            "with the exact moments; what is certified does not need it."
        )
    better = [str(one.size) for one in result["constant_sizes"] if one.aggregated_noise < plan.aggregated_noise]
    if better:
        notes.append(f"Constant sizes of {' and '.join(better)} need less noise in all for what is certified here.")
    return [*notes, *(f"Not claimed: {reason}" for reason in unmet)]
