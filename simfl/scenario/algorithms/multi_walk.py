"""Multi-Walk: several models walk over the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import AlgorithmConfig, states
from simfl.scenario.fields import Count, option, variant
from simfl.scenario.seams import Uses


class MultiWalk(AlgorithmConfig):
    """Multi-Walk: several models walk over the graph at random, and mix at one client."""

    uses: ClassVar[Uses] = Uses(channel="passes", sum="passes", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states("crash", why="models move on to other clients without states")
    one_graph: ClassVar[str] = "its walks are those of one graph: use adpsgd"
    kind: Literal["multi_walk"] = variant("multi_walk")
    walks: Count = option(4, "R, the number of models that walk at a time")
