"""The forecast of a run: sizes, times, and the planned privacy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simfl.assembly.devices import usual_batch_s
from simfl.assembly.known import constants_of
from simfl.assembly.memory import Memory, memory_of
from simfl.assembly.privacy import noise_of
from simfl.assembly.setup import Setup, check_planned
from simfl.assembly.world import build_world
from simfl.errors import ScenarioError
from simfl.privacy.ledger import greatest
from simfl.records.display import show_count, show_range

#: The most links whose latency is computed.
MOST_LINKS = 2_000


@dataclass(frozen=True)
class SecureCost:
    """A secure sum: its updates, the bytes of a client, its seconds and the server's."""

    updates: int
    sent_bytes: int
    received_bytes: int
    client_s: float
    server_s: float


@dataclass(frozen=True)
class Forecast:
    """The properties of a run that are known before it starts.

    Attributes:
        name, algorithm, model: of the scenario, by kind.
        topology: its kind; None if the algorithm does not use it.
        has_server: whether a server takes part.
        clients, parameters: their numbers.
        spectral_gap: of the mixing matrix; None without a topology, or with one that changes.
        model_bytes: of a message: of a model, compressed if it is (of one task, if models are sent task by task), or
            of the two vectors that some algorithms send.
        message_s, longest_message_s: virtual seconds of such a message from sending to delivery over an idle link,
            averaged over draws, without losses: for the fastest and the slowest of the first links, at 0 s.
        batch_s: virtual seconds of a mini-batch at factor 1, averaged over devices.
        secure_sum: the cost of a secure sum if no client drops out; None without one.
        epsilon: the largest over clients at the end of the run, if all take part equally often. None if nothing is
            certified, or the number of releases is unknown.
        noise: the least and the most noise of a client, by field of the privacy section.
        limit: the end of a client's releases, its budget or the stop rule, in words; None without a budget.
        privacy: the ledger's statement; None without a privacy section.
        problem: L, mu, f*, zeta and sigma, as in `simfl.assembly.known`; None if the optimum is not known.
        memory: what a run needs on a CPU.
    """

    name: str
    algorithm: str
    topology: str | None
    has_server: bool
    model: str
    clients: int
    spectral_gap: float | None
    parameters: int
    model_bytes: int
    message_s: float
    longest_message_s: float
    batch_s: float
    secure_sum: SecureCost | None
    epsilon: float | None
    delta: float | None
    noise: dict[str, tuple[float, float]]
    limit: str | None
    privacy: str | None
    problem: dict[str, float] | None
    warnings: list[str]
    memory: Memory


def forecast(setup: Setup) -> Forecast:
    """Return the forecast of a scenario."""
    scenario = setup.scenario
    size = setup.training.message_bytes * scenario.algorithm.vectors
    travels_s = [*_travels_s(setup, size)] or [0.0]
    gap = None
    graph = scenario.algorithm.uses.graph
    if graph != "none" and setup.changing is None:
        rule = scenario.topology.mixing if graph == "mixed" else "metropolis"
        gap = setup.topology.spectral_gap(rule)
    epsilon, statement = _planned(setup)
    return Forecast(
        name=scenario.name,
        algorithm=scenario.algorithm.kind,
        topology=scenario.topology.kind if graph != "none" else None,
        has_server=bool(scenario.algorithm.has_server),
        model=scenario.model.kind,
        clients=scenario.clients.count,
        spectral_gap=gap,
        parameters=setup.model.size,
        model_bytes=size,
        message_s=min(travels_s),
        longest_message_s=max(travels_s),
        batch_s=usual_batch_s(scenario, setup.devices, setup.sizes.tolist()),
        secure_sum=_secure_cost(setup),
        epsilon=epsilon,
        delta=None if epsilon is None or setup.ledger is None else setup.ledger.delta,
        noise=noise_of(setup),
        limit=_limit(setup),
        privacy=statement,
        problem=constants_of(setup),
        warnings=setup.warnings,
        memory=memory_of(setup),
    )


def _travels_s(setup: Setup, size: int) -> Iterator[float]:
    """Yield the seconds of `size` bytes over the first of the algorithm's links."""
    algorithm, network, count = setup.scenario.algorithm, build_world(setup).network, setup.scenario.clients.count
    carrier, values = network.carrier, network.values
    if algorithm.uses.graph != "none":
        neighbors = setup.topology.neighbors
        links: Iterator[tuple[int, int]] = ((k, other) for k in range(count) for other in neighbors(k))
    elif algorithm.has_server:
        server = network.add_node(setup.scenario.server.uplink, setup.scenario.server.downlink)
        links = (link for k in range(count) for link in ((k, server), (server, k)))
    else:
        links = ((k, (k + 1) % count) for k in range(count))
    for link in itertools.islice(links, MOST_LINKS):
        yield carrier.paced_s(*link, size) + carrier.beneath_s(*link) + values.mean_latency_s(*link, 0.0)


def _secure_cost(setup: Setup) -> SecureCost | None:
    """Return the cost of a sum of all that the server asks, if all survive."""
    protocol, algorithm = setup.training.secure_sum, setup.scenario.algorithm
    if protocol is None:
        return None
    members = algorithm.members(setup.scenario.clients.count)
    steps, clients = protocol.steps(members), range(members)
    return SecureCost(
        members,
        sum(step.up for step in steps),
        sum(step.down for step in steps),
        sum(step.work_s for step in steps),
        protocol.server_s(clients, clients),
    )


def _planned(setup: Setup) -> tuple[float | None, str | None]:
    """Return the largest planned epsilon, and its meaning."""
    ledger = setup.ledger
    if ledger is None:
        return None, None
    try:
        releases = setup.kind.planned(setup)
    except ScenarioError:  # the run ends at a time
        return None, ledger.statement
    epsilon = greatest(ledger.final_epsilon(releases)) if ledger.accounts_for(releases) else math.nan
    return None if math.isnan(epsilon) else epsilon, ledger.statement_of(releases)


def _limit(setup: Setup) -> str | None:
    """Return the first limit of a client's releases, in words."""
    privacy, allowed, plan = setup.scenario.privacy, setup.training.allowances, setup.protection.cohorts
    if privacy is None or privacy.epsilon_budget is None or (allowed is None and plan is None):
        return None
    epsilons = np.atleast_1d(np.asarray(privacy.epsilon_budget, dtype=float))
    budget = show_range(float(epsilons.min()), float(epsilons.max()))
    if allowed is None and plan is not None and plan.releases is not None:  # users are drawn, and share the budget
        made = f"{show_count(plan.releases)} releases of the server"
        if privacy.calibrated:
            return f"{made}; the noise is the least that keeps the budget of {budget} until then"
        ends = getattr(privacy, "releases", None) != plan.releases
        return f"the budget of {budget}, after {made}" if ends else f"{made}; the budget of {budget} allows them"
    if allowed is None:
        return None
    try:
        check_planned(setup.scenario)
    except ScenarioError:
        return f"the budget of {budget}, unless the run's time is over before"
    planned = setup.kind.planned_releases(setup.sizes.tolist())
    releases = show_range(min(allowed), max(allowed), show_count)
    if min(allowed) < planned:
        return f"the budget of {budget}, after {releases} of {planned:,} releases of a client"
    if privacy.calibrated:
        return f"the stop rule; the noise is the least that keeps the budget of {budget} until then"
    return f"the stop rule, after {planned:,} releases of a client; the budget of {budget} allows {releases}"
