"""Algorithms without a server: what they take from other sections of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simfl.errors import ScenarioError
from simfl.scenario import algorithms as schema
from simfl.scenario.units import format_time
from simfl.simulation.devices import usual_batch_s
from simfl.simulation.kinds.base import Kind
from simfl.simulation.kinds.staleness import BoundedKind
from simfl.simulation.setup import Setup

#: Models on their way that fit into memory: a kilobyte each, whatever the size of the model.
MOST_UNDER_WAY = 1_000_000


class GossipLearningKind(BoundedKind[schema.GossipLearning]):
    """Gossip learning: messages go by the clock."""

    kinds = ("gossip_learning",)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the time between two messages: by default that of a mini-batch at speed 1."""
        self._check_under_way(setup)
        return {**super().options(setup), "period_s": self.period_s(setup)}

    def _check_under_way(self, setup: Setup) -> None:
        """Refuse what fills the memory with messages: nobody holds back until one has arrived."""
        graph, end_s = setup.topology, self.scenario.stop.time
        values = setup.links.values(setup.streams, graph.num_clients)
        talking = ((k, graph.neighbors(k)) for k in range(graph.num_clients))
        latency_s = max((values.mean_latency_s(k, peers[0], 0.0) for k, peers in talking if peers), default=0.0)
        travel_s = latency_s if end_s is None else min(latency_s, end_s)
        under_way = graph.num_clients * travel_s / self.period_s(setup)
        if under_way > MOST_UNDER_WAY:
            raise ScenarioError(
                f"algorithm.period: expected at most {MOST_UNDER_WAY:,} models under way at a time, found about "
                f"{under_way:,.0f}, each for {format_time(latency_s)}; lengthen the period"
            )

    def period_s(self, setup: Setup) -> float:
        """The time between two messages of a client."""
        period = self.config.period
        return usual_batch_s(self.scenario, setup.devices) if period is None else period

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Yield that messages are sent faster than they travel: they queue, and nobody holds back."""
        links, size, graph = self.scenario.links, setup.training.model_bytes, setup.topology
        degrees = [max(1, len(graph.neighbors(client))) for client in range(graph.num_clients)]
        arriving = max(
            sum(1.0 / degrees[other] for other in graph.neighbors(client)) for client in range(graph.num_clients)
        )
        attempts, period_s = 1.0 / (1.0 - links.loss), self.period_s(setup)
        paces = {
            "bandwidth": (links.bandwidth, attempts / min(degrees)),  # a neighbor is one of so many
            "uplink": (links.uplink, attempts),
            "downlink": (links.downlink, arriving),
        }
        for name, (pace, share) in paces.items():
            needed_s = 0.0 if pace is None else share * size / pace
            if needed_s > period_s:
                yield (
                    f"algorithm.period: a model every {format_time(period_s)} is more than links.{name} carries, "
                    f"one every {format_time(float(f'{needed_s:.3g}'))}: messages queue without bound and come ever "
                    "later; lengthen the period or widen the links"
                )


class DecentralizedSgdKind(Kind[schema.DecentralizedSgd]):
    """D-PSGD: the mixing matrix is the topology's."""

    kinds = ("decentralized_sgd",)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the rule of the mixing matrix."""
        return {**super().options(setup), "mixing": self.scenario.topology.mixing}
