"""The clients that have waited longest.

Yang, Arafa, Quek, Poor 2020, "Age-based scheduling policy for federated learning in mobile edge networks",
https://arxiv.org/abs/1910.14648: those whose last update is oldest come first. The paper's radio channel is not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class Fair(AbstractSelector):
    """Takes the clients whose last choice is longest ago; of equal ones random ones."""

    kind: ClassVar[str] = "fair"
    summary: ClassVar[str] = "takes the clients that have waited longest since they last took part"

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Return the clients that have waited longest."""
        return [k for *_, k in sorted((clients.last[k], clients.draw(), k) for k in candidates)[:size]]
