"""The topology of a scenario, constant or changing over time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

from simfl.assembly.csv_files import CsvFile
from simfl.errors import DataError, ScenarioError
from simfl.scenario import Scenario
from simfl.scenario import topologies as schema
from simfl.scenario.units import format_time
from simfl.streams import Streams
from simfl.world import Changing, Topology
from simfl.world.changing import Contacts, Redrawn, Scripted, one_peer, sampled_peers
from simfl.world.topology import build_topology


def graphs_of(scenario: Scenario, streams: Streams) -> tuple[Topology, Changing | None]:
    """Return the graph, or the links known beforehand and the graph at each time.

    Raises:
        ScenarioError, DataError: the graph is impossible, or its file is not valid.
    """
    config, count = scenario.topology, scenario.clients.count
    if count == 1:  # only algorithms without a topology accept a single client
        return Topology("single", ((),)), None
    if not config.changes:
        return _build(config, count, streams), None
    changing = _changing(config, count, streams)
    return changing.known(), changing if scenario.algorithm.follows_topology else None


def _build(config: schema.TopologyConfig, count: int, streams: Streams, *number: int) -> Topology:
    """Build one graph; `number` names its draws if there are several."""
    options = config.model_dump(exclude={"kind", "mixing", "redraw_every"}, exclude_none=True)
    try:
        return build_topology(config.kind, count, streams.generator("topology", *number), **options)
    except (DataError, ScenarioError):
        raise
    except ValueError as error:
        raise ScenarioError(f"topology: {error}") from error


def _changing(config: schema.TopologyConfig, count: int, streams: Streams) -> Changing:
    graph: Callable[[int], Topology]
    every_s: float | None
    match config:
        case schema.Contacts():
            return _contacts(config, count)
        case schema.Sequence():
            graphs = [(timed.start, _build(timed.graph, count, streams, i)) for i, timed in enumerate(config.graphs)]
            return Scripted(config.kind, graphs, math.inf if config.every is None else config.every)
        case schema.OnePeer(redraw_every=every_s):
            graph = functools.partial(one_peer, count)
        case schema.PeerSampling(peers=peers, redraw_every=every_s):
            graph = lambda number: sampled_peers(count, peers, streams.generator("topology", number))  # noqa: E731
        case _:  # the first graph is that of the same scenario without `redraw_every`
            every_s = getattr(config, "redraw_every", None)
            graph = lambda number: _build(config, count, streams, *([number] if number else []))  # noqa: E731
    assert every_s is not None, "it changes"
    return Redrawn(config.kind, count, graph, every_s)


def _contacts(config: schema.Contacts, count: int) -> Contacts:
    """Read a contact plan."""
    every_s = math.inf if config.every is None else config.every
    file = CsvFile(Path(config.path), "topology.path", ("from", "until", "a", "b"))
    begins, ends = file.seconds("from").tolist(), file.seconds("until", above=0.0).tolist()
    for column in ("a", "b"):
        for row, word in enumerate(file.words(column)):
            if not (word.isdecimal() and int(word) < count):
                raise file.refused(row, column, f"a client below clients.count, which is {count}")
    contacts = list(zip(begins, ends, map(int, file.words("a")), map(int, file.words("b")), strict=True))
    for row, (begin, end, a, b) in enumerate(contacts):
        if a == b:
            raise file.refused(row, "b", "another client than a")
        if end <= begin:
            raise file.refused(row, "until", f"a time after 'from', which is {format_time(begin)}")
        if end > every_s:
            raise file.refused(row, "until", f"a time up to topology.every, which is {format_time(every_s)}")
    return Contacts(count, contacts, every_s)
