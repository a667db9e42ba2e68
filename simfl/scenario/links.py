"""How the links behave, and what a server can take."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.scenario.availability import OpenInterval, out_of_order
from simfl.scenario.clients import exactly_one
from simfl.scenario.distributions import ConstantTime, Duration
from simfl.scenario.fields import Bandwidth, Config, Flag, Loss, PositiveSeconds, Seconds, Share, Within
from simfl.scenario.problems import InvalidValueError, Problem, show
from simfl.scenario.units import format_time


class Server(Config):
    """What the server can take, where the algorithm has one; its links have the latency and bandwidth of all others."""

    # A server that is away loses nothing: what comes to it waits for its return.

    uplink: Bandwidth | None = Field(
        default=None, description="capacity that all its outgoing messages share; null: unlimited"
    )
    downlink: Bandwidth | None = Field(
        default=None, description="capacity that all its incoming messages share; null: unlimited"
    )
    seconds_per_update: Seconds = Field(
        default=0.0, description="time that each update which arrives takes to process, one after the other"
    )
    offline: tuple[OpenInterval, ...] = Field(
        default=(),
        description="outages as [begin, end], in order, the last one perhaps as [begin, never]; what is sent to the "
        "server meanwhile waits for its return",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        problems = out_of_order([(("offline", i), begin, end) for i, (begin, end) in enumerate(self.offline)])
        if problems:
            raise InvalidValueError(*problems)
        return self


def _node(value: object) -> object:
    if value == "server":
        return value
    if isinstance(value, str) or value is None:
        raise InvalidValueError(Problem("a client by number, or server", show(value), "clients are numbered from 0"))
    return Within(at_least=0).integer(value)


Node = Annotated[
    int | Literal["server"],
    BeforeValidator(_node),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"const": "server"}]}),
]


class NetworkPartition(Config):
    """For a while, groups do not reach each other. Say who is apart by exactly one of groups and fraction."""

    groups: tuple[tuple[Node, ...], ...] | None = Field(
        default=None,
        description="clients by number, and server, that reach each other alone; who is in no group is in one more",
    )
    fraction: Share | None = Field(default=None, description="this share of all clients, drawn once, is cut off")
    start: Seconds = Field(default=0.0, alias="from", description="virtual time at which the partition begins")
    until: PositiveSeconds | None = Field(default=None, description="virtual time at which it ends; null: never")

    @model_validator(mode="after")
    def _contradictions(self) -> Self:
        problems = list(exactly_one(self, "groups", "fraction"))
        if self.until is not None and self.until <= self.start:
            expected = f"a time after 'from', which is {format_time(self.start)}"
            problems.append(Problem(expected, format_time(self.until), "swap from and until", ("until",)))
        named = [node for group in self.groups or () for node in group]
        if self.groups is not None and not all(self.groups):
            problems.append(Problem("at least one client in every group", "an empty group", "remove it", ("groups",)))
        elif self.groups is not None and not named:
            problems.append(Problem("at least one group", "[]", "list clients by number", ("groups",)))
        if len(set(named)) < len(named):
            twice = next(node for node in named if named.count(node) > 1)
            found = f"{'server' if twice == 'server' else f'client {twice}'} more than once"
            problems.append(Problem("each client in one group", found, "list every client only once", ("groups",)))
        if problems:
            raise InvalidValueError(*problems)
        return self


class Links(Config):
    """How messages travel: queueing + bytes / bandwidth + latency, and again after a timeout when one is lost."""

    latency: Duration = Field(
        default=ConstantTime(value=1e-3),
        description="time on the way, drawn per message: a time or a distribution of times",
    )
    bandwidth: Bandwidth | None = Field(default=1.25e8, description="of every link, each way; null: unlimited")
    loss: Loss = Field(default=0.0, description="probability that a message is lost and has to be sent again")
    resend_timeout: PositiveSeconds = Field(default=0.1, description="time after which a lost message is sent again")
    fifo: Flag = Field(default=False, description="messages on one link arrive in the order in which they were sent")
    sharing: Literal["fifo", "fair", "by_latency"] | None = Field(
        default=None,
        description="messages under way wait for one another on a link, an uplink, a downlink (fifo), or share them "
        "and the edges beneath max-min fairly (fair), or fairly with rates that go by one over the latency, as those "
        "of TCP do (by_latency); null: fair over an underlay, else fifo",
    )
    uplink: Bandwidth | None = Field(
        default=None, description="a client's own capacity that all its outgoing messages share; null: unlimited"
    )
    downlink: Bandwidth | None = Field(
        default=None, description="a client's own capacity that all its incoming messages share; null: unlimited"
    )
    partitions: tuple[NetworkPartition, ...] = Field(
        default=(),
        description="times in which groups of clients do not reach each other; a message across is lost where it is "
        "under way, and waits for the end",
    )

    @property
    def cost(self) -> str | None:
        """What a message costs here, in a word: a latency, a bandwidth, losses; None where it arrives at once."""
        if not isinstance(self.latency, ConstantTime) or self.latency.value > 0:
            return "a latency"
        if not (self.bandwidth is self.uplink is self.downlink is None):
            return "a bandwidth"
        return "losses" if self.loss > 0 else None
