"""What observers of a network learn about each client, from matrices of messages.

An observer's view is A g + B xi (`simfl.accounts.knowledge`). g are gradients of mini-batches; one example changes
those in a set P by at most Delta_i each. xi are standard normals. With

    M = A^T (B B^T)^+ A,   mu^2 = max over P of sum over i, j in P of |M_ij| Delta_i Delta_j,

distinguishing neighboring data sets is at least as hard as distinguishing N(0, 1) from N(mu, 1), so epsilon and delta
follow exactly (Dong, Roth and Su 2019; Bellet et al. 2026, https://arxiv.org/abs/2510.17480). If range(A) is not within
range(B), a part is visible without noise, and mu is infinite.

**Assumption.** This holds if no gradient in the view depends on noise that the observer has not seen: for gradients of
fixed values, or if every model at which a gradient of the view was taken is also in the view. Then, in the order of
time, each gradient is a function of earlier parts of the view. In training, gradients depend on models that the
observer has not seen: if u sends to w, and w to v, then w's gradient is a function of u's noisy message. The formula
adds w's noise to u's and gives Delta/(sqrt(5) sigma), if w steps by as much as it keeps; a w whose gradient repeats u's
message gives v up to Delta/sigma. So there are two numbers:

- `pairwise`: of the view and all models at which its gradients were taken, and recursively of the models at which the
  gradients in those were taken (`closure`). It holds for training.
- `published`: of the view alone, as papers on gossip compute it. It assumes fixed gradients, and may be too small.

Under Poisson sampling, or batches of fixed size, an example is in each mini-batch by chance, and mu counts as if it
were in all. `View.precisions` derives noise levels of single releases from M, for an accountant of sampled releases;
this is proved for `pairwise` only. If several clients hold an example, P contains gradients of all of them.

Both are at most the local mu, of an observer of each of u's gradients separately: if every gradient has its own noise,
M <= S^-2 with S their standard deviations, and the smaller one of the two sums is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

#: A row whose remainder beside other rows is below this share of its norm is their combination, for attacks on 32-bit
#: numbers, whose last bit is 6e-8 of them.
DEPENDENT = 1e-12
#: The same for accounts: the remainder that rounding leaves of a combination of other rows. The exact rank finds the
#: directions that this misses (`simfl.accounts.network.Network.resolved`).
UNRESOLVED = 1e-14
#: Difference from 0 or 1 that counts as rounding.
ROUNDING = 1e-8

Matrix = NDArray[np.float64]


class View:
    """An observer's knowledge of gradients: M = W^T W, and gradients without noise.

    A is f64 [r, n], B f64 [r, m].
    """

    def __init__(self, a: Matrix, b: Matrix) -> None:
        #: Standard deviation of each gradient's own noise, f64 [n]; None if noise is not one term for each gradient.
        self.std: Matrix | None = None
        a, b = _different(a, b)
        size = np.linalg.norm(b, axis=1)
        bare = size == 0.0
        #: Which gradients it sees in part without noise; bool [n].
        self.exposed: NDArray[np.bool_] = np.any(a[bare] != 0.0, axis=0)
        a, b = (one[~bare] / size[~bare, None] for one in (a, b))
        _, triangle, order, rank = _decomposed(b, UNRESOLVED)
        #: Rank of B, as far as rounding allows to determine it.
        self.rank = rank
        first, rest = order[:rank], order[rank:]
        #: W, f64 [rank, n].
        self.whitened: Matrix = scipy.linalg.solve_triangular(triangle[:rank, :rank], a[first], trans="T")
        # If the noise of a row is a combination of that of other rows, its difference from them is seen without noise.
        coefs = scipy.linalg.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        beside = np.abs(a[rest] - coefs.T @ a[first]) > ROUNDING * np.abs(a).max(initial=0.0)
        self.exposed |= np.any(beside, axis=0)

    @classmethod
    def of_own_noise(cls, a: Matrix, std: Matrix) -> Self:
        """Return the view for separate noise: B = A diag(std), std f64 [n] > 0.

        Then W is an orthonormal basis of the rows of B, over std, and M <= diag(std)^-2 except for rounding.
        """
        view = cls.__new__(cls)
        heard = np.any(a != 0.0, axis=0)
        rows, _ = _different(a[:, heard] * std[heard], a[:, :0])
        basis = row_space(rows, UNRESOLVED)
        view.rank = len(basis)
        view.exposed = np.zeros(a.shape[1], dtype=bool)
        view.whitened, view.std = np.zeros((len(basis), a.shape[1]), order="F"), std
        view.whitened[:, heard] = basis / std[heard]
        return view

    @classmethod
    def of_everything(cls, std: Matrix) -> Self:
        """Return the view of every gradient separately, with noise of std f64 [n]."""
        view = cls.__new__(cls)
        view.exposed = std == 0.0
        view.std = np.where(view.exposed, np.inf, std)
        view.whitened, view.rank = np.diag(1.0 / view.std), len(std)
        return view

    def m(self, columns: NDArray[np.int64] | slice = slice(None)) -> Matrix:
        """Return M of some columns, f64 [k, k]."""
        part = self.whitened[:, columns]
        return part.T @ part

    def mu(
        self, columns: NDArray[np.int64], deltas: Matrix, passes: Sequence[NDArray[np.int64]] | None = None
    ) -> float:
        """Return mu of one client.

        `columns` are its gradients, `deltas` the maximum change of each by one example, [k]. For shuffled data,
        `passes` are the places in `columns` that may hold an example in each pass; None: an example may be in all of
        them.
        """
        if not len(columns):
            return 0.0
        if np.any(self.exposed[columns] & (deltas > 0.0)):
            return math.inf
        weighed = self.m(columns) * np.outer(deltas, deltas)
        squared = _largest(np.abs(weighed), passes, passes)
        # Contributions of any direction cannot make all entries of different signs count in full.
        if self.std is not None:
            squared = min(squared, _largest(np.diag((deltas / self.std[columns]) ** 2), passes, passes))
        elif passes is None:
            squared = min(squared, len(columns) * float(np.linalg.eigvalsh(weighed)[-1]))
        return math.sqrt(squared)

    def mus_of_holders(
        self,
        columns: Sequence[NDArray[np.int64]],
        deltas: Matrix,
        passes: Sequence[Sequence[NDArray[np.int64]] | None],
        holders: NDArray[np.bool_],
    ) -> Matrix:
        """Return mu of each client if several hold an example, f64 [K].

        `columns` and `passes` of each client are as in `mu`; `deltas` are of all gradients, [n]; `holders` are the sets
        of clients that hold one example, [s, K].
        """
        clients, held = range(len(columns)), holders.astype(np.float64)
        between = np.zeros((len(columns), len(columns)))
        for one in clients:
            mine = columns[one]
            for other in range(one + 1):
                its = columns[other]
                weighed = np.abs(self.whitened[:, mine].T @ self.whitened[:, its]) * np.outer(deltas[mine], deltas[its])
                between[one, other] = between[other, one] = _largest(weighed, passes[one], passes[other])
        squared = ((held @ between) * held).sum(axis=1)
        if self.std is not None:
            alone = [np.diag((deltas[own] / self.std[own]) ** 2) for own in columns]
            local = np.array([_largest(alone[one], passes[one], passes[one]) for one in clients])
            squared = np.minimum(squared, held @ local)
        bare = [bool(np.any(self.exposed[own] & (deltas[own] > 0.0))) for own in columns]
        squared[holders[:, bare].any(axis=1)] = math.inf
        return np.sqrt(np.where(holders, squared[:, None], 0.0).max(axis=0, initial=0.0))  # type: ignore[no-any-return]

    def precisions(self, columns: NDArray[np.int64]) -> Matrix:
        """Return d with M <= diag(d) for gradients, f64 [k]; inf without noise.

        A view of M can be made from a view of every gradient separately with noise of variance 1/d_i, by adding noise
        of covariance 1 - W diag(d)^-1 W^T, row by row; so this holds for gradients that depend on earlier messages. The
        view may thus be accounted for as these single releases, with amplification by sampling. The sums of absolute
        values along rows of M are such d, because diag(d) - M is then diagonally dominant.
        """
        sums: Matrix = np.abs(self.m(columns)).sum(axis=1)
        return np.where(self.exposed[columns], np.inf, sums)


def _largest(
    weighed: Matrix, passes: Sequence[NDArray[np.int64]] | None, others: Sequence[NDArray[np.int64]] | None
) -> float:
    """Return the largest sum of entries i, j with i in `passes`, j in `others`."""
    if passes is None or others is None or not weighed.size:
        return float(weighed.sum())
    rows = np.stack([weighed[one].max(axis=0) for one in passes])
    return float(sum(rows[:, other].max(axis=1).sum() for other in others))


def row_space(rows: Matrix, dependent: float = DEPENDENT) -> Matrix:
    """Return an orthonormal basis of the rows' space, f64 [rank, n].

    A row of f64 [r, n] is a combination of others if its remainder is below the share `dependent` of its norm.
    """
    size = np.linalg.norm(rows, axis=1)
    basis, _, _, rank = _decomposed(rows[size > 0.0] / size[size > 0.0, None], dependent)
    return basis[:, :rank].T


def _decomposed(rows: Matrix, dependent: float) -> tuple[Matrix, Matrix, NDArray[np.int64], int]:
    """Return Q, R, the rows' order and rank: rows[order] = (Q R)^T."""
    tall, square = np.linalg.qr(rows.T)  # fast, in blocks; the pivoted decomposition then is of a small matrix
    small, triangle, order = scipy.linalg.qr(square, mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.abs(np.diag(triangle)) > dependent))
    return tall @ small, triangle, order, rank


def unexplained(seen: Matrix, made: Matrix, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows of `made` are not linear forms of rows seen before, bool [t].

    `seen` f64 [r, n] is in order of arrival. `before`, int [t], is the number of these that came before each row of
    `made`, f64 [t, n].
    """
    count, width = seen.shape
    basis, used = np.zeros((min(count, width), width)), np.zeros(count + 1, dtype=np.int64)
    for number, row in enumerate(seen):
        earlier, size = basis[: used[number]], np.linalg.norm(row)
        rest = row / size if size else row
        for _ in range(2):
            rest = rest - (earlier @ rest) @ earlier
        left = np.linalg.norm(rest)
        used[number + 1] = used[number]
        if left > DEPENDENT and used[number] < len(basis):
            basis[used[number]] = rest / left
            used[number + 1] += 1
    mask, rest = np.arange(len(basis)) < used[before][:, None], made
    for _ in range(2):
        rest = rest - np.where(mask, rest @ basis.T, 0.0) @ basis
    result: NDArray[np.bool_] = np.abs(rest).max(axis=1, initial=0.0) > ROUNDING * np.abs(made).max(axis=1, initial=0.0)
    return result


def recovered(a: Matrix) -> NDArray[np.bool_]:
    """Return which gradients an observer of A g can solve for, bool [n].

    They are those whose unit vector is in the row space of A: El Mrini, Cyffers, Bellet 2024,
    https://arxiv.org/abs/2402.10001.
    """
    basis = row_space(_different(a, a[:, :0])[0])
    return (basis**2).sum(axis=0) > 1.0 - ROUNDING  # type: ignore[no-any-return]


def error_of(view: View, possible: NDArray[np.bool_], groups: Matrix | None = None) -> Matrix:
    """Return the error of the best unbiased estimate of each gradient, f64 [n].

    It is sqrt(e_i^T M^+ e_i), per coordinate, and 0 for a gradient that is seen without noise. `possible` is the result
    of `recovered`. With groups E, f64 [n, k], k values h with g = E h are estimated.
    """
    m = view.m() if groups is None else groups.T @ view.m() @ groups
    bare = view.exposed if groups is None else (groups[view.exposed] != 0.0).any(axis=0)
    variance = np.diag(np.linalg.pinv(m, hermitian=True)) if m.size else np.zeros(len(m))
    return np.where(possible, np.where(bare, 0.0, np.sqrt(np.maximum(variance, 0.0))), np.inf)


def rounding_of(a: Matrix, possible: NDArray[np.bool_]) -> Matrix:
    """Return the relative rounding error of exact estimates, f64 [n].

    A message m_k = sum_i a_ki g_i has a rounding error of 2^-24 of its size. The size is taken to be sum_i |a_ki|, as
    for gradients of equal size. A is f64 [r, n]; `possible` is the result of `recovered`.
    """
    rows = _different(a, a[:, :0])[0]
    inverse = np.linalg.pinv(rows / (2.0**-24 * np.abs(rows).sum(axis=1, keepdims=True)), rcond=DEPENDENT)
    return np.where(possible, np.linalg.norm(inverse, axis=1), np.inf)


def _different(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """Drop zero and duplicate rows."""
    both = np.concatenate((a, b), axis=1)
    both = both[np.any(both != 0.0, axis=1)]
    first = np.sort(np.unique(both, axis=0, return_index=True)[1]) if len(both) else slice(0)
    return both[first, : a.shape[1]], both[first, a.shape[1] :]
