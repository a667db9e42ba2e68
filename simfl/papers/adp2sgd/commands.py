"""`simfl privacy adp2sgd`: the noise of Theorem 2, and its certified epsilon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import Arguments, AsJson, ChosenAccountant, OptionsOf, Row, present, show

if TYPE_CHECKING:
    from simfl.papers.adp2sgd.theory import AccountedView, Theorem2


_RELATION = {"replace_one": "one example replaced", "add_or_remove": "one more or less"}
_THEORY = "simfl.papers.adp2sgd.theory"
_CONVERGENCE = "Convergence, with --dimension"
_NAMES = {"num_workers": "clients"}
_NOISE = OptionsOf(f"{_THEORY}:theorem2", rename=_NAMES, defaults={"delta": 1e-5, "steps": None})
_PROBLEM = OptionsOf(
    f"{_THEORY}:DecentralizedProblem",
    rename=_NAMES,
    leave_out=("rho",),
    defaults={"dimension": None, "smoothness": 1.0, "initial_gap": 1.0, "sampling_variance": 1.0,
              "worker_variance": 0.0, "staleness": None},
    helps={"dimension": "d, parameters of the model; adds convergence bounds.",
           "staleness": "tau, the largest; K by default."},
    panel=_CONVERGENCE,
)  # fmt: skip
_MIXING = OptionsOf(f"{_THEORY}:spectral_rho", rename=_NAMES, panel=_CONVERGENCE)


def command(
    noise: Annotated[Arguments, _NOISE],
    problem: Annotated[Arguments, _PROBLEM],
    mixing: Annotated[Arguments, _MIXING],
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Passes over all K n examples, or --steps.", show_default=False)
    ] = None,
    accountant: ChosenAccountant = "tightest",
    as_json: AsJson = False,
) -> None:
    """A(DP)²SGD: the noise of Theorem 2, and its certified epsilon.

    Xu, Zhang and Wang 2020. Theorem 2 assumes that the active worker is unknown.
    """
    from simfl.papers.adp2sgd.theory import DecentralizedProblem, smallest_admissible_epsilon, spectral_rho, theorem2

    noise["steps"] = _steps(noise, epochs)
    claim = theorem2(**noise)
    smallest = smallest_admissible_epsilon(
        **{name: value for name, value in noise.items() if name not in ("epsilon", "gradient_bound", "mu")}
    )
    views, least, remark = claim.accounted(accountant), claim.least_delta(), claim.remark1_from_step()
    rows = [
        *_claim_rows(claim, smallest),
        *_accounted_rows(views),
        "At least, on data whose updates show their worker, seen or hidden",
        (f"delta at epsilon = {show(claim.epsilon)}", least, f"claimed is {show(claim.delta)}"),
    ]
    result: dict[str, Any] = {"theorem2": claim, "smallest_admissible_epsilon": smallest, "remark1_from_step": remark}
    result |= {"accounted": views, "least_delta": least, "convergence": None, "proposition2": None}
    notes = _notes(claim, views, least)
    if problem["dimension"] is not None:
        if problem["staleness"] is None:
            problem["staleness"] = claim.num_workers
        here = DecentralizedProblem(**problem, rho=spectral_rho(**mixing))
        more, result["convergence"] = _convergence(here, claim)
        worth, result["proposition2"] = _as_long_as_worth(here, claim, noise["mu"])
        rows += [*more, *worth]
        notes.append("Convergence bounds are claims of Theorem 1 and Proposition 1, with the noise B sigma on the sum.")
    title = (
        f"A(DP)²SGD, Theorem 2: {claim.num_workers} workers, {claim.examples:,} examples each, B = {claim.batch_size}, "
        f"T = {claim.steps:,}"
    )
    present(title, rows, notes=notes, result=result, as_json=as_json)


def _steps(noise: Arguments, epochs: float | None) -> int:
    from simfl.privacy import checks

    if (noise["steps"] is None) == (epochs is None):
        raise ValueError("expected either --steps or --epochs")
    if epochs is None:
        return int(noise["steps"])
    checks.positive(epochs=epochs)
    steps: int = math.ceil(epochs * noise["num_workers"] * noise["examples"] / max(1, noise["batch_size"]))
    return steps


def _claim_rows(claim: Theorem2, smallest: float) -> list[Row | str]:
    g = show(claim.gradient_bound)
    return [
        f"Claim: (epsilon = {show(claim.epsilon)}, delta = {show(claim.delta)}), one example replaced",
        ("noise on the mean, sigma", claim.noise_std_for_mean, f"standard deviation per coordinate, G = {g}"),
        ("noise on the sum, B sigma", claim.noise_std_for_sum, "what has to be added; Algorithm 1 prints sigma"),
        ("noise multiplier, z = B sigma/G", claim.noise_multiplier, f"in a scenario with clipping_norm: {g}"),
        ("zeta = B sigma/(2 G)", claim.zeta, "over the sensitivity 2 G of a replaced example"),
        ("mu", claim.mu, "share of epsilon that the noise pays for"),
        ("Renyi order, alpha", claim.alpha, f"condition (7) allows {show(claim.largest_alpha)}"),
        ("smallest admissible epsilon", smallest, "below, Theorem 2 does not apply"),
        ("Remark 1 from step", claim.remark1_from_step(), f"of {claim.steps:,}: then sqrt(t/T) epsilon"),
    ]


def _accounted_rows(views: tuple[AccountedView, ...]) -> list[Row | str]:
    seen: list[Row | str] = ["Certified: every update is seen with its sender"]
    hidden: list[Row | str] = ["Not certified: if the active worker were unknown, and all workers' updates alike"]
    for row in views:
        verdict = "within the claim" if row.claim_holds else "above the claim"
        drawn = "Poisson" if row.sampling == "poisson" else "batches of fixed size"
        note = f"{verdict}; {drawn}, q = {show(row.sampling_rate)}, {row.steps:,} releases"
        (seen if row.certified else hidden).append((f"epsilon, {_RELATION[row.neighbors]}", row.epsilon, note))
    return seen + hidden


def _notes(claim: Theorem2, views: tuple[AccountedView, ...], least: float) -> list[str]:
    worst = next(row for row in views if row.certified and row.neighbors == claim.neighbors)
    if least > claim.delta:
        verdict = (
            "The claim is refuted, whether or not senders are hidden: on some data, delta at epsilon = "
            f"{show(claim.epsilon)} is at least {show(least)}, and not {show(claim.delta)}."
        )
    elif worst.claim_holds:
        verdict = "The claim holds even for an adversary who sees every update with its sender."
    else:
        verdict = (
            "The claim is neither certified nor refuted for an adversary who sees every update with its sender: "
            f"certified is epsilon = {show(worst.epsilon)}."
        )
    return [
        verdict,
        "With the active worker hidden, epsilon comes from the theorem's rate B/(K n). That is not certified: a secret "
        "choice of the worker amplifies only if all workers' updates are alike.",
        f"Sigma added to the sum, as Algorithm 1 prints it, is {claim.batch_size} times too little: it hides nothing.",
    ]


def _as_long_as_worth(problem: Any, claim: Theorem2, mu: float | None) -> tuple[list[Row | str], Any]:
    from simfl.errors import ConditionError
    from simfl.papers.adp2sgd.theory import proposition2

    if problem.num_workers < 2:
        return [], None
    heading = "Proposition 2: a run as long as its privacy is worth"
    try:
        proposed = proposition2(
            problem, claim.epsilon, claim.delta, examples=claim.examples, gradient_bound=claim.gradient_bound, mu=mu
        )
    except ConditionError as error:
        return [heading, ("steps, T of (8)", None, str(error))], None
    bound = f"claim, for a random iterate; {show(proposed.exact_bound)} with Theorem 2's own noise"
    multiplier = f"for these steps, mu = {show(proposed.theorem2.mu)}"
    rows: list[Row | str] = [
        heading,
        ("steps, T of (8)", proposed.steps, "of all workers together"),
        ("bound", proposed.bound, bound),
        ("noise multiplier, z", proposed.theorem2.noise_multiplier, multiplier),
        ("long enough", proposed.long_enough, f"Proposition 1 asks for {proposed.minimal_steps:.4g} steps"),
    ]
    return rows, proposed


def _convergence(problem: Any, claim: Theorem2) -> tuple[list[Row | str], dict[str, Any]]:
    from simfl.papers.adp2sgd.theory import largest_step_size, minimal_steps, theorem1

    largest = largest_step_size(problem)
    bound = theorem1(problem, step_size=largest, steps=claim.steps, noise_std=claim.noise_std_for_sum)
    quiet = theorem1(problem, step_size=largest, steps=claim.steps)
    needed = minimal_steps(problem) if problem.num_workers > 1 else math.nan
    enough = "a condition, no run length" if claim.steps < needed else "this run is as long"
    values = {"rho": problem.rho, "rhobar": problem.rhobar, "largest_step_size": largest}
    values |= {"theorem1": bound, "theorem1_without_noise": quiet, "minimal_steps": needed}
    rows: list[Row | str] = [
        "Convergence: mean of E||grad F||² over the steps",
        ("rho", problem.rho, "mixing: second eigenvalue of E[A^T A]"),
        ("rho-bar", problem.rhobar, "as it enters Theorem 1"),
        ("largest step size, eta", largest, "of sums, by C1 > 0, C2 >= 0, C3 <= 1; used below"),
        ("bound of Theorem 1", bound.bound, f"claim, after T steps; {show(quiet.bound)} without noise"),
        ("of which noise", bound.noise, "d (B sigma)² on the sum"),
        ("T for Proposition 1", needed, enough),
    ]
    return rows, values
