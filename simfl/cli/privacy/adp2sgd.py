"""`simfl privacy adp2sgd`: the noise of Theorem 2 of the A(DP)²SGD paper, and what it is worth."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.cli.privacy.shared import Accountant, AsJson, ChosenAccountant, Delta, Epsilon, Row, present, show

if TYPE_CHECKING:
    from simfl.theory.adp2sgd import Accounted, Theorem2


class Mixing(enum.StrEnum):
    """Which pair of workers averages."""

    random_pair = "random_pair"
    bipartite = "bipartite"
    ring_edge = "ring_edge"


_RELATION = {"replace_one": "one example replaced", "add_or_remove": "one more or less"}
_CONVERGENCE = "Convergence, with --dimension"


def command(
    epsilon: Epsilon,
    workers: Annotated[int, typer.Option("--workers", help="K, number of workers.", show_default=False)],
    examples: Annotated[
        int, typer.Option("--examples", help="n, examples of the worker who has fewest.", show_default=False)
    ],
    batch: Annotated[int, typer.Option("--batch", help="B, examples per mini-batch.", show_default=False)],
    delta: Delta = 1e-5,
    epochs: Annotated[
        float | None, typer.Option("--epochs", help="Passes over all K n examples, or --steps.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", help="T, mini-batches of all workers together.", show_default=False)
    ] = None,
    gradient_bound: Annotated[
        float, typer.Option("--gradient-bound", help="G, to which each example's gradient is clipped.")
    ] = 1.0,
    accountant: ChosenAccountant = Accountant.tightest,
    dimension: Annotated[
        int | None,
        typer.Option("--dimension", help="d, parameters of the model; adds convergence bounds.", show_default=False),
    ] = None,
    smoothness: Annotated[
        float, typer.Option("--smoothness", rich_help_panel=_CONVERGENCE, help="L, Lipschitz constant of gradients.")
    ] = 1.0,
    initial_gap: Annotated[
        float,
        typer.Option(
            "--initial-gap", rich_help_panel=_CONVERGENCE, help="F(w0) - F*, distance of the loss from its optimum."
        ),
    ] = 1.0,
    sampling_variance: Annotated[
        float,
        typer.Option("--sampling-variance", rich_help_panel=_CONVERGENCE, help="Variance of one example's gradient."),
    ] = 1.0,
    worker_variance: Annotated[
        float,
        typer.Option("--worker-variance", rich_help_panel=_CONVERGENCE, help="Variance of gradients between workers."),
    ] = 0.0,
    staleness: Annotated[
        float | None,
        typer.Option(
            "--staleness", rich_help_panel=_CONVERGENCE, help="tau, the largest; K by default.", show_default=False
        ),
    ] = None,
    mixing: Annotated[
        Mixing, typer.Option("--mixing", rich_help_panel=_CONVERGENCE, help="Which pair averages.")
    ] = Mixing.bipartite,
    as_json: AsJson = False,
) -> None:
    """A(DP)²SGD: the noise that Theorem 2 asks for, and what an accountant certifies for it.

    Xu, Zhang and Wang 2020. Theorem 2 counts on nobody knowing which worker was active.
    """
    from simfl.theory.adp2sgd import smallest_admissible_epsilon, theorem2

    total = _steps(steps, epochs, workers, examples, batch)
    claim = theorem2(
        epsilon,
        delta,
        num_workers=workers,
        examples=examples,
        batch_size=batch,
        steps=total,
        gradient_bound=gradient_bound,
    )
    smallest = smallest_admissible_epsilon(delta, num_workers=workers, examples=examples, batch_size=batch, steps=total)
    found = claim.accounted(accountant.value)
    rows = [*_claim_rows(claim, smallest), *_accounted_rows(found)]
    result: dict[str, Any] = {
        "theorem2": claim,
        "smallest_admissible_epsilon": smallest,
        "remark1_from_step": claim.remark1_from_step(),
        "accounted": found,
        "convergence": None,
    }
    notes = _notes(claim, found)
    if dimension is not None:
        from simfl.theory.adp2sgd import Problem, spectral_rho

        problem = Problem(
            num_workers=workers,
            batch_size=batch,
            smoothness=smoothness,
            initial_gap=initial_gap,
            sampling_variance=sampling_variance,
            worker_variance=worker_variance,
            dimension=dimension,
            staleness=workers if staleness is None else staleness,
            rho=spectral_rho(workers, mixing.value),
        )
        more, result["convergence"] = _convergence(problem, claim)
        rows += more
        notes.append("Convergence bounds are claims of Theorem 1 and Proposition 1, with the noise B sigma on the sum.")
    title = f"A(DP)²SGD, Theorem 2: {workers} workers, {examples:,} examples each, B = {batch}, T = {total:,}"
    present(title, rows, notes=notes, result=result, as_json=as_json)


def _steps(steps: int | None, epochs: float | None, workers: int, examples: int, batch: int) -> int:
    if (steps is None) == (epochs is None):
        raise ValueError("expected either --steps or --epochs")
    if steps is not None:
        return steps
    assert epochs is not None
    if not (epochs > 0.0 and math.isfinite(epochs)):
        raise ValueError(f"epochs: expected a finite number > 0, found {epochs:g}")
    return math.ceil(epochs * workers * examples / max(1, batch))


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


def _accounted_rows(found: tuple[Accounted, ...]) -> list[Row | str]:
    seen: list[Row | str] = ["Certified: everybody sees every update with its sender"]
    hidden: list[Row | str] = ["Not certified: if nobody knew which worker was active"]
    for row in found:
        verdict = "within the claim" if row.claim_holds else "above the claim"
        drawn = "Poisson" if row.sampling == "poisson" else "batches of fixed size"
        note = f"{verdict}; {drawn}, q = {show(row.sampling_rate)}, {row.steps:,} releases"
        (seen if row.certified else hidden).append((f"epsilon, {_RELATION[row.neighbors]}", row.epsilon, note))
    return seen + hidden


def _notes(claim: Theorem2, found: tuple[Accounted, ...]) -> list[str]:
    worst = next(row for row in found if row.certified and row.neighbors == claim.neighbors)
    verdict = (
        "The claim holds even for an adversary who sees every update with its sender."
        if worst.claim_holds
        else f"The claim is violated for an adversary who sees every update with its sender, as the exchange protocol "
        f"shows: epsilon is {show(worst.epsilon)} and not {show(claim.epsilon)}."
    )
    return [
        verdict,
        "With the active worker hidden, epsilon comes from the theorem's rate B/(K n). That is not certified: a secret "
        "choice of the worker amplifies only if all workers' updates are alike.",
        f"Sigma added to the sum, as Algorithm 1 prints it, is {claim.batch_size} times too little: it hides nothing.",
    ]


def _convergence(problem: Any, claim: Theorem2) -> tuple[list[Row | str], dict[str, Any]]:
    from simfl.theory.adp2sgd import largest_step_size, minimal_steps, theorem1

    largest = largest_step_size(problem)
    bound = theorem1(problem, step_size=largest, steps=claim.steps, noise_std=claim.noise_std_for_sum)
    quiet = theorem1(problem, step_size=largest, steps=claim.steps)
    needed = minimal_steps(problem) if problem.num_workers > 1 else math.nan
    found = {
        "rho": problem.rho,
        "rhobar": problem.rhobar,
        "largest_step_size": largest,
        "theorem1": bound,
        "theorem1_without_noise": quiet,
        "minimal_steps": needed,
    }
    rows: list[Row | str] = [
        "Convergence: mean of E||grad F||² over the steps",
        ("rho", problem.rho, "mixing: second eigenvalue of E[A^T A]"),
        ("rho-bar", problem.rhobar, "as it enters Theorem 1"),
        ("largest step size, eta", largest, "of sums, by C1 > 0, C2 >= 0, C3 <= 1; used below"),
        ("bound of Theorem 1", bound.bound, f"claim, after T steps; {show(quiet.bound)} without noise"),
        ("of which noise", bound.noise, "d (B sigma)² on the sum"),
        (
            "T for Proposition 1",
            needed,
            "a condition, no run length" if claim.steps < needed else "this run is as long",
        ),
    ]
    return rows, found
