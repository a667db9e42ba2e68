"""Messages of all-reduces and all-gathers, step by step.

A node begins the next step when its messages of this step have arrived. With M bytes in a vector, equal links of
latency L and bandwidth B, and K a power of two:

    ring       2 (K-1) L + 2 (K-1)/K M/B    each node passes parts of size M/K on to the next, twice around
    halving    2 lg K L  + 2 (K-1)/K M/B    recursive halving (a half, a quarter, ... to a partner), then doubling back
    doubling     lg K L  +     lg K M/B     recursive doubling: whole vectors, to partners at distance 1, 2, 4, ...
    ideal           L    + 2 (K-1)/K M/B    a lower bound that no library reaches: all steps overlap

If K is not a power of two, halving and doubling take two more steps: the nodes beyond the largest power of two send
their vector to a partner first, and receive the sum from it at the end. Additions take no time.

A function of the vectors that is not their sum needs all of them at each node: an all-gather. For any K:

    ring           (K-1) L + (K-1) M/B      each node passes on the vector that it has just received
    doubling     ceil(lg K) L + (K-1) M/B   Bruck's algorithm: all that a node has, to nodes at distance 1, 2, 4, ...
    ideal               L + (K-1) M/B       all steps overlap

Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH", sections 4.1 and 5,
https://doi.org/10.1177/1094342005051521; Patarasuk, Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters
of workstations", https://doi.org/10.1016/j.jpdc.2008.09.002.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Step:
    """Messages that are sent at the same time.

    Attributes:
        sources, targets: their ends, int [m], as positions among the K members; no node is the target of two messages.
        size: bytes of each message.
        times: number of repetitions of the step.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    size: int
    times: int = 1


Plan = tuple[Step, ...]


def ring(count: int, size: int) -> Plan:
    """Return the steps of a ring of `count` > 1 nodes, for vectors of `size` bytes."""
    nodes = np.arange(count)
    return (Step(nodes, (nodes + 1) % count, -(-size // count), 2 * (count - 1)),)


def halving(count: int, size: int) -> Plan:
    """Return the steps of recursive halving and doubling (Rabenseifner's algorithm)."""
    power = 1 << (count.bit_length() - 1)
    distances = [power >> step for step in range(1, power.bit_length())]
    down = [_exchange(power, distance, -(-size * distance // power)) for distance in distances]
    return _with_rest(count, size, (*down, *reversed(down)))


def doubling(count: int, size: int) -> Plan:
    """Return the steps of recursive doubling."""
    power = 1 << (count.bit_length() - 1)
    return _with_rest(count, size, [_exchange(power, 1 << step, size) for step in range(power.bit_length() - 1)])


def ideal(count: int, size: int) -> Plan:
    """Return one step in which each node sends all its bytes of a ring."""
    nodes = np.arange(count)
    return (Step(nodes, (nodes + 1) % count, round(2 * (count - 1) / count * size)),)


def gather_ring(count: int, size: int) -> Plan:
    """Return the steps of an all-gather around a ring."""
    nodes = np.arange(count)
    return (Step(nodes, (nodes + 1) % count, size, count - 1),)


def gather_doubling(count: int, size: int) -> Plan:
    """Return the steps of Bruck's all-gather; the last step sends what is missing."""
    nodes = np.arange(count)
    distances = [1 << step for step in range((count - 1).bit_length())]
    return tuple(Step(nodes, (nodes - far) % count, size * min(far, count - far)) for far in distances)


def gather_ideal(count: int, size: int) -> Plan:
    """Return one step in which each node sends as much as in an all-gather."""
    nodes = np.arange(count)
    return (Step(nodes, (nodes + 1) % count, (count - 1) * size),)


def _exchange(count: int, distance: int, size: int) -> Step:
    """Return the step in which nodes swap parts at `distance`, a power of two."""
    nodes = np.arange(count)
    return Step(nodes, nodes ^ distance, size)


def _with_rest(count: int, size: int, steps: Sequence[Step]) -> Plan:
    """Add a first and a last step for the nodes beyond the largest power of two."""
    rest = count - (1 << (count.bit_length() - 1))
    if not rest:
        return tuple(steps)
    partners, beyond = np.arange(rest), np.arange(count - rest, count)
    return Step(beyond, partners, size), *steps, Step(partners, beyond, size)


#: By their names in a scenario.
ALL_REDUCES: dict[str, Callable[[int, int], Plan]] = {
    "doubling": doubling, "halving": halving, "ring": ring, "ideal": ideal,
}  # fmt: skip


#: All-gathers by the same names; the second half of recursive halving is one, by doubling.
ALL_GATHERS: dict[str, Callable[[int, int], Plan]] = {
    "doubling": gather_doubling, "halving": gather_doubling, "ring": gather_ring, "ideal": gather_ideal,
}  # fmt: skip


def seconds(plan: Plan, count: int, travel_s: Callable[[Step], NDArray[np.float64]]) -> float:
    """Return when the last node has the sum; `travel_s` gives a step's times, [m].

    t_j <- max(t_j, t_i + travel_ij) for all messages i -> j of a step at once.
    """
    ready = np.zeros(count)
    for step in plan:
        for _ in range(step.times):
            arrived = ready[step.sources] + travel_s(step)
            ready[step.targets] = np.maximum(ready[step.targets], arrived)
    return float(ready.max())


def equal_seconds(plan: Plan, travel_s: Callable[[Step], NDArray[np.float64]]) -> float:
    """Return `seconds` for steps whose messages all take equally long."""
    return sum(step.times * float(travel_s(step)[0]) for step in plan)


def lockstep_seconds(plan: Plan, travel_s: Callable[[Step], NDArray[np.float64]]) -> float:
    """Return `seconds`, to the last bit, without a look at each node.

    It is for steps in which all nodes send and receive, and all messages take equally long.
    """
    ready = 0.0
    for step in plan:
        time_s = float(travel_s(step)[0])
        for _ in range(step.times):
            ready += time_s
    return ready


def messages(plan: Plan) -> int:
    """Return the number of messages."""
    return sum(step.times * len(step.sources) for step in plan)


def sent(plan: Plan) -> list[tuple[int, int, int]]:
    """Return each node's messages as (node, bytes of a message, number)."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for step in plan:
        counts[step.size].update(dict.fromkeys(step.sources.tolist(), step.times))
    return [(source, size, times) for size, each in counts.items() for source, times in each.items()]


def fastest(
    count: int,
    size: int,
    travel_s: Callable[[Step], NDArray[np.float64]],
    plans: Mapping[str, Callable[[int, int], Plan]] = ALL_REDUCES,
) -> str:
    """Return the fastest of `plans`; among equals, by fewest bytes, then messages.

    `count` is K > 1; `travel_s` returns the expected time of each message of a step, [m].
    """

    def cost(name: str) -> tuple[float, int, int]:
        plan = plans[name](count, size)
        times_s = {id(step): travel_s(step) for step in plan}
        total = sum(step.times * len(step.sources) * step.size for step in plan)
        equal = all(len(each) == count and (each == each[0]).all() for each in times_s.values())

        def travel_s_of(step: Step) -> NDArray[np.float64]:
            return times_s[id(step)]

        took = lockstep_seconds(plan, travel_s_of) if equal else seconds(plan, count, travel_s_of)
        return took, total, messages(plan)

    return min(("doubling", "halving", "ring"), key=cost)


def pairs_of(step: Step) -> list[tuple[int, int]]:
    """Return (source, target) of each message."""
    return list(zip(step.sources.tolist(), step.targets.tolist(), strict=True))
