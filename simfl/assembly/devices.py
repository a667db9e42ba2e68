"""The devices of the clients and their speed over time, from files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simfl.assembly.csv_files import CsvFile
from simfl.errors import DataError
from simfl.scenario import Scenario
from simfl.scenario.units import format_time, parse_bandwidth, parse_bytes
from simfl.streams import Streams
from simfl.world.compute import Pace, Trace
from simfl.world.link_values import Key, Listed, Rule
from simfl.world.steps import Steps

POWER = ("busy_watts", "idle_watts", "joules_per_byte")
"""Columns of the file that replace values of `costs`."""


@dataclass(frozen=True)
class Device:
    """A kind of device.

    Attributes:
        seconds_per_example, seconds_per_batch: at speed 1.
        memory: bytes; infinite if the file has none.
        line: of the file.
        uplink, downlink: bytes per second; None if the file has none: the value of `links`.
        busy_watts, idle_watts, joules_per_byte: None if the file has none: the value of `costs`.
    """

    name: str
    seconds_per_example: float
    seconds_per_batch: float
    memory: float
    line: int
    uplink: float | None
    downlink: float | None
    busy_watts: float | None
    idle_watts: float | None
    joules_per_byte: float | None


def devices_of(scenario: Scenario, streams: Streams) -> list[Device] | None:
    """Return each client's device, [K]; None without a file of devices.

    Raises:
        DataError: the file cannot be read, or is not valid.
    """
    path = scenario.clients.devices
    if path is None:
        return None
    file = CsvFile(
        Path(path), "clients.devices", ("name", "seconds_per_example"),
        ("seconds_per_batch", "memory", "uplink", "downlink", "share", *POWER),
    )  # fmt: skip
    names, examples_s = file.words("name"), file.seconds("seconds_per_example", above=0.0)
    for row, name in enumerate(names):
        if not name or name in names[:row]:
            raise file.refused(row, "name", "a name of its own for each device")
    batches_s = file.seconds("seconds_per_batch", empty=0.0)
    memory = file.numbers("memory", parse_bytes, above=0.0, empty=math.inf)
    paces = [file.numbers(column, parse_bandwidth, above=0.0, empty=math.nan) for column in ("uplink", "downlink")]
    power = [file.numbers(column, at_least=0.0, empty=math.nan) for column in POWER]
    shares = file.numbers("share", at_least=0.0, empty=1.0)
    if not 0.0 < shares.sum() < math.inf:
        raise DataError(f"clients.devices: {path}: expected a share > 0 of at least one device, found none")
    kinds = [
        Device(*plain, line, *map(_known, known))
        for plain, known, line in zip(
            zip(names, examples_s.tolist(), batches_s.tolist(), memory.tolist(), strict=True),
            np.transpose([*paces, *power]).tolist(),
            file.lines,
            strict=True,
        )
    ]
    drawn = streams.generator("device").choice(len(kinds), scenario.clients.count, p=shares / shares.sum())
    return [kinds[i] for i in drawn.tolist()]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def pace_of(scenario: Scenario, devices: Sequence[Device] | None, sizes: Sequence[int]) -> Pace:
    """Return the pace of a mini-batch on each client's device; `sizes` are examples."""
    clients, most = scenario.clients, scenario.algorithm.batch_size
    batch_size = most if most <= min(sizes) else [min(most, n) for n in sizes]
    if devices is None:
        return Pace(clients.seconds_per_example, clients.seconds_per_batch, batch_size)
    examples_s = [device.seconds_per_example for device in devices]
    return Pace(examples_s, [device.seconds_per_batch for device in devices], batch_size)


def usual_batch_s(scenario: Scenario, devices: Sequence[Device] | None, sizes: Sequence[int]) -> float:
    """Return the seconds of a mini-batch at speed 1, averaged over clients."""
    pace = pace_of(scenario, devices, sizes)
    each_s = np.asarray(pace.seconds_per_batch) + np.asarray(pace.batch_size) * np.asarray(pace.seconds_per_example)
    return float(np.mean(each_s))


def capacities_of(devices: Sequence[Device]) -> Rule | None:
    """Return the uplinks and downlinks in the device file, or None."""
    uplinks: dict[Key, float] = {i: device.uplink for i, device in enumerate(devices) if device.uplink is not None}
    downlinks: dict[Key, float] = {i: d.downlink for i, d in enumerate(devices) if d.downlink is not None}
    return Rule({"uplink": Listed(uplinks), "downlink": Listed(downlinks)}) if uplinks or downlinks else None


def speed_trace(scenario: Scenario) -> Trace | None:
    """Return the factors on compute times over time; None without a file.

    Raises:
        DataError: the file cannot be read, or is not valid.
    """
    config = scenario.clients.trace
    if config is None:
        return None
    where, count = "clients.trace.path", scenario.clients.count
    file = CsvFile(Path(config.path), where, ("time", "factor"), ("client",))
    times, factors, words = file.seconds("time"), file.numbers("factor", above=0.0), file.words("client", "all")
    every_s = math.inf if config.every is None else config.every
    rows: dict[int | None, list[int]] = {None: []}
    for row, word in enumerate(words):
        if word != "all" and not (word.isdecimal() and int(word) < count):
            raise file.refused(row, "client", f"all, or a client below clients.count, which is {count}")
        rows.setdefault(None if word == "all" else int(word), []).append(row)
        if row and times[row] < times[row - 1]:
            raise file.refused(row, "time", f"a time not before that of the line above, {format_time(times[row - 1])}")
        if times[row] >= every_s:
            raise file.refused(row, "time", f"a time before clients.trace.every, which is {format_time(every_s)}")
    of_all = rows.pop(None)

    def steps(rows: list[int]) -> Steps:
        return Steps(tuple(times[rows].tolist()), tuple(factors[rows].tolist()), config.every)

    return Trace(
        steps(of_all), {k: steps(sorted(of_all + of_client)) for k, of_client in rows.items() if k is not None}
    )
