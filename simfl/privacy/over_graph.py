"""Noise whose covariance over clients is chosen for a graph.

Rodio, Chen, Larsson 2025, "Whisper D-SGD: correlated noise across agents for differentially private decentralized
learning", https://arxiv.org/abs/2501.14644, and the covariance problem of its program
(https://github.com/arodio/WhisperDSGD, `solve_mixing`). With W the mixing matrix and R the covariance of the clients'
noise of one round, [K, K]:

    minimize  tr(W R W')   over R > 0   with  (R^-1)_kk <= 1 for every client k

The objective is the noise in the models after a round of averages. (R^-1)_kk C^2 is the squared distance, in standard
deviations, by which an example of client k moves what an observer of all releases sees, who knows no noise. DECOR is
R = a I + b L with the Laplacian L, independent noise R = I. On a complete graph the infimum is the noise of a trusted
server, with noise that grows without bound: `ridge` e adds e tr(R), the noise of single models, to the objective.

The optimum. M = W'W + e I. With multipliers l > 0 and P = R^-1, the stationary point P diag(l) P = M is

    P = D^-1/2 (D^1/2 M D^1/2)^1/2 D^-1/2,   D = diag(l),   dual(l) = 2 tr (D^1/2 M D^1/2)^1/2 - sum l

The dual is concave, and its maximum has P_kk = 1: l is the diagonal of that root, which is iterated. R = P^-1 max P_kk
is feasible for every l, so the gap between its objective and dual(l) bounds the distance from the optimum.

How clients draw it. R / r = I + B B' with r its least eigenvalue and B a Cholesky factor. In units of its own noise
xi_k (`noise_multiplier`), the noise of client k is xi_k + sum over m <= k of B_km eta_m(t): the clients m, ..., K - 1
share the seed of eta_m. The paper's program draws the noise of all clients in one place.

The account. Own noise alone is certified, as if all others told their seeds. An observer who knows no seed meets the
level 1 / sqrt((R^-1)_kk), up to sqrt(K) times that of own noise. It sees less if releases of some clients are missing:
(R_SS^-1)_kk <= (R^-1)_kk for every subset S. `simfl privacy network` accounts for both. If clients make releases of a
number at different times, or some never do, their noise cancels late or never.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.correlated import Pairwise

#: Relative gap between objective and dual at which the covariance is taken as optimal.
GAP = 1e-9
_MOST_STEPS = 100_000
#: Share of the least eigenvalue that is left beside own noise, so that B B' is definite.
_LEFT = 1e-6


def root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    product: NDArray[np.float64] = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return product


def optimal_covariance(mixing: NDArray[np.float64], ridge: float) -> tuple[NDArray[np.float64], float, float]:
    """Return R of least noise after a round with max (R^-1)_kk = 1, and its bounds.

    Args:
        mixing: W, [K, K].
        ridge: e > 0, the weight of the noise of single models.

    Returns:
        R, tr(M R), and a lower bound on tr(M R) of every feasible R.

    Raises:
        ScenarioError: the iteration does not close the gap.
    """
    objective = mixing.T @ mixing + ridge * np.eye(len(mixing))
    multipliers = np.diag(objective).copy()
    for _ in range(_MOST_STEPS):
        scaled = np.sqrt(multipliers)
        rooted = root(objective * np.outer(scaled, scaled))
        reached = np.diag(rooted).copy()
        bound = float(2.0 * reached.sum() - multipliers.sum())
        precision = rooted / np.outer(scaled, scaled)
        covariance = np.linalg.inv(precision) * np.diag(precision).max()
        value = float(np.sum(objective * covariance))
        if value - bound <= GAP * value:
            return covariance, value, bound
        multipliers = reached
    raise ArithmeticError(
        f"the covariance over the graph is within {value - bound:.3g} of the optimum, not {GAP:g} of it"
    )


def over_graph(mixing: NDArray[np.float64], scales: Sequence[float], key: NDArray[np.uint32], ridge: float) -> Pairwise:
    """Return the optimal noise as own noise and vectors that clients share.

    Args:
        mixing: W, [K, K].
        scales: standard deviations of the clients' own noise on the sum of a mini-batch, [K], > 0.
        key: uint32 [2], of the stream of shared noise.
        ridge: as in `optimal_covariance`.
    """
    relative = np.asarray(scales, np.float64) / max(scales)
    covariance, _, _ = optimal_covariance(mixing * relative, ridge)
    own = np.linalg.eigvalsh(covariance)[0] * (1.0 - _LEFT)
    count = len(covariance)
    shared = np.linalg.cholesky(covariance / own - np.eye(count))
    numbers = np.tile(np.arange(count, dtype=np.int32), (count, 1))
    degrees = np.arange(1, count + 1, dtype=np.int32)
    ends = tuple(tuple(range(number, count)) for number in range(count))
    return Pairwise(numbers, shared.astype(np.float32), degrees, key, ends)


def levels(noise: Pairwise) -> NDArray[np.float64]:
    """Return each client's noise for one who knows no seed, in units of its own, [K]."""
    shared = np.tril(noise.coefficients.astype(np.float64))
    moved = np.diag(np.linalg.inv(np.eye(len(shared)) + shared @ shared.T))
    return np.asarray(1.0 / np.sqrt(moved), np.float64)
