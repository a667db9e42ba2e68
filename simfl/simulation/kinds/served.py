"""Algorithms with a server: the bound on staleness."""

from __future__ import annotations

from typing import Any, TypeVar

from simfl.algorithms.server import StalenessBound
from simfl.scenario.algorithms import ServerAlgorithmConfig
from simfl.simulation.kinds.base import Kind
from simfl.simulation.setup import Setup

S = TypeVar("S", bound=ServerAlgorithmConfig)


class ServedKind(Kind[S]):
    """Base of the kinds whose algorithms have a server."""

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the bound on staleness."""
        limit = self.config.staleness_bound
        bound = None if limit is None else StalenessBound(limit.bound, limit.policy)
        return {**super().options(setup), "staleness": bound}
