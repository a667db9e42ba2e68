"""`simfl privacy mapa`: the stages of MAPA, and the epsilon of a whole run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import Arguments, AsJson, OptionsOf, Row, present, show

if TYPE_CHECKING:
    from simfl.papers.mapa.theory import AsynchronousProblem, RunCost, Stage

#: Stages that are listed.
_SHOWN = 12
_THEORY = "simfl.papers.mapa.theory"
_STAGE = OptionsOf(
    f"{_THEORY}:stages", leave_out=("problem", "initial", "count", "rule"), defaults={"epsilon": 0.1, "steps": 15_000},
    helps={"steps": "T, updates of the model in all."},
)  # fmt: skip
_PROBLEM = OptionsOf(
    f"{_THEORY}:AsynchronousProblem",
    defaults={"batch_size": 12, "dimension": 7850, "sampling_std": 30.0, "smoothness": 10.0, "initial_gap": 50.0,
              "staleness": None},
    helps={"staleness": "tau, the largest; K by default."},
)  # fmt: skip
_FIRST = OptionsOf(f"{_THEORY}:initial_sensitivity", defaults={"failure_probability": 1e-3})
_COST = OptionsOf(f"{_THEORY}:total", leave_out=("releases", "sampling_rate"))
_AUDP = OptionsOf(
    f"{_THEORY}:theorem2", leave_out=("problem", "variance"), defaults={"gradient_bound": 4.0, "radius": 50.0},
    panel="AUDP, for comparison",
)  # fmt: skip


def command(
    stage: Annotated[Arguments, _STAGE],
    problem: Annotated[Arguments, _PROBLEM],
    first: Annotated[Arguments, _FIRST],
    cost: Annotated[Arguments, _COST],
    audp: Annotated[Arguments, _AUDP],
    clients: Annotated[int, typer.Option("--clients", help="K, edge servers that take part equally often.")] = 5,
    examples: Annotated[
        int | None,
        typer.Option("--examples", help="n, of one client: adds amplification by sampling.", show_default=False),
    ] = None,
    initial_clip: Annotated[
        float | None,
        typer.Option("--initial-clip", help="Clipping norm b dS/2 of the first stage instead.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """MAPA and AUDP: stages, steps, bounds, and epsilon per iteration and run.

    Li, Yang, Ren and Zhao 2019. By default the values of the paper's Figure 9, and d of a linear model of MNIST.
    """
    from simfl.papers.mapa import theory as mapa
    from simfl.privacy import checks

    checks.whole(1, clients=clients)
    epsilon, steps, batch = stage["epsilon"], stage["steps"], problem["batch_size"]
    if examples is not None and examples < batch:
        raise ValueError(f"examples: expected an integer >= batch = {batch}, found {examples}")
    if problem["staleness"] is None:
        problem["staleness"] = clients
    asynchronous = mapa.AsynchronousProblem(**problem)
    initial = mapa.initial_sensitivity(**first) if initial_clip is None else 2.0 * initial_clip / batch
    stages = mapa.stages(asynchronous, **stage, initial=initial)
    spent = mapa.total(
        **cost, releases=-(-steps // clients), sampling_rate=1.0 if examples is None else batch / examples
    )
    leak = mapa.radius_only_delta(asynchronous.dimension, epsilon)
    literal = mapa.printed_epsilon(epsilon, batch)
    compared, audp_rows = _audp(asynchronous, epsilon, audp, stage["second_moment"])
    as_printed = f"not certified: claim is {show(epsilon)}; clips the mean, b dS"
    published = f"not certified: at epsilon = {show(epsilon)}, d = {asynchronous.dimension:,}, should be 0"
    rows: list[Row | str] = [
        *_stage_rows(stages, first["failure_probability"] if initial_clip is None else None),
        *_cost_rows(spent, steps, examples),
        "What the paper's algorithm and code do instead",
        ("epsilon of one release, as printed", literal, as_printed),
        ("delta, published sampler", leak, published),
        *audp_rows,
    ]
    result = {"stages": stages, "total": spent, "literal_epsilon": literal, "radius_only_delta": leak, "audp": compared}
    title = f"MAPA: epsilon = {show(epsilon)} per release, b = {batch}, K = {clients}, T = {steps:,}"
    present(title, rows, notes=_notes(stages, steps, stage["second_moment"]), result=result, as_json=as_json)


def _stage_rows(stages: tuple[Stage, ...], failure: float | None) -> list[Row | str]:
    origin = "as given"
    if failure is not None:
        origin = f"(12) at delta = {show(failure)}: no bound for all data, clipping makes it one"
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
    bound = "claim: Theorem 4's bound, once its T_s are over"
    return [*rows, ("gradient norm after the last stage", stages[-1].gradient_bound, bound)]


def _cost_rows(cost: RunCost, steps: int, examples: int | None) -> list[Row | str]:
    at = f"delta = {show(cost.delta)}"
    singly = f"certified, {at}: of noise in d dimensions, gradients clipped singly"
    rows: list[Row | str] = [
        f"One client in the whole run: {cost.releases:,} of {steps:,} releases, one example replaced",
        ("epsilon of one release", cost.epsilon, "claim, for the examples in the batch: all that the paper says"),
        ("epsilon of the run, added up", cost.basic, "claim, delta = 0: the paper mentions it"),
        ("epsilon of the run, advanced", cost.advanced, f"advanced composition, {at}"),
        ("epsilon of the run, exact", cost.certified, singly),
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
    problem: AsynchronousProblem, epsilon: float, audp: Arguments, second_moment: Any
) -> tuple[dict[str, Any], list[Row | str]]:
    from simfl.papers.mapa import theory as mapa

    sensitivity = mapa.audp_sensitivity(audp["gradient_bound"], problem.batch_size)
    variance = problem.variance(sensitivity, epsilon, second_moment)
    bound = mapa.theorem2(problem, variance, **audp)
    first, other = (mapa.audp_step_size(problem, variance, 1, without_logarithm=flag) for flag in (False, True))
    steps = {"first_step_size": first, "first_step_size_11": other}
    result = {"sensitivity": sensitivity, "variance": variance, **steps, "theorem2": bound}
    rows: list[Row | str] = [
        f"AUDP with G = {show(audp['gradient_bound'])}, R = {show(audp['radius'])}",
        ("sensitivity of the mean, 2 G/b", sensitivity, "the same for all steps"),
        ("Delta_b", variance, "sigma²/b + E||eta||²"),
        ("first step size, (10)", first, f"{show(other)} by (11)"),
        ("bound of Theorem 2", bound.bound, f"claim of {show(bound.claimed)} has ln T where 1 + ln T is needed"),
    ]
    return result, rows


def _notes(stages: tuple[Stage, ...], steps: int, second_moment: str) -> list[str]:
    here = (
        "and so do these stages; --second-moment exact does not."
        if second_moment == "paper"
        else "these stages do not."
    )
    notes = [
        "An observer of a client's releases sees all of them: epsilon per iteration does not describe a run.",
        f"Noise that gives epsilon has E||eta||² = d (d + 1) (dS/epsilon)². The paper takes 2 (dS/epsilon)², {here}",
    ]
    first = stages[0]
    if first.steps >= steps:
        notes.append(f"The first stage is longer than the run ({first.steps:,} updates): the recipe is of no use here.")
    elif first.table2_sensitivity > first.sensitivity:
        notes.append(
            f"Table 2's rule for the next dS, 2 sqrt(Delta_s)/b, would make it grow from {show(first.sensitivity)} to "
            f"{show(first.table2_sensitivity)} if its Delta_s is Delta_b; if it is the bound on the squared gradient, "
            "the rule is that of the text. The stages follow Algorithm 1."
        )
    return notes
