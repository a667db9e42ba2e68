"""Values of a scenario fitted to the log of a federation, with their errors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from simfl.errors import DataError
from simfl.live.fitting import Pace, fit_line, fit_pace, misfit
from simfl.live.logs import Device, Entry


class Fitted(NamedTuple):
    """Settings, a line about them, the largest relative misfit of a median."""

    settings: list[str]
    about: str
    error: float = 0.0


def names_of(entries: list[Entry]) -> list[str]:
    """Return the clients that computed; numbers come first, by value."""
    names = {entry.client for entry in entries if entry.event == "train"}
    return sorted(names, key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))


def fit_computing(entries: list[Entry], examples: float) -> tuple[Pace, list[str]]:
    """Fit the times of computations; return the pace, and the clients' names.

    `examples` of an entry that states none: those of an update in the scenario.
    """
    names = names_of(entries)
    number = {name: index for index, name in enumerate(names)}
    trained = [entry for entry in entries if entry.event == "train"]
    if not trained:
        raise DataError("--from: expected at least one computation of a client (event train), found none")
    sizes = [examples if math.isnan(entry.examples) else entry.examples for entry in trained]
    return fit_pace(sizes, [one.seconds for one in trained], [number[one.client] for one in trained]), names


def fit_messages(entries: list[Entry]) -> list[Fitted]:
    """Fit, of each direction, seconds = latency + bytes / bandwidth."""
    fitted, latencies = [], []
    for event, key in (("download", "downlink"), ("upload", "uplink")):
        sizes = [entry.bytes for entry in entries if entry.event == event]
        if not sizes:
            continue
        seconds = [entry.seconds for entry in entries if entry.event == event]
        line = fit_line(sizes, seconds)
        error = misfit(line, sizes, seconds)
        rate = f"{8e-6 / line.slope:.4g} Mbit/s" if line.slope else "null"
        latencies.append(line.fixed)
        about = f"links.{key}: {len(sizes)} messages; the line is within {100 * error:.1f} % of all medians"
        about += "; all have one size, so latency counts as bandwidth" if len(set(sizes)) == 1 else ""
        fitted.append(Fitted([f"links.{key}={rate}"], about, error))
    if latencies:
        mean = f"links.latency={sum(latencies) / len(latencies):.4g}"
        fitted.append(Fitted([mean, "links.bandwidth=null"], "links.latency: the mean of both directions"))
    return fitted


def hours_of(entries: list[Entry], names: list[str]) -> str:
    """Return when clients were online, as a table for `availability`.

    It is "" if the log does not say it. Time 0 is the first of the log.
    """
    number = {name: index for index, name in enumerate(names)}
    first = min(entry.start for entry in entries)
    online = sorted(
        (number[one.client], one.start - first, one.end - first)
        for one in entries
        if one.event == "online" and one.client in number
    )
    lines = [f"{client},{start:.6g},{end:.6g}" for client, start, end in online]
    return "\n".join(["client,from,to", *lines, ""]) if lines else ""


def devices_of(devices: list[Device]) -> str:
    """Return devices as a table for `clients.devices`."""
    rates = [f"{8e-6 * device.rate:.6g} Mbit/s" for device in devices]
    pairs = zip(devices, rates, strict=True)
    lines = [f"{device.name},{device.seconds_per_example:.6g},{rate},{rate}" for device, rate in pairs]
    return "\n".join(["name,seconds_per_example,uplink,downlink", *lines, ""])


def beside(out: Path, word: str) -> Path:
    """Return the path of a table that belongs to a scenario."""
    return out.with_name(f"{out.stem}-{word}.csv")
