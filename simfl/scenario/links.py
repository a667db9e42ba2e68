"""Links, network partitions, and the capacity of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from simfl.scenario.availability import OpenInterval, out_of_order
from simfl.scenario.clients import ends_after_start, exactly_one
from simfl.scenario.distributions import BandwidthRule, ConstantTime, Latency, LatencyRule, LossRule
from simfl.scenario.fields import (
    Bandwidth,
    ByKind,
    Bytes,
    Config,
    Flag,
    Loss,
    NonNegative,
    PositiveBytes,
    PositiveSeconds,
    RegionNames,
    Seconds,
    Share,
    Text,
    Within,
    option,
    variant,
)
from simfl.scenario.problems import InvalidValueError, Path, Problem, invalid, show
from simfl.scenario.units import format_time


class Server(Config):
    """The server's capacity; its links are like others, and rules may name it."""

    # An offline server loses nothing: messages to it wait for its return.

    uplink: Bandwidth | None = option(None, "capacity that all its outgoing messages share; null: unlimited")
    downlink: Bandwidth | None = option(None, "capacity that all its incoming messages share; null: unlimited")
    seconds_per_update: Seconds = option(0.0, "time to process each update; updates are processed one by one")
    region: Text | None = option(None, "its region, one of regions.names; null: none")
    aggregator_regions: tuple[Text, ...] = option(
        (), "the region of each aggregator, from those below the server down; others are in the server's"
    )
    offline: tuple[OpenInterval, ...] = option(
        (),
        "outages as [begin, end], in order; the last may be [begin, never]; messages to the server wait for its return",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the order of outages."""
        return out_of_order([(("offline", i), begin, end) for i, (begin, end) in enumerate(self.offline)])


def _place(value: object) -> object:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, str) or value is None:
        advice = "clients are numbered from 0"
        raise invalid("a client by number, server, or a region", show(value), advice)
    return Within(at_least=0).integer(value)


#: A client by number, the server, or all clients of a region; `checks` validates the names of regions.
Place = Annotated[
    int | str,
    BeforeValidator(_place),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


def _side(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value,)


Side = Annotated[tuple[Place, ...], BeforeValidator(_side)]


class NetworkPartition(Config):
    """For a time, groups cannot reach each other.

    Give exactly one of groups and fraction.
    """

    groups: tuple[tuple[Place, ...], ...] | None = option(
        None, "clients by number, server, and regions, that reach only each other; others form one more group"
    )
    fraction: Share | None = option(None, "this fraction of all clients, drawn once, is separated")
    start: Seconds = option(0.0, "virtual time at which the partition begins", alias="from")
    until: PositiveSeconds | None = option(None, "virtual time at which it ends; null: never")

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the groups and of the times."""
        yield from exactly_one(self, "groups", "fraction")
        yield from ends_after_start(self.start, self.until)
        named = [node for group in self.groups or () for node in group]
        if self.groups is not None and not all(self.groups):
            yield Problem("at least one client in every group", "an empty group", "remove it", ("groups",))
        elif self.groups is not None and not named:
            yield Problem("at least one group", "[]", "list clients by number", ("groups",))
        if len(set(named)) < len(named):
            twice = next(node for node in named if named.count(node) > 1)
            found = f"{twice if isinstance(twice, str) else f'client {twice}'} more than once"
            yield Problem("each client in one group", found, "list every client only once", ("groups",))


class LinkRule(Config):
    """Links that differ; later rules win.

    Select them by exactly one of clients, fraction, regions, between and all.
    """

    clients: tuple[Place, ...] | None = option(None, "all links of these clients, by number; server, for its own")
    fraction: Share | None = option(None, "all links of this fraction of all clients, drawn once")
    regions: RegionNames | None = option(None, "all links of the clients in these regions")
    between: tuple[Side, Side] | None = option(
        None, "links between two sides, each a client by number, server, a region, or a list of these"
    )
    all: Flag | None = option(None, "true: every link, and every client")
    direction: Literal["both", "out", "in"] = option(
        "both", "messages both ways, out of the selected nodes (from the first side to the second), or into them"
    )
    latency: LatencyRule | None = option(None, "latency; null: unchanged")
    bandwidth: BandwidthRule | None = option(None, "bandwidth of a link, each way; null: unchanged")
    loss: LossRule | None = option(None, "probability that a message is lost; null: unchanged")
    uplink: BandwidthRule | None = option(
        None, "capacity that all outgoing messages of one client share; null: unchanged"
    )
    downlink: BandwidthRule | None = option(
        None, "capacity that all incoming messages of one client share; null: unchanged"
    )
    start: Seconds = option(0.0, "virtual time at which the rule begins to hold", alias="from")
    until: PositiveSeconds | None = option(None, "virtual time at which it ends; null: never")
    every: PositiveSeconds | None = option(None, "period after which the rule holds again; null: it holds once")

    def problems(self) -> Iterator[Problem]:
        """Yield problems of the selection, of the values and of the times."""
        yield from exactly_one(self, "clients", "fraction", "regions", "between", "all")
        if self.all is False:
            yield Problem("true", "false", "remove 'all' and say which links", ("all",))
        if all(getattr(self, key) is None for key in ("latency", "bandwidth", "loss", "uplink", "downlink")):
            expected, advice = "at least one of latency, bandwidth, loss, uplink and downlink", "say what differs"
            yield Problem(expected, "none of them", advice)
        if (named := self.clients) is not None and len(set(named)) < max(1, len(named)):
            found = "one twice" if named else "[]"
            yield Problem("at least one, each once", found, "list them by name or number", ("clients",))
        for i, side in enumerate(self.between or ()):
            if not side:
                yield Problem("nodes on either side", "[]", "name clients or a region", ("between", i))
        yield from self._node_problems()
        yield from ends_after_start(self.start, self.until)
        if self.every is not None and self.until is None:
            yield Problem("'until' beside 'every'", "none", "say when it ends each time", ("every",))
        elif self.every is not None and self.until is not None and self.every < self.until - self.start:
            expected = f"at least {format_time(self.until - self.start)}, from 'from' to 'until'"
            yield Problem(expected, format_time(self.every), "choose a longer time", ("every",))

    def _node_problems(self) -> Iterator[Problem]:
        """Yield uplinks and downlinks in a rule for links."""
        for key in ("uplink", "downlink"):
            if (law := getattr(self, key)) is None:
                continue
            if self.between is not None or self.direction != "both":
                found = f"{key} between two sides" if self.between is not None else f"{key} in one direction"
                advice = "name clients, fraction, regions or all, without direction; or use bandwidth"
                yield Problem("clients whose own capacity it is", found, advice, (key,))
            if getattr(law, "drawn", None) in ("link", "message"):
                advice = "an uplink or downlink is drawn once for each client"
                yield Problem("client", repr(law.drawn), advice, (key, "drawn"))

    def places(self) -> list[tuple[Path, int | str]]:
        """Return the named clients and regions, with their path in the rule."""
        named: list[tuple[Path, int | str]] = [(("clients", i), place) for i, place in enumerate(self.clients or ())]
        named += [(("regions", i), name) for i, name in enumerate(self.regions or ())]
        for i, side in enumerate(self.between or ()):
            named += [(("between", i, j) if len(side) > 1 else ("between", i), place) for j, place in enumerate(side)]
        return named


class Immediate(Config):
    """Connections are always open and at full speed."""

    kind: Literal["none"] = variant("none")


class Tcp(Config):
    """TCP: after a pause, a message waits for new round trips.

    These are the round trips of its connection and of slow start.
    """

    kind: Literal["tcp"] = variant("tcp")
    window: PositiveBytes = option(
        14_600, "bytes that are sent before the first acknowledgement: RFC 6928's ten segments"
    )
    pause: PositiveSeconds = option(
        1.0, "time without messages after which a connection is opened again and starts slowly"
    )
    round_trips: NonNegative = option(
        1.0, "round trips before the first byte is sent: 1 for TCP, 2 with TLS 1.3, 0 if connections are kept open"
    )


class Links(Config):
    """The links. A message takes queueing + bytes / bandwidth + latency.

    A lost message is resent after a timeout.
    """

    latency: Latency = option(ConstantTime(value=1e-3), "latency: a time or a distribution of times")
    bandwidth: Bandwidth | None = option(1.25e8, "bandwidth of every link, each way; null: unlimited")
    loss: Loss = option(0.0, "probability that a message is lost and has to be sent again")
    resend_timeout: PositiveSeconds = option(0.1, "time after which a lost message is sent again")
    fifo: Flag = option(False, "messages on one link arrive in the order in which they were sent")
    sharing: Literal["fifo", "fair", "by_latency"] | None = option(
        None,
        "messages in flight queue for a link, an uplink or a downlink (fifo), or share them and the edges "
        "beneath max-min fairly (fair), or fairly with rates proportional to one over the latency, as in TCP "
        "(by_latency); null: fair over an underlay, else fifo",
    )
    uplink: Bandwidth | None = option(
        None, "a client's own capacity that all its outgoing messages share; null: unlimited"
    )
    downlink: Bandwidth | None = option(
        None, "a client's own capacity that all its incoming messages share; null: unlimited"
    )
    rules: tuple[LinkRule, ...] = option(
        (), "links that differ from these values and those of regions and files; later rules win"
    )
    startup: Annotated[Immediate | Tcp, ByKind()] = option(Immediate(), "the delay of messages after a pause")
    overhead: Bytes = option(0, "bytes that the protocol adds to each message")
    partitions: tuple[NetworkPartition, ...] = option(
        (),
        "times in which groups of clients cannot reach each other; a message in flight between them is "
        "lost, and a new one waits for the end",
    )

    @model_validator(mode="before")
    @classmethod
    def _no_files(cls, data: Any) -> Any:
        """Reject a file as one value for all links, and name the options that take files."""
        given = data if isinstance(data, Mapping) else {}
        problems = [
            Problem(
                "a value for all links",
                "a file",
                f"a column {key} of topology: {{kind: edge_list, path: ...}} gives each link its own; links.rules with "
                "kind: trace gives values over time",
                (key,),
            )
            for key in ("latency", "bandwidth", "loss")
            if isinstance(given.get(key), Mapping) and "path" in given[key]
        ]
        if problems:
            raise InvalidValueError(*problems)
        return data
