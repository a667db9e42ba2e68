"""ADSGD, whose step needs no bound of delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.algorithms.gossip import Swift
from simfl.scenario.fields import variant
from simfl.scenario.seams import Uses


class Adsgd(AlgorithmConfig):
    """ADSGD: wait-free gossip that averages before it steps.

    Speeds and delays of clients do not move its limit.
    """

    uses: ClassVar[Uses] = Swift.uses
    fixed: ClassVar[Mapping[str, str]] = Swift.fixed
    one_graph: ClassVar[str] = Swift.one_graph
    kind: Literal["adsgd"] = variant("adsgd")
