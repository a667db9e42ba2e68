"""Algorithms that take a bound on staleness."""

from __future__ import annotations

from typing import Any, TypeVar

from simfl.algorithms.staleness import StalenessBound
from simfl.build.kinds.base import Kind
from simfl.build.setup import Setup
from simfl.scenario.algorithms import BoundedConfig

B = TypeVar("B", bound=BoundedConfig)


class BoundedKind(Kind[B]):
    """Base of the kinds whose algorithms take a bound on staleness."""

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the bound on staleness."""
        limit = self.config.staleness_bound
        bound = None if limit is None else StalenessBound(limit.bound, limit.policy)
        return {**super().options(setup), "staleness": bound}
