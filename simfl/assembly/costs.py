"""The energy, money and carbon of a run, from its times and bytes so far."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.csv_files import CsvFile
from simfl.assembly.places import Places
from simfl.assembly.setup import Setup
from simfl.errors import DataError
from simfl.scenario.costs import Carbon, Costs
from simfl.scenario.units import format_time
from simfl.world.steps import Steps

JOULES_PER_KWH = 3.6e6


@dataclass
class Meter:
    """Adds up the costs of N nodes, of which the first K are clients.

    E_k = busy_watts_k computed_k + idle_watts_k (online_k - computed_k) + joules_per_byte_k bytes_k. Carbon is the sum
    over intervals between readings of each node's energy times the mean intensity in that interval.

    Attributes:
        busy_watts, idle_watts: of each client, [K].
        joules_per_byte: of each node, [N].
        per_hour, per_gigabyte: prices.
        intensity: grams per kWh of each node over time, [N]; empty for no carbon.
    """

    busy_watts: NDArray[np.float64]
    idle_watts: NDArray[np.float64]
    joules_per_byte: NDArray[np.float64]
    per_hour: float = 0.0
    per_gigabyte: float = 0.0
    intensity: Sequence[Steps] = ()
    _carbon_g: float = 0.0
    _read_s: float = 0.0
    _energy_j: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self._energy_j = np.zeros(len(self.joules_per_byte))

    def read(
        self, now: float, computed_s: NDArray[np.float64], online_s: NDArray[np.float64], sent: NDArray[np.int64]
    ) -> dict[str, float]:
        """Return the costs until `now`, by column; times are [K], bytes sent [N]."""
        energy_j = np.zeros(len(self.joules_per_byte))
        energy_j[: len(sent)] = self.joules_per_byte[: len(sent)] * sent
        idle_s = np.maximum(online_s - computed_s, 0.0)
        energy_j[: len(computed_s)] += self.busy_watts * computed_s + self.idle_watts * idle_s
        means = {steps: _mean(steps, self._read_s, now) for steps in dict.fromkeys(self.intensity)}
        if means:
            of_nodes = np.array([means[steps] for steps in self.intensity])
            self._carbon_g += float(of_nodes @ (energy_j - self._energy_j)) / JOULES_PER_KWH
        self._read_s, self._energy_j = now, energy_j
        money = self.per_hour * float(online_s.sum()) / 3600.0 + self.per_gigabyte * float(sent.sum()) / 1e9
        return {"energy_j": float(energy_j.sum()), "money": money, "carbon_g": self._carbon_g}


def meter_of(setup: Setup) -> Meter | None:
    """Return a meter at time 0; None without a section `costs`.

    Raises:
        DataError: the file of carbon intensities cannot be read, or is not valid.
    """
    costs = setup.scenario.costs
    if costs is None:
        return None
    places = Places(setup.scenario, setup.streams)
    busy, idle = (_of_clients(setup, costs, name) for name in ("busy_watts", "idle_watts"))
    servers = len(places.servers) if setup.scenario.algorithm.has_server is not False else 0
    of_servers = np.full(servers, costs.joules_per_byte)
    joules = np.concatenate([_of_clients(setup, costs, "joules_per_byte"), of_servers])
    intensity = () if costs.carbon is None else _intensities(setup, costs.carbon, places, len(joules))
    return Meter(busy, idle, joules, costs.per_hour, costs.per_gigabyte, intensity)


def _of_clients(setup: Setup, costs: Costs, name: str) -> NDArray[np.float64]:
    """Return a value of each client, [K]: that of its device, or else of the section."""
    usual, count = float(getattr(costs, name)), setup.scenario.clients.count
    given = [None] * count if setup.devices is None else [getattr(device, name) for device in setup.devices]
    return np.array([usual if value is None else value for value in given])


def _intensities(setup: Setup, carbon: Carbon, places: Places, count: int) -> list[Steps]:
    """Return the grams per kWh of each node over time, [N]."""
    if carbon.path is None:
        return [Steps((0.0,), (float(carbon.grams_per_kwh or 0.0),))] * count
    file = CsvFile(Path(carbon.path), "costs.carbon.path", ("time", "grams_per_kwh"), ("region",))
    times, grams, words = file.seconds("time"), file.numbers("grams_per_kwh", at_least=0.0), file.words("region", "all")
    regions = () if setup.scenario.regions is None else setup.scenario.regions.names
    rows: dict[str, list[int]] = {}
    for row, word in enumerate(words):
        if word != "all" and word not in regions:
            raise file.refused(row, "region", f"one of {', '.join((*regions, 'all'))}")
        before = rows.setdefault(word, [])
        if not before and times[row] != 0.0:
            raise file.refused(row, "time", f"0 in the first line of {word}")
        if before and times[row] <= times[before[-1]]:
            raise file.refused(row, "time", f"a time after {format_time(times[before[-1]])}, the line of {word} above")
        if carbon.every is not None and times[row] >= carbon.every:
            raise file.refused(row, "time", f"a time before costs.carbon.every, which is {format_time(carbon.every)}")
        before.append(row)

    @functools.cache
    def steps(name: str) -> Steps:
        if name not in rows:
            named = "all, for nodes without a region" if name == "all" else f"{name}, or of all"
            raise DataError(f"costs.carbon.path: {file.path}: expected a line of {named}, found none; add one")
        return Steps(tuple(times[rows[name]].tolist()), tuple(grams[rows[name]].tolist()), carbon.every)

    names = [regions[places.regions[node]] if node in places.regions else "all" for node in range(count)]
    return [steps(name if name in rows or "all" not in rows else "all") for name in names]


def _mean(steps: Steps, start: float, end: float) -> float:
    """Return the mean of a trace over [start, end], its value where both are equal."""
    total, time = 0.0, start
    while time < end:
        until = min(steps.next_change(time), end)
        total += (steps.at(time) or 0.0) * (until - time)
        time = until
    return total / (end - start) if end > start else steps.at(end) or 0.0
