"""Max-min fair sharing: rates of flows over limited resources, and their ends.

Rates are max-min fair if a flow can become faster only by slowing down a flow that is not faster than it. This is the
fluid model of TCP flows with equal round trips. The rates follow from progressive filling (Bertsekas and Gallager 1992,
Data Networks, section 6.5.2): all rates rise together; a flow stops rising at its own cap, and all flows across a full
resource stop. A flow of weight w rises w times as fast. SimGrid computes its network in the same way (Casanova et al.
2014, https://doi.org/10.1016/j.jpdc.2014.06.008).

It is fast because most values are *not* recomputed when a flow begins or ends:

- A resource limits no flow if its flows cannot fill it even with each at its cap. Only the other resources, the
  `contended` ones, make the rates of flows depend on each other. A client's uplink with a single message is not
  contended; it is part of that flow's cap.
- Flows that cross the same contended resources form a *class*. They differ only in their caps, so all that are below
  their cap have one rate. A class counts the bytes that such a flow has sent so far (its `virtual` bytes, as in
  processor sharing), so that the next flow to end is the top of a heap, and a change of rate touches no flow.
- Rates change only in classes that are connected with the change by contended resources. If that is one class (all
  uploads to one server), its rate is updated from its last value, in O(log n) for n flows. Otherwise the classes are
  filled again from 0, at the cost of the classes, their resources, and the flows at their caps.
- All changes at one moment are computed together, when the next end is needed.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

#: A resource counts as contended if its flows could use more than this share of it: sums of floats are not exact.
_NEARLY = 1.0 - 1e-9


class Resource:
    """A shared capacity: one direction of an edge, an uplink or a downlink.

    Args:
        capacity: bytes per second, >= 0; one that is always infinite may be left out.
    """

    __slots__ = ("capacity", "classes", "contended", "flows", "wanted")

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.flows: dict[Flow, None] = {}
        self.wanted = 0.0  # sum of its flows' caps
        self.contended = False
        self.classes: dict[_Class, None] = {}


class Flow:
    """Bytes in flight; made by `FairShare.begin`.

    Attributes:
        payload: kept for the caller until the flow ends.
        number: counts flows in the order in which they began.
        weight: the number of flows that it counts as.
        cap: the smallest limit on its way, bytes per second.
        remaining: bytes left when its class, or `bound`, changed last.
    """

    __slots__ = (
        "bound", "cap", "klass", "limit", "number", "payload", "remaining", "resources", "since", "tag", "version",
        "weight",
    )  # fmt: skip

    def __init__(
        self, resources: tuple[Resource, ...], size: float, limit: float, weight: float, number: int, payload: Any
    ) -> None:
        self.resources, self.limit, self.number, self.payload = resources, limit, number, payload
        self.weight = weight
        self.remaining = float(size)
        self.cap = limit
        self.klass: _Class | None = None  # None: it crosses no contended resource
        self.bound = False  # whether its rate is its cap; then `remaining` is as of `since`
        self.since = 0.0
        self.tag = 0.0  # not bound: the virtual bytes of its class at which it ends
        self.version = 0  # counts the predictions of its end; only the last one holds

    def left(self, now: float) -> float:
        """Return its remaining bytes now."""
        klass = self.klass
        if self.bound:
            return max(0.0, self.remaining - self.cap * (now - self.since)) if self.cap < math.inf else 0.0
        if klass is None:
            return self.remaining
        return max(0.0, self.weight * (self.tag - klass.virtual - klass.rate * (now - klass.since)))


class _Class:
    """Flows over the same resources; the first `bound` are at their cap.

    `rate` and `virtual` bytes are those of a flow of weight 1; `bound_rate` is the sum over bound flows.
    """

    __slots__ = (
        "bound", "bound_rate", "bound_weight", "heap", "order", "rate", "resources", "since", "version", "virtual",
        "weight",
    )  # fmt: skip

    def __init__(self, resources: tuple[Resource, ...], now: float) -> None:
        self.resources = resources
        self.order: list[tuple[float, int, Flow]] = []
        self.bound, self.bound_rate, self.bound_weight, self.weight = 0, 0.0, 0.0, 0.0
        self.rate, self.virtual, self.since = 0.0, 0.0, now
        self.heap: list[tuple[float, int, Flow]] = []
        self.version = 0

    def advance(self, now: float) -> None:
        """Advance to a time at the present rate."""
        self.virtual += self.rate * (now - self.since)
        self.since = now

    def free(self, flow: Flow) -> None:
        """Let a flow run at the rate of the class from now on."""
        flow.bound = False
        flow.version += 1
        flow.tag = self.virtual + flow.remaining / flow.weight
        heapq.heappush(self.heap, (flow.tag, flow.number, flow))

    def next(self) -> tuple[float, int, Flow] | None:
        """Return the entry of the first flow to end among those that are not bound."""
        heap = self.heap
        while heap:
            tag, _, flow = heap[0]
            if flow.klass is self and not flow.bound and flow.tag == tag:
                return heap[0]
            heapq.heappop(heap)
        return None


#: A class, how many of its flows are at their cap, their rates and weights, and the rate of the others.
_Rate = tuple[_Class, int, float, float, float]


def _connected(start: Resource) -> tuple[list[_Class], list[Resource]]:
    """Return the classes and resources connected with a resource."""
    resources: dict[Resource, None] = {start: None}
    classes: dict[_Class, None] = {}
    waiting = [start]
    while waiting:
        for klass in waiting.pop().classes:
            if klass not in classes:
                classes[klass] = None
                for resource in klass.resources:
                    if resource not in resources:
                        resources[resource] = None
                        waiting.append(resource)
    return list(classes), list(resources)


def _moved_level(klass: _Class) -> _Rate:
    """Return the rate of a class connected with no other, from its last rate on."""
    capacity = min(resource.capacity for resource in klass.resources)
    order, bound, rate, weight = klass.order, klass.bound, klass.bound_rate, klass.bound_weight
    count = len(order)

    def level() -> float:
        return max(0.0, capacity - rate) / (klass.weight - weight) if bound < count else math.inf

    while bound and (order[bound - 1][0] > level() or (bound == count and rate > capacity)):
        bound -= 1
        flow = order[bound][2]
        rate, weight = (rate - flow.cap, weight - flow.weight) if bound else (0.0, 0.0)
    while bound < count and order[bound][0] <= level():
        flow = order[bound][2]
        rate, weight, bound = rate + flow.cap, weight + flow.weight, bound + 1
    return klass, bound, rate, weight, level() if bound < count else 0.0


def _filled(classes: Sequence[_Class], resources: Sequence[Resource]) -> Iterator[_Rate]:
    """Yield the rates of several classes by progressive filling."""
    room = {resource: resource.capacity for resource in resources}
    count, weight = dict.fromkeys(resources, 0), dict.fromkeys(resources, 0.0)  # of the flows that still rise
    bound = dict.fromkeys(classes, (0, 0.0, 0.0))  # how many are at their cap, their rates and weights
    for klass in classes:
        for resource in klass.resources:
            count[resource] += len(klass.order)
            weight[resource] += klass.weight
    used = (resource for resource in resources if count[resource])
    shares = [(room[resource] / weight[resource], at, resource) for at, resource in enumerate(used)]
    caps = [(klass.order[0][0], at, klass) for at, klass in enumerate(classes)]
    heapq.heapify(shares)
    heapq.heapify(caps)
    rising = dict.fromkeys(classes)

    def take(klass: _Class, flows: int, rate: float, together: float) -> None:
        for resource in klass.resources:
            room[resource] -= rate
            count[resource] -= flows
            weight[resource] -= together

    while rising:
        _, at, resource = heapq.heappop(shares)
        if not count[resource]:
            continue
        level = max(0.0, room[resource]) / weight[resource]  # it rises as others leave the resource
        if shares and level > shares[0][0]:
            heapq.heappush(shares, (level, at, resource))
            continue
        at_caps = False
        while caps and caps[0][0] <= level:
            _, place, klass = heapq.heappop(caps)
            if klass not in rising:
                continue
            at_caps = True
            begin, rates, weights = bound[klass]
            end = bisect_right(klass.order, (level, math.inf))
            reached = [entry[2] for entry in klass.order[begin:end]]
            rate, together = sum(flow.cap for flow in reached), sum(flow.weight for flow in reached)
            take(klass, end - begin, rate, together)
            bound[klass] = end, rates + rate, weights + together
            if end < len(klass.order):
                heapq.heappush(caps, (klass.order[end][0], place, klass))
            else:
                del rising[klass]
                yield klass, *bound[klass], 0.0
        if at_caps:
            heapq.heappush(shares, (level, at, resource))
            continue
        for klass in resource.classes:
            if klass in rising:
                del rising[klass]
                together = klass.weight - bound[klass][2]
                take(klass, len(klass.order) - bound[klass][0], together * level, together)
                yield klass, *bound[klass], level


class FairShare:
    """Flows over resources in virtual time."""

    def __init__(self) -> None:
        self._now = 0.0
        self._numbers = self._pushed = self._alive = 0
        self._classes: dict[tuple[Resource, ...], _Class] = {}
        #: A heap of predicted ends: (time, number of the entry, the flow or class that ends, its version).
        self._due: list[tuple[float, int, Flow | _Class, int]] = []
        # Changes since rates were computed: resources with other flows, flows whose class may change, and resources
        # whose capacity must be shared again.
        self._touched: dict[Resource, None] = {}
        self._moved: dict[Flow, None] = {}
        self._dirty: dict[Resource, None] = {}

    def __len__(self) -> int:
        return self._alive

    def begin(
        self,
        now: float,
        resources: Iterable[Resource],
        size: float,
        limit: float = math.inf,
        weight: float = 1.0,
        payload: Any = None,
    ) -> Flow:
        """Begin a flow of `size` bytes that crosses the resources.

        It has a rate of at most `limit` bytes per second, counts as `weight` > 0 flows, and keeps `payload`.
        """
        self._at(now)
        flow = Flow(tuple(dict.fromkeys(resources)), size, limit, weight, self._numbers, payload)
        self._numbers += 1
        self._alive += 1
        flow.since = self._now
        self._attach(flow)
        return flow

    def abort(self, flow: Flow, now: float) -> None:
        """End a flow early and free its capacity."""
        self._at(now)
        self._settle()
        self._detach(flow)
        self._alive -= 1

    def set_capacity(self, resource: Resource, capacity: float, now: float) -> None:
        """Change a capacity, in bytes per second, from now on."""
        if capacity == resource.capacity:
            return
        self._at(now)
        self._settle()
        flows = list(resource.flows)
        for flow in flows:
            self._detach(flow)
        resource.capacity = capacity
        for flow in flows:
            self._attach(flow)

    def rate(self, flow: Flow) -> float:
        """Return the current rate of a flow, in bytes per second."""
        self._settle()
        return flow.cap if flow.bound else flow.weight * flow.klass.rate  # type: ignore[union-attr]

    def backlog_s(self, resource: Resource, now: float) -> float:
        """Return how long a resource needs for the remaining bytes of its flows."""
        self._at(now)
        self._settle()
        left = sum(flow.left(now) for flow in resource.flows)
        return left / resource.capacity if resource.capacity else (math.inf if left else 0.0)

    @property
    def next_s(self) -> float:
        """When the next flow ends if nothing changes; infinite if none does."""
        self._settle()
        due = self._due
        while due:
            time, _, owner, version = due[0]
            if owner.version == version:
                return time
            heapq.heappop(due)
        return math.inf

    def advance(self, now: float) -> list[Flow]:
        """Advance to `now`, at most `next_s`, and return the flows that ended, in order."""
        self._at(now)
        ended: list[Flow] = []
        while self.next_s <= now:
            done: list[Flow] = []
            while self._due and self._due[0][0] <= now:
                _, _, owner, version = heapq.heappop(self._due)
                if owner.version != version:
                    continue
                if isinstance(owner, Flow):
                    done.append(owner)
                else:
                    done += self._ended(owner)
            for flow in done:
                self._detach(flow)
                flow.remaining = 0.0
            ended += done
        self._alive -= len(ended)
        ended.sort(key=lambda flow: flow.number)
        return ended

    def _ended(self, klass: _Class) -> list[Flow]:
        """Return the flows of a class that are not bound and end now, up to rounding."""
        klass.advance(self._now)
        klass.version += 1
        ended: list[Flow] = []
        enough = klass.virtual
        while (entry := klass.next()) is not None:
            if not ended:
                klass.virtual = enough = max(enough, entry[0])
                enough += 4.0 * math.ulp(enough) + 2.0 * klass.rate * math.ulp(self._now)
            elif entry[0] > enough:
                break
            flow = heapq.heappop(klass.heap)[2]
            flow.tag = -math.inf  # a flow that was at its cap in between may be in the heap twice
            ended.append(flow)
        return ended

    def _at(self, now: float) -> None:
        if now > self._now:
            self._settle()
            self._now = now

    def _attach(self, flow: Flow) -> None:
        cap = flow.limit
        for resource in flow.resources:
            cap = min(cap, resource.capacity)
        flow.cap = cap
        for resource in flow.resources:
            resource.flows[flow] = None
            if cap < math.inf:  # otherwise all its resources have an infinite capacity
                resource.wanted += cap
            self._touched[resource] = None
        self._moved[flow] = None

    def _detach(self, flow: Flow) -> None:
        self._leave(flow)
        self._moved.pop(flow, None)
        for resource in flow.resources:
            del resource.flows[flow]
            if not resource.flows:
                resource.wanted = 0.0
            elif flow.cap < math.inf:
                resource.wanted -= flow.cap
            self._touched[resource] = None

    def _leave(self, flow: Flow) -> None:
        """Take a flow out of its class and record its remaining bytes."""
        klass, now = flow.klass, self._now
        flow.version += 1
        if klass is not None:
            klass.advance(now)
            del klass.order[bisect_left(klass.order, (flow.cap / flow.weight, flow.number))]
            if not klass.order:
                del self._classes[klass.resources]
                for resource in klass.resources:
                    del resource.classes[klass]
                klass.version += 1
            self._dirty.update(dict.fromkeys(klass.resources))
        flow.remaining = flow.left(now)
        if klass is not None:
            klass.weight -= flow.weight
            if flow.bound:
                klass.bound -= 1
                klass.bound_rate = klass.bound_rate - flow.cap if klass.bound else 0.0
                klass.bound_weight = klass.bound_weight - flow.weight if klass.bound else 0.0
        flow.klass, flow.bound, flow.since = None, False, now

    def _enter(self, flow: Flow, key: tuple[Resource, ...]) -> None:
        now = self._now
        if not key:
            self._bind(flow)
            return
        klass = self._classes.get(key)
        if klass is None:
            klass = self._classes[key] = _Class(key, now)
            for resource in key:
                resource.classes[klass] = None
        klass.advance(now)
        entry = (flow.cap / flow.weight, flow.number, flow)
        at_cap = klass.bound and entry < klass.order[klass.bound - 1]
        insort(klass.order, entry)
        flow.klass = klass
        klass.weight += flow.weight
        if at_cap:
            klass.bound += 1
            klass.bound_rate += flow.cap
            klass.bound_weight += flow.weight
            self._bind(flow)
        else:
            klass.free(flow)
        self._dirty.update(dict.fromkeys(key))

    def _bind(self, flow: Flow) -> None:
        """Let a flow run at its cap from now on."""
        now = self._now
        flow.bound, flow.since = True, now
        flow.version += 1
        if flow.cap == math.inf or not flow.remaining:
            self._say(now, flow)
        elif flow.cap:
            self._say(now + flow.remaining / flow.cap, flow)

    def _say(self, time: float, owner: Flow | _Class) -> None:
        self._pushed += 1
        heapq.heappush(self._due, (time, self._pushed, owner, owner.version))
        if len(self._due) > 64 + 4 * self._alive:
            self._due = [entry for entry in self._due if entry[2].version == entry[3]]
            heapq.heapify(self._due)

    def _settle(self) -> None:
        """Compute the rates after all events of this moment."""
        if self._touched or self._moved:
            self._sort_into_classes()
        while self._dirty:
            classes, resources = _connected(next(iter(self._dirty)))
            for resource in resources:
                self._dirty.pop(resource, None)
            rates = [_moved_level(classes[0])] if len(classes) == 1 else _filled(classes, resources)
            for klass, bound, bound_rate, bound_weight, rate in rates:
                self._apply(klass, bound, bound_rate, bound_weight, rate)

    def _sort_into_classes(self) -> None:
        moved, self._moved = self._moved, {}
        for resource in self._touched:
            contended = len(resource.flows) > 1 and resource.wanted > resource.capacity * _NEARLY
            if contended != resource.contended:
                resource.contended = contended
                moved.update(resource.flows)
        self._touched = {}
        for flow in sorted(moved, key=lambda flow: flow.number):
            key = tuple(resource for resource in flow.resources if resource.contended)
            if flow.klass is None:
                if key or not flow.bound:
                    if flow.bound:
                        self._leave(flow)
                    self._enter(flow, key)
            elif flow.klass.resources != key:
                self._leave(flow)
                self._enter(flow, key)

    def _apply(self, klass: _Class, bound: int, bound_rate: float, bound_weight: float, rate: float) -> None:
        """Set the rate of a class, and of flows that have reached or left their cap."""
        now = self._now
        klass.advance(now)
        for _, _, flow in klass.order[klass.bound : bound]:
            flow.remaining = flow.left(now)
            self._bind(flow)
        for _, _, flow in klass.order[bound : klass.bound]:
            flow.remaining = flow.left(now)
            klass.free(flow)
        klass.bound, klass.bound_rate, klass.bound_weight, klass.rate = bound, bound_rate, bound_weight, rate
        klass.version += 1
        first = klass.next()
        if first is not None:
            left = first[0] - klass.virtual
            if left <= 0.0:
                self._say(now, klass)
            elif rate:
                self._say(now + left / rate, klass)
