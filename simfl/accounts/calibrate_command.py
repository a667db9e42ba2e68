"""`simfl privacy calibrate`: the noise that a promised (epsilon, delta) needs."""

from __future__ import annotations

import math
from typing import Annotated, Any

from typer import Option

from simfl.accounts import shared
from simfl.accounts.shared import IN_WORDS, Accountant, Row, assumed, present, sentence, show

_BY = {"renyi": "z, Renyi accountant", "pld": "z, loss distributions", "tightest": "z, tightest"}


def command(
    epsilon: shared.Epsilon,
    steps: shared.Steps,
    sampling_rate: shared.SamplingRate = 1.0,
    delta: shared.Delta = 1e-5,
    neighbors: shared.ChosenNeighbors = "add_or_remove",
    sampling: shared.ChosenSampling = "poisson",
    accountant: Annotated[Accountant | None, Option(help="Only this one; by default tightest and renyi.")] = None,
    clipping_norm: Annotated[float | None, Option(help="C; adds the noise on the sum.")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Print the noise multiplier for an epsilon, by several accountants.

    z is the standard deviation of the noise on a sum of clipped gradients, over the clipping norm C.
    """
    from simfl.accounts.plans import assumptions_of_releases, classic_std, noise_multiplier_for
    from simfl.privacy import checks
    from simfl.privacy.accounting import Release, epsilon_of
    from simfl.privacy.gaussian import analytic_std, gaussian_epsilon

    if clipping_norm is not None:
        checks.positive(clipping_norm=clipping_norm)
    accountants: dict[str, dict[str, float]] = {}
    rows: list[Row | str] = ["By an accountant"]
    options: dict[str, Any] = {"sampling_rate": sampling_rate, "sampling": sampling, "neighbors": neighbors}
    tried: list[Accountant] = ["tightest", "renyi"] if accountant is None else [accountant]
    for by in tried:
        z = noise_multiplier_for(epsilon, delta, steps=steps, accountant=by, **options)
        reached = epsilon_of([(Release(z, sampling_rate, sampling), steps)], delta, neighbors=neighbors, accountant=by)
        accountants[by] = {"noise_multiplier": z, "epsilon": reached}
        noise = "" if clipping_norm is None else f"; noise z C = {show(z * clipping_norm)}"
        rows.append((_BY[by], z, f"certified: epsilon = {show(reached)}{noise}"))
    releases = 1 if sampling == "one_pass" else steps
    sensitivity = (2.0 if neighbors == "replace_one" else 1.0) * math.sqrt(releases)
    analytic = analytic_std(epsilon, delta, sensitivity)
    classic = classic_std(epsilon, delta, sensitivity, beyond=True)
    gives = gaussian_epsilon(delta, sensitivity / classic)
    proven = "proven for epsilon < 1" if epsilon < 1.0 else "not proven for epsilon >= 1"
    rows += [
        "In closed form, without sampling",
        ("z, analytic", analytic, "certified: exact for every epsilon"),
        ("z, classical formula", classic, f"{proven}; really epsilon = {show(gives)}"),
    ]
    result: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "neighbors": neighbors,
        "clipping_norm": clipping_norm,
        "accountants": accountants,
        "analytic": {"noise_multiplier": analytic, "epsilon": epsilon},
        "classic": {"noise_multiplier": classic, "epsilon": gives, "proven": epsilon < 1.0},
    }
    notes = [f"{sentence(IN_WORDS[neighbors])}; {IN_WORDS[sampling]}."]
    if gives > epsilon * (1.0 + 1e-9):
        notes.append("The classical formula gives too little noise here.")
    if sampling == "one_pass":
        notes.append("All releases of one pass together cost as much as one, if no two clients hold the same example.")
    result["assumptions"] = assumptions_of_releases(neighbors, sampling, sampling_rate)
    notes += assumed(result["assumptions"])
    title = f"Noise for (epsilon = {show(epsilon)}, delta = {show(delta)}): {steps:,} releases"
    title += f", q = {show(sampling_rate)}"
    present(f"{title}, sampling: {sampling}", rows, notes=notes, result=result, as_json=as_json)
