"""The content of a run as a page plays it: tables as packed columns.

Tables become columns of whole numbers or floats, sorted so that differences are small; the bytes of a column lie plane
by plane, deflated (RFC 1950), in base64. Times are ticks: the run's duration has 2^32 - 2 of them. Most times occur
several times, such as the end of a computation, which is when a message is sent. So each time is stored once, in the
sorted column `times`, and tables have places in it. `replay.js` undoes this.
"""

from __future__ import annotations

import base64
import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfl.errors import DataError
from simfl.plots.style import SERVER_STEPS, color_of, name_of
from simfl.records import ACTIVITIES, Run, RunFolder
from simfl.records.display import Y_AXES, measure_label, show_count
from simfl.records.results import clock_of
from simfl.reports.layout import layout_of
from simfl.scenario.units import parse_time

TICKS = 2**32 - 2
"""The ticks of a run's duration."""

NEVER = 2**32 - 1
"""Stands for a value that does not exist in a column of whole numbers."""

MOST_MESSAGES = 200_000
MOST_INTERVALS = 400_000
MOST_UPDATES = 400_000
#: Values per client and evaluation: accuracies, distances or epsilons.
MOST_VALUES = 1_000_000
#: Lanes of single clients, and discs of single clients; more clients are drawn as groups of at most `GROUPS`.
MOST_LANES, MOST_DISCS, GROUPS = 200, 2_000, 50
MOST_LINKS = 20_000
#: Points of a curve, and bins of time of a row that stands for a group of clients.
POINTS, BINS = 2_000, 600

PLAYED = ("timeline", "messages", "updates", "client_metrics")
"""Tables that the page is made of, beside small ones."""

_HOW = {
    "timeline": "what each client does: run it again with record: {play: true}",
    "messages": "messages in flight: run it again with record: {play: true}",
    "updates": "updates and their staleness: run it again with record: {play: true}",
    "client_metrics": (
        "clients' own models, if they have any: their accuracy and distance from consensus; for these, "
        "evaluate: {clients: true}"
    ),
}
_SHOWN = [name for name in Y_AXES if name not in ("time_s", "wall_s")]


_TIMES = ("start", "end", "time", "sent", "delivered")
"""Columns of ticks among the rows of a page."""


@dataclass
class Content:
    """The content of one run: `values` are plain or packed.

    `notes` say what is missing or thinned out.
    """

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def head_of(run: Run) -> dict[str, Any]:
    """Return the names of a run and the color of its curve."""
    return {
        "name": run.name,
        "run": run.folder.name,
        "title": name_of(run.algorithm, run.privacy is not None, run.title),
        "color": color_of(run.algorithm),
    }


def pack(
    values: ArrayLike, kind: Literal["u8", "u32", "f32", "f64"], delta: bool = False, level: int = 9
) -> dict[str, Any]:
    """Encode a column as text that `replay.js` decodes.

    `delta` stores differences (modulo 2^32); `level` is that of deflate, 1 fast to 9 small.
    """
    dtype = {"u8": np.uint8, "u32": np.uint32, "f32": np.float32, "f64": np.float64}[kind]
    column = np.ascontiguousarray(np.asarray(values).astype(dtype))
    if delta:
        column = np.diff(column, prepend=column.dtype.type(0))
    planes = column.view(np.uint8).reshape(len(column), column.itemsize).T
    data = base64.b64encode(zlib.compress(planes.tobytes(), level)).decode()
    return {"type": kind, "n": len(column), "delta": delta, "data": data}


def gather(run: Run, level: int = 9) -> Content:
    """Return what the page shows of a run, thinned out to the limits of this module.

    `level` is that of `pack`.
    """
    if not len(run.evaluations):
        raise DataError(f"{run.folder}: this run has no evaluation yet, so there is nothing to play")
    return _Gatherer(run, level).content()


class _Gatherer:
    """Turns the tables of one run into the values of a page."""

    def __init__(self, run: Run, level: int) -> None:
        self._pack = functools.partial(pack, level=level)
        self._run, self._notes = run, [] if run.status == "done" else [f"This run is {run.status}."]
        self._evaluations = run.evaluations.thinned()
        self._tables = {name: self._table(name) for name in PLAYED}
        times = [run.manifest.time_s, self._evaluations["time_s"].max()]
        for name, column in (("updates", "time_s"), ("timeline", "end_s")):  # of a killed run they may go further
            times += [table[column].max()] if (table := self._tables[name]) is not None and len(table[column]) else []
        self._duration_s = float(max(time for time in times if math.isfinite(time)))
        self._tick_s = (self._duration_s or 1.0) / TICKS
        self._edges = self._table("edges")
        self._count = self._clients()
        #: All ticks of the page's rows, each once.
        self._times = np.zeros(0, dtype=np.uint32)

    def content(self) -> Content:
        """Return the values and the notes."""
        run, manifest = self._run, self._run.manifest
        evaluated = self._evaluated()
        rows = {"timeline": self._intervals(), "updates": self._updates(), "messages": self._messages()}
        ticks = [self._ticks(evaluated["time_s"])]
        ticks += [table[name] for table in rows.values() if table is not None for name in _TIMES if name in table]
        self._times = np.unique(np.concatenate(ticks))
        own = self._tables["client_metrics"]
        values = {
            "description": str(run.scenario.get("description") or ""),
            "seed": manifest.seed,
            "status": manifest.status,
            "clock": clock_of([run]),
            "duration_s": self._duration_s,
            "tick_s": self._tick_s,
            "count": self._count,
            "staleness": "steps" if run.algorithm in SERVER_STEPS else "updates",
            "resend_s": self._resend_s(),
            "times": self._pack(self._times, "u32", delta=True),
            "metrics": self._metrics(evaluated),
            "timeline": None if rows["timeline"] is None else self._packed_intervals(rows["timeline"]),
            "updates": None if rows["updates"] is None else self._packed_updates(rows["updates"]),
            "messages": None if rows["messages"] is None else self._packed_messages(rows["messages"]),
            "accuracy": self._by_client(own, "test_accuracy", "accuracies of clients"),
            "distance": self._by_client(own, "consensus_distance", "clients' distances from consensus"),
            "epsilon": self._by_client(self._table("client_epsilon"), "epsilon", "epsilons of clients"),
            "clients": self._table_of_clients(),
        }
        values |= head_of(run) | self._graph()
        evaluate = run.scenario.get("evaluate")
        together = isinstance(evaluate, dict) and evaluate.get("clients") is True  # all clients have one model
        record = run.scenario.get("record") if run.status == "running" else None
        awaited = {name for name, on in record.items() if on} if isinstance(record, dict) else set()
        for name, how in _HOW.items():
            if self._tables[name] is None and name not in awaited and not (name == "client_metrics" and together):
                self._notes.append(f"The run did not record {how}.")
        return Content(values, self._notes)

    def _table(self, name: str) -> Mapping[str, NDArray[Any]] | None:
        """Return the columns of a table, None if the run did not record it."""
        folder = RunFolder(self._run.folder)
        if not (folder.table_path(name).exists() or folder.stream_path(name).exists()):
            return None
        frame = getattr(self._run, name)
        return {column: frame[column].to_numpy() for column in frame.columns}

    def _clients(self) -> int:
        """Return the number of clients; the table of them is written at the end of a run."""
        if count := len(self._run.clients):
            return count
        clients = self._run.scenario.get("clients")
        number = clients.get("count") if isinstance(clients, dict) else None
        if not isinstance(number, int) or not 0 < number < 2**31:
            raise DataError(f"{self._run.folder}: expected the number of clients in the scenario, found {number!r}")
        return number

    def _ticks(self, seconds: NDArray[Any]) -> NDArray[np.uint32]:
        scaled = np.nan_to_num(np.asarray(seconds, dtype=float) / self._tick_s, nan=0.0, posinf=TICKS, neginf=0.0)
        return np.rint(np.clip(scaled, 0, TICKS)).astype(np.uint32)

    def _places(self, ticks: NDArray[Any]) -> NDArray[np.uint32]:
        """Return the places of ticks in the column of times."""
        return np.searchsorted(self._times, ticks).astype(np.uint32)

    def _evaluated(self) -> dict[str, NDArray[Any]]:
        """Return the evaluations of curves, by column."""
        rows = self._evaluations
        kept = np.unique(np.linspace(0, len(rows["time_s"]) - 1, min(len(rows["time_s"]), POINTS)).round().astype(int))
        if len(kept) < len(self._run.evaluations):
            self._notes.append(f"Curves have {len(kept):,} of {len(self._run.evaluations):,} evaluations.")
        return {name: rows[name][kept] for name in ("time_s", *_SHOWN, *self._run.measures) if name in rows}

    def _metrics(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        columns = {}
        for name in (name for name in rows if name != "time_s"):
            values = rows[name].astype(float)
            if np.isfinite(values).any():
                finite = [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]
                columns[name] = {"label": measure_label(name), "values": finite}
        places = self._places(self._ticks(rows["time_s"]))
        return {"time": self._pack(places, "u32", delta=True), "columns": columns}

    def _intervals(self) -> dict[str, NDArray[Any]] | None:
        """Return intervals in order of clients and time."""
        table = self._tables["timeline"]
        if table is None or len(table["client"]) > MOST_INTERVALS:
            return None  # in place of too many, `_graph` has rows of groups
        order = np.lexsort((table["start_s"], table["client"]))
        clients, start = table["client"][order], self._ticks(table["start_s"][order])
        end = np.maximum(start, self._ticks(table["end_s"][order]))
        return {"client": clients, "start": start, "end": end, "activity": table["activity"][order]}

    def _packed_intervals(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        start, end = self._places(rows["start"]), self._places(rows["end"])
        return {
            "first": self._pack(np.searchsorted(rows["client"], np.arange(self._count + 1)), "u32", delta=True),
            "start": self._pack(start, "u32", delta=True),
            # From an end to the next start, modulo 2^32: nearly always 0.
            "gap": self._pack(np.append(start[1:], np.zeros(1, np.uint32))[: len(end)] - end, "u32"),
            "activity": self._pack(rows["activity"], "u8"),
        }

    def _updates(self) -> dict[str, NDArray[Any]] | None:
        table = self._tables["updates"]
        if table is None:
            return None
        kept = self._sample(len(table["time_s"]), MOST_UPDATES, "updates")
        rows = {name: table[name][kept] for name in ("client", "staleness")}
        return {"time": self._ticks(table["time_s"][kept]), **rows}

    def _packed_updates(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        table = self._tables["updates"]
        return {
            "total": 0 if table is None else len(table["time_s"]),
            "time": self._pack(self._places(rows["time"]), "u32", delta=True),
            "client": self._pack(rows["client"], "u32"),
            "staleness": self._pack(np.clip(rows["staleness"], 0, NEVER), "u32"),
        }

    def _messages(self) -> dict[str, NDArray[Any]] | None:
        """Return messages in the order in which they were sent."""
        table = self._tables["messages"]
        if table is None:
            return None
        total, attempts = len(table["sent_s"]), int(self._evaluations["messages"][-1])
        if total == 0 and self._evaluations["bytes_sent"][-1] > 0:
            self._notes.append(
                "No message has a row: clients exchanged models together (a ring shows such a collective), or none was "
                "recorded yet."
            )
        elif (others := attempts - total - int(table["resends"].sum())) > 0 and self._run.status != "running":
            self._notes.append(
                f"{show_count(others)} of {show_count(attempts)} attempts to send have no row: the target refused the "
                "message or never came back, it was still in flight at the end, or it was part of a collective."
            )
        kept = self._sample(total, MOST_MESSAGES, "messages")
        kept = kept[np.argsort(table["sent_s"][kept], kind="stable")]
        rows = {name: values[kept] for name, values in table.items()}
        rows["sent"], rows["delivered"] = self._ticks(rows["sent_s"]), self._ticks(rows["delivered_s"])
        return rows

    def _packed_messages(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        table, updates = self._tables["messages"], self._tables["updates"]
        sent = self._places(rows["sent"])
        values = {
            "total": 0 if table is None else len(table["sent_s"]),
            "sent": self._pack(sent, "u32", delta=True),
            "length": self._pack(self._places(rows["delivered"]) - sent, "u32"),
            "source": self._pack(rows["source"], "u32"),
            "target": self._pack(rows["target"], "u32"),
            "bytes": self._pack(np.clip(rows["bytes"], 0, NEVER), "u32"),
            "resends": self._pack(rows["resends"], "u32"),
        }
        if updates is not None and len(updates["time_s"]) > MOST_UPDATES:
            used, staleness = self._next_updates(rows)  # else the page finds them in its table of updates
            values |= {"used": self._pack(used, "u32"), "staleness": self._pack(staleness, "u32")}
        return values

    def _resend_s(self) -> float:
        """Return the time after which a lost message is sent again, 0 if it is unknown."""
        links = self._run.scenario.get("links")
        timeout = links.get("resend_timeout", 0) if isinstance(links, dict) else 0
        return float(parse_time(timeout))

    def _next_updates(self, rows: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the row and the staleness of the next update after each delivery.

        It is that of the receiving client, or that of the sender if the receiver is a server. NEVER without one.
        """
        count = len(rows["source"])
        used, staleness = np.full((2, count), NEVER, dtype=np.uint32)
        updates = self._tables["updates"]
        if updates is None or not count:
            return used, staleness
        client = np.where(rows["target"] < self._count, rows["target"], rows["source"])
        by_update = np.argsort(updates["client"], kind="stable")  # updates are in order of time
        by_message = np.argsort(client, kind="stable")
        updated = np.searchsorted(updates["client"][by_update], np.arange(self._count + 1))
        received = np.searchsorted(client[by_message], np.arange(self._count + 1))
        ticks = np.full(count, NEVER, dtype=np.uint32)
        for k in range(self._count):
            mine, theirs = by_message[received[k] : received[k + 1]], by_update[updated[k] : updated[k + 1]]
            at = np.searchsorted(updates["time_s"][theirs], rows["delivered_s"][mine])
            mine, at = mine[at < len(theirs)], at[at < len(theirs)]
            ticks[mine] = self._ticks(updates["time_s"][theirs[at]])
            staleness[mine] = np.clip(updates["staleness"][theirs[at]], 0, NEVER - 1)
        return ticks, staleness

    def _by_client(self, table: Mapping[str, NDArray[Any]] | None, column: str, what: str) -> dict[str, Any] | None:
        """Return a value of each client at each evaluation, f32 [evaluations, clients]."""
        if table is None or not len(table["time_s"]) or column not in table:
            return None
        times, row = np.unique(table["time_s"], return_inverse=True)
        values = np.full((len(times), self._count), np.nan, dtype=np.float32)
        values[row, table["client"]] = table[column]
        if not np.isfinite(values).any():
            return None
        step = math.ceil(values.size / MOST_VALUES)
        if step > 1:
            self._notes.append(f"The {what} are shown at every {step}th evaluation.")
        return {
            "time": self._pack(self._ticks(times[::step]), "u32", delta=True),
            "values": self._pack(values[::step].reshape(-1), "f32"),
        }

    def _table_of_clients(self) -> dict[str, Any]:
        frame = self._run.clients
        names = [name for name in ("samples", "updates", "dropped", "bytes", "epsilon", "delta") if name in frame]
        names += [f"{name}_s" for name in ("compute", "wait", "communicate", "offline") if f"{name}_s" in frame]
        return {name: self._pack(frame[name].to_numpy(float), "f64") for name in names if len(frame)}

    def _sample(self, total: int, most: int, what: str) -> NDArray[np.int64]:
        """Return about `most` rows, spread evenly over a table; note their share."""
        rows = np.arange(total, dtype=np.int64)
        if total <= most:
            return rows
        # Multiples of the golden ratio modulo 1 are spread evenly, and follow no period of the table.
        kept = rows[(rows * 0.6180339887498949) % 1.0 < most / total]
        self._notes.append(f"Shown are {len(kept):,} of {total:,} {what} ({len(kept) / total:.1%}).")
        return kept

    def _seconds_per_update(self) -> NDArray[np.float64]:
        """Return each client's seconds of computing per update; NaN without updates."""
        frame = self._run.clients
        if not len(frame):
            return np.full(self._count, np.nan)
        updates = frame["updates"].to_numpy(float)
        with np.errstate(all="ignore"):
            return np.where(updates > 0, frame["compute_s"].to_numpy(float) / updates, np.nan)

    def _regions(self) -> tuple[list[str], NDArray[np.int64]] | None:
        """Return the names of regions and each client's, if the scenario lists them."""
        regions = self._run.scenario.get("regions")
        if not isinstance(regions, dict) or not isinstance(regions.get("names"), list):
            return None
        names, number = list(map(str, regions["names"])), None
        if isinstance(counts := regions.get("counts"), list):
            number = np.repeat(np.arange(len(counts)), counts)
        elif isinstance(clients := regions.get("clients"), list):
            number = np.array([names.index(str(name)) for name in clients])
        return (names, number) if number is not None and len(number) == self._count else None

    def _partitions(self, servers: int, region: NDArray[np.int64] | None, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the times of partitions, and the group of each node, 0 for none."""
        links = self._run.scenario.get("links")
        partitions = links.get("partitions") if isinstance(links, dict) else None
        shown, drawn = [], 0
        for partition in partitions if isinstance(partitions, list) else ():
            if not isinstance(groups := partition.get("groups"), list):
                drawn += 1
                continue
            sides = np.zeros(self._count + servers, dtype=np.uint8)
            for number, members in enumerate(groups[:255], 1):
                for member in members:
                    if member == "server":
                        sides[self._count :] = number
                    elif isinstance(member, int):
                        sides[member] = number
                    elif region is not None and member in names:
                        sides[: self._count][region == names.index(member)] = number
            times = [partition.get("from", 0), partition.get("until", "never")]
            start_s, end_s = (math.inf if time in (None, "never") else parse_time(time) for time in times)
            ticks = self._ticks(np.array([start_s, end_s]))
            shown.append({"start": int(ticks[0]), "end": int(ticks[1]), "sides": self._pack(sides, "u8")})
        if drawn:
            self._notes.append("Partitions of a fraction of the clients are not marked: their clients were drawn.")
        return shown

    def _graph(self) -> dict[str, Any]:
        """Return nodes, their places and links, and rows of lanes for groups of clients."""
        seconds, regions = self._seconds_per_update(), self._regions()
        with np.errstate(all="ignore"):
            slowness = seconds / np.nanmedian(seconds) if np.isfinite(seconds).any() else seconds
        names, region = regions if regions is not None else ([], np.zeros(self._count, dtype=np.int64))
        group, labels = _groups(region, names, slowness)
        grouped = self._count > MOST_DISCS
        edges = self._edges or {"source": np.zeros(0, int), "target": np.zeros(0, int)}
        ends = np.stack([edges["source"], edges["target"]], axis=1).astype(np.int64)
        servers = self._servers(ends)
        nodes = labels if grouped else [str(k) for k in range(self._count)]
        node_of = np.concatenate([group if grouped else np.arange(self._count), len(nodes) + np.arange(servers)])
        links = np.unique(np.sort(node_of[ends], axis=1), axis=0) if len(ends) else np.zeros((0, 2), np.int64)
        links = links[links[:, 0] != links[:, 1]]
        if self._edges is None:
            self._notes.append("The graph has more than 100,000 links, which the run did not write.")
        region_of = _first(group, region, len(labels)) if grouped else region
        places = layout_of(links, len(nodes), servers, region_of if names else None)
        if len(links) > MOST_LINKS:
            self._notes.append(f"Shown are {MOST_LINKS:,} of {len(links):,} links of the graph.")
            links = links[np.linspace(0, len(links) - 1, MOST_LINKS).astype(int)]
        values = {
            "nodes": nodes + ["server" if k == 0 else f"server {k}" for k in range(servers)],
            "grouped": grouped,
            "node_of": self._pack(node_of, "u32"),
            "places": self._pack(places.reshape(-1), "f32"),
            "links": self._pack(links.reshape(-1), "u32"),
            "regions": [
                {"name": name, "nodes": np.flatnonzero(region_of == k).tolist()} for k, name in enumerate(names)
            ],
            "slowness": self._pack(slowness, "f32"),
            "partitions": [] if grouped else self._partitions(servers, region if names else None, names),
            "heat": None,
        }
        if grouped:
            self._notes.append(f"{self._count:,} clients are drawn as {len(labels)} groups.")
        table = self._tables["timeline"]
        if table is not None and (self._count > MOST_LANES or len(table["client"]) > MOST_INTERVALS):
            self._notes.append(
                f"Lanes are {len(labels)} groups of clients by speed{' within regions' if names else ''}, fast ones "
                f"on top, in {BINS} bins of time; the height of a color is the share of the activity."
            )
            shares = _heat(table, group, len(labels), self._duration_s)
            of_group = _first(group, region, len(labels))
            values["heat"] = {
                "labels": labels,
                "sizes": np.bincount(group, minlength=len(labels)).tolist(),
                "marks": [{"name": name, "row": int(np.argmax(of_group == k))} for k, name in enumerate(names)]
                or [{"name": "fast", "row": 0}, {"name": "slow", "row": len(labels) - 1}],
                "bins": BINS,
                "shares": self._pack(shares.reshape(-1), "u8"),
                "group": self._pack(group, "u32"),
            }
        return values

    def _servers(self, ends: NDArray[np.int64]) -> int:
        messages = self._tables["messages"]
        most = [int(ends.max())] if len(ends) else []
        if messages is not None and len(messages["source"]):
            most += [int(messages["source"].max()), int(messages["target"].max())]
        return max(0, max(most, default=-1) + 1 - self._count)


def _groups(
    region: NDArray[np.int64], names: Sequence[str], slowness: NDArray[np.float64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Cut clients into at most `GROUPS` groups of neighbors in speed, within regions."""
    group, labels = np.zeros(len(region), dtype=np.int64), list[str]()
    for number in range(max(1, len(names))):
        inside = np.flatnonzero(region == number)
        inside = inside[np.argsort(np.nan_to_num(slowness[inside], nan=math.inf), kind="stable")]
        parts = max(1, min(len(inside), round(GROUPS * len(inside) / len(region))))
        for position, part in enumerate(np.array_split(inside, parts)):
            group[part] = len(labels)
            where = f"{names[number]}: " if names else ""
            labels.append(f"{where}{show_count(len(part))} clients, speed class {position + 1} of {parts}")
    return group, labels


def _first(group: NDArray[np.int64], values: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the value of the first client of each group."""
    first = np.zeros(count, dtype=np.int64)
    first[group[::-1]] = values[::-1]
    return first


def _heat(
    table: Mapping[str, NDArray[Any]], group: NDArray[np.int64], groups: int, duration_s: float
) -> NDArray[np.uint8]:
    """Return the share of time of each activity by group and bin.

    It is u8 [groups, BINS, activities], 255 for all of the time.

    An interval adds to a bin the part of it that lies inside: F(end) - F(start), where F is the clamped position in
    bins. Whole bins between both ends are added as differences along the axis of bins.
    """
    width = duration_s / BINS or 1.0
    sums = np.zeros((groups, BINS + 1, len(ACTIVITIES)))
    steps = np.zeros_like(sums)
    row, activity = group[table["client"]], table["activity"]
    start, end = (np.clip(table[name] / width, 0, BINS) for name in ("start_s", "end_s"))
    first, last = np.floor(start).astype(int), np.floor(end).astype(int)
    # 1 for each bin from `first` to before `last`; then less the part before the start, and more that before the end.
    np.add.at(steps, (row, first, activity), 1.0)
    np.add.at(steps, (row, last, activity), -1.0)
    sums += np.cumsum(steps, axis=1)
    np.add.at(sums, (row, first, activity), first - start)
    np.add.at(sums, (row, last, activity), end - last)
    sizes = np.bincount(group, minlength=groups)[:, None, None]
    return np.rint(255 * np.clip(sums[:, :BINS] / np.maximum(sizes, 1), 0, 1)).astype(np.uint8)
