"""Clients that join late, go offline, or crash and come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from simfl.scenario.clients import exactly_one
from simfl.scenario.distributions import Duration
from simfl.scenario.fields import Clients, Config, Flag, PositiveSeconds, RegionNames, Seconds, Share, WorldFile, option
from simfl.scenario.problems import InvalidValueError, Path, Problem, invalid, show
from simfl.scenario.units import format_time, parse_time


def _never_or_time(value: object) -> float | None:
    if value is None or value == "never":
        return None
    try:
        return parse_time(value)
    except InvalidValueError as refusal:
        raise invalid("a time like '10 ms', or never", show(value), refusal.problems[0].advice) from None


ReturnTime = Annotated[
    float | None,
    BeforeValidator(_never_or_time),
    PlainSerializer(lambda seconds: "never" if seconds is None else format_time(seconds), return_type=str),
    WithJsonSchema({"type": ["string", "number"], "format": "time, or never", "examples": ["40 s", "never"]}),
]


def _interval(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise invalid("an interval like [10 s, 20 s]", show(value), "write its begin and its end")
    return value


Interval = Annotated[tuple[Seconds, Seconds], BeforeValidator(_interval)]
OpenInterval = Annotated[tuple[Seconds, ReturnTime], BeforeValidator(_interval)]


class Churn(Config):
    """A client that goes offline and comes back at random."""

    up: Duration = Field(description="length of each time online: a time or a distribution of times")
    down: Duration = Field(description="length of each time offline: a time or a distribution of times")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem if the client is never online."""
        longest = {"constant": "value", "uniform": "high"}.get(self.up.kind)
        if longest is not None and getattr(self.up, longest) == 0:
            advice = "choose a longer time, or 'join' for clients that are absent at first"
            yield Problem("a time > 0", "0 s", advice, ("up", longest))


class Crash(Config):
    """Crashes, in order: work in progress is lost.

    The client comes back with its last model, or never.
    """

    at: Seconds = Field(description="virtual time of the crash")
    back: ReturnTime = option(None, "virtual time of the return, or never")


class PresenceTrace(Config):
    """Intervals in which clients are online, from a file."""

    path: WorldFile = Field(description="a file")
    layout: Literal["plain", "fedscale"] = option(
        "plain",
        "plain: CSV with the columns client, from and to (empty: forever), times in seconds or with a "
        "unit; fedscale: the public FedScale client availability trace as JSON, in which clients repeat after their "
        "finish_time",
    )
    draw: Flag = option(
        False, "true: each client has the times of a random one in the file; false: those of its number"
    )


class Absence(Config):
    """When some clients are offline.

    Select them by exactly one of clients, fraction, regions and all.
    """

    clients: Clients | None = option(None, "these clients, by number; the first is 0")
    fraction: Share | None = option(None, "this fraction of all clients, drawn once")
    regions: RegionNames | None = option(None, "the clients in these regions, of regions.names")
    all: Flag | None = option(None, "true: every client")
    join: Seconds = option(0.0, "virtual time at which the client takes part for the first time")
    offline: tuple[Interval, ...] = option((), "times offline as [begin, end], in order")
    random: Churn | None = option(None, "times online and offline drawn at random; null: none")
    crash: tuple[Crash, ...] = option((), "crashes, in order")
    trace: PresenceTrace | None = option(None, "times in which they are online, from a file; null: no file")
    every: PositiveSeconds | None = option(
        None, "`offline`, `crash` and a plain `trace` repeat with this period; null: they occur once"
    )

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the selection and of the times."""
        problems = list(exactly_one(self, "clients", "fraction", "regions", "all"))
        if self.all is False:
            problems.append(Problem("true", "false", "remove 'all' and name clients, fraction or regions", ("all",)))
        if not (self.join or self.offline or self.random or self.crash or self.trace):
            advice = "say when these clients are away, or remove the rule"
            problems.append(Problem("at least one of join, offline, random, crash and trace", "none of them", advice))
        problems += out_of_order([(("offline", i), begin, end) for i, (begin, end) in enumerate(self.offline)])
        problems += out_of_order([(("crash", i), crash.at, crash.back) for i, crash in enumerate(self.crash)])
        if not problems and self.every is not None:
            problems += self._too_close(self.every)
        return iter(problems)

    def _too_close(self, every: float) -> list[Problem]:
        """Return the reason why these times cannot repeat after `every`."""
        spans = sorted([*self.offline, *((crash.at, crash.back) for crash in self.crash)], key=lambda span: span[0])
        if not spans:
            if self.trace is not None and self.trace.layout == "plain":
                return []
            advice = "add some, or remove 'every': random absences and FedScale's go on by themselves"
            expected = "times that come again, offline, crash or a plain trace"
            return [Problem(expected, "none of them", advice, ("every",))]
        ends = [end for _, end in spans if end is not None]
        if len(ends) < len(spans):
            advice = "add 'back', or remove 'every'"
            return [Problem("a return from every crash", "never", advice, ("every",))]
        if max(ends) - spans[0][0] >= every:
            expected = f"more than {format_time(max(ends) - spans[0][0])}, from the first begin to the last end"
            return [Problem(expected, format_time(every), "choose a longer time", ("every",))]
        return []


def out_of_order(spans: list[tuple[Path, float, float | None]]) -> Iterator[Problem]:
    """Yield problems of intervals that must be in order; an end of None is never."""
    previous: float | None = 0.0
    for at, begin, end in spans:
        crash = at[0] == "crash"
        where, word = ((*at, "at"), "crash") if crash else (at, "interval")
        if previous is None:
            expected = "nothing after a crash without return" if crash else "nothing after an interval without end"
            advice = "remove it or add 'back'" if crash else "remove it or name the end"
            yield Problem(expected, format_time(begin), advice, where)
        elif begin < previous:
            expected = f"a begin after the {word} before it has ended, at {format_time(previous)}"
            yield Problem(expected, format_time(begin), "sort them and remove overlaps", where)
        if end is not None and end <= begin:
            expected = f"a return after the crash at {format_time(begin)}" if crash else "an end after the begin"
            found = format_time(end) if crash else f"[{format_time(begin)}, {format_time(end)}]"
            yield Problem(expected, found, "choose a later time", (*at, "back") if crash else at)
        previous = end


Availability = tuple[Absence, ...]
