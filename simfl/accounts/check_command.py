"""`simfl privacy check`: privacy claims compared with certified accounts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from simfl.accounts.shared import AsJson, Row, present, show
from simfl.cli.shared import Overrides, ScenarioOrRun

if TYPE_CHECKING:
    from simfl.comparison.claims import Check, Finding

_VIEW = {"local_transcript": "updates seen with their sender", "global_hidden": "for all clients' data"}
_RELATION = {"add_or_remove": "one more or less", "replace_one": "one replaced"}
_MOST_GROUPS = 6


def command(
    path: ScenarioOrRun,
    overrides: Overrides = None,
    claimed_epsilon: Annotated[
        float | None,
        Option(help="Compare this epsilon with the account; by default privacy.claim."),
    ] = None,
    figure: Annotated[Path | None, Option(help="Also draw claimed and certified epsilon: .png, .pdf or .svg.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the claimed and the certified epsilon of groups of clients.

    Exits with code 1 if a claim is smaller than the certified epsilon.
    """
    from simfl.accounts import check as claims
    from simfl.errors import ScenarioError
    from simfl.records import read
    from simfl.runs import runner
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside, nothing_loaded

    changes = list(overrides or [])
    if claimed_epsilon is not None:
        changes.append(f"privacy.claim={{kind: stated, epsilon: {claimed_epsilon!r}, source: --claimed-epsilon}}")
    run = read(path) if path.is_dir() else None
    if run is not None and any(not change.startswith("privacy.claim") for change in changes):
        raise ScenarioError("--set: expected only privacy.claim with the folder of a run, whose scenario is fixed")
    if run is None:
        look_beside([path])
        checked = claims.check(runner.prepare(load(path, changes)))
    else:
        with nothing_loaded():  # results are data: their code is not imported
            checked = claims.check(runner.prepare(load(path / "scenario.yaml", changes)), run)
    if figure is not None:
        from simfl import plots
        from simfl.accounts.figures import plot_claims

        plots.without_a_screen()
        plots.save(plot_claims(checked), figure)
    rows = [row for finding in checked.findings[:_MOST_GROUPS] for row in _rows(finding)]
    present(_title(checked), rows, notes=_notes(checked), result=_result(checked), as_json=as_json)
    if figure is not None and not as_json:
        print(f"figure: {figure}")
    if checked.understated:
        raise typer.Exit(1)


def _title(checked: Check) -> str:
    basis = "as planned, every client taking part equally often" if checked.planned else "as recorded"
    return f"{checked.subject}: claim against account at delta = {show(checked.delta)}, {basis}"


def _rows(finding: Finding) -> list[Row | str]:
    fewest, most = finding.releases
    counts = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    rows: list[Row | str] = [f"{_name(finding.clients)}: {counts} releases each"]
    claimed = finding.claimed
    if claimed is not None:
        rows.append(("claimed epsilon", claimed.epsilon, f"{_RELATION[claimed.neighbors]}; {claimed.source}"))
    for (view, neighbors), epsilon in finding.certified.items():
        word = "certified epsilon" if view == "local_transcript" else "if senders were hidden"
        seen = "the server's models seen, not the clients' messages to it" if finding.by_server else _VIEW[view]
        note = f"{_RELATION[neighbors]}; {seen}"
        rows.append((word, epsilon, note if not math.isnan(epsilon) else f"not certified; {note}"))
    if claimed is not None:
        if math.isnan(claimed.epsilon):
            rows.append(("claim / account", None, "no claim"))
        elif finding.understated:
            rows.append(("claim / account", finding.ratio, "the claim is below the certified epsilon"))
        else:
            result = "the claim holds" if finding.certain else "the claim would hold if senders were hidden"
            rows.append(("claim / account", finding.ratio, result))
    return rows


def _name(clients: tuple[int, ...]) -> str:
    if len(clients) == 1:
        return f"client {clients[0]}"
    listed = ", ".join(map(str, sorted(clients)[:4])) + (", ..." if len(clients) > 4 else "")
    return f"{len(clients)} clients ({listed})"


def _notes(checked: Check) -> list[str]:
    notes = [checked.statement]
    if checked.per_client:
        least, most = min(checked.per_client), max(checked.per_client)
        notes.append(
            f"beside it, per client (one client of a user adds nothing, its others take part): epsilon "
            f"{show(most) if least == most else f'{show(least)} to {show(most)}'}"
        )
    objections = {f.claimed.objection for f in checked.findings if f.claimed is not None and f.claimed.objection}
    notes += [f"the theorem does not cover this: {objection}" for objection in sorted(objections)]
    hidden = len(checked.findings) - _MOST_GROUPS
    if hidden > 0:
        notes.append(f"{hidden} more groups of clients, all with a smaller epsilon; --json prints them")
    if all(finding.claimed is None for finding in checked.findings):
        notes.append("no claim: set privacy.claim in the scenario, or give --claimed-epsilon")
    return [*notes, *(f"assumed, {name}: {text}" for name, text in checked.assumptions.items())]


def _result(checked: Check) -> dict[str, Any]:
    groups = []
    for finding in checked.findings:
        group = {name: getattr(finding, name) for name in ("clients", "releases", "claimed", "ratio", "understated")}
        certified = finding.certified.items()
        group["certified"] = [{"view": view, "neighbors": to, "epsilon": epsilon} for (view, to), epsilon in certified]
        groups.append(group)
    return {
        "subject": checked.subject,
        "planned": checked.planned,
        "delta": checked.delta,
        "assumptions": dict(checked.assumptions),
        "understated": checked.understated,
        "groups": groups,
        "per_client": list(checked.per_client),
    }
