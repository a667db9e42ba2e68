"""Network partitions: for a while, groups of nodes do not reach each other.

What a cut does to a message is `simfl.world.links`' matter: one that is under way when the cut begins is lost, one that
is to begin during it waits for its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """From `start_s` until `end_s` (infinite: for good), nodes of different groups do not reach each other.

    Attributes:
        groups: nodes; who is in none of them is in one more.
        start_s, end_s: virtual time.
    """

    groups: tuple[frozenset[int], ...]
    start_s: float = 0.0
    end_s: float = math.inf

    def group(self, node: int) -> int:
        """Return the number of a node's group, -1 for that of those who are in no other."""
        return next((number for number, group in enumerate(self.groups) if node in group), -1)

    def separates(self, nodes: Iterable[int]) -> bool:
        """Whether not all of the nodes are in one group."""
        return len({self.group(node) for node in nodes}) > 1


class Cuts:
    """All cuts of a run.

    Args:
        cuts: in any order; they may overlap.
    """

    def __init__(self, cuts: Sequence[Cut] = ()) -> None:
        self._cuts = sorted(cuts, key=lambda cut: cut.start_s)

    def __bool__(self) -> bool:
        return bool(self._cuts)

    def joined_s(self, nodes: Sequence[int], time: float) -> float:
        """Return when all of the nodes reach each other: `time` itself if they do, infinite if never again."""
        for cut in self._cuts:  # in order of their beginnings: none that was passed can hold later
            if cut.start_s <= time < cut.end_s and cut.separates(nodes):
                return self.joined_s(nodes, cut.end_s) if cut.end_s < math.inf else math.inf
        return time

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return the first cut that separates the nodes at some time from `begin` until `end`; None if none does."""
        found = (cut for cut in self._cuts if cut.start_s <= end and begin < cut.end_s and cut.separates(nodes))
        return next(found, None)
