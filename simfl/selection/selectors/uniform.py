"""Every client has the same chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class Uniform(AbstractSelector):
    """Draws clients without replacement, all with equal chances."""

    kind: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "draws clients with equal chances"

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw clients one after the other."""
        rest = list(candidates)
        return [rest.pop(int(clients.draw() * len(rest))) for _ in range(min(size, len(rest)))]
