"""The kind of ADSGD."""

from __future__ import annotations

from typing import Any

from simfl.assembly.kinds.base import Kind
from simfl.assembly.kinds.gossip import SwiftKind
from simfl.assembly.setup import Setup
from simfl.scenario.algorithms.adsgd import Adsgd


class AdsgdKind(SwiftKind):
    """ADSGD: warnings of SWIFT, and weights without the clients' times."""

    sections = (Adsgd,)  # type: ignore[assignment]

    def options(self, setup: Setup) -> dict[str, Any]:
        """Return the options of the scenario alone."""
        return Kind.options(self, setup)
