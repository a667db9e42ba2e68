"""What live runs do not support."""

from __future__ import annotations

import math
from collections.abc import Iterator

from simfl.assembly.setup import Setup
from simfl.assembly.world import availability
from simfl.errors import ScenarioError
from simfl.live.workers import WORKERS


def check(setup: Setup) -> None:
    """Reject scenarios that cannot run live.

    Raises:
        ScenarioError: one line with the first problem.
    """
    for problem in _problems(setup):
        raise ScenarioError(f"{problem}; use simfl run")


def _problems(setup: Setup) -> Iterator[str]:
    scenario, config = setup.scenario, setup.scenario.algorithm
    if config.kind not in WORKERS:
        yield f"algorithm.kind: live: expected one of {', '.join(WORKERS)}, found {config.kind}"
    if getattr(config, "exchange", "messages") != "messages":
        yield f"algorithm.exchange: live: expected messages, found {config.exchange}"  # type: ignore[attr-defined]
    for name in ("staleness_bound", "concurrency", "secure_sum"):
        if getattr(config, name, None) is not None:
            yield f"algorithm.{name}: live: expected null, found a value"
    if setup.training.optimizer or setup.training.server_optimizer or setup.problem.optimizing.local:
        yield "algorithm.optimizer: live: expected sgd, found another"
    for name in ("selection", "aggregation", "attackers", "compression"):
        if getattr(scenario, name) is not None:
            yield f"{name}: live: expected null, found {getattr(scenario, name).kind!r}"
    if scenario.costs is not None:
        yield "costs: live: expected null, found prices: energy, money and carbon of real processes are not metered"
    if scenario.privacy is not None:
        yield "privacy: live: expected null, found a mechanism: the releases of a live run are not accounted for"
    if setup.changing is not None and config.uses.graph != "none":
        yield f"topology: live: expected a graph that does not change, found {scenario.topology.kind}"
    if scenario.links.partitions:
        yield "links.partitions: live: expected [], found a partition: real links are not cut"
    if scenario.server.offline:
        yield "server.offline: live: expected [], found an outage"
    for name in ("accuracy", "metric"):
        if getattr(scenario.stop, name) is not None:
            yield f"stop.{name}: live: expected null, found a target: models are evaluated after the run"
    if setup.tasks > 1:
        yield f"model.kind: live: expected a single model, found {setup.tasks} tasks"
    presence = availability(scenario, setup.streams)
    for client in range(scenario.clients.count):
        if presence.joins_s(client) > 0.0 or not math.isinf(presence.leaves_s(client)):
            yield f"availability: live: expected clients that come back, found {client}, which joins late or leaves"


def left_out(setup: Setup) -> list[str]:
    """Return the parts of a scenario that a live run ignores, one line each."""
    scenario = setup.scenario
    evaluate, record, server = scenario.evaluate, scenario.record, scenario.server
    values = setup.links.values(setup.streams, scenario.clients.count)
    of_server = server.seconds_per_update or server.uplink or server.downlink
    reasons = {
        "links": (
            not values.free or setup.underlay is not None,
            "the prediction has the links of the scenario, the measurement those between processes; "
            "simfl calibrate --links measures them",
        ),
        "server": (bool(of_server), "the server takes the time that it takes on this machine"),
        "record.messages": (record.messages, "the table is not written"),
        "record.timeline": (record.timeline, "the table is not written"),
        "record.client_models": (record.client_models, "the models are not kept"),
        "evaluate.clients": (evaluate.clients, "only the mean of the models is evaluated"),
        "evaluate.gradients": (bool(evaluate.gradients), "gradients are not measured"),
        "evaluate.metrics": (bool(evaluate.metrics), "these metrics are not measured"),
    }
    return [f"{key}: not in a live run: {reason}" for key, (applies, reason) in reasons.items() if applies]
