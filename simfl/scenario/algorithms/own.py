"""A user's own algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from simfl.scenario.algorithms.base import AlgorithmConfig, states
from simfl.scenario.fields import OwnCode, OwnName


class ExternalAlgorithm(AlgorithmConfig, OwnCode):
    """An algorithm of your own, from an importable module."""

    has_server: ClassVar[bool | None] = None
    fixed: ClassVar[Mapping[str, str]] = states(
        "crash", why="what becomes of states beside models is a matter of your class"
    )

    kind: OwnName = Field(description="module and class of the algorithm, as in my_module:MyAlgorithm")

    def own_options(self) -> dict[str, Any]:
        """Return `options`."""
        return dict(self.options)
