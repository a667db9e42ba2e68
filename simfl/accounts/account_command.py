"""`simfl privacy account`: composition by several accountants side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from typer import Option

from simfl.accounts import shared
from simfl.accounts.shared import IN_WORDS, Accountant, Row, assumed, present, sentence, show

_BY = {"renyi": "epsilon, Renyi", "pld": "epsilon, loss distributions", "tightest": "epsilon, tightest"}
_HOW = {
    "renyi": "certified: Renyi divergence, converted",
    "pld": "certified: numerical composition, rounded up",
    "tightest": "certified: the smallest that is proven",
}


def command(
    noise_multiplier: Annotated[
        float, Option("--noise-multiplier", "-z", help="z, noise on the sum over the clipping norm C.")
    ],
    steps: shared.Steps,
    sampling_rate: shared.SamplingRate = 1.0,
    delta: shared.Delta = 1e-5,
    neighbors: shared.ChosenNeighbors = "add_or_remove",
    sampling: shared.ChosenSampling = "poisson",
    accountant: Annotated[Accountant | None, Option(help="Only this one; all by default.")] = None,
    epsilon: Annotated[float | None, Option(help="Also print the delta at this epsilon.")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Print the epsilon of Gaussian releases, by several accountants.

    Each release is a sum of clipped gradients with noise of standard deviation z C. The observer sees all releases.
    """
    from simfl.accounts.plans import assumptions_of_releases, gdp_central_limit_epsilon
    from simfl.privacy.accounting import Release, delta_of, epsilon_of
    from simfl.privacy.gaussian import gaussian_epsilon

    composition = [(Release(noise_multiplier, sampling_rate, sampling), steps)]
    accountants = [accountant] if accountant is not None else list(get_args(Accountant))
    epsilons = {by: epsilon_of(composition, delta, neighbors=neighbors, accountant=by) for by in accountants}
    result: dict[str, Any] = {
        "neighbors": neighbors,
        "delta": delta,
        "epsilon": epsilons,
        "epsilon_without_sampling": None,
        "epsilon_by_central_limit": None,
        "delta_at_epsilon": None,
    }
    rows: list[Row | str] = [f"All releases together, at delta = {show(delta)}"]
    exact = sampling_rate == 1.0 or sampling in ("none", "one_pass")
    by_renyi = epsilon_of(composition, delta, neighbors=neighbors, accountant="renyi")
    sensitivity = 2.0 if neighbors == "replace_one" else 1.0
    plain = gaussian_epsilon(delta, sensitivity * math.sqrt(steps) / noise_multiplier) if noise_multiplier else math.inf
    bounds = {"Renyi divergence": by_renyi, "the epsilon without sampling": plain}
    rows += [(_BY[by], epsilon_by, _how(by, epsilon_by, exact, bounds)) for by, epsilon_by in epsilons.items()]
    if epsilon is not None:
        result["delta_at_epsilon"] = delta_of(composition, epsilon, neighbors=neighbors)
        rows.append((f"delta at epsilon = {show(epsilon)}", result["delta_at_epsilon"], "certified"))
    if sampling_rate < 1.0 and sampling in ("poisson", "without_replacement") and noise_multiplier > 0.0:
        result["epsilon_without_sampling"] = plain
        rows += ["For comparison", ("epsilon without sampling", plain, "exact: every example in every release")]
        if sampling == "poisson" and neighbors == "add_or_remove":
            limit = gdp_central_limit_epsilon(delta, noise_multiplier, sampling_rate=sampling_rate, steps=steps)
            result["epsilon_by_central_limit"] = limit
            rows.append(("epsilon by central limit", limit, "not certified: an approximation, no bound"))
    notes = [
        f"{sentence(IN_WORDS[neighbors])}; {IN_WORDS[sampling]}.",
        "An epsilon holds for an observer of every release, if gradients are really clipped to C.",
    ]
    result["assumptions"] = assumptions_of_releases(neighbors, sampling, sampling_rate)
    notes += assumed(result["assumptions"])
    title = f"{steps:,} Gaussian releases, z = {show(noise_multiplier)}, q = {show(sampling_rate)}"
    present(f"{title}, sampling: {sampling}", rows, notes=notes, result=result, as_json=as_json)


def _how(by: str, epsilon: float, exact: bool, bounds: Mapping[str, float]) -> str:
    if math.isinf(epsilon):
        return "not certified: no noise protects the data"
    bound = next((name for name, value in bounds.items() if math.isclose(value, epsilon)), None)
    if by == "pld" and bound is not None and epsilon > 0.0 and not exact:
        return f"certified: by {bound}, since loss distributions are not precise enough here"
    return "certified: exact, releases without sampling are one Gaussian" if exact and by != "renyi" else _HOW[by]
