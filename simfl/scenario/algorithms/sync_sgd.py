"""Synchronous SGD by all-reduce."""

from __future__ import annotations

from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.fields import (
    variant,
)


class SyncSgd(AlgorithmConfig):
    """SYNC: every round all clients compute a gradient at the same model and average by all-reduce."""

    uses_topology: ClassVar[bool] = False

    kind: Literal["sync_sgd"] = variant("sync_sgd")
