"""The topology of a scenario, constant or changing over time."""

from __future__ import annotations

import math
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
    if isinstance(config, schema.Contacts):
        return _contacts(config, count)
    if isinstance(config, schema.Sequence):
        graphs = [(timed.start, _build(timed.graph, count, streams, i)) for i, timed in enumerate(config.graphs)]
        return Scripted(config.kind, graphs, math.inf if config.every is None else config.every)
    assert isinstance(config, schema.OnePeer | schema.PeerSampling | schema.DrawnTopology), "no other graph changes"
    assert config.redraw_every is not None, "it changes"

    def graph(number: int) -> Topology:
        if isinstance(config, schema.OnePeer):
            return one_peer(count, number)
        if isinstance(config, schema.PeerSampling):
            return sampled_peers(count, config.peers, streams.generator("topology", number))
        # The first graph is that of the same scenario without `redraw_every`.
        return _build(config, count, streams, *([number] if number else []))

    return Redrawn(config.kind, count, graph, config.redraw_every)


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
