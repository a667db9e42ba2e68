"""The world of a scenario: links, compute times and availability."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.csv_files import CsvFile
from simfl.assembly.devices import devices_of, pace_of, speed_trace
from simfl.assembly.links import sampler_of
from simfl.assembly.places import Places
from simfl.assembly.presence import absences_from_file
from simfl.assembly.setup import Setup
from simfl.scenario import Scenario
from simfl.streams import Streams
from simfl.world import Availability, Clock, Compute, Network, ServerModel, World
from simfl.world.availability import Outage, RandomOutages, Repeated
from simfl.world.compute import Sampler, Slowdown, Trace
from simfl.world.flows import Flows
from simfl.world.link_values import mean_of_sampler
from simfl.world.links import MessageRow

#: Changes of factors after which a mean over time is that of the time so far.
_MOST_CHANGES: Final = 10_000


def build_world(setup: Setup, on_delivery: Callable[[MessageRow], None] | None = None) -> World:
    """Return a fresh world of the scenario, at virtual time 0."""
    scenario, streams = setup.scenario, setup.streams
    clock = Clock()
    compute = Compute(
        pace_of(scenario, setup.devices, setup.sizes.tolist()),
        speeds(scenario, streams).tolist(),
        streams,
        sampler_of(scenario.clients.jitter, 1.0),
        slowdowns(scenario, streams),
        speed_trace(scenario),
    )
    presence, sharing = availability(scenario, streams), scenario.links.sharing
    fair = sharing in ("fair", "by_latency") or setup.underlay is not None
    carrier = (lambda network: Flows(network, setup.underlay, sharing == "by_latency")) if fair else None
    network = Network(clock, setup.links, scenario.clients.count, streams, presence, on_delivery, carrier)
    server = ServerModel(scenario.server.uplink, scenario.server.downlink, scenario.server.seconds_per_update)
    return World(clock, compute, presence, network, setup.topology, streams, server, setup.changing)


def speeds(scenario: Scenario, streams: Streams) -> NDArray[np.float64]:
    """Return each client's factor on the compute time, [K]."""
    config, count = scenario.clients.speed, scenario.clients.count
    generator = streams.generator("speed")
    if config.kind == "list":
        return np.array(config.values, dtype=np.float64)
    if config.kind == "trace":
        file = CsvFile(Path(config.path), "clients.speed.path", (config.column,), open_to_others=True)
        return generator.choice(file.numbers(config.column, above=0.0), count)
    sampler = sampler_of(config, 1.0)
    return np.ones(count) if sampler is None else sampler(generator, count)


def batch_times_s(
    scenario: Scenario, streams: Streams, sizes: Sequence[int], batches: float = math.inf
) -> NDArray[np.float64]:
    """Return the mean seconds of each client's mini-batch over the run, [K].

    They are the reciprocal of the number of mini-batches in a unit of time, with slowdowns, traces and the mean of the
    jitter. A rule that draws r of K clients for each iteration, with factor f, makes 1 + (f - 1) r / K on average.

    Args:
        scenario: with the time at which the run stops, if it has one.
        streams: of the world.
        sizes: examples of each client, [K].
        batches: mini-batches of all clients together at which the run stops.
    """
    pace = pace_of(scenario, devices_of(scenario, streams), sizes)
    each_s = np.asarray(pace.seconds_per_batch) + np.asarray(pace.batch_size) * np.asarray(pace.seconds_per_example)
    jitter = sampler_of(scenario.clients.jitter, 1.0)
    usual_s = np.asarray(each_s * speeds(scenario, streams), dtype=np.float64)
    usual_s = usual_s * (1.0 if jitter is None else mean_of_sampler(jitter))
    rules, trace = slowdowns(scenario, streams), speed_trace(scenario)
    until_s = math.inf if scenario.stop.time is None else float(scenario.stop.time)
    now, made = 0.0, np.zeros(len(usual_s))
    for _ in range(_MOST_CHANGES):
        change_s = _next_change_s(rules, trace, now)
        now_s = usual_s * _factors(rules, trace, len(usual_s), now)
        end_s = min(change_s, until_s, now + (batches - made.sum()) / (1.0 / now_s).sum())
        if math.isinf(end_s) or (now == 0.0 and end_s < change_s):
            return now_s
        made += (end_s - now) / now_s
        now = end_s
        if end_s < change_s or end_s >= until_s:
            break
    return now / made


def _next_change_s(rules: Sequence[Slowdown], trace: Trace | None, now: float) -> float:
    """Return when the factors of some client change next; inf for never."""
    changes = [time for rule in rules for time in (rule.start_s, rule.end_s) if time > now]
    if trace is not None:
        changes += [steps.next_change(now) for steps in (trace.everyone, *trace.own.values())]
    return min(changes, default=math.inf)


def _factors(rules: Sequence[Slowdown], trace: Trace | None, count: int, now: float) -> NDArray[np.float64]:
    """Return the mean factor on each client's computations that begin now, [K]."""
    factors = np.ones(count)
    if trace is not None:
        factors *= trace.factor(-1, now)  # that of clients without a trace of their own
        for client in trace.own:
            factors[client] = trace.factor(client, now)
    for rule in rules:
        if not rule.start_s <= now < rule.end_s:
            continue
        if rule.clients is None:
            factors *= 1.0 + (rule.factor - 1.0) * rule.random / count
        else:
            factors[sorted(rule.clients)] *= rule.factor
    return factors


def longest_batch_s(setup: Setup) -> tuple[float, str]:
    """Return the seconds (or inf) of the slowest mini-batch, and the main cause."""
    scenario, pace = setup.scenario, pace_of(setup.scenario, setup.devices, setup.sizes.tolist())
    clients, factors = scenario.clients, [rule.factor for rule in scenario.slowdowns]
    trace = speed_trace(scenario)
    jitter = getattr(clients.jitter, "high", getattr(clients.jitter, "value", 1.0))
    slowest = float(speeds(scenario, setup.streams).max())
    examples_s = float(np.max(np.asarray(pace.batch_size) * np.asarray(pace.seconds_per_example)))
    overhead_s = float(np.max(pace.seconds_per_batch))
    field = "clients.seconds_per_batch" if overhead_s > examples_s else "clients.seconds_per_example"
    shares = {
        field if setup.devices is None else "clients.devices": overhead_s + examples_s,
        "clients.speed": slowest,
        "clients.jitter": jitter,
        "clients.trace": 1.0 if trace is None else trace.largest,
        "slowdowns": math.prod(max(1.0, factor) for factor in factors),
    }
    return math.prod(shares.values()), max(shares, key=lambda name: shares[name])


def slowdowns(scenario: Scenario, streams: Streams) -> list[Slowdown]:
    """Return the scripted slowdowns."""
    rules, places = [], Places(scenario, streams)
    for index, rule in enumerate(scenario.slowdowns):
        until = math.inf if rule.until is None else rule.until
        clients = None if rule.random is not None else frozenset(places.clients(rule, index, "slowdown-clients"))
        rules.append(Slowdown(rule.factor, clients, rule.random or 0, rule.start, until))
    return rules


def availability(scenario: Scenario, streams: Streams) -> Availability:
    """Return the availability of clients and server."""
    outages: dict[int, list[Outage]] = defaultdict(list)
    repeated: dict[int, list[Repeated]] = defaultdict(list)
    random: dict[int, RandomOutages] = {}
    places, count = Places(scenario, streams), scenario.clients.count
    for begin, end in scenario.server.offline:
        outages[count].append(Outage(begin, math.inf if end is None else end))
    for index, rule in enumerate(scenario.availability):
        scripted = [Outage(0.0, rule.join)] if rule.join > 0 else []
        timed = [Outage(begin, end) for begin, end in rule.offline]
        timed += [Outage(c.at, math.inf if c.back is None else c.back, crash=True) for c in rule.crash]
        periodic: list[Repeated] = []
        if rule.every is None:
            scripted += timed
        elif timed:
            periodic.append(Repeated(tuple(sorted(timed, key=lambda outage: outage.start_s)), rule.every))
        churn = None
        if rule.random is not None:
            zero: Sampler = lambda g, n: np.zeros(n)  # noqa: E731
            churn = RandomOutages(sampler_of(rule.random.up, 0.0) or zero, sampler_of(rule.random.down, 0.0) or zero)
        clients = places.clients(rule, index, "availability-clients")
        traced = {} if rule.trace is None else absences_from_file(rule, index, clients, count, streams)
        for client in clients:
            once, anew = traced.get(client, ((), ()))
            outages[client] += [*scripted, *once]
            repeated[client] += [*periodic, *anew]
            if churn is not None:
                random[client] = churn
    return Availability(streams, dict(outages), random, dict(repeated))
