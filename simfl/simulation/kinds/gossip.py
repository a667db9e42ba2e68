"""Algorithms without a server: what they take from other sections of a scenario."""

from __future__ import annotations

from typing import Any

from simfl.scenario import algorithms as schema
from simfl.simulation.kinds.base import Kind
from simfl.simulation.setup import Setup


class GossipLearningKind(Kind[schema.GossipLearning]):
    """Gossip learning: messages go by the clock."""

    kinds = ("gossip_learning",)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the time between two messages: by default that of a mini-batch at speed 1."""
        config = self.config
        usual_s = config.batch_size * self.scenario.clients.seconds_per_example
        return {**super().options(setup), "period_s": usual_s if config.period is None else config.period}


class DecentralizedSgdKind(Kind[schema.DecentralizedSgd]):
    """D-PSGD: the mixing matrix is the topology's."""

    kinds = ("decentralized_sgd",)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the rule of the mixing matrix."""
        return {**super().options(setup), "mixing": self.scenario.topology.mixing}
