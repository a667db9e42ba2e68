"""`simfl privacy strategies`: noise of a server, independent or correlated."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from typer import Option

from simfl.accounts import shared
from simfl.accounts.shared import present, show

_NEIGHBORS = {"add_or_remove": "a user adds nothing", "replace_one": "a user has other data"}


def command(
    epsilon: shared.Epsilon,
    releases: Annotated[int, Option("--releases", help="T, sums that the server releases.")],
    delta: shared.Delta = 1e-5,
    min_separation: Annotated[int, Option(help="b: a user is in every b-th sum at most.")] = 1,
    at_most: Annotated[int | None, Option(help="k, sums that a user is in; by default as many as b allows.")] = None,
    fraction: Annotated[
        float | None, Option(help="Expected fraction of users in a sum, if the server draws them secretly.")
    ] = None,
    bands: Annotated[int | None, Option(help="Of square_root and banded, at most b; by default min(b, 100).")] = None,
    buffers: Annotated[int, Option(help="Of blt.")] = 2,
    neighbors: shared.ChosenNeighbors = "add_or_remove",
    as_json: shared.AsJson = False,
) -> None:
    """Compare strategies of a server's noise for an epsilon of each user.

    For each one: the noise multiplier, sens(S), and the noise that is left in the models.
    """
    from simfl.accounts.strategy_plans import strategy_plans

    options: dict[str, Any] = {"min_separation": min_separation, "at_most": at_most, "neighbors": neighbors}
    plans, missing = strategy_plans(
        epsilon, delta, releases=releases, fraction=fraction, bands=bands, buffers=buffers, **options
    )
    base = next(plan.rmse for plan in plans if plan.name == "independent")
    cells = {
        "noise": [plan.name for plan in plans],
        "z": [f"{plan.noise_multiplier:.6g}" for plan in plans],
        "RMSE": [f"{plan.rmse:.4g}" for plan in plans],
        "ratio": [f"{plan.rmse / base:.2f}" for plan in plans],
        "maximum": [f"{plan.largest:.4g}" for plan in plans],
        "sens(S)": [f"{plan.sensitivity:.4g}" for plan in plans],
        "memory": [f"{plan.memory:,}" for plan in plans],
    }
    notes = [
        f"Neighbors: {_NEIGHBORS[neighbors]}. A user of sum n is in sum n + {min_separation} at the earliest"
        + ("" if at_most is None else f", and in {at_most} sums at most")
        + "; certified if the server enforces it.",
        "RMSE: the root mean square of the noise in x_0 + ... + x_n, n < T, in units of the clipping norm; ratio: to "
        "that of independent noise; maximum: the largest standard deviation. Memory counts vectors.",
    ]
    if any(plan.drawn for plan in plans):
        notes.append(
            "Drawn, or groups (as many bands): only if the server draws users secretly and all who are drawn "
            "take part; sens(S) is that of one sum, and min_separation has no part in it."
        )
    notes += [f"Missing: {reason}." for reason in missing]
    result = {**options, "epsilon": epsilon, "delta": delta, "releases": releases, "fraction": fraction}
    result["strategies"] = [dataclasses.asdict(plan) for plan in plans]
    title = f"Noise of a server for (epsilon = {show(epsilon)}, delta = {show(delta)}): {releases:,} sums"
    present(title, cells=cells, notes=notes, result=result, as_json=as_json)
