"""When a client is there: late joins, offline intervals and crashes, scripted or random.

Offline suspends: work in progress goes on afterwards. A crash loses the work in progress; the
client comes back with the last model it had. A client that has not joined yet is offline.
"""

from __future__ import annotations

import bisect
import enum
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simfl.errors import RunError
from simfl.streams import Streams
from simfl.world.compute import Sampler

#: Absences of a client in one go, beyond which its times must be a mistake.
MOST_OUTAGES = 2**17


class Outcome(enum.Enum):
    """How a computation ended."""

    DONE = "done"
    CRASHED = "crashed"
    GONE = "gone"


@dataclass(frozen=True)
class Outage:
    """An interval [start_s, end_s) in which a client is away; `crash` if it loses its work."""

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
    """Outages that come again for ever, every so many seconds: one after the other, within one period."""

    outages: tuple[Outage, ...]
    every_s: float

    def between(self, first: int, last: int) -> list[Outage]:
        """Return the outages of the rounds first, ..., last - 1; round 0 is as they are given."""
        shifts = (number * self.every_s for number in range(first, last))
        return [Outage(o.start_s + shift, o.end_s + shift, o.crash) for shift in shifts for o in self.outages]


class _Timeline:
    """A client's outages in order of time; random and repeated ones are known as far as they are asked for."""

    def __init__(
        self,
        outages: Sequence[Outage],
        random: RandomOutages | None,
        generator: np.random.Generator,
        repeated: Sequence[Repeated] = (),
    ) -> None:
        self._random = random
        self._repeated = list(repeated)
        #: How many rounds of each are known.
        self._rounds = [0] * len(self._repeated)
        self._again: list[Outage] = []
        self._generator = generator
        self._scripted = _merged(outages)
        self._drawn: list[Outage] = []
        self._known = 0.0 if random else math.inf
        #: From when on the client is away for good: what is drawn beyond it says nothing.
        self._leaves_s = next((o.start_s for o in self._scripted if math.isinf(o.end_s)), math.inf)
        self._merge()

    def _merge(self) -> None:
        self.outages = _merged(self._scripted + self._drawn + self._again)
        #: Seconds away in all outages before each one.
        self.away_before_s = list(itertools.accumulate((o.end_s - o.start_s for o in self.outages), initial=0.0))

    def until(self, time: float) -> list[Outage]:
        """Outages known at least up to `time`."""
        time = min(time, self._leaves_s)
        if self._repeated:
            self._repeat(time)
        if self._known <= time and self._random is not None:
            before = len(self._drawn)
            enough = max(8, 2 * before)  # twice as many each time: merging stays cheap in long runs
            while self._known <= time or len(self._drawn) < enough:
                if len(self._drawn) - before > MOST_OUTAGES and self._known <= time:
                    raise RunError(
                        f"availability.random: expected at most {MOST_OUTAGES} absences of a client while it computes "
                        f"once, found more, of {self._known / len(self._drawn):.3g} s each with the time between; "
                        "choose longer times for up and down"
                    )
                start = self._known + float(self._random.up(self._generator, 1)[0])
                end = start + float(self._random.down(self._generator, 1)[0])
                self._drawn.append(Outage(start, end))
                self._known = end
            self._merge()
        return self.outages

    def _repeat(self, time: float) -> None:
        """Know repeated outages up to `time`, and as many more as there are: merging stays cheap in long runs."""
        known = sum(self._rounds)
        for index, rule in enumerate(self._repeated):
            before, first_s = self._rounds[index], rule.outages[0].start_s
            if math.isinf(time) or first_s + before * rule.every_s > time:
                continue
            needed = int((time - first_s) // rule.every_s) + 2 - before
            if needed > MOST_OUTAGES:
                raise RunError(
                    f"availability.every: expected at most {MOST_OUTAGES} absences of a client while it computes once, "
                    f"found {needed}, one every {rule.every_s:.3g} s; choose a longer time"
                )
            self._rounds[index] = before + max(8, before, needed)
            self._again += rule.between(before, self._rounds[index])
        if sum(self._rounds) > known:
            self._merge()


def _merged(outages: Sequence[Outage]) -> list[Outage]:
    """Order by time and join what touches or overlaps; a join with a crash in it is a crash."""
    result: list[Outage] = []
    for outage in sorted(outages, key=lambda o: (o.start_s, o.end_s)):
        if result and outage.start_s <= result[-1].end_s:
            last = result[-1]
            result[-1] = Outage(last.start_s, max(last.end_s, outage.end_s), last.crash or outage.crash)
        elif outage.end_s > outage.start_s:
            result.append(outage)
    return result


class Availability:
    """Who is there when.

    Args:
        streams: the run's streams.
        outages: scripted outages per client; clients without any are always there.
        random: random outages per client.
        repeated: outages per client that come again for ever.
    """

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
        """Whether every client is always there."""
        return not self._timelines

    def outage(self, client: int, time: float) -> Outage | None:
        """Return the outage that the client is in at `time`, or None."""
        timeline = self._timelines.get(client)
        if timeline is None:
            return None
        outages = timeline.until(time)
        at = bisect.bisect_right(outages, time, key=lambda o: o.start_s) - 1
        return outages[at] if at >= 0 and time < outages[at].end_s else None

    def online(self, client: int, time: float) -> bool:
        """Whether the client is there at `time`."""
        return self.outage(client, time) is None

    def gone(self, client: int, time: float) -> bool:
        """Whether the client is away at `time` and never comes back."""
        outage = self.outage(client, time)
        return outage is not None and math.isinf(outage.end_s)

    def back_s(self, client: int, time: float) -> float:
        """Return when the client is there again: `time` itself if it is there, infinite if it never comes back."""
        while not math.isinf(time) and (outage := self.outage(client, time)) is not None:
            time = outage.end_s
        return time

    def joins_s(self, client: int) -> float:
        """Return when the client joins: 0, or the end of an outage that begins with the run (infinite: never)."""
        return self.back_s(client, 0.0)

    def leaves_s(self, client: int) -> float:
        """Return when the client leaves for good; infinite if it does not."""
        timeline = self._timelines.get(client)
        if timeline is None:
            return math.inf
        return next((o.start_s for o in timeline.until(0.0) if math.isinf(o.end_s)), math.inf)

    def finish(self, client: int, start: float, work: float) -> tuple[float, Outcome]:
        """Return when, and how, `work` seconds of computing begun at `start` come to an end.

        DONE: at that time they are done. CRASHED: the work was lost and the client is back at that
        time. GONE: the client left at that time for good.
        """
        timeline = self._timelines.get(client)
        if timeline is None:
            return start + work, Outcome.DONE
        now = start
        while True:
            end = now + work
            outages = timeline.until(end)
            at = bisect.bisect_right(outages, now, key=lambda o: o.end_s)
            if at == len(outages) or outages[at].start_s >= end:
                return end, Outcome.DONE
            outage = outages[at]
            if math.isinf(outage.end_s):
                return max(start, outage.start_s), Outcome.GONE
            if outage.crash and outage.start_s >= start:
                return outage.end_s, Outcome.CRASHED
            work -= max(0.0, outage.start_s - now)
            now = outage.end_s

    def outages(self, client: int, end: float) -> list[Outage]:
        """Return the outages of the client that begin before `end`, in order of time."""
        timeline = self._timelines.get(client)
        if timeline is None:
            return []
        outages = timeline.until(end)
        return outages[: bisect.bisect_left(outages, end, key=lambda o: o.start_s)]

    def present(self, client: int, start: float, end: float) -> list[tuple[float, float]]:
        """Return the intervals of [start, end) in which the client is there, in order of time."""
        pieces = []
        timeline = self._timelines.get(client)
        if timeline is not None:
            outages = timeline.until(end)
            for outage in outages[bisect.bisect_right(outages, start, key=lambda o: o.end_s) :]:
                if outage.start_s >= end:
                    break
                if outage.start_s > start:
                    pieces.append((start, outage.start_s))
                start = outage.end_s
        if start < end:
            pieces.append((start, end))
        return pieces

    def offline_s(self, client: int, end: float) -> float:
        """Return how long the client was away up to `end`."""
        timeline = self._timelines.get(client)
        if timeline is None:
            return 0.0
        outages = timeline.until(end)
        at = bisect.bisect_left(outages, end, key=lambda o: o.start_s) - 1
        if at < 0:
            return 0.0
        return timeline.away_before_s[at] + min(outages[at].end_s, end) - outages[at].start_s
