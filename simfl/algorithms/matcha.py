"""MATCHA: D-PSGD over matchings of the graph that are drawn in every round.

Wang, Sahu, Yang, Joshi, Kar 2019, "MATCHA: speeding up decentralized SGD via matching decomposition sampling",
https://arxiv.org/abs/1905.09435. The edges are colored: the graph is a union of M matchings with Laplacians L_j.

    once:     p maximizes lambda_2(sum_j p_j L_j) with sum_j p_j <= budget * M;  alpha minimizes the spectral norm rho
    round r:  matching j is active with probability p_j:  B_j = 1, otherwise 0
              W = I - alpha sum_j B_j L_j,    w_k <- sum_j W_kj w_j - step * gradient at w_k

All clients know the draws, as from a common seed. A client sends to its neighbors in active matchings, waits for their
models, and goes on alone where it has none. The order of a round is that of D-PSGD, which sends while it computes; the
paper's program steps before it averages. With budget 1 all matchings are always active, and W = I - alpha L with the
best alpha = 2 / (lambda_2 + lambda_K). See `simfl.world.matchings` for p, alpha and rho.

Faults: those of D-PSGD.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.decentralized_sgd import DecentralizedSGD
from simfl.algorithms.neighbor_rounds import Graph
from simfl.world.matchings import laplacians, matchings_of, mixing_step, probabilities


class Matcha(DecentralizedSGD):
    """Rounds of gossip with the neighbors in matchings that are drawn."""

    kind: ClassVar[str] = "matcha"
    summary: ClassVar[str] = "MATCHA: D-PSGD over matchings of the graph, drawn in every round within a budget"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for its neighbors in the matchings of the round"
    what_travels: ClassVar[str] = "models, to the neighbors in the matchings of the round"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    means_are_common: ClassVar[bool] = False

    def set_up(self, *, budget: float) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        self.matchings = matchings_of(self.world.topology)
        each = laplacians(self.matchings, self.num_clients)
        self.chances = probabilities(each, budget)
        self.alpha, self.rho = mixing_step(each, self.chances)

    def _graph_of(self, round_num: int) -> Graph:
        """Return the links and the weights of a round, which its first use determines."""
        graph = self._graphs.get(round_num)
        if graph is None:
            drawn = self.world.streams.generator("matchings", 0, round_num).random(len(self.chances)) < self.chances
            weights: list[dict[int, float]] = [{k: 1.0} for k in range(self.num_clients)]
            for edges, active in zip(self.matchings, drawn.tolist(), strict=True):
                for one, other in edges if active else ():
                    for k, neighbor in ((one, other), (other, one)):
                        weights[k][neighbor] = self.alpha
                        weights[k][k] -= self.alpha
            oldest = self.rounds
            self._graphs = {kept: old for kept, old in self._graphs.items() if kept >= oldest}
            graph = self._graphs[round_num] = Graph(self.world.topology, weights)
        return graph
