"""What noise of a server costs for a given (epsilon, delta), by strategy.

Each plan has the least noise multiplier z for T releases in which a user is at most k times, b apart, and the noise
that this leaves in x_0 + ... + x_n, n < T. A strategy without draws is one Gaussian release of mu = sens(S) / z. If the
server draws users secretly (`simfl.privacy.cohorts`), noise is independent, or in b bands with users in b groups, whose
turns are sampled Gaussian releases of noise z / |c|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from simfl.accounts.plans import noise_multiplier_for
from simfl.errors import ScenarioError
from simfl.privacy import checks
from simfl.privacy.accounting import MOVED, Neighbors
from simfl.privacy.gaussian import analytic_std
from simfl.privacy.in_time import Participation
from simfl.privacy.strategies import Banded, Strategy, Tree, banded, blt, square_root

#: The most releases of a plan, and the most bands, buffers, and groups that are drawn in turn.
MOST_RELEASES, MOST_BANDS, MOST_BUFFERS, MOST_GROUPS = 10_000, 1000, 8, 16

#: The least expected share of users in a sum.
LEAST_FRACTION = 1e-6


@dataclass(frozen=True)
class StrategyPlan:
    """The noise of one strategy.

    Attributes:
        name: of the strategy, as in a scenario.
        noise_multiplier: z.
        sensitivity: sens(S) under the participation; |c| if users are drawn.
        rmse: the root mean square of the noise in the sums x_0 + ... + x_n, in units of the clipping norm C.
        largest: its largest standard deviation.
        memory: vectors that the server keeps.
        drawn: whether the account needs secret draws.
    """

    name: str
    noise_multiplier: float
    sensitivity: float
    rmse: float
    largest: float
    memory: int
    drawn: bool = False


def strategy_plans(
    epsilon: float,
    delta: float,
    *,
    releases: int,
    min_separation: int = 1,
    at_most: int | None = None,
    neighbors: Neighbors = "add_or_remove",
    fraction: float | None = None,
    bands: int | None = None,
    buffers: int = 2,
) -> tuple[list[StrategyPlan], list[str]]:
    """Return the plans, those with the least noise first, and why some are missing.

    Args:
        epsilon, delta: the promise to each user.
        releases: T.
        min_separation: b, which the server enforces.
        at_most: k; None for as often as b allows.
        neighbors: the neighboring relation.
        fraction: the expected share of all users in a sum, if the server draws them; None: no secret draws.
        bands: of square_root and banded, at most b; None for min(b, T, 100).
        buffers: of blt.
    """
    checks.positive(epsilon=epsilon)
    checks.open_unit(delta=delta)
    checks.whole(1, MOST_RELEASES, releases=releases)
    checks.whole(1, min_separation=min_separation)
    min_separation = min(min_separation, releases)
    checks.whole(1, MOST_BUFFERS, buffers=buffers)
    most = -(-releases // min_separation)
    if at_most is not None:
        checks.whole(1, at_most=at_most)
        most = min(most, at_most)
    if bands is not None:
        checks.whole(1, min(min_separation, MOST_BANDS), bands=bands)
    if fraction is not None:
        checks.unit(fraction=fraction)
        checks.at_least(LEAST_FRACTION, fraction=fraction)
    width = min(bands or 100, min_separation, releases)
    takes, moved, missing = Participation(min_separation, most), MOVED[neighbors], []
    plans = []
    for name, made in _strategies(width, buffers, releases, takes):
        if isinstance(made, str):
            missing.append(made)
            continue
        sensitivity = made.sensitivity(releases, takes)
        plans.append(_plan(name, made, analytic_std(epsilon, delta, moved * sensitivity), sensitivity, releases))
    if fraction is not None:
        if neighbors == "replace_one":
            missing.append("draws amplify under add_or_remove only")
        else:
            plans += _drawn(epsilon, delta, releases, fraction)
    return sorted(plans, key=lambda plan: plan.rmse), missing


def _strategies(width: int, buffers: int, releases: int, takes: Participation) -> Iterator[tuple[str, Strategy | str]]:
    """Yield strategies by name, or why one is missing."""
    yield "independent", Banded((1.0,))
    yield "tree", Tree()
    yield "tree, estimate: nodes", Tree(efficient=False)
    if 1 < takes.separation < releases:
        yield f"tree, restart_every: {takes.separation}", Tree(restart=takes.separation)
    if width > 1:
        yield f"square_root, bands: {width}", square_root(width)
        try:
            yield f"banded, bands: {width}", banded(width, releases)
        except ScenarioError as error:
            yield "banded", str(error)
    if releases > 1:
        try:
            yield f"blt, buffers: {buffers}", blt(buffers, releases, takes)
        except ScenarioError as error:
            yield "blt", str(error)


def _drawn(epsilon: float, delta: float, releases: int, fraction: float) -> Iterator[StrategyPlan]:
    """Yield the plans of a server that draws users, from 1, 2, 4, ... groups."""
    groups = 1
    while groups * fraction <= 1.0 + 1e-9 and groups <= min(releases, MOST_GROUPS):
        strategy, turns = square_root(groups), -(-releases // groups)
        rate = min(1.0, groups * fraction)
        column = strategy.sensitivity(releases, Participation(1, 1))
        z = column * noise_multiplier_for(epsilon, delta, steps=turns, sampling_rate=rate)
        name = "independent, drawn" if groups == 1 else f"square_root, groups: {groups}"
        yield _plan(name, strategy, z, column, releases, drawn=True)
        groups *= 2


def _plan(
    name: str, strategy: Strategy, z: float, sensitivity: float, releases: int, drawn: bool = False
) -> StrategyPlan:
    errors, memory = z * strategy.errors(releases), strategy.memory
    rmse = math.sqrt(float((errors**2).mean()))
    kept = releases.bit_length() if memory is None else memory
    return StrategyPlan(name, z, sensitivity, rmse, float(errors.max()), kept, drawn)
