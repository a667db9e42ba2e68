"""The clients whose rounds take the shortest time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class Fastest(AbstractSelector):
    """Takes the clients of the smallest expected times; of equal ones the first."""

    kind: ClassVar[str] = "fastest"
    summary: ClassVar[str] = "takes the clients whose rounds should be the shortest"

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Return the fastest clients."""
        return sorted(candidates, key=lambda k: (clients.seconds(k), k))[:size]
