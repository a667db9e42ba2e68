"""Places of the nodes of a graph on a page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.plots.clients import layout

#: More clients of a region, or around a server, fill a disc.
_ON_CIRCLE = 60


def layout_of(
    links: NDArray[np.int64], count: int, servers: int = 0, region: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return places of nodes, f64 [count + servers, 2] within [-1, 1].

    `links` i64 [n, 2] are pairs of nodes; servers are numbered after the `count` clients. `region` gives the region of
    each client: clients of a region lie together, and regions lie on a circle. More clients than fit on a circle fill
    a disc.
    """
    import networkx as nx

    graph = nx.empty_graph(count + servers)
    graph.add_edges_from(links.tolist())
    if region is None and (servers == 0 or (servers == 1 and count <= _ON_CIRCLE)):
        places = layout(graph, servers == 1)
        return _within_unit(np.array([places[k] for k in range(count + servers)]))
    kinds = np.zeros(count, dtype=int) if region is None else region
    where = np.zeros((count + servers, 2))
    used = np.unique(kinds)
    for position, kind in enumerate(used):
        inside = np.flatnonzero(kinds == kind)
        angle = 2 * math.pi * position / len(used)
        center = np.array([math.cos(angle), math.sin(angle)]) * (len(used) > 1)
        around: NDArray[Any] = 2 * math.pi * np.arange(len(inside)) / len(inside)
        spread = 0.8 * math.sin(math.pi / len(used)) if len(used) > 1 else 1.0
        radius = min(0.55, spread) * (len(inside) > 1) if len(used) > 1 else 1.0
        out: NDArray[Any] = np.full(len(inside), radius)
        if len(inside) > _ON_CIRCLE:  # as the seeds of a sunflower, around the servers
            hole = 0.15 * (servers > 0)
            out = radius * np.sqrt(hole + (1 - hole) * (np.arange(len(inside)) + 0.5) / len(inside))
            around = np.arange(len(inside)) * math.pi * (3 - math.sqrt(5))
        where[inside] = center + out[:, None] * np.stack([np.cos(around), np.sin(around)], axis=1)
    for number in range(servers):
        angle = 2 * math.pi * number / max(1, servers)
        where[count + number] = 0.25 * np.array([math.cos(angle), math.sin(angle)]) * (servers > 1)
    return _within_unit(where)


def _within_unit(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move and scale places so that the larger extent is from -1 to 1."""
    low, high = places.min(axis=0), places.max(axis=0)
    scaled: NDArray[np.float64] = (places - (low + high) / 2) / (float((high - low).max()) / 2 or 1.0)
    return scaled
