"""Events that are far ahead, outside of the heap of events.

A heap of 100,000 events does not fit into a cache, and each pop visits 17 levels of it. So the clock keeps only the
next few hundred events in SimPy's heap once there are thousands. Later ones lie unsorted in slots of virtual time, and
a slot enters the heap when the heap is empty. The order is that of one heap. A slot has arrays in place of entries,
because each object of 100,000 is another miss of the cache.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Container, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

#: What is in SimPy's heap: time, priority, number, event.
Entry = tuple[float, int, int, Any]

#: With more events than this in the heap, later ones leave it. About this number enters it together.
MOST_IN_HEAP, LEAST_IN_HEAP = 4096, 256
#: The last slot of virtual time; it has no end.
LAST_SLOT = 2**62


class _Slot:
    """The entries of a slot of virtual time, in arrays."""

    __slots__ = ("events", "numbers", "priorities", "times")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.times, self.priorities, self.numbers = array("d"), array("b"), array("q")
        self.events: list[Any] = []
        for entry in entries:
            self.put(*entry)

    def put(self, time: float, priority: int, number: int, event: Any) -> None:
        """Add an entry."""
        self.times.append(time)
        self.priorities.append(priority)
        self.numbers.append(number)
        self.events.append(event)

    def entries(self) -> Iterable[Entry]:
        """Return the entries."""
        return zip(self.times, self.priorities, self.numbers, self.events, strict=True)


class Slots:
    """The events that are not in the heap yet.

    What moves events returns the horizon: all events before this virtual time are in the heap. The others are in the
    heap or in slots, as `put` decides.

    Args:
        heap: SimPy's heap, the same list for the whole run.

    Attributes:
        count: the number of events in slots.
        most_in_heap: with more events than this, the heap is to be thinned out.
    """

    def __init__(self, heap: list[Entry]) -> None:
        self._heap = heap
        self.count = 0
        self.most_in_heap = MOST_IN_HEAP
        #: Slots per second of virtual time, and the number of the first slot that is not in the heap.
        self._per_s, self._end = 0.0, 0
        self._slots: dict[int, _Slot] = {}
        self._order: list[int] = []  # a heap

    def put(self, time: float, priority: int, number: int, event: Any) -> None:
        """Put an event into the slot of its time, or into the heap if the slot is there."""
        at = LAST_SLOT if math.isinf(time) else int(min(time * self._per_s, LAST_SLOT))
        if at < self._end:
            heappush(self._heap, (time, priority, number, event))
            return
        slot = self._slots.get(at)
        if slot is None:
            slot = self._slots[at] = _Slot()
            heappush(self._order, at)
        slot.put(time, priority, number, event)
        self.count += 1

    def refill(self) -> float:
        """Fill the heap from the next slots; return the horizon."""
        heap, order = self._heap, self._order
        while order and len(heap) < LEAST_IN_HEAP:
            at = heappop(order)
            slot = self._slots.pop(at)
            self.count -= len(slot.events)
            self._end = at + 1
            heap += slot.entries()
        heapify(heap)
        return self._horizon_s

    @property
    def _horizon_s(self) -> float:
        # A slot's end is rounded: an event in the gap goes by the number of its slot.
        return self._end / self._per_s * (1.0 - 1e-12) if self._per_s else math.inf

    def thin_out(self, now: float) -> float:
        """Put all but the next events of a large heap into slots; return the horizon.

        The length of slots suits the times of the events.
        """
        heap = self._heap
        entries = sorted(itertools.chain(heap, *(slot.entries() for slot in self._slots.values())))
        middle = entries[len(entries) // 2][0]
        self._per_s = 0.0
        if now < middle < math.inf:
            self._per_s = len(entries) / (2 * LEAST_IN_HEAP) / (middle - now)
        self._end = int(now * self._per_s) + 1
        heap.clear()
        self._slots.clear()
        self._order.clear()
        self.count, horizon_s = 0, self._horizon_s
        for entry in entries:
            if entry[0] < horizon_s:
                heap.append(entry)  # sorted, and so a heap
            else:
                self.put(*entry)
        self.most_in_heap = max(MOST_IN_HEAP, 2 * len(heap))
        return horizon_s

    def remove(self, events: Container[Any]) -> None:
        """Remove these events from slots."""
        for at, slot in self._slots.items():
            self._slots[at] = _Slot(entry for entry in slot.entries() if entry[3] not in events)
        self.count = sum(len(slot.events) for slot in self._slots.values())
