"""Availability files: a plain table of times, and FedScale's public trace.

FedScale (Lai et al. 2022, https://arxiv.org/abs/2105.11367) publishes the trace of some 100,000 phones as a pickled
mapping of clients to {"active": [...], "inactive": [...], "finish_time": ..., ...}. A client is online from active[i]
until inactive[i], in seconds, and starts again after finish_time. Unpickling a file runs code in it, so simfl reads the
same mapping as JSON; docs/devices.md shows how to write it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simfl.assembly.csv_files import CsvFile, read_text
from simfl.data.files import once
from simfl.errors import DataError, ScenarioError
from simfl.scenario.availability import Absence, PresenceTrace
from simfl.scenario.problems import is_number, show
from simfl.scenario.units import format_time
from simfl.streams import Streams
from simfl.world.availability import Outage, Repeated

#: The online intervals of a client in order, and the seconds after which they repeat; infinite for never.
Presence = tuple[list[tuple[float, float]], float]


def absences_from_file(
    rule: Absence, index: int, clients: Iterable[int], count: int, streams: Streams
) -> dict[int, tuple[list[Outage], list[Repeated]]]:
    """Return the offline intervals of a rule's clients: single and repeated ones.

    Args:
        rule: with a trace.
        index: of the rule.
        clients: that the rule selects.
        count: K.
        streams: draw the entry of each client.

    Raises:
        DataError: the file cannot be read, or is not valid.
        ScenarioError: it has no times of a client.
    """
    trace = rule.trace
    assert trace is not None, "the rule has a trace"
    where = f"availability.{index}.trace"
    read = _fedscale(trace, where) if trace.layout == "fedscale" else _plain(trace, where, rule.every)
    names = list(read)
    drawn = streams.generator("presence", index).integers(0, len(names), count).tolist() if trace.draw else []
    absences_of = functools.cache(lambda name: _absences(*read[name]))
    absences = {}
    for client in clients:
        name = names[drawn[client]] if trace.draw else str(client)
        if name not in read:
            raise ScenarioError(
                f"{where}.path: {trace.path}: expected times of client {client}, found none; add them, name other "
                "clients, or use draw: true, which gives each client the times of a random client of the file"
            )
        absences[client] = absences_of(name)
    return absences


def _absences(online: list[tuple[float, float]], period_s: float) -> tuple[list[Outage], list[Repeated]]:
    """Return the offline intervals between the online ones, single and repeated."""
    if not online:
        return [Outage(0.0, math.inf)], []
    offline, end = [], 0.0
    for begin, until in [*online, (period_s, math.inf)]:
        if begin > end:
            offline.append(Outage(end, begin))
        end = until
    if math.isinf(period_s):
        return offline, []
    return [], [Repeated(tuple(offline), period_s)] if offline else []


def _plain(trace: PresenceTrace, where: str, every: float | None) -> dict[str, Presence]:
    """Read lines of client, from, to."""
    file = CsvFile(Path(trace.path), f"{where}.path", ("client", "from", "to"))
    every_s = math.inf if every is None else every
    begins, ends = file.seconds("from"), file.seconds("to", above=0.0, empty=every_s)
    times: dict[str, list[tuple[float, float]]] = {}
    for row, (name, begin, end) in enumerate(zip(file.words("client"), begins.tolist(), ends.tolist(), strict=True)):
        intervals = times.setdefault(name, [])
        if intervals and begin < intervals[-1][1]:
            end_of_last = "never" if math.isinf(intervals[-1][1]) else format_time(intervals[-1][1])
            expected = f"a time not before the end of the client's last one, {end_of_last}"
            raise file.refused(row, "from", expected, "sort them and remove overlaps")
        if end <= begin:
            raise file.refused(row, "to", f"a time after 'from', which is {format_time(begin)}, or nothing for ever")
        if every is not None and end > every:
            raise file.refused(row, "to", f"a time up to 'every', which is {format_time(every)}", "lengthen 'every'")
        intervals.append((begin, end))
    return {name: (intervals, every_s) for name, intervals in times.items()}


def _fedscale(trace: PresenceTrace, where: str) -> dict[str, Presence]:
    """Read a mapping of clients to active, inactive and finish_time."""
    expected = "JSON of FedScale's layout, {client: {active: [...], inactive: [...], finish_time: ...}}"
    path = Path(trace.path)
    try:
        content = json.loads(read_text(path, f"{where}.path", expected), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "nothing that JSON has"
        raise DataError(f"{where}.path: {path}: expected {expected}, found a file that is none: {reason}") from error
    if not isinstance(content, Mapping) or not content:
        raise DataError(f"{where}.path: {path}: expected {expected}, found {show(content)}")
    return {name: _presence(entry, f"{where}.path: {path}: client {name}") for name, entry in content.items()}


def _presence(entry: Any, where: str) -> Presence:
    """Return the times of one client of FedScale's trace."""
    if not isinstance(entry, Mapping):
        raise DataError(f"{where}: expected active, inactive and finish_time, found {show(entry)}")
    period: Any = entry.get("finish_time")
    if not _is_time(period) or period == 0:
        raise DataError(f"{where}: finish_time: expected seconds > 0, found {show(period)}")
    for key in ("active", "inactive"):
        times = entry.get(key)
        if not isinstance(times, list) or not all(map(_is_time, times)):
            raise DataError(f"{where}: {key}: expected a list of seconds, found {show(times)}")
    begins, ends = entry["active"], entry["inactive"]
    if not 0 <= len(begins) - len(ends) <= 1:
        expected = f"as many inactive as active times, {len(begins)}, or one less"
        raise DataError(f"{where}: inactive: expected {expected}, found {len(ends)}")
    intervals, before = [], 0.0
    for begin, end in zip(begins, [*ends, period], strict=False):
        if not before <= begin <= end:
            found = f"{begin:g} and {end:g} after {before:g}"
            raise DataError(f"{where}: expected active and inactive times in turn that go on in time, found {found}")
        before = end
        if begin < min(end, period):
            intervals.append((float(begin), float(min(end, period))))
    return intervals, float(period)


def _is_time(value: object) -> bool:
    return is_number(value) and 0 <= value < math.inf
