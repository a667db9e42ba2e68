"""Network partitions: times in which groups of nodes cannot reach each other.

`simfl.world.links` applies them: a message in flight when a cut begins is lost, and one sent during it waits for its
end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """Nodes of different groups cannot reach each other from `start_s` to `end_s`.

    The nodes that are in none of the groups form one more group.
    """

    groups: tuple[frozenset[int], ...]
    start_s: float = 0.0
    end_s: float = math.inf

    def separates(self, nodes: Iterable[int]) -> bool:
        """Return whether the nodes are in more than one group."""
        return len({next((group for group in self.groups if node in group), None) for node in nodes}) > 1


class Cuts:
    """All cuts of a run, in any order; they may overlap."""

    def __init__(self, cuts: Sequence[Cut] = ()) -> None:
        self._cuts = sorted(cuts, key=lambda cut: cut.start_s)

    def __bool__(self) -> bool:
        return bool(self._cuts)

    def joined_s(self, nodes: Sequence[int], time: float) -> float:
        """Return when all nodes next reach each other, from `time` on; inf for never."""
        for cut in self._cuts:  # at the end of a cut, look again: another one may hold then
            if cut.start_s <= time < cut.end_s and cut.separates(nodes):
                return self.joined_s(nodes, cut.end_s) if cut.end_s < math.inf else math.inf
        return time

    def hit(self, nodes: Sequence[int], begin: float, end: float) -> Cut | None:
        """Return the first cut from `begin` to `end` that separates the nodes."""
        cuts = (cut for cut in self._cuts if cut.start_s <= end and begin < cut.end_s and cut.separates(nodes))
        return next(cuts, None)
