"""`simfl privacy async-fl`: growing sizes, their claims and certified epsilon."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from simfl.accounts.shared import Arguments, AsJson, ChosenAccountant, ChosenNeighbors, OptionsOf, present, show

_THEORY = "simfl.papers.async_fl"
_GROWTH = OptionsOf(
    f"{_THEORY}.privacy:GrowthSetting", leave_out=("r0",), defaults={"p": 1.0},
    rename={"p": "power", "num_examples": "examples", "sigma": "noise_multiplier"},
)  # fmt: skip
_SELECTION = OptionsOf(
    f"{_THEORY}.selection:select_parameters", rename={"iterations": "passes"}, leave_out=("setting",)
)


def command(
    growth: Annotated[Arguments, _GROWTH],
    selection: Annotated[Arguments, _SELECTION],
    r0: Annotated[
        str,
        typer.Option("--r0", metavar="sigma|1/e|NUMBER", help="Constant of the theorems: r0(sigma), 1/e, or a number."),
    ] = "sigma",
    gate: Annotated[
        int | None,
        typer.Option("--gate", help="d: check condition (3) for clients up to d rounds ahead.", show_default=False),
    ] = None,
    clients: Annotated[int, typer.Option("--clients", help="Clients with these sizes, for --gate.")] = 1,
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", help="Where to compare epsilons; the delta claimed, or 1/N, by default.", show_default=False
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also the noise that constant sizes need for the certified epsilon.")
    ] = False,
    neighbors: ChosenNeighbors = "add_or_remove",
    accountant: ChosenAccountant = "tightest",
    as_json: AsJson = False,
) -> None:
    """Asynchronous FL with growing rounds: sizes, rounds and delta for given noise.

    Van Dijk et al. 2020, Theorem 4 and its parameter selection. The accountant of
    privacy-loss distributions takes seconds; --accountant renyi is quick.
    """
    from simfl.papers.async_fl import report
    from simfl.papers.async_fl.privacy import GrowthSetting
    from simfl.papers.async_fl.selection import select_parameters

    setting = GrowthSetting(**growth, r0=_r0(r0))
    plan = select_parameters(setting, **selection)
    # Epsilons are compared at the delta of the claim, or at 1/N if that is smaller or nothing is claimed (NaN).
    at = min(1.0 / setting.num_examples, plan.claim.delta) if delta is None else delta
    result, unmet = report.measure(plan, at, neighbors, accountant, compare)
    result["gate"] = None if gate is None else report.check_gate(plan, gate, clients)
    kind = "Constant sizes" if setting.p == 0.0 else f"Sizes that grow like i^{setting.p:g}"
    gradients = show(float(round(setting.gradients)))
    title = f"{kind}, Theorem 4: {setting.num_examples:,} examples, {gradients} gradients"
    notes = report.notes_of(result, unmet, delta)
    present(title, report.rows_of(result, neighbors), notes=notes, result=result, as_json=as_json)


def _r0(text: str) -> float | None:
    if text == "sigma":
        return None
    if text == "1/e":
        return 1.0 / math.e
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--r0: expected sigma, 1/e or a number, found {text!r}") from None
