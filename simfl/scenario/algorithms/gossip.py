"""Algorithms without a server, whose clients talk to their neighbors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import GOSSIPED, AlgorithmConfig, BoundedConfig, Sections, states
from simfl.scenario.algorithms.local_rounds import LocalStepsConfig
from simfl.scenario.fields import Arithmetic, Count, Index, Positive, PositiveSeconds, Settled, Share, option, variant
from simfl.scenario.problems import Problem
from simfl.scenario.seams import Uses


class DecentralizedSgd(AlgorithmConfig):
    """D-PSGD: synchronous rounds of one gradient step and one average with neighbors."""

    uses: ClassVar[Uses] = Uses(graph="mixed", channel="rounds", sum="neighbors", step="clients")
    fixed: ClassVar[Mapping[str, str]] = GOSSIPED
    kind: Literal["decentralized_sgd"] = variant("decentralized_sgd")


class Matcha(AlgorithmConfig):
    """MATCHA: D-PSGD over matchings of the graph that are drawn in every round."""

    uses: ClassVar[Uses] = Uses(channel="drawn", sum="signed", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states(
        "crash", why="its weights may be negative, those of second moments may not"
    )
    one_graph: ClassVar[str] = "its matchings are those of one graph: use decentralized_sgd"
    kind: Literal["matcha"] = variant("matcha")
    budget: Share = option(0.5, "fraction of the matchings that are active in a round, on average")


class Epidemic(AlgorithmConfig):
    """Epidemic Learning: each client sends to random others, drawn in every round.

    It averages its model with those that it hears.
    """

    uses: ClassVar[Uses] = Uses(graph="none", channel="drawn", sum="drawn", step="clients")
    fixed: ClassVar[Mapping[str, str]] = GOSSIPED
    kind: Literal["epidemic"] = variant("epidemic")
    peers: Count | None = option(
        None, "s, the number of others to which a client sends in a round; null: log2 of the number of clients"
    )
    graph: Literal["local", "oracle"] = option(
        "local",
        "how receivers are drawn: by each client on its own (local), or as neighbors in a random graph of degree "
        "s (oracle)",
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a problem if there are too few clients, or no graph of these degrees."""
        count, peers = scenario.clients.count, self.peers
        yield from _too_many_peers(peers, count)
        if peers is not None and peers < count and self.graph == "oracle" and peers * count % 2:
            expected = f"an even number with graph: oracle, because the number of clients, {count}, is odd"
            advice = "change peers or clients.count by one, or use graph: local"
            yield Problem(expected, str(peers), advice, ("algorithm", "peers"))


class Teleportation(AlgorithmConfig):
    """Teleportation: a few active clients gossip, and hand their models on."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="passes", sum="passes", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states("crash", why="models move on to other clients without states")
    kind: Literal["teleportation"] = variant("teleportation")
    active: Count = option(8, "k, the number of active clients in a round; at most that of all clients are")
    graph: Literal["one_peer", "ring", "complete"] = option(
        "one_peer",
        "who sends to whom among the active clients, by index: i to i + 2^h, a single h per round, in turn (one_peer), "
        "to i + 1 and i - 1 (ring), or to all (complete)",
    )


class Plexus(LocalStepsConfig):
    """Plexus: FedAvg without a server; each round has another sample and aggregator."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="sampled", sum="aggregator", step="rounds")
    fixed: ClassVar[Mapping[str, str]] = states(
        "rounds", "crash", why="the state of an optimizer of local steps stays at its client"
    )
    kind: Literal["plexus"] = variant("plexus")
    sample: Count = option(13, "s, the number of clients of a round; at most all")
    success: Share = option(0.8, "fraction of the sample for whose models an aggregator waits")


class Swift(AlgorithmConfig):
    """SWIFT: wait-free gossip with the newest models of the neighbors."""

    uses: ClassVar[Uses] = Uses(channel="newest", sum="newest", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states("crash", why="its clients average models at different times")
    one_graph: ClassVar[str] = "its weights are those of one graph: use adpsgd"
    kind: Literal["swift"] = variant("swift")
    skip: Index = option(0, "steps without an average between two with one: s of the paper's C_s")


class DivShare(AlgorithmConfig):
    """DivShare: fragments of models are sent to random others; no client waits."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="fragments", sum="parts", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states("crash", why="fragments of models travel without states")
    kind: Literal["divshare"] = variant("divshare")
    fragments: Count = option(10, "P, the number of fragments of a model; at most that of its parameters are used")
    peers: Count | None = option(
        None, "J, the receivers of each fragment in a round; null: log2 of the number of clients"
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a problem if there are too few clients."""
        yield from _too_many_peers(self.peers, scenario.clients.count)

    def mixed(self, clients: int) -> int:
        """Return 1, and the fragments that reach a client in a round on average."""
        peers = max(1, (clients - 1).bit_length()) if self.peers is None else self.peers
        return 1 + self.fragments * min(clients - 1, peers)


def _too_many_peers(peers: int | None, count: int) -> Iterator[Problem]:
    """Yield a problem if a client cannot have that many receivers."""
    if peers is not None and peers >= count:
        yield Problem(f"fewer than the {count} clients", str(peers), "lower it, or add clients", ("algorithm", "peers"))


class Corrected(AlgorithmConfig):
    """Base of gossip with a correction for each client."""

    uses: ClassVar[Uses] = Uses(graph="mixed", channel="corrected", sum="tracked")
    fixed: ClassVar[Mapping[str, str]] = {"optimizer": "its corrections are those of plain steps"}
    weighting: Literal["data", "uniform"] = option(
        "data", "what is minimized: the mean over examples (data), or over the losses of clients (uniform)"
    )

    def warnings(self, scenario: Sections) -> Iterator[str]:
        """Warn if clients leave."""
        leaves = any(crash.back is None for absence in scenario.availability for crash in absence.crash)
        if leaves or (scenario.privacy is not None and scenario.privacy.epsilon_budget is not None):
            what = "availability: a client" if leaves else "privacy.epsilon_budget: a client whose budget is spent"
            yield f"{what} leaves with its correction, and the others do not reach their optimum any more"


class CorrectedGossip(Corrected):
    """EXTRA, exact diffusion, NIDS and gradient tracking.

    Gossip that reaches the optimum of unlike data with constant steps.
    """

    kind: Literal["corrected_gossip"] = variant("corrected_gossip")
    method: Literal["extra", "exact_diffusion", "nids", "tracking"] = option(
        "exact_diffusion",
        "how the clients' models are corrected; tracking sends two vectors in a message, the others one",
    )
    step_factors: tuple[Positive, ...] | None = option(
        None, "factor on step_size of each client, one per client, with method nids; null: 1"
    )

    @property
    def vectors(self) -> int:
        """Two with tracking."""
        return 2 if self.method == "tracking" else 1

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a problem if the factors do not suit the method or the clients."""
        if self.step_factors is None:
            return
        at, given, count = ("algorithm", "step_factors"), len(self.step_factors), scenario.clients.count
        if self.method != "nids":
            yield Problem(f"null with method {self.method}", "a list", "only nids has a step for each client", at)
        elif given != count:
            yield Problem(f"one factor for each of the {count} clients", str(given), "list as many", at)

    def warnings(self, scenario: Sections) -> Iterator[str]:
        """Warn also if the graph changes with most methods."""
        yield from super().warnings(scenario)
        if scenario.topology.changes and self.method != "tracking":
            yield (
                f"algorithm.method: {self.method} is proven for a constant graph, and topology "
                f"'{scenario.topology.kind}' changes; use tracking"
            )


class KGt(LocalStepsConfig, Corrected):
    """K-GT: gradient tracking with rounds of local steps; two vectors in each message."""

    uses: ClassVar[Uses] = replace(Corrected.uses, channel="two_vectors", step="rounds", gradient="corrected")
    kind: Literal["k_gt"] = variant("k_gt")
    outer_step: Arithmetic[Positive] = option(1.0, "eta_s, factor on the changes of a round before models are averaged")


class AsySonata(Corrected):
    """ASY-SONATA: asynchronous gradient tracking, over links that may lose messages.

    A message has two vectors and is sent once.
    """

    uses: ClassVar[Uses] = Uses(channel="two_vectors", sum="mass")
    kind: Literal["asy_sonata"] = variant("asy_sonata")
    graph: Literal["topology", "ring", "exponential"] = option(
        "topology",
        "who sends to whom: client i to all neighbors of the topology section, both ways (topology), to i + 1 (ring), "
        "or to all i + 2^h (exponential)",
    )

    def warnings(self, scenario: Sections) -> Iterator[str]:
        """Warn also if links may not come back."""
        yield from super().warnings(scenario)
        if self.follows_topology and scenario.topology.changes:
            yield (
                f"algorithm.graph: asy_sonata is proven for a constant graph, and topology "
                f"'{scenario.topology.kind}' changes; a lost share waits until its link is back"
            )


class AdPsgd(BoundedConfig):
    """AD-PSGD: clients compute without waiting and average in pairs.

    With privacy, this is A(DP)²SGD.
    """

    uses: ClassVar[Uses] = Uses(channel="pairs", sum="pair", step="clients")
    fixed: ClassVar[Mapping[str, str]] = GOSSIPED
    kind: Literal["adpsgd"] = variant("adpsgd")
    exchange: Literal["atomic", "messages"] = option(
        "messages",
        "how pairs average: by messages over the links, or in no time (atomic), as papers describe it",
    )
    pairing: Literal["auto", "senders", "everyone"] = option(
        "auto",
        "which clients start exchanges: everyone, those on one side of a bipartite topology (senders), or auto: "
        "senders if it is bipartite",
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a problem if pairing by senders lacks a constant bipartite graph."""
        topology, count = scenario.topology, scenario.clients.count
        impossible = count < 2 or any(topology.impossible(count))
        if self.pairing == "senders" and topology.changes:
            advice = "use pairing: everyone, or a graph that stays"
            yield Problem("auto or everyone on a graph that changes", "'senders'", advice, ("algorithm", "pairing"))
            return
        if self.pairing == "senders" and not impossible and topology.bipartite(count) is False:
            expected = f"auto or everyone, because topology '{topology.kind}' of {count} clients is not bipartite"
            advice = "use pairing: everyone, or an even ring"
            yield Problem(expected, "'senders'", advice, ("algorithm", "pairing"))


class A2CiD2(AdPsgd):
    """A2CiD2: AD-PSGD with a second model of each client, which accelerates gossip."""

    uses: ClassVar[Uses] = Uses(channel="theory", sum="tracked")
    fixed: ClassVar[Mapping[str, str]] = {"optimizer": "its clients take each step with two models"}
    one_graph: ClassVar[str] = "its constants are those of one graph: use adpsgd"
    kind: Literal["a2cid2"] = variant("a2cid2")  # type: ignore[assignment]


class GossipLearning(BoundedConfig):
    """Gossip learning: models are pushed to random neighbors periodically.

    The receiver merges them by age and trains.
    """

    uses: ClassVar[Uses] = Uses(channel="pairs", sum="aged", step="clients")
    fixed: ClassVar[Mapping[str, str]] = GOSSIPED
    kind: Literal["gossip_learning"] = variant("gossip_learning")
    period: Settled[PositiveSeconds | None] = option(
        None, "time between two messages of a client; null: that of a mini-batch at speed 1"
    )
    merge: Literal["age", "average", "none"] = option(
        "age",
        "fraction of a received model: its age over the sum of both ages (age), a half (average), or all of it "
        "(none): models then walk at random",
    )


class Sgp(AlgorithmConfig):
    """SGP: stochastic gradient push, gossip over a directed graph with push-sum."""

    uses: ClassVar[Uses] = Uses(channel="pairs", sum="mass", step="clients")
    fixed: ClassVar[Mapping[str, str]] = states("crash", why="push-sum's weights are those of models")
    kind: Literal["sgp"] = variant("sgp")
    graph: Literal["one_peer", "exponential", "ring", "topology"] = option(
        "one_peer",
        "who sends to whom: client i to i + 2^h, a single h per round, in turn (one_peer), or all h "
        "(exponential); to i + 1 (ring); to all neighbors of the topology section, both ways (topology)",
    )
    overlap: Index = option(
        0,
        "rounds that a message may take before its receiver waits for it; overlap + 1 exchanges of a client may "
        "be under way",
    )
    lost: Literal["resend", "sums"] = option(
        "resend",
        "lost messages are sent again (resend), or later ones make up for them, as messages have running sums, "
        "and clients wait links.resend_timeout at most (sums)",
    )
