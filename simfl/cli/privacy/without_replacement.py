"""`simfl privacy without-replacement`: noise and bounds of one-pass decentralised SGD, and what the noise is worth."""

from __future__ import annotations

import enum
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.cli.privacy.shared import AsJson, Epsilon, Row, present, show

if TYPE_CHECKING:
    from simfl.theory.without_replacement import LossConstants, Noise


class Calibration(enum.StrEnum):
    """How the noise of one release is made."""

    classic = "classic"
    analytic = "analytic"


_UTILITY = "Convergence, with --dimension"


def command(
    epsilon: Epsilon,
    examples: Annotated[int, typer.Option("--examples", help="n, examples of all nodes.", show_default=False)],
    batch: Annotated[int, typer.Option("--batch", help="b, examples per batch.", show_default=False)],
    delta: Annotated[
        float | None, typer.Option("--delta", help="Delta in (0, 1); 1/n² by default.", show_default=False)
    ] = None,
    calibration: Annotated[
        Calibration, typer.Option("--calibration", help="The paper's formula, or the exact noise.")
    ] = Calibration.classic,
    l2: Annotated[float, typer.Option("--l2", help="lambda >= 0 of the logistic loss.")] = 0.0,
    radius: Annotated[
        float | None,
        typer.Option("--radius", help="R, of the ball of models; 1/lambda by default, 1 without.", show_default=False),
    ] = None,
    step_size: Annotated[float, typer.Option("--step-size", help="eta, constant (convex loss).")] = 0.1,
    visits: Annotated[int, typer.Option("--visits", help="k of the baseline DP-SGD-k.")] = 5,
    models: Annotated[int, typer.Option("--models", help="Models on the same examples, all released.")] = 1,
    copies: Annotated[int, typer.Option("--copies", help="Nodes that hold the same example.")] = 1,
    dimension: Annotated[
        int | None, typer.Option("--dimension", help="d, parameters of the model; adds bounds.", show_default=False)
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", rich_help_panel=_UTILITY, help="M.")] = 10,
    gradient_bound: Annotated[
        float | None,
        typer.Option(
            "--gradient-bound", rich_help_panel=_UTILITY, help="B, of every gradient; L by default.", show_default=False
        ),
    ] = None,
    global_share: Annotated[
        float, typer.Option("--global-share", rich_help_panel=_UTILITY, help="Share of Global steps in Algorithm 2.")
    ] = 0.5,
    as_printed: Annotated[
        bool,
        typer.Option("--as-printed", rich_help_panel=_UTILITY, help="Bounds as the paper prints them, without d."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """One-pass SGD without replacement: the noise of the paper's algorithms, and what it really gives.

    Jin, He and Dai 2018, for logistic loss on examples of norm 1 at most. One example is replaced by another.
    """
    from simfl.theory.without_replacement import algorithm1_noise, dp_sgd_noise, logistic_constants

    if examples < 2:
        raise ValueError(f"examples: expected an integer >= 2, found {examples}")
    delta = 1.0 / examples**2 if delta is None else delta
    loss = logistic_constants(l2, radius)
    one = algorithm1_noise(epsilon, delta, batch_size=batch, lipschitz=loss.lipschitz, calibration=calibration.value)
    many = dp_sgd_noise(
        epsilon, delta, batch_size=batch, visits=visits, lipschitz=loss.lipschitz, calibration=calibration.value
    )
    joint = one.joint(models=models, copies=copies)
    rows = [*_noise_rows(one, many, loss, step_size), *_exact_rows(one, many, joint, models, copies)]
    result: dict[str, Any] = {
        "loss": loss,
        "algorithm1": one,
        "dp_sgd": many,
        "joint": {"models": models, "copies": copies, "epsilon": joint},
        "convergence": None,
    }
    if dimension is not None:
        more, result["convergence"] = _convergence(
            examples, batch, nodes, global_share, step_size, dimension, radius, gradient_bound, as_printed, one, loss
        )
        rows += more
    title = f"One-pass SGD without replacement: n = {examples:,}, b = {batch}, (epsilon = {show(epsilon)}, "
    present(
        f"{title}delta = {show(delta)})",
        rows,
        notes=_notes(one, joint, step_size, loss),
        result=result,
        as_json=as_json,
    )


def _noise_rows(one: Noise, many: Noise, loss: LossConstants, step_size: float) -> list[Row | str]:
    how = "sqrt(2 ln(1.25/delta)) 2L/(b epsilon)" if one.calibration == "classic" else "exact"
    bound, visits = show(loss.lipschitz), many.visits
    return [
        "Noise that the paper asks for, to be added to a batch's mean gradient",
        ("Algorithm 1, std(N)", one.noise_std, f"claim of Theorem 2, {how}, L = {bound}"),
        ("scaled, std(eta N)", one.scaled(step_size), f"on the model, eta = {show(step_size)}"),
        ("noise multiplier, z = b std/L", one.noise_multiplier, f"in a scenario with clipping_norm: {bound}"),
        (f"DP-SGD-{visits}, std(N)", many.noise_std, f"claim, each visit with epsilon/{visits}, delta/{visits}"),
    ]


def _exact_rows(one: Noise, many: Noise, joint: float, models: int, copies: int) -> list[Row | str]:
    rows: list[Row | str] = [
        "What this noise gives: exact epsilon at the same delta, one example replaced",
        ("Algorithm 1", one.exact_epsilon, _verdict(one.exact_epsilon, one.epsilon)),
        (f"DP-SGD-{many.visits}", many.exact_epsilon, _verdict(many.exact_epsilon, many.epsilon)),
    ]
    if models * copies > 1:
        what = [f"{models} models released"] if models > 1 else []
        what += [f"{copies} nodes hold an example"] if copies > 1 else []
        rows.append((f"Algorithm 1, {' and '.join(what)}", joint, _verdict(joint, one.epsilon)))
    return rows


def _verdict(found: float, claimed: float) -> str:
    within = found <= claimed * (1.0 + 1e-9)
    return f"certified, {'within' if within else 'above'} the claimed {show(claimed)}"


def _notes(one: Noise, joint: float, step_size: float, loss: LossConstants) -> list[str]:
    notes = []
    if not one.proven:
        notes.append(
            f"The classical formula is proven for epsilon < 1; at {show(one.step_epsilon)} it is "
            + ("still enough." if one.claim_holds else "too little: use --calibration analytic.")
        )
    if joint > one.exact_epsilon:
        notes.append("An example that is used more than once loses the parallel composition that the paper counts on.")
    largest = 1.0 / (2.0 * loss.smoothness)
    notes.append(
        f"Algorithm 2 needs the same noise for constant steps eta <= 1/(2 mu) = {show(largest)}"
        + (": fulfilled." if step_size <= largest else f", which eta = {show(step_size)} violates.")
        + " It needs a policy that does not look at the data: the paper's Q-network does."
    )
    if loss.strong_convexity > 0.0:
        notes.append(
            f"The paper's steps eta_t = 2/(lambda t) begin at {show(2.0 / loss.strong_convexity)} and violate that for "
            "long; L = 1 + lambda R needs models of norm R at most, which nothing enforces but clipping."
        )
    return notes


def _convergence(
    examples: int,
    batch: int,
    nodes: int,
    global_share: float,
    step_size: float,
    dimension: int,
    radius: float | None,
    gradient_bound: float | None,
    as_printed: bool,
    one: Noise,
    loss: LossConstants,
) -> tuple[list[Row | str], dict[str, Any]]:
    from simfl.theory.without_replacement import theorem3, theorem4, theorem6

    if not 0.0 <= global_share <= 1.0:
        raise ValueError(f"global_share: expected a number from 0 to 1, found {global_share:g}")
    steps = examples // batch
    common: dict[str, Any] = {
        "examples": examples,
        "batch_size": batch,
        "steps": steps,
        "noise_std": one.noise_std,
        "dimension": dimension,
        "gradient_bound": loss.lipschitz if gradient_bound is None else gradient_bound,
        "as_printed": as_printed,
    }
    if loss.strong_convexity > 0.0:
        bounds = {"Theorem 4, Algorithm 1": theorem4(**common, strong_convexity=loss.strong_convexity)}
    else:
        common |= {"step_size": step_size, "radius": 1.0 if radius is None else radius, "lipschitz": loss.lipschitz}
        bounds = {
            "Theorem 3, Algorithm 1": theorem3(**common),
            "Theorem 6, Algorithm 2": theorem6(**common, nodes=nodes, global_steps=global_share * steps),
        }
    rows: list[Row | str] = [f"Convergence: mean of E F(w) - F(w*) over one pass of {steps:,} steps"]
    for name, found in bounds.items():
        parts = {"start": found.start, "gradients": found.gradients, "noise": found.noise, "sampling": found.sampling}
        rows.append((name, found.bound, "claim; " + ", ".join(f"{part} {value:.3g}" for part, value in parts.items())))
    return rows, {name.split(",")[0].replace(" ", "").lower(): asdict(found) for name, found in bounds.items()}
