"""`simfl privacy network`: what nodes learn about each client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from simfl.accounts.shared import AsJson, Row, assumed, present, show
from simfl.cli.shared import Overrides, ScenarioOrRun

if TYPE_CHECKING:
    import pandas as pd

    from simfl.accounts.network import NetworkReport

Sees = Literal["messages", "neighbor_sums"]
#: The most pairs that the terminal lists one by one.
MOST_LISTED = 24
TABLE = "pair_epsilon.csv"
SOLVED = (
    "each by itself: from the messages and the times and partners of averaging only",
    "all gradients of a client are one: as with small steps, which El Mrini, Cyffers and Bellet (2024) assume",
)


def command(
    target: ScenarioOrRun,
    overrides: Overrides = None,
    observer: Annotated[
        list[str] | None,
        Option(
            "--observer",
            metavar="NODE",
            help='The observer: a client\'s number, "server", or "links" for all links; may be repeated. Every node by '
            "default.",
        ),
    ] = None,
    coalition: Annotated[str | None, Option(metavar="NODES", help="Nodes that share their views: 3,4.")] = None,
    view: Annotated[
        Sees, Option(help="An observer receives messages, or, with secure sums, the sum of a round.")
    ] = "messages",
    reconstruct: Annotated[
        bool,
        Option(
            "--reconstruct",
            help="Instead of epsilons, print the clients whose gradients each observer can solve for; privacy is not "
            "needed.",
        ),
    ] = False,
    times: Annotated[int, Option(help="Number of equally spaced virtual times.")] = 1,
    out: Annotated[Path | None, Option(help="Folder for the table of all pairs and the figures.")] = None,
    messages: Annotated[
        bool, Option("--messages", help="Write every message to --out, with its coefficients of noisy gradients.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Account for what each node learns about each client from its messages.

    The world of the scenario, or of the run, is replayed without arithmetic on models. Certified is the smaller of the
    ledger's epsilon and that of the Gaussian view. Published accounts of gossip take gradients as fixed.
    """
    from simfl.accounts import network as accounts
    from simfl.errors import ScenarioError
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    look_beside([target])
    if overrides and target.is_dir():
        raise ScenarioError("--set: expected the file of a scenario, found the folder of a run")
    if messages and out is None:
        raise ScenarioError("--messages: expected --out FOLDER with it, found none")
    played = accounts.Network(target if target.is_dir() else load(target, list(overrides or [])))
    exported = [f"messages: {path}" for path in played.write(out)] if messages and out is not None else []
    nodes = [node.strip() for node in coalition.split(",")] if coalition is not None else ()
    if reconstruct:
        solved = accounts.reconstruct(played, observers=observer, coalition=nodes, sees=view)
        title = (
            f"{solved.scenario}: whose gradients {solved.pairs['observer'].nunique():,} observers can solve for, of "
            f"{solved.gradients:,} in {solved.messages:,} messages"
        )
        notes = [*SOLVED, *_table(solved.pairs, out, "reconstruction.csv"), *exported]
        present(title, _solved(solved.pairs), notes=notes, result=solved, as_json=as_json)
        return
    report = accounts.network(played, observers=observer, coalition=nodes, sees=view, times=times)
    written = _written(report, out)
    last = report.pairs[report.pairs["time_s"] == report.pairs["time_s"].max()]
    observers, clients = last["observer"].nunique(), last["client"].nunique()
    knowers = f"observer {last['observer'].iloc[0]} knows" if observers == 1 else f"{observers:,} observers know"
    subject = f"what {knowers} of {clients:,} client{'s' * (clients > 1)}"
    notes = [*_notes(report, last), *assumed(report.assumptions), *written, *exported]
    title = f"{report.scenario}: {subject} at delta = {show(report.delta)}"
    present(title, _rows(report, last), notes=notes, result=report, as_json=as_json)


def _rows(report: NetworkReport, last: pd.DataFrame) -> list[Row | str]:
    rows: list[Row | str] = [("messages", report.messages, f"of {report.gradients:,} noisy gradients")]
    if len(last) <= MOST_LISTED:
        rows.append("epsilon of a client for an observer, certified")
        for one in last.to_dict("records"):
            hops = "" if math.isinf(one["distance"]) else f", distance {one['distance']:.0f}"
            rows.append((f"{one['client']} for {one['observer']}", _short(one["epsilon"]), f"by {_seen(one)}{hops}"))
        return rows
    rows.append("epsilon by distance, certified: median over pairs")
    for _, pairs in last.groupby("distance"):
        middle = pairs.median(numeric_only=True).to_dict()
        where = "no path" if math.isinf(middle["distance"]) else f"distance {middle['distance']:.0f}"
        least, most = (show(_short(float(one))) for one in (pairs["epsilon"].min(), pairs["epsilon"].max()))
        by = " and ".join(sorted(set(pairs["account"])))
        note = f"{least} to {most} over {len(pairs):,} pairs, by {_seen({**middle, 'account': by})}"
        rows.append((where, _short(middle["epsilon"]), note))
    return rows


def _seen(one: dict[Any, Any]) -> str:
    return f"{one['account']}; as published {show(_short(one['published']))}"


def _notes(report: NetworkReport, last: pd.DataFrame) -> list[str]:
    counts = last["account"].value_counts()
    notes = []
    if counts.get("local", 0):
        notes.append(f"local: the ledger's; {report.statement}")
    if counts.get("pairwise", 0):
        notes.append(
            "pairwise: of all messages to the observer, and of all models at which gradients in them were computed"
        )
    notes.append(
        "as published (not certified): of the messages to the observer, with gradients taken as fixed, as in published "
        "accounts of gossip. In training, gradients react to models that the observer has not seen, so this epsilon "
        "may be too small"
    )
    if last["pairwise"].isna().any():
        notes.append(
            "pairwise accounts are missing if there are too many gradients, or if rounding may hide a part of a view; "
            "local ones replace them: stop earlier, or ask for fewer"
        )
    return notes


def _written(report: NetworkReport, out: Path | None) -> list[str]:
    if out is None:
        return []
    from simfl import plots
    from simfl.accounts import figures as drawing

    table = _table(report.pairs, out, TABLE)
    plots.without_a_screen()
    pairs, delta = report.pairs, report.delta
    figures: dict[str, Any] = {
        "pairs": drawing.plot_pairs(pairs, delta),
        "by-distance": drawing.plot_by_distance(pairs, delta),
        "graph": drawing.plot_knowledge(pairs, report.edges, delta),
    }
    if pairs["time_s"].nunique() > 1:
        figures["over-time"] = drawing.plot_over_time(pairs, delta)
    for name, figure in figures.items():
        plots.save_and_close(figure, out / f"{name}.png")
    return [*table, f"figures: {', '.join(f'{name}.png' for name in figures)}"]


def _table(pairs: pd.DataFrame, out: Path | None, name: str) -> list[str]:
    if out is None:
        return []
    from simfl.cli.shared import write_text

    write_text(out / name, pairs.to_csv(index=False), parents=True)
    return [f"all pairs: {out / name}"]


def _solved(pairs: pd.DataFrame) -> list[Row | str]:
    rows: list[Row | str] = []
    for title, solved in (
        ("clients with a gradient that is solved for, each by itself", pairs["recovered"] > 0),
        ("clients that are solved for, if all gradients of a client are one", pairs["slow_recovered"]),
        ("the same, from 32-bit messages to 10 %", pairs["slow_rounding"] < 0.1),
    ):
        rows.append(title)
        for distance, held in solved.groupby(pairs["distance"]):
            where = "no path" if math.isinf(float(str(distance))) else f"distance {distance:.0f}"
            rows.append((where, _short(float(held.mean())), f"of {len(held):,} pairs of observer and client"))
    return rows


def _short(value: float) -> float:
    return float(f"{value:.4g}")
