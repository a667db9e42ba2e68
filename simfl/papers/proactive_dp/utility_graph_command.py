"""`simfl privacy utility-graph`: accuracy with noise, before private training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simfl.accounts.shared import AsJson, Row, present
from simfl.cli.shared import OneScenario, Overrides
from simfl.papers.proactive_dp import graphs

if TYPE_CHECKING:
    from simfl.papers.proactive_dp.rehearsal import Base
    from simfl.papers.proactive_dp.utility import UtilityGraph


def command(
    scenario: OneScenario,
    overrides: Overrides = None,
    clip: graphs.Clips = graphs.CLIPPING_NORMS,
    sigma: graphs.Sigmas = graphs.NOISE_MULTIPLIERS,
    epochs: graphs.Epochs = None,
    target_loss: graphs.TargetLoss = 0.1,
    delta: graphs.GraphDelta = None,
    noise: graphs.ChosenReading = "all",
    draws: graphs.Draws = 20,
    client: graphs.Client = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder of table and figures; results/utility-<name> by default.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Proactive DP: the accuracy with noise, by clipping norm and multiplier.

    Trains without noise, then adds noise to the model; van Dijk et al. 2021, arXiv 2102.09030. The graph reads the data
    without protection: use public data, or data that needs no protection.
    """
    from simfl import plots
    from simfl.papers.proactive_dp import rehearsal as planning
    from simfl.papers.proactive_dp.figures import plot_utility
    from simfl.privacy import checks

    checks.open_unit(target_loss=target_loss)
    norms, sigmas = graphs.parse_grid("--clipping-norms", clip), graphs.parse_grid("--noise-multipliers", sigma)
    base = planning.open_base(scenario, overrides, epochs=epochs, delta=delta)
    with graphs.progress_bar("utility graph") as progress:
        graph = planning.draw_graph(base, norms, sigmas, noise, draws, client, progress)
    folder = Path("results") / f"utility-{base.scenario.name}" if out is None else out
    table = folder / planning.TABLE
    planning.write_graph(table, graph, planning.settings_of(base, noise))
    plots.without_a_screen()
    title = f"{base.setup.dataset.name}, {base.setup.model.kind}: {graphs.IN_WORDS[noise].partition(',')[0]}"
    axes = plot_utility(graph, target_loss, delta=base.delta, title=title)
    figures = plots.save_and_close(axes, *(folder / f"utility-graph.{kind}" for kind in ("png", "pdf")))
    _show(base, graph, target_loss, noise, [table, *figures], as_json)


def _show(base: Base, graph: UtilityGraph, target_loss: float, reading: str, files: list[Path], as_json: bool) -> None:
    from simfl.papers.proactive_dp.utility import frontier

    clipped, whole = frontier(graph, target_loss), frontier(graph, target_loss, against="reference")
    accuracies = dict(zip(graph.clipping_norms, graph.accuracies, strict=True))
    loss = graphs.loss_in_words(target_loss)
    rows: list[Row | str] = [f"Largest sigma that costs at most {loss} of the accuracy that clipping leaves"]
    rows += [
        (
            f"C = {point.clipping_norm:g}",
            point.show(),
            f"accuracy without noise {accuracies[point.clipping_norm]:.2%}",
        )
        for point in clipped
    ]
    rows += [f"Largest sigma that keeps {(1.0 - target_loss) * graph.reference:.2%}, clipping included"]
    for point in whole:
        sigma, note = None, "none on the grid"
        if point.bound != "below_grid":
            sigma = point.show()
            note = f"{loss} less than {graph.reference:.2%}, the best without noise"
        rows.append((f"C = {point.clipping_norm:g}", sigma, note))
    present(
        f"Utility graph (Proactive DP): {base.setup.dataset.name}, {base.setup.model.kind}, {base.epochs:g} epochs",
        rows,
        notes=[
            f"{graphs.IN_WORDS[reading]}; mean of {graph.draws} draws",
            "the graph reads the data without protection, and no epsilon accounts for that",
            f"written: {', '.join(map(str, files))}",
        ],
        result={"graph": graph, "reference": graph.reference, "frontier": clipped, "whole_frontier": whole},
        as_json=as_json,
    )
