"""`simfl privacy mapa`: the stages of MAPA, and what its epsilon per iteration amounts to in a whole run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.cli.privacy.shared import AsJson, Row, present, show

if TYPE_CHECKING:
    from simfl.theory.mapa import Problem, Stage, Total

_AUDP = "AUDP, for comparison"
_SHOWN = 12


class SecondMoment(enum.StrEnum):
    """What the recipe takes for E||eta||²."""

    paper = "paper"
    exact = "exact"


def command(
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="Epsilon of one release, of the client with least.")
    ] = 0.1,
    steps: Annotated[int, typer.Option("--steps", help="T, updates of the model in all.")] = 15_000,
    clients: Annotated[int, typer.Option("--clients", help="K, edge servers that take part equally often.")] = 5,
    batch: Annotated[int, typer.Option("--batch", help="b, examples per mini-batch.")] = 12,
    examples: Annotated[
        int | None,
        typer.Option("--examples", help="n, of one client: adds amplification by sampling.", show_default=False),
    ] = None,
    dimension: Annotated[int, typer.Option("--dimension", help="d, parameters of the model.")] = 7850,
    sampling_std: Annotated[
        float, typer.Option("--sampling-std", help="sigma, standard deviation of one example's gradient.")
    ] = 30.0,
    smoothness: Annotated[float, typer.Option("--smoothness", help="L, Lipschitz constant of gradients.")] = 10.0,
    staleness: Annotated[
        float | None, typer.Option("--staleness", help="tau, the largest; K by default.", show_default=False)
    ] = None,
    initial_gap: Annotated[float, typer.Option("--initial-gap", help="f(x_1) - f*.")] = 50.0,
    theta: Annotated[float, typer.Option("--theta", help="By which dS falls from stage to stage.")] = 0.5,
    failure: Annotated[
        float, typer.Option("--failure-probability", help="delta of Theorem 3, for the first dS.")
    ] = 1e-3,
    initial_clip: Annotated[
        float | None,
        typer.Option("--initial-clip", help="Clipping norm b dS/2 of the first stage instead.", show_default=False),
    ] = None,
    second_moment: Annotated[
        SecondMoment, typer.Option("--second-moment", help="E||eta||²: 2 (dS/epsilon)², or d (d + 1) (dS/epsilon)².")
    ] = SecondMoment.paper,
    delta: Annotated[float, typer.Option("--delta", help="For the totals of a run.")] = 1e-5,
    gradient_bound: Annotated[
        float, typer.Option("--gradient-bound", rich_help_panel=_AUDP, help="G, to which gradients are clipped.")
    ] = 4.0,
    radius: Annotated[
        float, typer.Option("--radius", rich_help_panel=_AUDP, help="R, from the optimum at most.")
    ] = 50.0,
    as_json: AsJson = False,
) -> None:
    """MAPA and AUDP: stages, step sizes and bounds, and epsilon per iteration beside that of the whole run.

    Li, Yang, Ren and Zhao 2019. By default the values of the paper's Figure 9, and d of a linear model of MNIST.
    """
    from simfl.theory import mapa

    if clients < 1:
        raise ValueError(f"clients: expected an integer >= 1, found {clients}")
    if examples is not None and examples < batch:
        raise ValueError(f"examples: expected an integer >= batch = {batch}, found {examples}")
    problem = mapa.Problem(
        sampling_std, batch, smoothness, clients if staleness is None else staleness, initial_gap, dimension
    )
    initial = (
        mapa.initial_sensitivity(sampling_std, batch, failure) if initial_clip is None else 2.0 * initial_clip / batch
    )
    stages = mapa.stages(problem, epsilon, initial=initial, theta=theta, steps=steps, second_moment=second_moment.value)
    rate = 1.0 if examples is None else batch / examples
    cost = mapa.total(epsilon, -(-steps // clients), sampling_rate=rate, delta=delta)
    leak = mapa.radius_only_delta(dimension, epsilon)
    literal = mapa.literal_epsilon(epsilon, batch)
    audp, audp_rows = _audp(problem, epsilon, steps, gradient_bound, radius, second_moment.value)
    rows: list[Row | str] = [
        *_stage_rows(problem, stages, failure if initial_clip is None else None),
        *_cost_rows(cost, steps, examples),
        "What the paper's algorithm and code do instead",
        (
            "epsilon of one release, as printed",
            literal,
            f"not certified: claim is {show(epsilon)}; clips the mean, b dS",
        ),
        (
            "delta, published sampler",
            leak,
            f"not certified: at epsilon = {show(epsilon)}, d = {dimension:,}, should be 0",
        ),
        *audp_rows,
    ]
    result = {
        "stages": stages,
        "total": cost,
        "literal_epsilon": literal,
        "radius_only_delta": leak,
        "audp": audp,
    }
    title = f"MAPA: epsilon = {show(epsilon)} per release, b = {batch}, K = {clients}, T = {steps:,}"
    present(title, rows, notes=_notes(stages, steps, second_moment), result=result, as_json=as_json)


def _stage_rows(problem: Problem, stages: tuple[Stage, ...], failure: float | None) -> list[Row | str]:
    origin = (
        "as given"
        if failure is None
        else f"(12) at delta = {show(failure)}: no bound for all data, clipping makes it one"
    )
    rows: list[Row | str] = [
        "Stages, the paper's recipe: T_s updates, then dS is theta dS",
        ("first sensitivity of the mean, dS", stages[0].sensitivity, origin),
    ]
    for stage in stages[:_SHOWN]:
        note = (
            f"dS {show(stage.sensitivity)}, clip {show(stage.clipping_norm)}, Delta_b {show(stage.variance)}, "
            f"P {show(stage.coefficient)}, gamma {show(stage.step_size)}"
        )
        rows.append((f"T_s of stage {stage.number}, from t = {stage.first_step:,}", stage.steps, note))
    if len(stages) > _SHOWN:
        rows.append(("stages in all", len(stages), "--json has them"))
    last = stages[-1]
    rows.append(
        ("gradient norm after the last stage", last.gradient_bound, "claim: Theorem 4's bound, once its T_s are over")
    )
    return rows


def _cost_rows(cost: Total, steps: int, examples: int | None) -> list[Row | str]:
    at = f"delta = {show(cost.delta)}"
    rows: list[Row | str] = [
        f"One client in the whole run: {cost.releases:,} of {steps:,} releases, one example replaced",
        ("epsilon of one release", cost.epsilon, "claim, for the examples in the batch: all that the paper says"),
        ("epsilon of the run, added up", cost.basic, "claim, delta = 0: the paper mentions it"),
        ("epsilon of the run, advanced", cost.advanced, f"advanced composition, {at}"),
        (
            "epsilon of the run, exact",
            cost.certified,
            f"certified, {at}: of noise in d dimensions, gradients clipped singly",
        ),
    ]
    if examples is not None:
        rows += [
            f"The same with batches drawn at random from {examples:,} examples, q = {show(cost.sampling_rate)}",
            ("epsilon of one release", cost.amplified, "ln(1 + q (e^epsilon - 1)), for all the client's examples"),
            ("epsilon of the run, added up", cost.amplified_basic, "delta = 0"),
            ("epsilon of the run, advanced", cost.amplified_advanced, f"advanced composition, {at}"),
            ("epsilon of the run, exact", cost.amplified_certified, f"certified, {at}, no example twice in a batch"),
        ]
    return rows


def _audp(
    problem: Problem, epsilon: float, steps: int, gradient_bound: float, radius: float, second_moment: Any
) -> tuple[dict[str, Any], list[Row | str]]:
    from simfl.theory.mapa import audp_sensitivity, audp_step_size, theorem2

    sensitivity = audp_sensitivity(gradient_bound, problem.batch_size)
    variance = problem.variance(sensitivity, epsilon, second_moment)
    bound = theorem2(problem, variance, radius=radius, gradient_bound=gradient_bound, steps=steps)
    first, other = (audp_step_size(problem, variance, 1, without_logarithm=flag) for flag in (False, True))
    result = {
        "sensitivity": sensitivity,
        "variance": variance,
        "first_step_size": first,
        "first_step_size_11": other,
        "theorem2": bound,
    }
    rows: list[Row | str] = [
        f"AUDP with G = {show(gradient_bound)}, R = {show(radius)}",
        ("sensitivity of the mean, 2 G/b", sensitivity, "the same for all steps"),
        ("Delta_b", variance, "sigma²/b + E||eta||²"),
        ("first step size, (10)", first, f"{show(other)} by (11)"),
        ("bound of Theorem 2", bound.bound, f"claim of {show(bound.claimed)} has ln T where 1 + ln T is needed"),
    ]
    return result, rows


def _notes(stages: tuple[Stage, ...], steps: int, second_moment: SecondMoment) -> list[str]:
    notes = [
        "Whoever sees one client's releases sees all of them: epsilon per iteration says nothing about a run.",
        "Noise that gives epsilon has E||eta||² = d (d + 1) (dS/epsilon)². The paper takes 2 (dS/epsilon)², "
        + (
            "and so do these stages; --second-moment exact does not."
            if second_moment is SecondMoment.paper
            else "these stages do not."
        ),
    ]
    first = stages[0]
    if first.steps >= steps:
        notes.append(f"The first stage is longer than the run ({first.steps:,} updates): the recipe is of no use here.")
    elif first.table2_sensitivity > first.sensitivity:
        notes.append(
            f"Table 2's rule for the next dS, 2 sqrt(Delta_b)/b, would make it grow from {show(first.sensitivity)} to "
            f"{show(first.table2_sensitivity)}; the stages follow Algorithm 1."
        )
    return notes
