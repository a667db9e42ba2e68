"""`simfl privacy plan`: a scenario from an allowed loss of accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import AsJson, Row, assumed, present, show
from simfl.cli.shared import OneScenario, Overrides, write_text
from simfl.errors import ScenarioError
from simfl.papers.proactive_dp import graphs

if TYPE_CHECKING:
    from simfl.papers.proactive_dp.planning import Rehearsal, TrainingPlan
    from simfl.papers.proactive_dp.rehearsal import Base
    from simfl.scenario import Scenario

_SYNCHRONOUS = ("sync_sgd", "decentralized_sgd")  # every client runs exactly the planned rounds


def command(
    scenario: OneScenario,
    overrides: Overrides = None,
    target_loss: graphs.TargetLoss = 0.1,
    epochs: graphs.Epochs = None,
    delta: graphs.GraphDelta = None,
    clip: graphs.Clips = graphs.CLIPPING_NORMS,
    sigma: graphs.Sigmas = graphs.NOISE_MULTIPLIERS,
    noise: graphs.ChosenReading = "all",
    draws: graphs.Draws = 20,
    client: graphs.Client = None,
    graph: Annotated[
        Path | None,
        typer.Option("--graph", help="Read the graph from this folder of utility-graph.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The scenario to write.")] = Path("planned.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Proactive DP: choose clipping, noise, batch and rounds, write the scenario.

    The plan is for the client with the fewest examples. Noise and clipping come from the utility graph, batch and
    rounds from Theorem B.4 of van Dijk et al. 2021, arXiv 2102.09030. An accountant certifies the same releases.
    """
    from simfl.papers.proactive_dp import rehearsal as planning
    from simfl.papers.proactive_dp.planning import plan
    from simfl.privacy import checks

    checks.open_unit(target_loss=target_loss)
    if out.exists() and not force:
        raise ScenarioError(f"{out}: the file exists; choose another name, or --force to replace it")
    norms, sigmas = graphs.parse_grid("--clipping-norms", clip), graphs.parse_grid("--noise-multipliers", sigma)
    base = planning.open_base(scenario, overrides, epochs=epochs, delta=delta)
    if graph is not None:
        utilities = planning.read_graph(graph, planning.settings_of(base, noise))
    else:
        with graphs.progress_bar("utility graph") as progress:
            utilities = planning.draw_graph(base, norms, sigmas, noise, draws, client, progress)
    training_plan = plan(
        utilities, target_loss=target_loss, num_examples=base.num_examples, epochs=base.epochs, delta=base.delta
    )
    content = planning.planned_content(base, training_plan)
    planned, training_plan, rehearsed = planning.rehearse_plan(base, content, training_plan, draws)
    write_text(out, to_text(content, base, training_plan, rehearsed))
    _show(base, planned, training_plan, rehearsed, noise, out, as_json)


def to_text(content: Mapping[str, Any], base: Base, plan: TrainingPlan, rehearsed: Rehearsal) -> str:
    """Return the scenario as YAML, with the plan in comments."""
    from simfl.scenario.syntax import write

    loss = graphs.loss_in_words(plan.target_loss)
    comments = {
        "algorithm": [
            f"Batches of {plan.batch_size:,} of {plan.num_examples:,} examples on average. Steps are those of",
            f"{base.scenario.name} times {plan.batch_size}/{base.setup.training.batch_size}, new over old batch size.",
        ],
        "privacy": [
            f"Claimed: epsilon {show(plan.claimed_epsilon)}; certified: {show(plan.certified_epsilon)}. The claim "
            "is also the budget:",
            "a client that runs more rounds than planned stops before exceeding it.",
        ],
        "stop": [f"{plan.rounds:,} rounds of {base.num_clients} client{'s' * (base.num_clients > 1)}."],
    }
    header = [
        "Planned by 'simfl privacy plan' before any private training (Proactive DP, arXiv 2102.09030).",
        f"Requested: at most {loss} less accuracy than {plan.reference:.2%}, the best without noise, in "
        f"{base.epochs:g} epochs.",
        f"Expected: {rehearsed.all:.2%} to {rehearsed.last:.2%} (a model trained without noise, plus the noise of "
        "all these rounds, or of the last).",
        f"Claimed:   ({show(plan.claimed_epsilon)}, {show(plan.delta)})-DP by Theorem B.4.",
        f"Certified: ({show(plan.certified_epsilon)}, {show(plan.delta)})-DP by an accountant, for "
        f"{plan.rounds:,} rounds at rate {show(plan.batch_size / plan.num_examples)}.",
        "Both: one example of a client more or less, Poisson sampling, the adversary sees all that the client sends.",
        "Neither counts what the utility graph learned from the data.",
    ]
    lines = [f"# {line}" for line in header]
    for line in write(dict(content)).splitlines():
        lines += [f"# {comment}" for comment in comments.get(line.partition(":")[0], [])]
        lines.append(line)
    return "\n".join(lines) + "\n"


def _show(
    base: Base, planned: Scenario, plan: TrainingPlan, rehearsed: Rehearsal, reading: str, out: Path, as_json: bool
) -> None:
    at_delta, loss = f"at delta {show(plan.delta)}", graphs.loss_in_words(plan.target_loss)
    rows: list[Row | str] = [
        "Planned, for each client",
        ("clipping norm C", plan.clipping_norm, "of each example's gradient"),
        ("noise multiplier sigma", plan.noise_multiplier, "noise on the sum over C"),
        ("batch size s", plan.batch_size, f"on average, of N = {plan.num_examples:,} examples"),
        ("rounds T", plan.rounds, f"{plan.epochs:.4g} epochs"),
        "Privacy",
        ("epsilon", plan.claimed_epsilon, f"claim of Theorem B.4 {at_delta}"),
        ("epsilon", plan.certified_epsilon, f"certified {at_delta}"),
        "Accuracy",
        ("without noise and clipping", f"{plan.reference:.2%}", "the best of the utility graph"),
        ("wanted", f"{(1.0 - plan.target_loss) * plan.reference:.2%}", f"{loss} less"),
        ("clipped, without noise", f"{rehearsed.accuracy:.2%}", "in the planned rounds"),
        ("expected at least", f"{rehearsed.all:.2%}", "all rounds' noise, added up"),
        ("expected at most", f"{rehearsed.last:.2%}", "the last round's noise only"),
    ]
    from simfl.accounts.plans import assumptions_of_releases

    notes = [
        "neighbors: one example of a client more or less; Poisson sampling; all messages of the client are visible",
        "neither epsilon counts what the utility graph learned from the data",
    ]
    if plan.bound == "grid_ends":
        notes.append("sigma is the largest of the grid; more noise may suffice: add values to --noise-multipliers")
    sizes = base.setup.training.sizes
    if sizes.min() < sizes.max():
        notes.append(
            f"clients have {sizes.min():,} to {sizes.max():,} examples: planned for the fewest; the others spend less"
        )
    if planned.algorithm.kind not in _SYNCHRONOUS:
        notes.append(
            f"{planned.algorithm.kind}: the rounds of each client are an outcome; none exceeds the claimed epsilon"
        )
    rate = plan.batch_size / plan.num_examples
    notes += assumed(assumptions := assumptions_of_releases("add_or_remove", "poisson", rate))
    notes.append(f"written: {out}; next: simfl run {out}")
    result = {"plan": asdict(plan), "rehearsal": asdict(rehearsed), "noise": reading, "scenario": str(out)}
    result["assumptions"] = assumptions
    present(f"Plan (Proactive DP) for {base.scenario.name}", rows, notes=notes, result=result, as_json=as_json)
