"""What a scenario weighs, before it runs: its model, a message, a mini-batch, and the privacy that it plans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from simfl.errors import ScenarioError
from simfl.simulation.devices import usual_batch_s
from simfl.simulation.setup import Setup
from simfl.simulation.world import build_world

#: Links that are looked at.
MOST_LINKS = 2_000


@dataclass(frozen=True)
class Forecast:
    """What is known of a run before it begins.

    Attributes:
        name, algorithm, topology, model: of the scenario, by kind.
        clients: how many.
        spectral_gap: of the mixing matrix; None where the algorithm has no topology, or that changes.
        parameters: of the model.
        model_bytes: of a model in a message (of one task, where models are sent task by task).
        message_s, longest_message_s: virtual seconds from sending such a message over an idle link to its delivery, on
            average over draws, without losses: over the fastest and the slowest of the first links, as they are at 0 s.
        batch_s: virtual seconds that a mini-batch takes a client of factor 1, on average over devices.
        epsilon: the largest over clients, if all take part equally often until the run ends, by the Renyi accountant:
            at the end it may turn out tighter. None where nothing is certified, or nobody knows how many releases come.
        delta: that of epsilon; None without one.
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
    privacy: str | None
    warnings: list[str]


def forecast(setup: Setup) -> Forecast:
    """Return what a scenario weighs."""
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
        privacy=statement,
        warnings=setup.warnings,
    )


def _travels_s(setup: Setup, size: int) -> Iterator[float]:
    """Yield what `size` bytes take over the first links of those that the algorithm has."""
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
    """Return the largest epsilon that the scenario plans, and what it means."""
    ledger = setup.ledger
    if ledger is None:
        return None, None
    try:
        releases = setup.kind.planned(setup)
    except ScenarioError:  # the run ends at a time
        return None, ledger.statement
    found = ledger.largest(releases) if ledger.accounts_for(releases) else math.nan
    return None if math.isnan(found) else found, ledger.statement_of(releases)
