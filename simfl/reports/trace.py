"""A run as a timeline for Perfetto and chrome://tracing, in virtual time.

The format is Chromium's "Trace Event Format" (JSON object form). A client's track holds its activities (slices), its
messages (slices of 1 ns with the ends of arrows) and its updates (instants, with their staleness). A link's track holds
its messages, in lanes if they overlap. Counters show the model's quality and the privacy spent.

All times are rounded to nanoseconds before they are compared, so that slices of a track nest exactly. Events are
written while the tables are read, a chunk at a time: memory does not grow with the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from simfl.errors import DataError, ScenarioError
from simfl.records import ACTIVITIES, Run, RunFolder
from simfl.records.tables import SCHEMAS, read_between
from simfl.records.writer import replacing

#: The processes of a trace.
RUN, CLIENTS, LINKS = 1, 2, 3

#: Tables beside the metrics -> what the trace lacks without them.
TABLES = {
    "timeline": "what clients do; record it with --set record.timeline=true",
    "messages": "links and arrows; record them with --set record.messages=true",
    "updates": "updates and their staleness; record them with --set record.updates=true",
}

_LARGEST = 1e200  # of times and sizes, which must be finite in nanoseconds, too

_COUNTERS = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "epsilon": "largest epsilon over clients (before the end an upper bound)",
    "consensus_distance": "consensus distance",
}
# Names of the reserved colors of chrome://tracing; Perfetto chooses its own by the slice's name.
_COLORS = {
    "compute": "thread_state_running",
    "lost": "terrible",
    "wait": "thread_state_runnable",
    "communicate": "thread_state_iowait",
    "offline": "grey",
}


@dataclass(frozen=True)
class Trace:
    """A written trace; `missing` are tables that the run did not record."""

    path: Path
    events: int
    missing: tuple[str, ...]


def write_trace(
    run: Run, path: str | Path, *, start_s: float = 0.0, end_s: float = math.inf, clients: Collection[int] | None = None
) -> Trace:
    """Write a run as a trace, a JSON file.

    It shows what touches the interval of virtual time from `start_s` to `end_s`, of all clients or of `clients`. A
    message is shown if one of its ends is among them.

    Raises:
        DataError: the run has none of the tables in `TABLES`.
        ScenarioError: an unknown client, an empty interval, or a file that cannot be written.
    """
    if not start_s < end_s:
        raise ScenarioError(f"trace: expected a begin before the end, found {start_s:g} s and {end_s:g} s")
    folder = RunFolder(run.folder)
    missing = tuple(
        name for name in TABLES if not (folder.table_path(name).exists() or folder.stream_path(name).exists())
    )
    if len(missing) == len(TABLES):
        raise DataError(
            f"{run.folder}: this run recorded no timeline, messages or updates, so there is nothing to trace; run it "
            "again with --set record.timeline=true --set record.messages=true --set record.updates=true"
        )
    count = _count(run)
    for client in clients or ():
        if not 0 <= client < count:
            raise ScenarioError(f"trace: clients: expected numbers from 0 to {count - 1}, found {client}")
    target = Path(path)
    try:
        with replacing(target) as partial, open(partial, "w", encoding="utf-8") as file:
            writer = _Writer(file, run, (start_s, end_s), range(count) if clients is None else clients, count)
            writer.write(missing)
    except OSError as error:
        raise ScenarioError(f"{target}: cannot write the trace: {error.strerror}") from error
    return Trace(target, writer.events, missing)


def parse_clients(text: str) -> list[int]:
    """Return the clients of a list such as "0-3,7"."""
    clients: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ScenarioError(f"trace: --clients: expected numbers and ranges such as 0-3,7, found {text!r}")
        clients.update(range(int(first), int(last or first) + 1))
    return sorted(clients)


def _count(run: Run) -> int:
    """Return the number of clients; the table of them is written at the end of a run."""
    if count := len(run.clients):
        return count
    clients = run.scenario.get("clients")
    number = clients.get("count") if isinstance(clients, dict) else None
    return number if isinstance(number, int) and 0 < number < 2**31 else 0


class _Writer:
    """Writes one event after the other, about some of a run's `count` clients."""

    def __init__(
        self, file: IO[str], run: Run, interval: tuple[float, float], clients: Collection[int], count: int
    ) -> None:
        self.events = 0
        self._file, self._run, self._folder = file, run, RunFolder(run.folder)
        self._start, self._end = interval
        self._count = count
        self._clients = set(clients)
        self._servers: set[int] = set()
        #: For each lane of a link: the end of its last message, and its track.
        self._lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._num_lanes = 0

    def write(self, missing: Collection[str]) -> None:
        manifest = self._run.manifest
        about = {
            "run": str(self._run.folder.name),
            "scenario": self._run.name,
            "algorithm": self._run.algorithm,
            "seed": manifest.seed,
            "digest": manifest.digest,
            "simfl": manifest.versions.get("simfl", ""),
            "clock": "virtual time",
        }
        self._file.write('{"displayTimeUnit":"ms","otherData":' + json.dumps(about) + ',"traceEvents":[\n')
        for process, name in ((RUN, "run"), (CLIENTS, "clients"), (LINKS, "links")):
            self._name("process_name", process, 0, name)
            self._event(
                {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
            )
        for client in sorted(self._clients):
            self._track(CLIENTS, client + 1, f"client {client}", client)
        self._counters()
        if "timeline" not in missing:
            self._activities()
        if "messages" not in missing:
            self._messages()
        if "updates" not in missing:
            self._updates()
        self._file.write("\n]}\n")

    def _counters(self) -> None:
        metrics = self._run.metrics
        shown = metrics[(metrics["time_s"] >= self._start) & (metrics["time_s"] <= self._end)]
        for column, name in _COUNTERS.items():
            for time_s, value in zip(shown["time_s"], shown[column], strict=True):
                if math.isfinite(value) and abs(time_s) < _LARGEST:
                    self._event({"ph": "C", "name": name, "pid": RUN, "tid": 0, "args": {"value": value}}, _ns(time_s))

    def _activities(self) -> None:
        for client, start_s, end_s, activity in self._rows("timeline", "start_s", "end_s"):
            if client in self._clients:
                if not 0 <= activity < len(ACTIVITIES):
                    raise DataError(f"{self._run.folder}: timeline: found the activity {activity}; it is damaged")
                name = ACTIVITIES[activity]
                event = {"ph": "X", "name": name, "cat": "activity", "cname": _COLORS[name]}
                self._slice(event, CLIENTS, client + 1, _ns(start_s), _ns(end_s))

    def _updates(self) -> None:
        for row in self._rows("updates", "time_s", "time_s"):
            time_s, client, peer, round_num, staleness, size, step_size, noise_std = row
            if client not in self._clients:
                continue
            details = {"staleness": staleness, "examples": size, "step_size": step_size}
            details |= {"peer": peer} if peer >= 0 else {}
            details |= {"round": round_num} if round_num >= 0 else {}
            details |= {"noise_std": noise_std} if 0.0 < noise_std < _LARGEST else {}
            event = {"ph": "i", "s": "t", "name": "update", "cat": "update", "pid": CLIENTS, "tid": client + 1}
            self._event({**event, "args": details}, _ns(time_s))

    def _messages(self) -> None:
        for number, row in enumerate(self._rows("messages", "sent_s", "delivered_s"), start=1):
            sent_s, delivered_s, source, target, size, resends = row
            if not {source, target} & self._clients:
                continue
            sent, came = _ns(sent_s), _ns(delivered_s)
            track = self._lane(source, target, sent, max(came, sent + 1))
            details = {"bytes": size, "resends": resends}
            name = f"{self._node(source)} to {self._node(target)}"
            event = {"ph": "X", "name": name, "cat": "message", "args": details}
            self._slice(event, LINKS, track, sent, max(came, sent + 1))
            flow = {"name": "message", "cat": "message", "id": number}
            if self._end_shown(source):
                self._anchor(f"send to {self._node(target)}", source, sent, {**flow, "ph": "s"})
            # The arrow passes through the link, or begins or ends there if the other end is not shown.
            step: dict[str, Any] = {"ph": "t"}
            if not self._end_shown(source):
                step = {"ph": "s"}
            elif not self._end_shown(target):
                step = {"ph": "f", "bp": "e"}
            self._event({**flow, **step, "pid": LINKS, "tid": track}, sent)
            if self._end_shown(target):
                self._anchor(f"get from {self._node(source)}", target, came, {**flow, "ph": "f", "bp": "e"})

    def _end_shown(self, node: int) -> bool:
        return node in self._clients or node >= self._count

    def _anchor(self, name: str, node: int, time: int, flow: dict[str, Any]) -> None:
        """Write a slice of 1 ns on the node's track, and the end of an arrow in it."""
        if node >= self._count and node not in self._servers:
            self._servers.add(node)
            self._track(CLIENTS, node + 1, self._node(node), -1)
        self._slice({"ph": "X", "name": name, "cat": "message"}, CLIENTS, node + 1, time, time + 1)
        self._event({**flow, "pid": CLIENTS, "tid": node + 1}, time)

    def _node(self, node: int) -> str:
        if node < self._count:
            return f"client {node}"
        return "server" if node == self._count else f"server {node - self._count}"

    def _lane(self, source: int, target: int, sent: int, end: int) -> int:
        lanes = self._lanes.setdefault((source, target), [])
        for position, (busy, track) in enumerate(lanes):
            if busy <= sent:
                lanes[position] = (end, track)
                return track
        self._num_lanes += 1
        lanes.append((end, self._num_lanes))
        lane = f" ({len(lanes)})" if len(lanes) > 1 else ""
        order = source * (2 * self._count + 1) + target
        self._track(LINKS, self._num_lanes, f"{self._node(source)} to {self._node(target)}{lane}", order)
        return self._num_lanes

    def _rows(self, name: str, first: str, last: str) -> Iterator[tuple[Any, ...]]:
        for row in read_between(self._folder.table_path(name), SCHEMAS[name], first, last, self._start, self._end):
            checked = row[:-1] if name == "updates" else row  # noise_std is NaN with an adaptive clipping norm
            if not all(abs(value) < _LARGEST for value in checked):  # also false for NaN
                raise DataError(f"{self._run.folder}: {name}: expected numbers below {_LARGEST:g}; it is damaged")
            yield row

    def _track(self, process: int, track: int, name: str, order: int) -> None:
        self._name("thread_name", process, track, name)
        self._event(
            {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": track, "args": {"sort_index": order}}
        )

    def _name(self, kind: str, process: int, track: int, name: str) -> None:
        self._event({"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}})

    def _slice(self, event: dict[str, Any], process: int, track: int, start: int, end: int) -> None:
        if end > start:
            self._event({**event, "pid": process, "tid": track}, start, end - start)

    def _event(self, event: dict[str, Any], time: int | None = None, duration: int | None = None) -> None:
        # Not through floats, which are inexact in a long run: three decimals of a microsecond are exact nanoseconds.
        parts = [] if time is None else [f',"ts":{_us(time)}']
        parts += [] if duration is None else [f',"dur":{_us(duration)}']
        text = json.dumps(event, separators=(",", ":"), allow_nan=False)
        self._file.write((",\n" if self.events else "") + text[:-1] + "".join(parts) + "}")
        self.events += 1


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)
