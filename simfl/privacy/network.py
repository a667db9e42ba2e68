"""What observers of a network learn about each client, from matrices of messages.

An observer's view is A g + B xi (`simfl.tape.knowledge`): g holds gradients of mini-batches, of which one example
changes those in a set P by at most Delta_i each; xi are standard normals. With

    M = A^T (B B^T)^+ A,   mu^2 = max over P of sum over i, j in P of |M_ij| Delta_i Delta_j,

telling neighboring data sets apart is no easier than telling N(0, 1) from N(mu, 1), so that epsilon and delta follow
exactly (Dong, Roth and Su 2019; Bellet et al. 2026, https://arxiv.org/abs/2510.17480). Where range(A) is not within
range(B) something is seen without noise, and mu is infinite.

**Assumption.** That is so if no gradient in the view depends on noise that the observer has not seen: of fixed values,
or where every model at which a gradient of the view was taken is in the view as well. Then the view can be read in the
order of time, each gradient being a function of what came before. In training, gradients react to models that the
observer has not seen: if u sends to w, and w to v, then w's gradient is a function of u's noisy message. The
formula adds w's noise to u's and says Delta/(sqrt(5) sigma), if w steps by as much as it keeps; a w whose gradient
repeats what u said gives v up to Delta/sigma. So there are two numbers:

- `pairwise`: of the view and all models at which its gradients were taken, and those of these in turn (`closure`). It
  holds for training.
- `published`: of the view alone, as papers on gossip compute it. It takes gradients as fixed, and may be too small.

Under Poisson sampling, or batches of fixed size, an example is in each mini-batch by chance, and mu counts as if it
were in all. `View.precisions` makes noise levels of single releases of M, for an accountant of sampled releases: this
is proved of `pairwise` only. Where several clients hold an example, P holds gradients of all of them.

Both are at most the local mu, of an observer of each of u's gradients by itself: where every gradient has its own
noise, M <= S^-2 with S their standard deviations, and the smaller of the two sums counts.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

#: Share of its norm below which a row is a combination of others, to an attack on 32-bit numbers, whose last bit is
#: 6e-8 of them.
DEPENDENT = 1e-12
#: The same in a view that is accounted for: what rounding leaves of a combination of other rows. The exact rank finds
#: directions that this misses (`simfl.accounts.network.Network.resolved`).
UNRESOLVED = 1e-14
#: Difference from 0 or 1 in exact arithmetic that counts as rounding.
ROUNDING = 1e-8

Matrix = NDArray[np.float64]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for linear algebra: small matrices are 10 times slower with more."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


class View:
    """An observer's knowledge of gradients: M = W^T W, and gradients without noise.

    A is f64 [r, n], B f64 [r, m].
    """

    def __init__(self, a: Matrix, b: Matrix) -> None:
        #: Standard deviation of each gradient's own noise, f64 [n]; None where noise is composed otherwise.
        self.std: Matrix | None = None
        a, b = _different(a, b)
        size = np.linalg.norm(b, axis=1)
        bare = size == 0.0
        #: Which gradients it sees something of without noise; bool [n].
        self.exposed: NDArray[np.bool_] = np.any(a[bare] != 0.0, axis=0)
        a, b = (one[~bare] / size[~bare, None] for one in (a, b))
        _, triangle, order, rank = _decomposed(b, UNRESOLVED)
        #: Of B, as far as rounding shows it.
        self.rank = rank
        first, rest = order[:rank], order[rank:]
        #: W, f64 [rank, n].
        self.whitened: Matrix = scipy.linalg.solve_triangular(triangle[:rank, :rank], a[first], trans="T")
        # A row's difference from what its noise, that of other rows, implies is seen without noise.
        coefs = scipy.linalg.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        beside = np.abs(a[rest] - coefs.T @ a[first]) > ROUNDING * np.abs(a).max(initial=0.0)
        self.exposed |= np.any(beside, axis=0)

    @classmethod
    def of_own_noise(cls, a: Matrix, std: Matrix) -> Self:
        """Return the view for separate noise: B = A diag(std), std f64 [n] > 0.

        Then W is an orthonormal basis of the rows of B, over std, and M <= diag(std)^-2 to rounding.
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
        """Return the view of every gradient by itself, with noise of std f64 [n]."""
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

        Args:
            columns: its gradients.
            deltas: maximum change of each of them by one example, [k].
            passes: of shuffled data, which of `columns` (by place) may hold an example in each pass; None: an example
                may be in all of them.
        """
        if not len(columns):
            return 0.0
        if np.any(self.exposed[columns] & (deltas > 0.0)):
            return math.inf
        weighed = self.m(columns) * np.outer(deltas, deltas)
        squared = _largest(np.abs(weighed), passes, passes)
        # Where contributions may point anywhere, entries of different signs cannot all count in full.
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

        Args:
            columns: the gradients of each client.
            deltas: maximum change of each gradient by one example, [n].
            passes: of each client, as in `mu`.
            holders: the sets of clients that hold one example, [s, K].
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

        A view of M is what can be made of a view of every gradient by itself with noise of variance 1/d_i, by adding
        noise of covariance 1 - W diag(d)^-1 W^T: row by row, so that it holds for gradients that react to what was seen
        before. So it may be accounted for as these releases one by one, with what sampling amplifies. The sums of
        absolute values along rows of M are such d: what is left is diagonally dominant.
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

    `dependent` is the share of a row, f64 [r, n], that others leave over, below which it counts as their combination.
    """
    size = np.linalg.norm(rows, axis=1)
    basis, _, _, rank = _decomposed(rows[size > 0.0] / size[size > 0.0, None], dependent)
    return basis[:, :rank].T


def _decomposed(rows: Matrix, dependent: float) -> tuple[Matrix, Matrix, NDArray[np.int64], int]:
    """Return Q, R, the rows' order and rank: rows[order] = (Q R)^T."""
    tall, square = np.linalg.qr(rows.T)  # in blocks, and fast; what follows is small
    small, triangle, order = scipy.linalg.qr(square, mode="economic", pivoting=True)
    rank = int(np.count_nonzero(np.abs(np.diag(triangle)) > dependent))
    return tall @ small, triangle, order, rank


def unexplained(seen: Matrix, made: Matrix, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows are no linear form of the rows seen before, bool [t].

    Args:
        seen: in the order in which they came, f64 [r, n].
        made: f64 [t, n].
        before: how many of `seen` came before each row that was made, int [t].
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

    Those whose unit vector is in the row space of A: El Mrini, Cyffers, Bellet 2024, https://arxiv.org/abs/2402.10001.
    """
    basis = row_space(_different(a, a[:, :0])[0])
    return (basis**2).sum(axis=0) > 1.0 - ROUNDING  # type: ignore[no-any-return]


def error_of(view: View, possible: NDArray[np.bool_], groups: Matrix | None = None) -> Matrix:
    """Return the error of the best unbiased estimate of each gradient, f64 [n].

    It is sqrt(e_i^T M^+ e_i), per coordinate, and 0 for what is seen without noise.

    `possible` is the result of `recovered`. With groups E, f64 [n, k], estimates are of k values h with g = E h.
    """
    m = view.m() if groups is None else groups.T @ view.m() @ groups
    bare = view.exposed if groups is None else (groups[view.exposed] != 0.0).any(axis=0)
    variance = np.diag(np.linalg.pinv(m, hermitian=True)) if m.size else np.zeros(len(m))
    return np.where(possible, np.where(bare, 0.0, np.sqrt(np.maximum(variance, 0.0))), np.inf)


def rounding_of(a: Matrix, possible: NDArray[np.bool_]) -> Matrix:
    """Return the relative rounding error of exact estimates, f64 [n].

    A message m_k = sum_i a_ki g_i is rounded by 2^-24 of its size, here of sum_i |a_ki|: all gradients are alike. A is
    f64 [r, n], `possible` the result of `recovered`.
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
