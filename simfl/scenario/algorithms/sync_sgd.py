"""Synchronous SGD by all-reduce."""

from __future__ import annotations

from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.fields import option, variant
from simfl.scenario.seams import Uses


class SyncSgd(AlgorithmConfig):
    """SYNC: all clients compute at the same model and average by all-reduce."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="all_reduce", sum="gathered", step="one_model")
    kind: Literal["sync_sgd"] = variant("sync_sgd")
    all_reduce: Literal["auto", "ring", "halving", "doubling", "ideal"] = option(
        "auto",
        "how K clients average gradients: in 2 (K-1) steps around a ring, by recursive halving and doubling back "
        "(2 lg K steps) or by recursive doubling of whole models (lg K steps); auto: the fastest of these; "
        "ideal: one latency and 2 (K-1)/K model bytes, a bound. With aggregation, K-1 models are gathered: in "
        "K-1 steps around a ring, in lg K steps (halving and doubling), or with one latency (ideal)",
    )
