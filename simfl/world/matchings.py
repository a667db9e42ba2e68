"""Matchings of a graph, and the probabilities with which MATCHA activates them.

Wang, Sahu, Yang, Joshi, Kar 2019, "MATCHA: speeding up decentralized SGD via matching decomposition sampling",
https://arxiv.org/abs/1905.09435. Matching j has the Laplacian L_j and is active, B_j = 1, with probability p_j. A round
mixes by W = I - alpha sum_j B_j L_j. The squared distance from consensus shrinks by rho or more per round in
expectation, where rho is the largest eigenvalue of E[W^2] - 1 1' / K.

Matrices are dense, [K, K].
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from simfl.world.topology import Topology

Matching = tuple[tuple[int, int], ...]
#: The largest relative distance of lambda_2 from its maximum.
GAP = 1e-5


def matchings_of(topology: Topology) -> list[Matching]:
    """Color the edges so that those of one color share no client.

    The line graph is colored greedily, clients with few free neighbors last. There are at least as many matchings as
    the largest degree, and seldom many more. A complete graph has K - 1 if K is even, and K if it is odd.
    """
    count = topology.num_clients
    if topology.is_complete:
        rest = count - 1 + count % 2
        colors = {(i, j): (2 * i if j == rest else i + j) % rest for i, j in topology.edges}
    else:
        colors = nx.greedy_color(nx.line_graph(topology.graph), strategy="smallest_last")
    matchings: list[list[tuple[int, int]]] = [[] for _ in range(1 + max(colors.values(), default=-1))]
    for edge, color in colors.items():
        matchings[color].append((min(edge), max(edge)))
    return [tuple(sorted(edges)) for edges in matchings]


def laplacians(matchings: Sequence[Matching], count: int) -> NDArray[np.float64]:
    """Return the Laplacian of each matching, [M, K, K]."""
    result = np.zeros((len(matchings), count, count))
    for laplacian, edges in zip(result, matchings, strict=True):
        for i, j in edges:
            laplacian[[i, j], [i, j]] += 1.0
            laplacian[[i, j], [j, i]] -= 1.0
    return result


def probabilities(each: NDArray[np.float64], budget: float) -> NDArray[np.float64]:
    """Return p in [0, 1] that maximizes lambda_2(sum_j p_j L_j) within the budget.

    The budget bounds the sum of p by budget * M.

    In the space of vectors that add up to 0, lambda_2 is the largest t with S = sum_j p_j L_j - t I positive definite.
    The barrier method finds it: Newton steps maximize tau t + log det S + the logarithms of p, of 1 - p and of what is
    left of the budget, for rising tau. The distance from the largest t is then at most (number of barriers) / tau.

    Args:
        each: the Laplacians of the matchings of a connected graph, [M, K, K].
        budget: C_b in (0, 1].
    """
    count, clients = each.shape[:2]
    if budget >= 1.0:
        return np.ones(count)
    basis = np.linalg.svd(np.ones((1, clients)))[2][1:].T
    parts = basis.T @ each @ basis
    p, tau, barriers = np.full(count, 0.5 * budget), 1.0, clients + 2 * count
    t = 0.5 * float(np.linalg.eigvalsh(np.tensordot(p, parts, 1))[0])

    def value(t: float, p: NDArray[np.float64]) -> float:
        inside = np.concatenate((p, 1.0 - p, [budget * count - p.sum()]))
        values = np.linalg.eigvalsh(np.tensordot(p, parts, 1)) - t
        if inside.min() <= 0.0 or values[0] <= 0.0:
            return -np.inf
        return float(tau * t + np.log(values).sum() + np.log(inside).sum())

    while barriers / tau > GAP * t:
        tau *= 8.0
        for _ in range(50):
            inverse = np.linalg.inv(np.tensordot(p, parts, 1) - t * np.eye(clients - 1))
            moved = np.concatenate((-inverse[None], inverse @ parts))  # S^-1 times the derivatives of S by t and p
            left = budget * count - p.sum()
            slope = np.trace(moved, axis1=1, axis2=2) + np.concatenate(([tau], 1.0 / p - 1.0 / (1.0 - p) - 1.0 / left))
            curve = np.einsum("iab,jba->ij", moved, moved, optimize=True)
            curve[1:, 1:] += np.diag(p**-2 + (1.0 - p) ** -2) + left**-2
            step = np.linalg.solve(curve, slope)
            if (gain := float(slope @ step)) < 1e-9:
                break
            length, before = 1.0, value(t, p)
            while value(t + length * step[0], p + length * step[1:]) < before + 0.1 * length * gain and length > 1e-9:
                length *= 0.5
            t, p = t + length * float(step[0]), p + length * step[1:]
    return p


def mixing_step(each: NDArray[np.float64], p: NDArray[np.float64]) -> tuple[float, float]:
    """Return the alpha that makes rho smallest, and rho.

    E[W^2] = I - 2 alpha S + alpha^2 (S^2 + 2 V),   S = sum_j p_j L_j,   V = sum_j p_j (1 - p_j) L_j
    """
    from scipy.optimize import minimize_scalar

    count = each.shape[1]
    mean, variance = np.tensordot(p, each, 1), np.tensordot(p * (1.0 - p), each, 1)
    square, apart = mean @ mean + 2.0 * variance, np.eye(count) - 1.0 / count

    def rho(alpha: float) -> float:
        return float(np.linalg.eigvalsh(apart - 2.0 * alpha * mean + alpha**2 * square)[-1])

    if np.all(p == 1.0):
        values = np.linalg.eigvalsh(mean)
        alpha = 2.0 / float(values[1] + values[-1])
    else:
        alpha = float(minimize_scalar(rho, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10}).x)
    return alpha, rho(alpha)
