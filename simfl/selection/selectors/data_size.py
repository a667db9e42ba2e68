"""Clients with more examples have better chances.

Li, Huang, Yang, Wang, Zhang 2020, "On the convergence of FedAvg on non-IID data", https://arxiv.org/abs/1907.02189,
scheme I, without replacement. Beside `weighting: uniform` an example counts about equally, whoever holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.selection.base import AbstractSelector, Clients, Reads


@dataclass(frozen=True)
class DataSize(AbstractSelector):
    """Draws clients without replacement, with chances n_k / (sum of those left)."""

    kind: ClassVar[str] = "data_size"
    summary: ClassVar[str] = "draws clients with chances by their numbers of examples"
    reads: ClassVar[Reads] = "sizes"

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw clients by their numbers of examples."""
        return clients.drawn(candidates, [clients.examples[k] for k in candidates], size)
