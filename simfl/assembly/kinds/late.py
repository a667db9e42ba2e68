"""The kind of servers that bound the age of gradients themselves."""

from __future__ import annotations

from simfl.assembly.kinds.base import BoundedKind
from simfl.scenario.algorithms import ServerAlgorithmConfig


class LateKind(BoundedKind[ServerAlgorithmConfig]):
    """Servers of single gradients; a scenario gives them no bound on staleness."""

    kinds = ("ringmaster", "rennala", "m_sync_sgd", "ringleader", "mindflayer")
