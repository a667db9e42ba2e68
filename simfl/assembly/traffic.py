"""The cost of messages, and overloaded links, before a run.

All settings of links count: base values, regions, files, rules, devices and the underlay. If values are random or
change over time, the least cost is used, so that a warning is never wrong.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from simfl.assembly.setup import Setup
from simfl.world.changing import Contacts
from simfl.world.link_values import Quantity
from simfl.world.topology import Topology

#: The most directed links that are checked one by one.
MOST_LINKS = 1_000_000


def cost_of(setup: Setup) -> str | None:
    """Return a cost of messages in words: latency, bandwidth or losses; or None."""
    values = setup.links.values(setup.streams, setup.topology.num_clients)
    until = math.inf if (end_s := setup.scenario.stop.time) is None else end_s
    words: dict[Quantity, str] = {"latency": "a latency", "bandwidth": "a bandwidth", "loss": "losses"}
    words |= {"uplink": words["bandwidth"], "downlink": words["bandwidth"]}
    all_equal = values.equal and setup.underlay is None
    for source, target in itertools.islice(_pairs(setup), 1 if all_equal else MOST_LINKS):
        for quantity, word in words.items():
            if any(values.ever(quantity, source, target, until)):
                return word
        if setup.underlay is not None:
            path = setup.underlay.path(source, target)
            if path.latency_s or any(setup.underlay.bandwidths[edge] < math.inf for edge in path.edges):
                return "a network beneath"
    return None


def overloads(setup: Setup, period_s: float) -> Iterator[tuple[str, float]]:
    """Yield the overloads if each client sends its model to a neighbor periodically.

    Args:
        setup: with its training.
        period_s: time between two messages of a client.

    Yields:
        The worst uplink, downlink, link or edge of the underlay, in words, and its mean seconds for a message.
    """
    links, graph, changing = setup.links, setup.topology, setup.changing
    values = links.values(setup.streams, graph.num_clients)
    size = setup.training.message_bytes * setup.scenario.algorithm.vectors + links.overhead
    until = math.inf if (end_s := setup.scenario.stop.time) is None else end_s
    if isinstance(changing, Contacts):
        return  # a client without neighbors sends nothing
    if values.equal and setup.underlay is None:
        capacities = {"uplink": links.uplink, "bandwidth": links.bandwidth, "downlink": links.downlink}
        for name, most in _most_given(graph, size, links.loss, changing is None).items():
            if (capacity := capacities[name]) and most / capacity > period_s:
                yield f"links.{name}", most / capacity
        return
    loads: dict[tuple[Quantity | None, int, int], float] = defaultdict(float)  # bytes in a period; None: of an edge
    if changing is not None or graph.degrees.sum() > MOST_LINKS:
        for source in range(graph.num_clients):
            loads["uplink", source, source] = size
    else:
        for source, target in _pairs(setup):
            loss = min(value or 0.0 for value in values.ever("loss", source, target, until))
            once = size / len(graph.neighbors(source))
            loads["uplink", source, source] += once / (1.0 - loss)
            loads["bandwidth", source, target] += once / (1.0 - loss)
            loads["downlink", target, target] += once
            for edge in () if setup.underlay is None else setup.underlay.path(source, target).edges:
                loads[None, edge, edge] += once / (1.0 - loss)
    worst: dict[Quantity | None, tuple[float, str]] = {}
    for (quantity, source, target), sent in loads.items():
        if quantity is None:
            assert setup.underlay is not None, "only an underlay has edges"
            capacity = setup.underlay.bandwidths[source]
            name = "the edge {} - {} of the underlay".format(*setup.underlay.edges[source])
        else:
            over_time = values.ever(quantity, source, target, until)
            capacity = max(math.inf if value is None else value for value in over_time)
            name = f"the link {source} - {target}" if quantity == "bandwidth" else f"the {quantity} of client {target}"
        worst[quantity] = max(worst.get(quantity, (0.0, "")), (sent / capacity, name), key=lambda pair: pair[0])
    yield from ((name, seconds) for seconds, name in worst.values() if seconds > period_s)


def _most_given(graph: Topology, size: int, loss: float, fixed: bool) -> dict[str, float]:
    """Return the most bytes of uplinks, links and downlinks in a period.

    Args:
        graph: each client sends to its neighbors in turn.
        size: bytes of a message.
        loss: the probability that a message is sent again.
        fixed: whether the graph is constant; else only uplinks are known.
    """
    sent = size / (1.0 - loss)
    if not (fixed and 0 < graph.degrees.sum() <= MOST_LINKS):
        return {"uplink": sent}
    sources, targets = graph.directed_edges()
    received = np.bincount(targets, size / graph.degrees[sources])
    return {"uplink": sent, "bandwidth": sent / int(graph.degrees.min()), "downlink": float(received.max())}


def _pairs(setup: Setup) -> Iterator[tuple[int, int]]:
    graph = setup.topology
    return ((source, target) for source in range(graph.num_clients) for target in graph.neighbors(source))
