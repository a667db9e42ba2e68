"""`simfl privacy audit`: canaries in a run, compared with the account."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from simfl.accounts.shared import IN_WORDS, AsJson, Row, assumed, present, show
from simfl.cli.shared import OneScenario, Overrides

if TYPE_CHECKING:
    from simfl.attacks.audit import AuditReport, PairwiseReport
    from simfl.attacks.judging import NoiseReport
    from simfl.attacks.users import UserReport


def command(
    path: OneScenario,
    overrides: Overrides = None,
    canaries: Annotated[
        int | None,
        Option(help="m, canaries in one client's data, 1,000 by default; with unit: user, users, by default half."),
    ] = None,
    confidence: Annotated[float, Option(help="Of the lower bound and of a refutation.")] = 0.95,
    client: Annotated[int, Option(help="The client whose data the canaries join.")] = 0,
    observer: Annotated[
        str | None,
        Option(
            "--observer",
            metavar="K|server|links",
            help="Guess from the messages to this node, or on all links; by default from every release of the client.",
        ),
    ] = None,
    in_place: Annotated[
        bool, Option("--in-place", help="Canaries replace examples of the client, which keeps its sampling rate.")
    ] = False,
    kind: Annotated[
        Literal["gradient", "input"],
        Option("--kind", help="Directions in the space of gradients, or random inputs to the model."),
    ] = "gradient",
    guesses: Annotated[
        list[int] | None,
        Option(
            "--guesses",
            help="Number of guesses; if repeated, the numbers share the error. By default m/8, or about 100.",
        ),
    ] = None,
    seed: Annotated[int | None, Option(help="Seed of coins and canaries; the scenario's by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario with canaries in one client's data and try to detect them.

    With unit: user, the canaries are users, and the adversary sees the models that the server releases.

    Not supported: mechanisms that protect whole clients, correlated noise, algorithm.noise: server,
    local training, masked updates, models whose tasks change by themselves, algorithms that do not release gradients.

    Exits with code 1 if the guesses refute the certified or claimed epsilon, if noise is missing, of another law or
    reused, if secret draws are not at the declared rate, and if the audited releases are not those that the ledger
    counted.
    """
    from simfl.attacks.audit import PairwiseReport, audit
    from simfl.attacks.users import UserReport
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    look_beside([path])
    report = audit(
        load(path, list(overrides or [])),
        canaries=canaries,
        client=client,
        kind=kind,
        in_place=in_place,
        guesses=guesses or None,
        confidence=confidence,
        seed=seed,
        observer=int(observer) if observer is not None and observer.isdecimal() else observer,
    )
    subject: str
    if isinstance(report, UserReport):
        subject = f"{report.users:,} users"
        rows, notes = _user_rows(report), _user_notes(report)
    elif isinstance(report, PairwiseReport):
        subject = f"what {report.observer} learns of client {report.client}"
        rows, notes = _pairwise_rows(report), _pairwise_notes(report)
    else:
        subject, rows, notes = f"client {report.client}", _rows(report), _notes(report)
    title = f"{report.scenario}: audit of {subject} at delta = {show(report.delta)}, {report.canaries:,} canaries"
    present(title, rows, notes=[*notes, *assumed(report.assumptions)], result=report, as_json=as_json)
    if not report.passed:
        raise typer.Exit(1)


def _rows(report: AuditReport) -> list[Row | str]:
    sure = f"{100 * report.confidence:g} %"
    data = f"of {report.examples:,} examples, {report.canaries:,} of them canaries"
    bound = f"at {sure} confidence; with all guesses right it would be {show(report.ceiling)}"
    rows: list[Row | str] = [
        "Observations",
        ("releases of the client", report.releases, f"{show(report.accounted)} are in the ledger"),
        ("sampling rate, q", report.sampling_rate, data),
        ("right guesses", report.correct, f"of {report.guesses:,}; half of all are right by chance"),
        *_noise_rows(report, report.noise_releases),
        *_draw_rows(report, "examples"),
        "Epsilon",
        ("lower bound, measured", report.lower_bound, bound),
    ]
    level = 1 - report.confidence
    if math.isnan(report.certified):
        rows.append(("certified", None, report.statement))
    else:
        relation = IN_WORDS[report.neighbors].partition(": ")[2]
        note = f"{relation}; the client's own transcript, with the canaries"
        rows += _tested("certified", report.certified, note, report.p_value, report.refuted, level)
    if not math.isnan(report.claimed):
        note = f"at delta = {show(report.claimed_delta)}; {report.source}"
        rows += _tested("claimed", report.claimed, note, report.claim_p_value, report.claim_refuted, level)
    return rows


def _noise_rows(report: NoiseReport, releases: int) -> list[Row | str]:
    missing = f"chance {show(report.noise_p_value)} or less if it is as declared; {releases:,} releases"
    law = f"chance {show(report.law_p_value)} or less if as declared; {report.noise_numbers:,} numbers without data"
    reused = f"chance {show(report.dependence_p_value)} or less if it is; {report.noise_pairs:,} pairs of releases"
    return [
        "Noise",
        ("too little of it", report.noise_missing, missing),
        ("of another law", report.noise_of_other_law, law),
        ("not drawn afresh", report.noise_dependent, reused),
    ]


def _draw_rows(report: NoiseReport, members: str) -> list[Row | str]:
    if not report.drawn_expected:
        return []
    chance = f"chance {show(report.draws_p_value)} or less if as declared"
    expected = f"in all releases; {show(report.drawn_expected)} are expected"
    return ["Secret draws", (members, report.drawn, expected), ("not at the rate", report.draws_wrong, chance)]


_DRAWS = "Draws are not those of the account: the numbers of members of releases do not follow its sampling rate."


def _tested(name: str, epsilon: float, note: str, p_value: float, refuted: bool, level: float) -> list[Row | str]:
    return [
        (name, epsilon, note),
        ("  p-value", p_value, "at most the chance of this number of right guesses if the epsilon holds"),
        ("  refuted", refuted, f"p-value below {level:.2g}"),
    ]


def _notes(report: AuditReport) -> list[str]:
    from simfl.attacks.noise import FALSE_ALARMS

    has_epsilon = not (math.isnan(report.certified) and math.isnan(report.claimed))
    notes = {
        f"The client released nothing: the audit received nothing from client {report.client}.": not report.releases,
        "The ledger counted fewer releases than the audit: something was sent and not accounted for.": (
            report.releases > report.accounted
        ),
        "The audit failed: it received fewer releases than the ledger counted, and its results hold for those only.": (
            report.releases < report.accounted
        ),
        "Noise is missing: the releases are smaller than the declared noise alone would be.": report.noise_missing,
        "Noise is not of the declared law: the numbers with noise alone are distributed differently.": (
            report.noise_of_other_law
        ),
        "Noise is not drawn afresh: noise of two releases, or of two coordinates of a release, is dependent.": (
            report.noise_dependent
        ),
        _DRAWS: report.draws_wrong,
        f"The tests of the noise reject one correct mechanism in {1 / FALSE_ALARMS:,.0f} at most.": report.noise_wrong,
        _refuted("accounting", report.confidence): report.refuted,
        "The scenario assumes that the senders of updates are hidden; the auditor knows them, and the epsilon "
        "certified here is for that view: local_transcript.": report.view == "global_hidden",
        "The claim is refuted for an adversary who sees the client's releases and knows the sender.": (
            report.claim_refuted
        ),
        "Even with all guesses right this audit could not refute: use more --canaries, a larger privacy.delta, or "
        "more noise and fewer releases.": not report.decisive and has_epsilon,
        _power(report.sees): report.passed and bool(report.releases),
    }
    return [*(note for note, applies in notes.items() if applies), _ONE_ATTACK]


_ONE_ATTACK = (
    "An audit can show that a mechanism is broken: the lower bound holds for any code. It cannot show that a mechanism "
    "is private: it is one attack on one run, and a bound far below the certified epsilon does not mean that less "
    "noise would do."
)


def _refuted(account: str, confidence: float) -> str:
    return (
        f"Refuted: noise, clipping, sampling or {account} is not as declared. One audit in {1 / (1 - confidence):.3g} "
        "may refute a correct mechanism; repeat it with another --seed."
    )


def _power(sees: Mapping[str, bool]) -> str:
    from simfl.attacks.faults import TRIALS

    seen, unseen = ([name for name, shown in sees.items() if shown is one] for one in (True, False))
    trials = f" (in all of {TRIALS} audits with each fault)" if seen else ""
    missed = f" It may miss {', '.join(unseen)}." if unseen else ""
    return f"This audit detects {', '.join(seen) or 'none of the artificial faults'}{trials}.{missed}"


def _user_rows(report: UserReport) -> list[Row | str]:
    ceiling = f"with all guesses right it would be {show(report.ceiling)}"
    drawn = "who is in a sum is secret" if report.amplified else "the adversary knows who is in which sum"
    rows: list[Row | str] = [
        "Observations",
        ("releases of the server", report.releases, f"{show(report.accounted)} are in the ledger; {drawn}"),
        ("canaries", report.canaries, f"of {report.users:,} users; each sends an update of norm C, or nothing"),
        ("right guesses", report.correct, f"of {report.guesses:,}; half of all are right by chance"),
        "Participation",
        ("updates in a sum", report.most_in_a_sum, "of one user, at most"),
        ("sums of a user apart", report.closest or None, "the smallest distance; 1 for sums in a row"),
        ("sums of a user", report.most_sums, "at most"),
        ("rule broken", report.participation_broken, "privacy.participation"),
        *_noise_rows(report, report.releases),
        *_draw_rows(report, "users"),
        "Epsilon",
        ("lower bound, measured", report.lower_bound, f"at {100 * report.confidence:g} % confidence; {ceiling}"),
    ]
    if math.isnan(report.certified):
        return [*rows, ("certified", None, report.statement)]
    relation = "an update or its opposite" if report.neighbors == "replace_one" else "a user more or less"
    note = f"{relation}; the largest of a canary"
    return rows + _tested("certified", report.certified, note, report.p_value, report.refuted, 1 - report.confidence)


def _user_notes(report: UserReport) -> list[str]:
    notes = {
        "The ledger and the audit disagree about who was in which sum, or how often: something is not accounted for.": (
            not report.complete
        ),
        "The server let users in more often than privacy.participation allows.": report.participation_broken,
        "The noise on sums is not what the scenario declares. Sums follow from released models and the fixed divisor: "
        "another divisor, such as the number of users that came, also shows as noise of another size.": (
            report.noise_missing or report.noise_of_other_law
        ),
        "Noise is not drawn afresh: noise of two releases, or of two coordinates of one, is dependent.": (
            report.noise_dependent
        ),
        _DRAWS: report.draws_wrong,
        _refuted("accounting", report.confidence): report.refuted,
        "Even with all guesses right this audit could not refute: use more users, a larger privacy.delta, or more "
        "noise and fewer releases.": not report.decisive and not math.isnan(report.certified),
        _power(report.sees): report.passed and bool(report.releases),
    }
    return [*(note for note, applies in notes.items() if applies), _ONE_ATTACK]


def _pairwise_rows(report: PairwiseReport) -> list[Row | str]:
    ceiling = f"with all guesses right it would be {show(report.ceiling)}"
    rows: list[Row | str] = [
        "Observations",
        ("messages", report.messages, f"client {report.client} is at a distance of {report.distance:g}"),
        ("gradients of the client", report.heard, f"of {report.gradients:,} are in them"),
        ("right guesses", report.correct, f"of {report.guesses:,}; half of all are right by chance"),
        "Epsilon",
        ("lower bound, measured", report.lower_bound, f"at {100 * report.confidence:g} % confidence; {ceiling}"),
    ]
    if math.isnan(report.certified):
        return [*rows, ("certified", None, report.statement)]
    note = f"{IN_WORDS[report.neighbors].partition(': ')[2]}; {report.certified_by}, with the canaries"
    rows += _tested("certified", report.certified, note, report.p_value, report.refuted, 1 - report.confidence)
    return [*rows, ("as published", report.published, "not certified: gradients taken as fixed")]


def _pairwise_notes(report: PairwiseReport) -> list[str]:
    notes = []
    if not report.complete:
        notes.append("The audit failed: it did not receive some releases in the messages.")
    if report.refuted:
        notes.append(_refuted("the account", report.confidence))
    return [
        *notes,
        _power(report.sees),
        "Canaries' gradients do not react to messages: the audit does not try what the closure of a view covers beyond "
        "the published account. It is one attack on one run, and cannot show that a mechanism is private.",
    ]
