"""`simfl privacy without-replacement`: one-pass noise, bounds and epsilon."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import Arguments, AsJson, OptionsOf, Row, present, show

if TYPE_CHECKING:
    from simfl.papers.without_replacement.theory import LossConstants, OnePassNoise


_THEORY = "simfl.papers.without_replacement.theory"
_UTILITY = "Convergence, with --dimension"
_NOISE = OptionsOf(
    f"{_THEORY}:dp_sgd_noise", leave_out=("lipschitz",), defaults={"delta": None},
    helps={"delta": "Delta in (0, 1); 1/n² by default.", "visits": "k of the baseline DP-SGD-k."},
)  # fmt: skip
_RADIUS = {"radius": "R, of the ball of models; 1/lambda by default, 1 without."}
_LOSS = OptionsOf(f"{_THEORY}:logistic_constants", helps=_RADIUS)
_ETA = {"step_size": "eta, constant (convex loss)."}
_STEP = OptionsOf(f"{_THEORY}:OnePassNoise.scaled", defaults={"step_size": 0.1}, helps=_ETA)
_BOUNDS = OptionsOf(
    f"{_THEORY}:theorem6", rename={"nodes": "clients"}, panel=_UTILITY,
    leave_out=("examples", "steps", "noise_std", "global_steps", "lipschitz"),
    defaults={"dimension": None, "nodes": 10, "gradient_bound": None},
    helps={"dimension": "d, parameters of the model; adds bounds.",
           "gradient_bound": "B, of every gradient; L by default."},
)  # fmt: skip


def command(
    noise: Annotated[Arguments, _NOISE],
    loss: Annotated[Arguments, _LOSS],
    uses: Annotated[Arguments, OptionsOf(f"{_THEORY}:OnePassNoise.joint")],
    step: Annotated[Arguments, _STEP],
    utility: Annotated[Arguments, _BOUNDS],
    examples: Annotated[int, typer.Option("--examples", help="n, examples of all nodes.", show_default=False)],
    global_share: Annotated[
        float, typer.Option("--global-share", rich_help_panel=_UTILITY, help="Share of Global steps in Algorithm 2.")
    ] = 0.5,
    as_json: AsJson = False,
) -> None:
    """One-pass SGD without replacement: the paper's noise, and its epsilon.

    Jin, He and Dai 2018, for logistic loss on examples of norm 1 at most. One example is replaced by another.
    """
    from simfl.papers.without_replacement.theory import algorithm1_noise, dp_sgd_noise, logistic_constants
    from simfl.privacy import checks

    checks.whole(2, examples=examples)
    if noise["delta"] is None:
        noise["delta"] = 1.0 / examples**2
    constants = logistic_constants(**loss)
    many = dp_sgd_noise(**noise, lipschitz=constants.lipschitz)
    del noise["visits"]
    one = algorithm1_noise(**noise, lipschitz=constants.lipschitz)
    joint = one.joint(**uses)
    rows = [
        *_noise_rows(one, many, constants, **step),
        *_exact_rows(one, many, joint, uses["models"], uses["copies"]),
    ]
    result: dict[str, Any] = {"loss": constants, "algorithm1": one, "dp_sgd": many}
    result |= {"joint": {**uses, "epsilon": joint}, "convergence": None}
    if utility["dimension"] is not None:
        more, result["convergence"] = _convergence({**utility, "examples": examples}, global_share, one, constants)
        rows += more
    title = f"One-pass SGD without replacement: n = {examples:,}, b = {noise['batch_size']}"
    title += f", (epsilon = {show(one.epsilon)}, delta = {show(one.delta)})"
    present(title, rows, notes=_notes(one, joint, loss=constants, **step), result=result, as_json=as_json)


def _noise_rows(one: OnePassNoise, many: OnePassNoise, loss: LossConstants, step_size: float) -> list[Row | str]:
    how = "sqrt(2 ln(1.25/delta)) 2L/(b epsilon)" if one.calibration == "classic" else "exact"
    bound, visits = show(loss.lipschitz), many.visits
    return [
        "Noise that the paper asks for, to be added to a batch's mean gradient",
        ("Algorithm 1, std(N)", one.noise_std, f"claim of Theorem 2, {how}, L = {bound}"),
        ("scaled, std(eta N)", one.scaled(step_size), f"on the model, eta = {show(step_size)}"),
        ("noise multiplier, z = b std/L", one.noise_multiplier, f"in a scenario with clipping_norm: {bound}"),
        (f"DP-SGD-{visits}, std(N)", many.noise_std, f"claim, each visit with epsilon/{visits}, delta/{visits}"),
    ]


def _exact_rows(one: OnePassNoise, many: OnePassNoise, joint: float, models: int, copies: int) -> list[Row | str]:
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


def _verdict(epsilon: float, claimed: float) -> str:
    within = epsilon <= claimed * (1.0 + 1e-9)
    return f"certified, {'within' if within else 'above'} the claimed {show(claimed)}"


def _notes(one: OnePassNoise, joint: float, step_size: float, loss: LossConstants) -> list[str]:
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
    utility: Arguments, global_share: float, one: OnePassNoise, loss: LossConstants
) -> tuple[list[Row | str], dict[str, Any]]:
    from simfl.papers.without_replacement.theory import theorem3, theorem4, theorem6
    from simfl.privacy import checks

    checks.unit(global_share=global_share)
    steps = utility["examples"] // utility["batch_size"]
    common = {**utility, "steps": steps, "noise_std": one.noise_std}
    if common["gradient_bound"] is None:
        common["gradient_bound"] = loss.lipschitz
    radius, step_size, nodes = (common.pop(name) for name in ("radius", "step_size", "nodes"))
    if loss.strong_convexity > 0.0:
        bounds = {"Theorem 4, Algorithm 1": theorem4(**common, strong_convexity=loss.strong_convexity)}
    else:
        common |= {"step_size": step_size, "radius": 1.0 if radius is None else radius, "lipschitz": loss.lipschitz}
        bounds = {
            "Theorem 3, Algorithm 1": theorem3(**common),
            "Theorem 6, Algorithm 2": theorem6(**common, nodes=nodes, global_steps=global_share * steps),
        }
    rows: list[Row | str] = [f"Convergence: mean of E F(w) - F(w*) over one pass of {steps:,} steps"]
    for name, bound in bounds.items():
        parts = {"start": bound.start, "gradients": bound.gradients, "noise": bound.noise, "sampling": bound.sampling}
        rows.append((name, bound.bound, "claim; " + ", ".join(f"{part} {value:.3g}" for part, value in parts.items())))
    return rows, {name.split(",")[0].replace(" ", "").lower(): asdict(bound) for name, bound in bounds.items()}
