"""Availability of clients: late joins, offline intervals (churn) and crashes.

Work in progress is suspended while a client is offline, and continues afterwards. A crash loses the work in progress,
and the client returns with its last model. A client that has not joined yet is offline.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simfl.errors import ScenarioError
from simfl.streams import Streams
from simfl.world.compute import Sampler
from simfl.world.engine import ROUNDING

#: Largest number of outages of a client during one computation; with more, the scenario is rejected, at the latest
#: during the run, since the times may be drawn.
MOST_OUTAGES = 2**17


class Outcome(enum.Enum):
    """How a computation ended."""

    DONE = "done"
    CRASHED = "crashed"
    GONE = "gone"


#: The outcomes under their own names: a look-up in an `enum` takes as long as a call.
DONE, CRASHED, GONE = Outcome


@dataclass(frozen=True)
class Outage:
    """An interval [start_s, end_s) offline; with `crash` the client loses its work."""

    start_s: float
    end_s: float
    crash: bool = False


@dataclass(frozen=True)
class RandomOutages:
    """Alternating times online and offline, drawn per client."""

    up: Sampler
    down: Sampler


@dataclass(frozen=True)
class Repeated:
    """Outages in order within one period of `every_s` seconds, repeated without end."""

    outages: tuple[Outage, ...]
    every_s: float

    def between(self, first: int, last: int) -> list[Outage]:
        """Return the outages of the periods first, ..., last - 1, counted from 0."""
        shifts = (number * self.every_s for number in range(first, last))
        return [Outage(o.start_s + shift, o.end_s + shift, o.crash) for shift in shifts for o in self.outages]


class _Timeline:
    """A client's outages in order; random and repeated ones are extended on demand."""

    def __init__(
        self,
        outages: Sequence[Outage],
        random: RandomOutages | None,
        generator: np.random.Generator,
        repeated: Sequence[Repeated] = (),
    ) -> None:
        self._random = random
        self._repeated = list(repeated)
        self._rounds = [0] * len(self._repeated)
        self._again: list[Outage] = []
        self._generator = generator
        self._scripted = _merged(outages)
        self._drawn: list[Outage] = []
        self._known = 0.0 if random else math.inf
        #: When the client leaves permanently; later outages do not matter.
        self._leaves_s = next((o.start_s for o in self._scripted if math.isinf(o.end_s)), math.inf)
        self._merge()

    def _merge(self) -> None:
        self.outages = _merged(self._scripted + self._drawn + self._again)
        #: Seconds offline in all outages before each one.
        self.away_before_s = list(itertools.accumulate((o.end_s - o.start_s for o in self.outages), initial=0.0))

    def until(self, time: float) -> list[Outage]:
        """Return the outages, complete at least up to `time`."""
        time = min(time, self._leaves_s)
        if self._repeated:
            self._repeat(time)
        if self._known <= time and self._random is not None:
            before = len(self._drawn)
            enough = max(8, 2 * before)  # doubled each time, so that merging stays cheap in long runs
            while self._known <= time or len(self._drawn) < enough:
                if len(self._drawn) - before > MOST_OUTAGES and self._known <= time:
                    raise ScenarioError(
                        f"availability.random: expected at most {MOST_OUTAGES} absences of a client during one "
                        f"computation, found more, one every {self._known / len(self._drawn):.3g} s on average; "
                        "choose longer times for up and down"
                    )
                start = self._known + float(self._random.up(self._generator, 1)[0])
                end = start + float(self._random.down(self._generator, 1)[0])
                self._drawn.append(Outage(start, end))
                self._known = end
            self._merge()
        return self.outages

    def next_s(self, time: float) -> float:
        """Return the start of the next outage, `time` during one; inf if there is none."""
        start_s, unwritten_s = math.inf, time
        while unwritten_s < start_s:  # repeated outages are written out only where none before them is known
            outages = self.until(unwritten_s)
            at = bisect.bisect_right(outages, time, key=lambda o: o.end_s)
            start_s = outages[at].start_s if at < len(outages) else math.inf
            rules = zip(self._repeated, self._rounds, strict=True)
            unwritten_s = min(
                (rule.outages[0].start_s + count * rule.every_s for rule, count in rules), default=math.inf
            )
        return max(time, start_s)

    def _repeat(self, time: float) -> None:
        """Extend repeated outages to `time` or later, at least to twice their number."""
        known = sum(self._rounds)
        for index, rule in enumerate(self._repeated):
            before, first_s = self._rounds[index], rule.outages[0].start_s
            if math.isinf(time) or first_s + before * rule.every_s > time:
                continue
            needed = int((time - first_s) // rule.every_s) + 2 - before
            if needed > MOST_OUTAGES:
                raise ScenarioError(
                    f"availability.every: expected at most {MOST_OUTAGES} absences of a client during one computation, "
                    f"found {needed}, one every {rule.every_s:.3g} s; choose a longer time"
                )
            self._rounds[index] = before + max(8, before, needed)
            self._again += rule.between(before, self._rounds[index])
        if sum(self._rounds) > known:
            self._merge()


def _merged(outages: Sequence[Outage]) -> list[Outage]:
    """Sort outages and join those that touch; if one is a crash, their join is one."""
    result: list[Outage] = []
    for outage in sorted(outages, key=lambda o: (o.start_s, o.end_s)):
        if result and outage.start_s <= result[-1].end_s:
            last = result[-1]
            result[-1] = Outage(last.start_s, max(last.end_s, outage.end_s), last.crash or outage.crash)
        elif outage.end_s > outage.start_s:
            result.append(outage)
    return result


class Availability:
    """The availability of all clients; those without outages are always online."""

    def __init__(
        self,
        streams: Streams,
        outages: dict[int, Sequence[Outage]] | None = None,
        random: dict[int, RandomOutages] | None = None,
        repeated: dict[int, Sequence[Repeated]] | None = None,
    ) -> None:
        outages, random, repeated = outages or {}, random or {}, repeated or {}
        self._timelines = {
            client: _Timeline(
                outages.get(client, ()),
                random.get(client),
                streams.generator("availability", client),
                repeated.get(client, ()),
            )
            for client in sorted(set(outages) | set(random) | set(repeated))
        }

    @property
    def trivial(self) -> bool:
        """Whether every client is always online."""
        return not self._timelines

    def outage(self, client: int, time: float) -> Outage | None:
        """Return the client's outage at `time`, or None.

        A time just before an edge is at the edge: see `ROUNDING`.
        """
        timeline = self._timelines.get(client)
        if timeline is None:
            return None
        time *= 1.0 + ROUNDING
        outages = timeline.until(time)
        at = bisect.bisect_right(outages, time, key=lambda o: o.start_s) - 1
        return outages[at] if at >= 0 and time < outages[at].end_s else None

    def online(self, client: int, time: float) -> bool:
        """Return whether the client is online at `time`."""
        return self.outage(client, time) is None

    def gone(self, client: int, time: float) -> bool:
        """Return whether the client is offline at `time` and never returns."""
        outage = self.outage(client, time)
        return outage is not None and math.isinf(outage.end_s)

    def back_s(self, client: int, time: float) -> float:
        """Return when the client is next online, from `time` on; inf for never."""
        while not math.isinf(time) and (outage := self.outage(client, time)) is not None:
            time = outage.end_s
        return time

    def away_s(self, client: int, time: float) -> float:
        """Return when the client is next offline, from `time` on; inf for never."""
        timeline = self._timelines.get(client)
        return math.inf if timeline is None else timeline.next_s(time)

    def joins_s(self, client: int) -> float:
        """Return when the client is online first; infinite if never."""
        return self.back_s(client, 0.0)

    def leaves_s(self, client: int) -> float:
        """Return when the client leaves permanently; infinite if it does not."""
        outages = self._timelines[client].until(0.0) if client in self._timelines else []
        return next((o.start_s for o in outages if math.isinf(o.end_s)), math.inf)

    def finish(self, client: int, start: float, work: float) -> tuple[float, Outcome]:
        """Return the end and outcome of `work` seconds of computation from `start`.

        DONE: the work is complete at that time. CRASHED: the work is lost, and the client is back at that time. GONE:
        the client leaves permanently at that time.
        """
        timeline = self._timelines.get(client)
        if timeline is None:
            return start + work, Outcome.DONE
        now = start
        while True:
            end = now + work
            outages = timeline.until(end)
            at = bisect.bisect_right(outages, now, key=lambda o: o.end_s)
            if at == len(outages) or outages[at].start_s >= end * (1.0 - ROUNDING):
                return end, Outcome.DONE
            outage = outages[at]
            if math.isinf(outage.end_s):
                return max(start, outage.start_s), Outcome.GONE
            if outage.crash and outage.start_s >= start:
                return outage.end_s, Outcome.CRASHED
            work -= max(0.0, outage.start_s - now)
            now = outage.end_s

    def always_online(self, client: int) -> bool:
        """Return whether the client has no outage."""
        return client not in self._timelines

    def outages(self, client: int, end: float) -> list[Outage]:
        """Return the client's outages that begin before `end`, in order of time."""
        outages = self._timelines[client].until(end) if client in self._timelines else []
        return outages[: bisect.bisect_left(outages, end, key=lambda o: o.start_s)]

    def present(self, client: int, start: float, end: float) -> list[tuple[float, float]]:
        """Return the intervals of [start, end) in which the client is online."""
        if client not in self._timelines:
            return [(start, end)] if start < end else []
        pieces = []
        outages = self.outages(client, end)
        for outage in outages[bisect.bisect_right(outages, start, key=lambda o: o.end_s) :]:
            if outage.start_s > start:
                pieces.append((start, outage.start_s))
            start = outage.end_s
        if start < end:
            pieces.append((start, end))
        return pieces

    def offline_s(self, client: int, end: float) -> float:
        """Return how long the client was offline until `end`."""
        timeline = self._timelines.get(client)
        if timeline is None:
            return 0.0
        outages = timeline.until(end)
        at = bisect.bisect_left(outages, end, key=lambda o: o.start_s) - 1
        if at < 0:
            return 0.0
        return timeline.away_before_s[at] + min(outages[at].end_s, end) - outages[at].start_s
