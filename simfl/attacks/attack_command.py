"""`simfl privacy attack`: attacks by observers on the network."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Option

from simfl.accounts.shared import AsJson, Row, assumed, present, show
from simfl.cli.shared import Device, Overrides, ScenarioOrRun

if TYPE_CHECKING:
    from simfl.attacks.results import Inference, Membership
    from simfl.records import Run
    from simfl.scenario import Scenario

Attack = Literal["membership", "inversion"]
HeldOut = Literal["test", "coins"]
_MOST_ROWS = 12


def command(
    path: ScenarioOrRun,
    attack: Annotated[
        Attack,
        Option(
            "--attack",
            help="Infer which examples were trained on, or reconstruct examples from gradients that an observer can "
            "solve for.",
        ),
    ] = "membership",
    overrides: Overrides = None,
    observers: Annotated[
        list[str] | None,
        Option(
            "--observer",
            metavar="K|server|links",
            help="The attacker: a client, the server, or all links; may be repeated. By default all clients, and the "
            "server; inversion needs one.",
        ),
    ] = None,
    clients: Annotated[
        list[int] | None,
        Option("--client", help="The client to attack; may be repeated. By default all; inversion needs one."),
    ] = None,
    models: Annotated[int, Option(help="Messages an observer keeps for each client, spaced over the run.")] = 10,
    held_out: Annotated[
        HeldOut,
        Option(
            "--held-out",
            help="Examples to compare with: the test set, or a random half of each client's own examples, which the "
            "client then does not train on.",
        ),
    ] = "test",
    confidence: Annotated[float, Option(help="Of each interval and lower bound.")] = 0.95,
    pairwise: Annotated[
        bool, Option("--pairwise", help="Also compare with the account of simfl privacy network; it may take minutes.")
    ] = False,
    out: Annotated[Path | None, Option(help="Folder of tables and figures; attacks/NAME-ATTACK by default.")] = None,
    batches: Annotated[int, Option(help="The most mini-batches that inversion attacks.")] = 6,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Run a scenario with observers on its network, and attack the clients.

    A run is repeated exactly. Exits with code 1 if the attack refutes the certified epsilon.
    """
    from simfl.plots import without_a_screen

    without_a_screen()
    scenario, run = _opened(path, list(overrides or []))
    folder = out or Path("attacks") / f"{scenario.name}-{attack}"
    _make(folder)
    named = None if observers is None else [int(word) if word.isdecimal() else word for word in observers]
    if attack == "inversion":
        _invert(scenario, _one("--observer", named), _one("--client", clients), batches, device, folder, as_json)
        return
    from simfl.attacks.membership import infer_membership

    membership = infer_membership(
        scenario,
        observers=named,
        clients=clients,
        models=models,
        held_out=held_out,
        confidence=confidence,
        pairwise=pairwise,
        run=run,
        device=device,
    )
    _show_membership(membership, folder, as_json)
    if membership.refuting:
        raise typer.Exit(1)


def _make(folder: Path) -> None:
    from simfl.errors import ScenarioError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(f"--out: {folder}: cannot make the folder: {error.strerror}") from error


def _show_membership(membership: Membership, folder: Path, as_json: bool) -> None:
    from simfl.attacks.figures import plot_membership
    from simfl.attacks.results import write_tables
    from simfl.plots import save

    written = write_tables(folder, {"membership": membership.frame, "roc": membership.roc})
    written.append(save(plot_membership(membership), folder / "membership.png"))
    title = f"{membership.subject}: membership inference at delta = {show(membership.delta)}"
    result: dict[str, Any] = {name: getattr(membership, name) for name in ("ceiling", "held_out", "reproduced")}
    result |= {"inferences": list(membership.inferences), "files": [str(file) for file in written]}
    result["assumptions"] = dict(membership.assumptions)
    notes = [*_notes(membership), *assumed(membership.assumptions)]
    present(title, _rows(membership), notes=notes, result=result, as_json=as_json)
    _say_written(written, as_json)


def _invert(
    scenario: Scenario, observer: int | str, client: int, batches: int, device: str | None, folder: Path, as_json: bool
) -> None:
    from simfl.attacks.figures import plot_inversion
    from simfl.attacks.inversion import MOST_EXAMPLES, invert_run
    from simfl.attacks.results import write_tables
    from simfl.plots import save

    inversion = invert_run(scenario, observer=observer, client=client, count=batches, device=device)
    written = []
    if inversion.batches:
        written = write_tables(folder, {"inversion": inversion.frame})
        written.append(save(plot_inversion(inversion), folder / "inversion.png"))
    rows: list[Row | str] = [
        ("gradients of the client", inversion.gradients, "that are in some message"),
        ("solved for", inversion.solved, f"by {inversion.observer}, from the messages that it received"),
        ("small enough", inversion.small, f"of {MOST_EXAMPLES} examples or fewer"),
    ]
    rows += ["Examples reconstructed: mean correlation with the originals"] if inversion.batches else []
    for batch in inversion.batches:
        count, mean = len(batch.correlations), sum(batch.correlations) / len(batch.correlations)
        note = f"{count} example{'s' * (count > 1)}, {batch.method}; signal to noise {min(batch.ratios):.0f} dB or more"
        rows.append((f"mini-batch {batch.draw}", round(mean, 4), note))
    notes = [
        "An observer solves for a gradient, with its noise, if the gradient's unit vector is in the row space of the "
        "messages that it received. It is assumed to know the model at which the gradient was computed.",
        "That this attack reconstructs nothing does not mean that no attack can.",
    ]
    title = f"{inversion.subject}: examples of client {client} from gradients, by {inversion.observer}"
    table = inversion.frame.to_dict("records")
    result = {"gradients": inversion.gradients, "solved": inversion.solved, "small": inversion.small, "examples": table}
    present(title, rows, notes=notes, result=result | {"files": [str(file) for file in written]}, as_json=as_json)
    _say_written(written, as_json)


def _say_written(files: list[Path], as_json: bool) -> None:
    for file in () if as_json else files:
        print(f"written: {file}")


def _one(option: str, given: list[Any] | None) -> Any:
    from simfl.errors import ScenarioError

    if given is None or len(given) != 1:
        count = "none" if given is None else str(len(given))
        raise ScenarioError(f"{option}: expected one with --attack inversion, found {count}")
    return given[0]


def _opened(path: Path, changes: list[str]) -> tuple[Scenario, Run | None]:
    from simfl.accounts.network import opened_target
    from simfl.errors import ScenarioError
    from simfl.records import read
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    look_beside([path])
    if not path.is_dir():
        return load(path, changes), None
    if changes:
        raise ScenarioError("--set: expected none with the folder of a run, whose scenario is fixed")
    return opened_target(path), read(path)


def _rows(membership: Membership) -> list[Row | str]:
    """Return the best of each distance, or every pair if they are few."""
    from simfl.attacks.results import SCORES

    entries = sorted(membership.inferences, key=lambda one: (one.score, one.distance, -one.auc))
    several = len({(one.observer, one.client) for one in entries}) > _MOST_ROWS
    rows: list[Row | str] = []
    for score, group in itertools.groupby(entries, key=lambda one: one.score):
        rows.append(f"By {SCORES[score]}: area under the ROC curve")
        if several:
            rows += [_summary(list(pairs)) for _, pairs in itertools.groupby(group, key=lambda one: one.distance)]
        else:
            rows += [_single(one) for one in group]
    return rows


def _summary(some: list[Inference]) -> Row:
    mean, best = sum(one.auc for one in some) / len(some), max(some, key=lambda one: one.lower_bound)
    where = f"distance {show(some[0].distance)}, mean of {len(some)} pairs"
    return where, mean, f"{_epsilon(best)}, client {best.observer} on client {best.client} (the largest)"


def _single(one: Inference) -> Row:
    observer = f"client {one.observer}" if one.observer.isdecimal() else f"the {one.observer}"
    interval = f"[{one.auc_low:.3f}, {one.auc_high:.3f}], {100 * one.tpr:.1f} % found at 1 % false"
    return f"{observer} on client {one.client}, distance {show(one.distance)}", one.auc, f"{interval}; {_epsilon(one)}"


def _epsilon(one: Inference) -> str:
    account = "nothing certified" if math.isnan(one.account) else f"certified {one.account:.3g} ({one.account_by})"
    published = "" if math.isnan(one.published) else f", as published {one.published:.3g}"
    return f"epsilon at least {one.lower_bound:.3g}, {account}{published}"


def _notes(membership: Membership) -> list[str]:
    from simfl.records.display import show_count, show_range

    members = [one.members for one in membership.inferences]
    counts = show_range(min(members), max(members), show_count)
    notes = []
    if membership.held_out == "test":
        notes.append(
            "Assumed: a client's examples and those of the test set with the same labels come from one distribution. "
            "If not (writers, years), areas and bounds say nothing about privacy: use --held-out coins."
        )
    notes += [
        f"{counts} examples of a client, and as many others. Each interval and bound holds at "
        f"{100 * membership.confidence:g} %; with all guesses right no bound would exceed {membership.ceiling:.3g}.",
        "Local is the ledger's epsilon for all releases of a client, for any observer. A bound far below does not mean "
        "that less noise would do: it is one attack on one run.",
        membership.statement,
    ]
    if membership.deaf:
        shown = ", ".join(f"{observer} on {client}" for observer, client in membership.deaf[:4])
        more = " ..." if len(membership.deaf) > 4 else ""
        notes.append(f"Nothing was received in {len(membership.deaf)} cases: {shown}{more}.")
    if membership.reproduced is False:
        notes.append(
            "The repeated run has other numbers than the first (another device, version or width); the attack is on "
            "the repeated run."
        )
    if membership.refuting:
        worst = max(membership.refuting, key=lambda one: one.lower_bound - one.account)
        notes.append(
            f"Refuted: {worst.observer} on client {worst.client} shows an epsilon of {worst.lower_bound:.3g} or more, "
            f"but {worst.account:.3g} is certified. One attack in {1 / (1 - membership.confidence):.3g} may refute a "
            "correct mechanism; repeat it with another seed."
        )
    return notes
