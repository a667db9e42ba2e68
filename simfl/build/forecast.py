"""The forecast of a run: sizes, times, and the planned privacy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simfl.build.devices import usual_batch_s
from simfl.build.privacy import noise_of
from simfl.build.setup import Setup
from simfl.build.world import build_world
from simfl.errors import ScenarioError
from simfl.records.display import show_count, show_range

#: Links that are looked at.
MOST_LINKS = 2_000


@dataclass(frozen=True)
class Forecast:
    """The properties of a run that are known before it starts.

    Attributes:
        name, algorithm, topology, model: of the scenario, by kind.
        clients: how many.
        spectral_gap: of the mixing matrix; None where the algorithm has no topology, or that changes.
        parameters: of the model.
        model_bytes: of a model in a message (of one task, where models are sent task by task).
        message_s, longest_message_s: virtual seconds from sending such a message over an idle link to its delivery, on
            average over draws, without losses: over the fastest and the slowest of the first links, as they are at 0 s.
        batch_s: virtual seconds that a mini-batch takes a client of factor 1, on average over devices.
        epsilon: the largest over clients, if all take part equally often until the run ends, as the run's end reports
            it. None where nothing is certified, or the number of releases is unknown.
        delta: that of epsilon; None without one.
        noise: the least and the most noise of a client, by its field of the privacy section.
        limit: what ends a client's releases, its budget or the stop rule, in words; None without a budget.
        privacy: the ledger's statement; None without a privacy section.
        warnings: lines the user should read.
    """

    name: str
    algorithm: str
    topology: str
    model: str
    clients: int
    spectral_gap: float | None
    parameters: int
    model_bytes: int
    message_s: float
    longest_message_s: float
    batch_s: float
    epsilon: float | None
    delta: float | None
    noise: dict[str, tuple[float, float]]
    limit: str | None
    privacy: str | None
    warnings: list[str]


def forecast(setup: Setup) -> Forecast:
    """Return the forecast of a scenario."""
    scenario, size = setup.scenario, setup.training.model_bytes
    travels_s = [*_travels_s(setup, size)] or [0.0]
    gap = None
    if scenario.algorithm.uses_topology and setup.changing is None:
        rule = scenario.topology.mixing if scenario.algorithm.mixes else "metropolis"
        gap = setup.topology.spectral_gap(rule)
    epsilon, statement = _planned(setup)
    return Forecast(
        name=scenario.name,
        algorithm=scenario.algorithm.kind,
        topology=scenario.topology.kind,
        model=scenario.model.kind,
        clients=scenario.clients.count,
        spectral_gap=gap,
        parameters=setup.model.size,
        model_bytes=size,
        message_s=min(travels_s),
        longest_message_s=max(travels_s),
        batch_s=usual_batch_s(scenario, setup.devices),
        epsilon=epsilon,
        delta=None if epsilon is None or setup.ledger is None else setup.ledger.delta,
        noise=noise_of(setup),
        limit=_limit(setup),
        privacy=statement,
        warnings=setup.warnings,
    )


def _travels_s(setup: Setup, size: int) -> Iterator[float]:
    """Yield the seconds of `size` bytes over the first of the algorithm's links."""
    algorithm, network, count = setup.scenario.algorithm, build_world(setup).network, setup.scenario.clients.count
    carrier, values = network.carrier, network.values
    if algorithm.uses_topology:
        neighbors = setup.topology.neighbors
        links: Iterator[tuple[int, int]] = ((one, other) for one in range(count) for other in neighbors(one))
    elif algorithm.has_server:
        server = network.add_node(setup.scenario.server.uplink, setup.scenario.server.downlink)
        links = (link for one in range(count) for link in ((one, server), (server, one)))
    else:
        links = ((one, (one + 1) % count) for one in range(count))
    for link in itertools.islice(links, MOST_LINKS):
        yield carrier.paced_s(*link, size) + carrier.beneath_s(*link) + values.mean_latency_s(*link, 0.0)


def _planned(setup: Setup) -> tuple[float | None, str | None]:
    """Return the largest planned epsilon, and its meaning."""
    ledger = setup.ledger
    if ledger is None:
        return None, None
    try:
        releases = setup.kind.planned(setup)
    except ScenarioError:  # the run ends at a time
        return None, ledger.statement
    epsilon = float(ledger.final_epsilon(releases).max()) if ledger.accounts_for(releases) else math.nan
    return None if math.isnan(epsilon) else epsilon, ledger.statement_of(releases)


def _limit(setup: Setup) -> str | None:
    """Return the first limit of a client's releases, in words."""
    privacy, allowed = setup.scenario.privacy, setup.training.allowances
    if privacy is None or allowed is None:
        return None
    budget = show_range(*_ends(privacy.epsilon_budget))
    try:
        setup.kind.check_planned()
    except ScenarioError:
        return f"the budget of {budget}, unless the run's time is over before"
    planned = setup.kind.planned_updates(setup.sizes.tolist())
    releases = show_range(min(allowed), max(allowed), show_count)
    if min(allowed) < planned:
        return f"the budget of {budget}, after {releases} of {planned:,} releases of a client"
    if privacy.calibrated:
        return f"the stop rule; the noise is the least that keeps the budget of {budget} until then"
    return f"the stop rule, after {planned:,} releases of a client; the budget of {budget} allows {releases}"


def _ends(values: float | Sequence[float] | None) -> tuple[float, float]:
    each = np.atleast_1d(np.asarray(values, dtype=float))
    return float(each.min()), float(each.max())
