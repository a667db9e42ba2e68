"""Logs of a federation: what clients computed, sent and received.

| file | what is read |
|---|---|
| CSV | the columns client, event (train, download, upload, online), start, end, and bytes or examples |
| NVFlare | the clients' `log.txt`, one file or a folder of them: tasks `train`, and the sizes of their messages |
| Flower | `flwr list --format json`: sums over a run, so every client gets the mean |
| FedScale | `client_device_capacity` as JSON: milliseconds per example and kbit/s of each device |
"""

from __future__ import annotations

import csv
import datetime
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simfl.errors import DataError

EVENTS = ("train", "download", "upload", "online")
#: FedScale lets a device train for three times as long as it measured for an example (its `client.py`).
FEDSCALE_FACTOR = 3.0


class Entry(NamedTuple):
    """What a client did from `start` to `end`, in seconds."""

    client: str
    event: str
    start: float
    end: float
    bytes: float = math.nan
    examples: float = math.nan

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class Device(NamedTuple):
    """A device as FedScale states it; `rate`: bytes a second, both ways."""

    name: str
    seconds_per_example: float
    rate: float


def read_log(path: Path, message_bytes: int) -> list[Entry] | list[Device]:
    """Return the entries of a log, or the devices of a file of capacities.

    `message_bytes`, of the scenario's model, tells how many models Flower's sum of bytes is.

    Raises:
        DataError: the file is no such log; one line says where.
    """
    if path.is_dir():
        files = sorted(path.rglob("log.txt"))
        if not files:
            raise DataError(f"--from: {path}: expected log.txt of NVFlare's clients in this folder, found none")
        return [entry for file in files for entry in _nvflare(_text(file))]
    text = _text(path)
    if text.lstrip().startswith("{"):
        entries = _json(path, text, message_bytes)
    else:
        entries = _nvflare(text) if _TIME.match(text) else _csv(path, text)
    if not entries:
        raise DataError(f"--from: {path}: expected at least one line about a client, found none")
    return entries


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DataError(f"--from: {path}: expected a CSV file, or a log of a federation: {reason}") from None


# -- CSV -------------------------------------------------------------------------------------


def _csv(path: Path, text: str) -> list[Entry]:
    reader = csv.DictReader(text.splitlines())
    try:
        columns = set(reader.fieldnames or ())
        needed = {"client", "start", "end"} | (set() if "event" in columns else {"examples"})
        if not needed <= columns:
            names = ", ".join(reader.fieldnames or ()) or "an empty file"
            raise DataError(
                f"--from: {path}: expected the columns client, start, end and examples, or with event and bytes, "
                f"found {names}"
            )
        return [_line(f"--from: {path}:{reader.line_num}", values) for values in reader]
    except csv.Error as error:
        raise DataError(f"--from: {path}: expected a CSV file: {error}") from None


def _line(where: str, values: dict[str, str]) -> Entry:
    event = (values.get("event") or "train").strip()
    if event not in EVENTS:
        raise DataError(f"{where}: event: expected {', '.join(EVENTS)}, found {event!r}")
    size = "examples" if event == "train" else "bytes"
    optional = event == "online" or (event == "train" and "event" in values and not values.get(size))
    columns = ["start", "end", *([] if optional else [size])]
    try:
        numbers = {name: float(values[name]) for name in columns}
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{where}: expected numbers for {', '.join(columns)}") from None
    entry = Entry((values["client"] or "").strip(), event, **numbers)
    if not all(map(math.isfinite, numbers.values())) or entry.seconds <= 0.0 or numbers.get(size, 1.0) <= 0.0:
        given = ", ".join(f"{value:g}" for value in numbers.values())
        raise DataError(f"{where}: expected start < end and {size} > 0, found {given}")
    return entry


# -- NVFlare ---------------------------------------------------------------------------------

_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) - ")
_SITE = re.compile(r"\[identity=([^,\]]+)")
_TASK = re.compile(r"task_name=train\b")
_DOWN = re.compile(r"getTask: train size: .*\((\d+) Bytes\) time: ([\d.]+) seconds")
_UP = re.compile(r"SubmitUpdate to: .*\((\d+) Bytes\)\. time: ([\d.]+) seconds")


def _nvflare(text: str) -> list[Entry]:
    sites = set(_SITE.findall(text))
    only = sites.pop() if len(sites) == 1 else None  # lines about messages do not name the site
    began: dict[str, float] = {}
    entries = []
    trained = False
    for line in text.splitlines():
        time, site = _TIME.match(line), _SITE.search(line)
        if time is None or (name := site[1] if site else only) is None:
            continue
        now = datetime.datetime.fromisoformat(time[1]).replace(tzinfo=datetime.UTC).timestamp() + int(time[2]) / 1000
        if down := _DOWN.search(line):
            entries.append(Entry(name, "download", now - float(down[2]), now, float(down[1])))
        elif "invoking task executor" in line and _TASK.search(line):
            began[name] = now
        elif "finished processing task" in line and name in began:
            entries.append(Entry(name, "train", began.pop(name), now))
            trained = True
        elif trained and (up := _UP.search(line)):
            entries.append(Entry(name, "upload", now - float(up[2]), now, float(up[1])))
            trained = False
    return [entry for entry in entries if entry.seconds > 0.0]


# -- Flower and FedScale ---------------------------------------------------------------------


def _json(path: Path, text: str, message_bytes: int) -> list[Entry] | list[Device]:
    try:
        values = json.loads(text)
        return list(_flower(values["runs"], message_bytes)) if "runs" in values else list(_fedscale(values))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"--from: {path}: expected what `flwr list --format json` prints, or FedScale's capacities by client: "
            f"{type(error).__name__} {error}"
        ) from None


def _flower(runs: list[dict[str, Any]], message_bytes: int) -> Iterator[Entry]:
    for run in runs:
        models = max(1, round(run["network-traffic"]["outbound-bytes"] / message_bytes))  # sent by the server
        if (seconds := run["compute-time"]["clientapp-seconds"] / models) > 0.0:
            yield Entry(str(run["run-id"]), "train", 0.0, seconds)


def _fedscale(devices: dict[str, dict[str, float]]) -> Iterator[Device]:
    for name, device in devices.items():
        seconds = FEDSCALE_FACTOR * float(device["computation"]) / 1000.0
        yield Device(name, seconds, 125.0 * float(device["communication"]))
