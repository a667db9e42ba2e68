"""Clients in the order of their numbers, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class RoundRobin(AbstractSelector):
    """Takes the clients that follow the last one, and passes over those that are away."""

    kind: ClassVar[str] = "round_robin"
    summary: ClassVar[str] = "takes clients in the order of their numbers, again and again"

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Return the next clients."""
        last = clients.memory[0]
        cohort = sorted(candidates, key=lambda k: (k <= last, k))[:size]
        clients.memory[0] = cohort[-1]
        return cohort

    def begin(self) -> list[int]:
        """Return the number of the last client: there is none."""
        return [-1]
