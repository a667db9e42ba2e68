"""Builds the links of a scenario: behavior, rules and files."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simfl.assembly.csv_files import CsvFile
from simfl.assembly.places import Places
from simfl.errors import DataError
from simfl.scenario import Scenario
from simfl.scenario.problems import InvalidValueError, show
from simfl.scenario.units import parse_bandwidth, parse_time
from simfl.streams import Streams
from simfl.world import Topology
from simfl.world.compute import Constant, Law, Sampler
from simfl.world.cuts import Cut, Cuts
from simfl.world.link_values import Chain, Key, LinkModel, Listed, Period, Quantity, Rule, Sampled, TcpStartup, Value
from simfl.world.steps import Steps

_LINKS: tuple[Quantity, ...] = ("latency", "bandwidth", "loss")


def links_of(scenario: Scenario, streams: Streams, topology: Topology, of_devices: Rule | None = None) -> LinkModel:
    """Return the behavior of the links.

    Args:
        scenario: valid.
        streams: of the run.
        topology: its file may have values of links.
        of_devices: uplinks and downlinks of the clients' devices.

    Raises:
        DataError: a file is missing or malformed.
    """
    links, places = scenario.links, Places(scenario, streams)
    rules = (*([] if of_devices is None else [of_devices]), *_rules(scenario, topology, places))
    tcp = links.startup
    return LinkModel(
        latency=sampler_of(links.latency, 0.0),
        bandwidth=links.bandwidth,
        loss=links.loss,
        resend_timeout_s=links.resend_timeout,
        fifo=links.fifo,
        uplink=links.uplink,
        downlink=links.downlink,
        overhead=links.overhead,
        startup=None if tcp.kind == "none" else TcpStartup(tcp.window, tcp.pause, tcp.round_trips),
        cuts=Cuts(cuts(scenario, places)),
        rules=rules,
    )


def sampler_of(config: Any, neutral: float) -> Sampler | None:
    """Return a distribution's sampler; None for the constant `neutral`.

    `config` is a distribution of factors, with mean 1, or of a quantity, with a mean of its own. `neutral` is 1 for
    factors, and 0 for seconds.
    """
    kind, mean = config.kind, getattr(config, "mean", 1.0)
    if kind == "constant":
        value = config.value
        return None if value == neutral else Constant(value)
    if kind == "uniform":
        return Law(lambda g, n: g.uniform(config.low, config.high, n), 0.5 * (config.low + config.high))
    if kind == "exponential":
        return Law(lambda g, n: g.exponential(mean, n), mean)
    if kind == "lognormal":
        sigma = config.sigma
        return Law(lambda g, n: mean * np.exp(g.normal(-0.5 * sigma**2, sigma, n)), mean)
    raise ValueError(f"unknown distribution {kind!r}")


def cuts(scenario: Scenario, places: Places) -> list[Cut]:
    """Return the network partitions; the server has number K."""
    partitions = []
    for index, rule in enumerate(scenario.links.partitions):
        if rule.groups is not None:
            groups = [places.of(group) for group in rule.groups]
        else:
            assert rule.fraction is not None, "the schema requires one of the two"
            groups = [frozenset(places.share(rule.fraction, "partition-clients", index))]
        partitions.append(Cut(tuple(groups), rule.start, math.inf if rule.until is None else rule.until))
    return partitions


def _rules(scenario: Scenario, topology: Topology, places: Places) -> Iterator[Rule]:
    """Yield the rules for links that differ; later rules win."""
    latency = scenario.links.latency
    if getattr(latency, "drawn", "message") != "message":
        values: dict[Quantity, float | Value] = {
            "latency": _value(latency, "latency", "latency", "links.latency", places)
        }
        yield Rule(values, nodes=frozenset(range(places.count)))
    if (regions := scenario.regions) is not None:
        matrices: dict[Quantity, Any] = {"latency": regions.latency, "bandwidth": regions.bandwidth}
        given = {quantity: matrix for quantity, matrix in matrices.items() if matrix is not None}
        if given:
            yield Rule({q: _matrix(matrix, regions.names, q, places) for q, matrix in given.items()})
    if topology.of_links:
        yield _of_edges(topology, getattr(scenario.topology, "path", ""))
    for i, rule in enumerate(scenario.links.rules):
        yield _rule(rule, i, places)


def _rule(rule: Any, index: int, places: Places) -> Rule:
    values: dict[Quantity, float | Value] = {}
    quantities: tuple[Quantity, ...] = (*_LINKS, "uplink", "downlink")
    for quantity in quantities:
        if (config := getattr(rule, quantity)) is not None:
            where = f"links.rules.{index}.{quantity}"
            values[quantity] = _value(config, quantity, f"{quantity}-{index}", where, places)
    window = Period(rule.start, math.inf if rule.until is None else rule.until, rule.every)
    timed = None if rule.start == 0.0 and rule.until is None else window
    if rule.between is not None:
        first, second = (places.of(side) for side in rule.between)
        out, back = (first, second), (second, first)
        ways = {"both": (out, back), "out": (out,), "in": (back,)}[rule.direction]
        return Rule(values, ways, first | second, timed)
    nodes = frozenset(places.chosen(rule, index, "link-clients"))
    if rule.all:
        return Rule(values, nodes=nodes, window=timed)
    ends = {"both": ((nodes, None), (None, nodes)), "out": ((nodes, None),), "in": ((None, nodes),)}
    return Rule(values, ends[rule.direction], nodes, timed)


def _value(config: Any, quantity: Quantity, purpose: str, where: str, places: Places) -> float | Value:
    if config.kind == "constant":
        return float(config.value)
    if config.kind == "trace":
        return _trace(config, quantity, where, places)
    if config.kind == "gilbert_elliott":
        return Chain(config.good, config.bad, config.loss_good, config.loss_bad, config.drawn, purpose)
    sampler = sampler_of(config, math.nan)
    assert sampler is not None, "no constant is NaN"
    return Sampled(sampler, config.drawn or ("client" if quantity in ("uplink", "downlink") else "link"), purpose)


# -- files ---------------------------------------------------------------------------------------


def _number(cell: object, unit: str | None, quantity: Quantity) -> float:
    """Return a latency in seconds, a bandwidth in bytes per second, or a loss.

    Raises:
        ValueError: the cell is malformed; the message is the expected form.
    """
    text = str(cell).strip()
    try:
        plain: float | None = float(text)
    except ValueError:
        plain = None
    if quantity == "loss":
        if plain is None or not 0.0 <= plain <= 0.9999:
            raise ValueError("a probability >= 0 and <= 0.9999")
        return plain
    if unit and plain is not None:
        text = f"{text} {unit}"
    try:
        value = parse_time(text if unit or plain is None else plain) if quantity == "latency" else parse_bandwidth(text)
    except InvalidValueError as error:
        raise ValueError(error.problems[0].expected) from error
    if not math.isfinite(value) or value < 0 or (value == 0 and quantity != "latency"):
        raise ValueError("a time >= 0" if quantity == "latency" else "a bandwidth > 0")
    return value


def _trace(config: Any, quantity: Quantity, where: str, places: Places) -> Listed:
    """Read a trace of all links, or one for each; times increase."""
    file = CsvFile(Path(config.path), f"{where}.path", ("time", "value"), ("client", "source", "target"))
    keys = [key for key in ("client", "source", "target") if key in file.names]
    if keys not in ([], ["client"], ["source", "target"]):
        expected = "client, or source and target, or none of them"
        raise DataError(
            f"{file.where}: {file.path}: expected {expected}, found {' and '.join(keys)}; add or remove one"
        )
    columns = {key: file.words(key) for key in keys}
    traces: dict[Any, tuple[list[float], list[float]]] = {}
    for row, (time, word) in enumerate(zip(file.seconds("time").tolist(), file.words("value"), strict=True)):
        for key in keys:
            if columns[key][row] != "server" and not _is_client(columns[key][row], places.count):
                raise file.refused(row, key, f"a client below clients.count, which is {places.count}, or server")
        nodes = [places.count if columns[key][row] == "server" else int(columns[key][row]) for key in keys]
        times, values = traces.setdefault(tuple(nodes) if len(nodes) > 1 else (*nodes, None)[0], ([], []))
        if times and time <= times[-1]:
            advice = "sort the trace by time"
            raise file.refused(row, "time", f"a time after {times[-1]:g} s, that of the row before", advice)
        try:
            values.append(_number(word, config.unit, quantity))
        except ValueError as error:
            raise file.refused(row, "value", str(error)) from error
        times.append(time)
    last = max(times[-1] for times, _ in traces.values())
    if config.every is not None and last >= config.every:
        raise DataError(
            f"{where}.every: expected more than {last:g} s, the last time of {config.path}, found {config.every:g} s; "
            "choose a longer time"
        )
    return Listed({key: Steps(tuple(times), tuple(values), config.every) for key, (times, values) in traces.items()})


def _is_client(word: str, count: int) -> bool:
    return word.isdecimal() and int(word) < count


def _matrix(config: Any, names: tuple[str, ...], quantity: Quantity, places: Places) -> Listed:
    """Return a matrix between regions, [from][to], from the scenario or a file."""
    rows = config.values if config.kind == "matrix" else _read_matrix(config, names, quantity)
    half = 0.5 if getattr(config, "round_trips", False) else 1.0
    cells: dict[Key, float] = {
        (i, j): half * value for i, row in enumerate(rows) for j, value in enumerate(row) if value is not None
    }
    return Listed(cells, places.regions)


def _read_matrix(config: Any, names: tuple[str, ...], quantity: Quantity) -> list[list[float | None]]:
    at = f"regions.{quantity}.path"
    file = CsvFile(Path(config.path), at, names, open_to_others=True)
    rows: dict[str, int] = {}
    for row, word in enumerate(file.words(file.names[0])):
        if (first := rows.setdefault(word, row)) != row:
            raise file.refused(row, file.names[0], f"one row for each region; line {file.lines[first]} has it")
    matrix: list[list[float | None]] = []
    for name in names:
        if name not in rows:
            raise DataError(f"{at}: {file.path}: expected a row for region {name!r}, found {', '.join(rows)}; add it")
        matrix.append([])
        for other in names:
            word = file.words(other)[rows[name]]
            try:
                matrix[-1].append(_number(word, config.unit, quantity) if word else None)
            except ValueError as error:
                raise file.refused(rows[name], other, str(error)) from error
    return matrix


def _of_edges(topology: Topology, path: str) -> Rule:
    """Return the values of links in a topology's file."""
    values: dict[Quantity, dict[Key, float]] = defaultdict(dict)
    for (source, target), cells in topology.of_links.items():
        for quantity in _LINKS:
            if quantity in cells:
                try:
                    values[quantity][source, target] = _number(cells[quantity], None, quantity)
                except ValueError as error:
                    at = f"{path}:{cells['line']}" if "line" in cells else path
                    problem = f"link {source} - {target}: {quantity}: expected {error}, found {show(cells[quantity])}"
                    raise DataError(f"topology.path: {at}: {problem}") from error
    return Rule({quantity: Listed(of_links) for quantity, of_links in values.items()})
