"""The kind of servers that bound the age of gradients themselves."""

from __future__ import annotations

from simfl.assembly.kinds.base import BoundedKind
from simfl.scenario.algorithms.late import GradientsConfig


class LateKind(BoundedKind[GradientsConfig]):
    """Servers of single gradients; a scenario gives them no bound on staleness."""

    sections = (GradientsConfig,)
