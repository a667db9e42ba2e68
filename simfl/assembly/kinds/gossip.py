"""Kinds of algorithms without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from simfl.assembly.devices import usual_batch_s
from simfl.assembly.kinds.base import BoundedKind, Kind
from simfl.assembly.setup import Setup
from simfl.assembly.traffic import cost_of, overloads
from simfl.assembly.world import batch_times_s
from simfl.errors import ScenarioError
from simfl.scenario import algorithms as schema
from simfl.scenario.algorithms.gossip import A2CiD2
from simfl.scenario.units import format_time

#: Models in flight that fit into memory: a kilobyte each, for any size of the model.
MOST_UNDER_WAY = 1_000_000


class GossipLearningKind(BoundedKind[schema.GossipLearning]):
    """Gossip learning: messages are sent periodically."""

    sections = (schema.GossipLearning,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the time between two messages: by default that of a mini-batch at speed 1."""
        self._check_under_way(setup)
        return {**super().options(setup), "period_s": self.period_s(setup)}

    def _check_under_way(self, setup: Setup) -> None:
        """Reject periods that fill the memory with messages."""
        graph, end_s = setup.topology, self.scenario.stop.time
        values = setup.links.values(setup.streams, graph.num_clients)
        talking = [(k, peers) for k in range(graph.num_clients) if (peers := graph.neighbors(k))]
        different = talking[:1] if values.equal else talking
        each_s = [values.mean_latency_s(k, peers[len(peers) // 2], 0.0) for k, peers in different]
        latency_s = sum(each_s) / max(1, len(each_s))
        travel_s = latency_s if end_s is None else min(latency_s, end_s)
        under_way = len(talking) * travel_s / self.period_s(setup)
        if under_way > MOST_UNDER_WAY:
            raise ScenarioError(
                f"algorithm.period: expected at most {MOST_UNDER_WAY:,} models under way at a time, found about "
                f"{under_way:,.0f}, each for {format_time(latency_s)}; lengthen the period"
            )

    def period_s(self, setup: Setup) -> float:
        """The time between two messages of a client."""
        period = self.config.period
        return usual_batch_s(self.scenario, setup.devices, setup.sizes.tolist()) if period is None else period

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Warn if messages are sent faster than links carry them."""
        period_s = self.period_s(setup)
        for name, needed_s in overloads(setup, period_s):
            yield (
                f"algorithm.period: a model every {format_time(period_s)} is more than {name} carries, "
                f"one every {format_time(float(f'{needed_s:.3g}'))}: messages queue without bound and come ever "
                "later; lengthen the period or widen the links"
            )


class AdPsgdKind(BoundedKind[schema.AdPsgd]):
    """AD-PSGD: atomic exchanges take no time on any links."""

    sections: ClassVar[tuple[type[schema.AlgorithmConfig], ...]] = (schema.AdPsgd,)

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Warn of exchanges that take no time although links do."""
        if self.config.exchange == "atomic" and (cost := cost_of(setup)) is not None:
            plain = not setup.links.rules and setup.underlay is None
            instead = ", or links: {latency: 0 s, bandwidth: null}" if plain else ""
            yield f"algorithm.exchange: atomic averages in no time, although links have {cost}; use messages{instead}"


class MixingKind(Kind[schema.DecentralizedSgd | schema.CorrectedGossip]):
    """D-PSGD and corrected gossip: the mixing matrix is the topology's."""

    sections = (schema.DecentralizedSgd, schema.CorrectedGossip)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the rule of the mixing matrix."""
        return {**super().options(setup), "mixing": self.scenario.topology.mixing}


class A2CiD2Kind(AdPsgdKind):
    """A2CiD2: the rates of pairs follow from the clients' times."""

    sections = (A2CiD2,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the mean seconds of a gradient of each client."""
        sizes = setup.sizes.tolist()
        each_s = batch_times_s(self.scenario, setup.streams, sizes, self.planned_total(sizes))
        return {**super().options(setup), "gradient_s": each_s.tolist()}


class SwiftKind(Kind[schema.Swift]):
    """SWIFT: its weights follow from the clients' times."""

    sections = (schema.Swift,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the mean seconds of a gradient of each client."""
        sizes = setup.sizes.tolist()
        each_s = batch_times_s(self.scenario, setup.streams, sizes, self.planned_total(sizes))
        return {**super().options(setup), "gradient_s": each_s.tolist()}

    def warnings(self, setup: Setup) -> Iterator[str]:
        """Warn if models are sent faster than links carry them."""
        period_s = usual_batch_s(self.scenario, setup.devices, setup.sizes.tolist()) / int(setup.topology.degrees.min())
        for name, needed_s in overloads(setup, period_s):
            yield (
                f"algorithm.kind: {self.config.kind} sends a model about every "
                f"{format_time(float(f'{period_s:.3g}'))}, more than {name} carries, one every "
                f"{format_time(float(f'{needed_s:.3g}'))}: messages queue without bound and "
                "come ever later; use larger mini-batches, divshare, or wider links"
            )
