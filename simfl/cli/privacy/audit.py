"""`simfl privacy audit`: canaries in a run, compared with the account."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.cli.privacy.shared import IN_WORDS, AsJson, Row, present, show
from simfl.cli.shared import Overrides

if TYPE_CHECKING:
    from simfl.attacks.audit import AuditReport, PairwiseReport


class Kind(enum.StrEnum):
    """The kind of canaries."""

    gradient = "gradient"
    input = "input"


def command(
    path: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).", show_default=False)],
    overrides: Overrides = None,
    canaries: Annotated[int, typer.Option("--canaries", help="m, examples of the auditor's in one client's data.")] = (
        1000
    ),
    confidence: Annotated[
        float, typer.Option("--confidence", help="That of the lower bound and of a refutation.")
    ] = 0.95,
    client: Annotated[int, typer.Option("--client", help="The client whose data the canaries join.")] = 0,
    observer: Annotated[
        str | None,
        typer.Option(
            "--observer",
            metavar="K|server|links",
            help="Guess from what reached this node, or any link; by default from every release of the client.",
            show_default=False,
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place", help="Canaries replace examples of the client, so that its sampling rate stays as it is."
        ),
    ] = False,
    kind: Annotated[
        Kind, typer.Option("--kind", help="Directions in the space of gradients, or random inputs through the model.")
    ] = Kind.gradient,
    guesses: Annotated[
        list[int] | None,
        typer.Option(
            "--guesses",
            help="How many guesses to make; given several times, the error is shared. By default m/8, or about 100.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="That of coins and canaries; the scenario's by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario with canaries in one client's data and try to detect them.

    Refused are mechanisms that protect whole clients, noise on a grid or correlated noise, noise of a server, local
    training, masked updates, models whose tasks move on their own, and algorithms that keep gradients to themselves.

    Exits with code 1 when the guesses refute what is certified or claimed, when the releases show that noise is
    missing, is not of the declared law or is not drawn afresh, and when what was heard is not what was accounted for.
    """
    from simfl.attacks.audit import PairwiseReport, audit
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    look_beside([path])
    scenario = load(path, list(overrides or []))
    given: dict[str, Any] = {
        "canaries": canaries,
        "client": client,
        "kind": kind.value,
        "in_place": in_place,
        "guesses": guesses or None,
        "confidence": confidence,
        "seed": seed,
        "observer": int(observer) if observer is not None and observer.isdecimal() else observer,
    }
    report = audit(scenario, **given)
    if isinstance(report, PairwiseReport):
        whose = f"what {report.observer} learns of client {report.client}"
        rows, notes = _pairwise_rows(report), _pairwise_notes(report)
    else:
        whose, rows, notes = f"client {report.client}", _rows(report), _notes(report)
    title = f"{report.scenario}: audit of {whose} at delta = {show(report.delta)}, {report.canaries:,} canaries"
    present(title, rows, notes=notes, result=report, as_json=as_json)
    if not report.passed:
        raise typer.Exit(1)


def _rows(report: AuditReport) -> list[Row | str]:
    sure = f"{100 * report.confidence:g} %"
    rows: list[Row | str] = [
        "What was heard",
        ("releases of the client", report.releases, f"{show(report.accounted)} are in the ledger"),
        (
            "sampling rate, q",
            report.sampling_rate,
            f"of {report.examples:,} examples, {report.canaries:,} of them canaries",
        ),
        ("right guesses", report.correct, f"of {report.guesses:,}; half of all are right by chance"),
        "Noise",
        (
            "too little of it",
            report.noise_missing,
            f"chance {show(report.noise_p_value)} or less if it is as declared; {report.noise_releases:,} releases",
        ),
        (
            "of another law",
            report.noise_of_other_law,
            f"chance {show(report.law_p_value)} or less if as declared; {report.noise_numbers:,} numbers without data",
        ),
        (
            "not drawn afresh",
            report.noise_dependent,
            f"chance {show(report.dependence_p_value)} or less if it is; {report.noise_pairs:,} pairs of releases",
        ),
        "Epsilon",
        (
            "lower bound, measured",
            report.lower_bound,
            f"at {sure} confidence; with all guesses right it would be {show(report.ceiling)}",
        ),
    ]
    relation = IN_WORDS[report.neighbors].partition(": ")[2]
    level = 1 - report.confidence
    if math.isnan(report.certified):
        rows.append(("certified", None, report.statement))
    else:
        rows += [
            ("certified", report.certified, f"{relation}; the client's own transcript, with the canaries"),
            ("  p-value", report.p_value, "chance, at most, of as many right guesses if it held"),
            ("  refuted", report.refuted, f"p-value below {level:.2g}"),
        ]
    if not math.isnan(report.claimed):
        rows += [
            ("claimed", report.claimed, f"at delta = {show(report.claimed_delta)}; {report.source}"),
            ("  p-value", report.claim_p_value, "chance, at most, of as many right guesses if it held"),
            ("  refuted", report.claim_refuted, f"p-value below {level:.2g}"),
        ]
    return rows


def _notes(report: AuditReport) -> list[str]:
    from simfl.attacks.noise import FALSE_ALARMS

    notes = []
    if not report.releases:
        notes.append(f"The client released nothing: there was nothing to hear of client {report.client}.")
    if report.releases > report.accounted:
        notes.append("The ledger counted fewer releases than were heard: something was sent and not accounted for.")
    if report.releases < report.accounted:
        notes.append(
            "The audit failed: it heard fewer releases than the ledger counted, and what it says holds for those alone."
        )
    if report.noise_missing:
        notes.append("Noise is missing: the releases are smaller than the declared noise alone would be.")
    if report.noise_of_other_law:
        notes.append("Noise is not of the declared law: the numbers that hold noise alone are distributed differently.")
    if report.noise_dependent:
        notes.append(
            "Noise is not drawn afresh: noise of two releases, or of two coordinates of a release, depends on each "
            "other."
        )
    if report.noise_missing or report.noise_of_other_law or report.noise_dependent:
        notes.append(f"The tests of the noise say so of one correct mechanism in {1 / FALSE_ALARMS:,.0f} at most.")
    if report.refuted:
        notes.append(
            "Refuted: noise, clipping, sampling or accounting is not what it is said to be. One audit in "
            f"{1 / (1 - report.confidence):.3g} may say so of a correct mechanism; another --seed repeats it."
        )
    if report.view == "global_hidden":
        notes.append(
            "The scenario assumes that the senders of updates are hidden; the auditor knows, and what is certified "
            "here is for that view: local_transcript."
        )
    if report.claim_refuted:
        notes.append("The claim is refuted for an adversary who sees the client's releases and knows whose they are.")
    if not report.decisive and not (math.isnan(report.certified) and math.isnan(report.claimed)):
        notes.append(
            "Even with all guesses right this audit could not refute: use more --canaries, a larger privacy.delta, or "
            "more noise and fewer releases."
        )
    if report.passed and report.releases:
        notes.append(_power(report.sees))
    notes.append(
        "An audit can show that a mechanism is broken: the lower bound holds whatever the code does. It cannot show "
        "that a mechanism is private: it is one attack on one run, and a bound far below what is certified does not "
        "mean that less noise would do."
    )
    return notes


def _power(sees: Mapping[str, bool]) -> str:
    """Return which made-up faults showed, and which did not."""
    from simfl.attacks.faults import TRIALS

    seen, unseen = ([name for name, shown in sees.items() if shown is one] for one in (True, False))
    trials = f" (all of {TRIALS} made-up audits of each did)" if seen else ""
    missed = f" It may miss {', '.join(unseen)}." if unseen else ""
    return f"This audit would have shown {', '.join(seen) or 'nothing'}{trials}.{missed}"


def _pairwise_rows(report: PairwiseReport) -> list[Row | str]:
    sure = f"{100 * report.confidence:g} %"
    relation = IN_WORDS[report.neighbors].partition(": ")[2]
    ceiling = f"with all guesses right it would be {show(report.ceiling)}"
    rows: list[Row | str] = [
        "What was heard",
        ("messages", report.messages, f"client {report.client} is at a distance of {report.distance:g}"),
        ("gradients of the client", report.heard, f"of {report.gradients:,} are in them"),
        ("right guesses", report.correct, f"of {report.guesses:,}; half of all are right by chance"),
        "Epsilon",
        ("lower bound, measured", report.lower_bound, f"at {sure} confidence; {ceiling}"),
    ]
    if math.isnan(report.certified):
        return [*rows, ("certified", None, report.statement)]
    return [
        *rows,
        ("certified", report.certified, f"{relation}; {report.certified_by}, with the canaries"),
        ("  p-value", report.p_value, "chance, at most, of as many right guesses if it held"),
        ("  refuted", report.refuted, f"p-value below {1 - report.confidence:.2g}"),
        ("as published", report.published, "not certified: gradients taken as fixed"),
    ]


def _pairwise_notes(report: PairwiseReport) -> list[str]:
    notes = []
    if not report.complete:
        notes.append("The audit failed: some releases in the messages were not heard.")
    if report.refuted:
        notes.append(
            "Refuted: noise, clipping, sampling or the account is not what it is said to be. One audit in "
            f"{1 / (1 - report.confidence):.3g} may say so of a correct mechanism; another --seed repeats it."
        )
    notes.append(_power(report.sees))
    notes.append(
        "Canaries' gradients do not react to messages: what the closure of a view covers beyond the published account "
        "is not tried here. It is one attack on one run, and cannot show that a mechanism is private."
    )
    return notes
