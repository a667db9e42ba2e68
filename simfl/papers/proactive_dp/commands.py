"""`simfl privacy proactive-dp`: noise, batch and rounds in closed form."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import Arguments, AsJson, ChosenAccountant, OptionsOf, Row, present, show

if TYPE_CHECKING:
    from simfl.papers.proactive_dp.theorems import CertifiedRounds, RoundsPlan

_THEORY = "simfl.papers.proactive_dp.theorems"
_OPTIONS = OptionsOf(
    f"{_THEORY}:plan_rounds", rename={"num_examples": "examples", "sigma": "noise_multiplier"},
    helps={"epsilon": "Target epsilon; with --noise-multiplier or --done the budget of all rounds.",
           "sigma": "Noise multiplier; from --epsilon by default."},
)  # fmt: skip
_CONDITIONS = {
    "(32)": "T ≥ theta k/g(sigma)",
    "(33)": "k ≥ eps/(gamma h)",
    "(34)": "T ≥ gamma theta² k²/eps",
    "(35)": "sigma ≥ main equation",
}


def command(
    options: Annotated[Arguments, _OPTIONS],
    done: Annotated[
        list[str] | None,
        typer.Option(
            "--done", metavar="SIZExROUNDS", help="Earlier rounds, run with at least that noise; may be repeated."
        ),
    ] = None,
    accountant: ChosenAccountant = "tightest",
    as_json: AsJson = False,
) -> None:
    """Proactive DP: the largest batches and the rounds for a privacy budget.

    Van Dijk et al. 2021, Theorem B.4. With --done, or with both --noise-multiplier and --epsilon, the calculator of
    Appendix E.1, which accounts for earlier rounds.
    """
    from simfl.errors import ConditionError
    from simfl.papers.moments import explicit_moment_epsilon
    from simfl.papers.proactive_dp import theorems as proactive

    plan = _plan(options, done or [])
    noise: dict[str, Any] = {"sigma": plan.sigma, "delta": plan.delta}
    certified = proactive.accounted(plan.schedule, plan.num_examples, **noise, accountant=accountant)
    moments: float | None = None
    with contextlib.suppress(ConditionError):  # the plan is at the limit of the conditions of the moments
        moments = explicit_moment_epsilon(proactive.sizes_of(plan.schedule), plan.num_examples, **noise)
    result: dict[str, Any] = {"plan": plan, "total_rounds": plan.total_rounds, "epochs": plan.epochs}
    result |= {"claimed_epsilon": plan.epsilon, "moment_epsilon": moments, "certified": certified}
    rows = [*_plan_rows(plan), *_epsilon_rows(plan, moments, certified), *_condition_rows(plan, options["gamma"])]
    title = f"Proactive DP, Theorem B.4: {plan.num_examples:,} examples, {plan.asked:,} gradients"
    present(f"{title}, delta = {show(plan.delta)}", rows, notes=_notes(plan, certified), result=result, as_json=as_json)


def _plan(options: Arguments, done: list[str]) -> RoundsPlan:
    from simfl.errors import ConditionError
    from simfl.papers.proactive_dp.calculator import Calculator, Stop
    from simfl.papers.proactive_dp.theorems import delta_or_default, epsilon_of, gradients_of, plan_rounds

    epsilon, sigma, examples = options["epsilon"], options["sigma"], options["num_examples"]
    if epsilon is None and sigma is None:
        raise ValueError("expected --epsilon, --noise-multiplier, or both")
    if (options["epochs"] is None) == (options["gradients"] is None):
        raise ValueError("expected either --epochs or --gradients")
    if not done and (epsilon is None or sigma is None):
        return plan_rounds(**options)
    if options["gamma"] != "fixed-point":
        raise ValueError(
            "--gamma one-shot is for a fresh start, with --epsilon or --noise-multiplier alone; leave it out"
        )
    gradients = gradients_of(examples, options["epochs"], options["gradients"])
    delta = delta_or_default(options["delta"], examples)
    if epsilon is None:
        epsilon = epsilon_of(sigma, delta)
    plan = Calculator(examples, delta, epsilon, sigma, _parse(done), options["exact"]).next_plan(gradients)
    if isinstance(plan, Stop):
        raise ConditionError(plan.reason)
    return plan


def _parse(done: list[str]) -> tuple[tuple[int, int], ...]:
    rounds = []
    for text in done:
        match = re.fullmatch(r"(\d+)[x×*](\d+)", text.strip())
        if match is None:
            raise ValueError(f"--done: expected SIZExROUNDS, for example 31x1612, found {text!r}")
        rounds.append((int(match[1]), int(match[2])))
    return tuple(rounds)


def _plan_rows(plan: RoundsPlan) -> list[Row | str]:
    limit = "there are no more gradients" if plan.bound_by == "K" else f"a larger one violates {plan.bound_by}"
    missing = plan.asked - plan.gradients
    if plan.last_batch:
        rounds = f"and one more with a batch of {plan.last_batch:,}"
    else:
        rounds = f"{plan.gradients:,} gradients" + (f"; {missing:,} left out" if missing else "")
    rows: list[Row | str] = [
        "What to run" if not plan.done else "What to run next",
        ("noise multiplier, sigma", plan.sigma, "noise on the sum over clipping norm"),
        ("batch size, s", plan.batch, f"expected; {limit}"),
        ("rounds", plan.rounds, rounds),
    ]
    if plan.done:
        before = ", ".join(f"{count:,} of {size:,}" for size, count in plan.done)
        rows.append(("rounds altogether, T", plan.total_rounds, f"before: {before}"))
    rows.append(("epochs, k", plan.epochs, "of all rounds together" if plan.done else ""))
    return rows


def _epsilon_rows(plan: RoundsPlan, moments: float | None, certified: CertifiedRounds) -> list[Row | str]:
    def part(epsilon: float) -> str:
        return f"{epsilon / plan.epsilon:.0%} of the claim"

    return [
        f"Epsilon at delta = {show(plan.delta)}",
        ("claim of Theorem B.4", plan.epsilon, "Poisson, one example more or less"),
        ("claim of its moments", moments, "best integer lambda of Lemma B.3"),
        ("certified, Poisson", certified.poisson, f"one more or less: {part(certified.poisson)}"),
        ("certified, fixed size", certified.fixed_size, f"one replaced: {part(certified.fixed_size)}"),
    ]


def _condition_rows(plan: RoundsPlan, gamma: str) -> list[Row | str]:
    rows: list[Row | str] = ["Conditions of Theorem B.4"]
    for condition in plan.conditions:  # all hold; otherwise planning would have raised an error
        value = int(condition.found) if condition.name in ("(32)", "(34)") else condition.found
        label = f"{condition.name} {_CONDITIONS[condition.name]}"
        rows.append((label, value, f"holds: needs {condition.needed:.6g}"))
    shot = gamma == "one-shot"
    rows.append(("gamma", plan.gamma, "one-shot; (34) has the fixed point" if shot else "fixed point of Gam"))
    rows.append(("theta", plan.theta, "largest over mean batch"))
    return rows


def _notes(plan: RoundsPlan, certified: CertifiedRounds) -> list[str]:
    notes = [
        "The claim is for gradients that are clipped one by one, all at one model per round, and an adversary who sees "
        "all that the client sends.",
    ]
    if certified.fixed_size > plan.epsilon:
        notes.append(
            f"The claim does not cover batches of fixed size: with one example replaced their epsilon is "
            f"{show(certified.fixed_size)}, more than the claim."
        )
    if plan.done:
        notes.append(
            f"Earlier rounds are counted with sigma = {show(plan.sigma)}, the least noise that they may have had."
        )
    return notes
