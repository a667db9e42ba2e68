"""Which client holds which examples.

Every kind but `resample` gives each example to one client at most. Each client gets at least one example: a client
without data has no gradient, and what it should do then would be a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.errors import ScenarioError, nearest

Indices = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

PARTITIONS: dict[str, str] = {
    "iid": "examples dealt at random, in the wanted sizes",
    "dirichlet": "each client draws its own mix of labels from a Dirichlet distribution (alpha)",
    "shards": "examples sorted by label, cut into shards, some shards for each client (shards_per_client)",
    "by_label": "each client holds some labels only (labels_per_client)",
    "resample": "each client draws from the whole set, so that examples are shared (size)",
}

SIZES: dict[str, str] = {
    "equal": "all clients hold equally many examples, up to one",
    "power_law": "the r-th largest client holds a share proportional to r^-exponent",
    "listed": "the number of examples of each client, in order (values)",
}


@dataclass(frozen=True, eq=False)
class Partition:
    """The examples of all clients, one after the other.

    Args:
        indices: int32 [total], positions in the training part; ascending within a client.
        offsets: int64 [K + 1]; client k holds `indices[offsets[k]:offsets[k + 1]]`.
    """

    indices: Indices
    offsets: Counts

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Counts:
        """Number of examples of each client, int64 [K]."""
        return np.diff(self.offsets)

    def of(self, client: int) -> Indices:
        """Return the examples of one client."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client}: expected 0 to {self.num_clients - 1}")
        return self.indices[self.offsets[client] : self.offsets[client + 1]]


def partition(
    kind: str,
    y: npt.NDArray[Any],
    num_clients: int,
    generator: np.random.Generator,
    *,
    sizes: str = "equal",
    exponent: float = 1.0,
    values: Sequence[int] | None = None,
    alpha: float = 0.5,
    shards_per_client: int = 2,
    labels_per_client: int = 2,
    size: int | None = None,
) -> Partition:
    """Divide the training examples among the clients.

    Args:
        kind: one of `PARTITIONS`.
        y: labels of the training part, [n]; only the label kinds look at them.
        num_clients: K >= 1.
        generator: draws the division.
        sizes: one of `SIZES`. `by_label` takes them as the clients' shares of each label they hold; `resample` with
            "power_law" lets `size` be the mean.
        exponent: of the power law, >= 0; 0 is equal sizes.
        values: the listed sizes, K whole numbers >= 1. They may add up to less than n: the rest is then not used.
        alpha: Dirichlet concentration, > 0; small means few labels per client.
        shards_per_client: number of shards that a client gets.
        labels_per_client: number of labels that a client holds.
        size: number of examples that a client draws, for `resample`.
    """
    if kind not in PARTITIONS:
        raise ScenarioError(
            f"data.partition.kind: expected one of {', '.join(PARTITIONS)}, found {kind!r}{nearest(kind, PARTITIONS)}"
        )
    if num_clients < 1:
        raise ScenarioError(f"clients.count: expected at least 1 client, found {num_clients}")
    n = len(y)
    if kind == "resample":
        return _resample(n, _resample_sizes(n, num_clients, generator, sizes, exponent, values, size), generator)
    if num_clients > n:
        raise ScenarioError(
            f"clients.count: {num_clients} clients but only {n} training examples, and each needs one; "
            f"use fewer clients or partition kind: resample"
        )
    if kind == "by_label":
        shares = _shares(num_clients, generator, sizes, exponent)
        return _by_label(_classes(kind, y), shares, labels_per_client, generator)
    counts = _client_sizes(n, num_clients, generator, sizes, exponent, values)
    if kind == "iid":
        return _gather(_used(n, counts, generator), np.repeat(np.arange(num_clients), counts), num_clients)
    if kind == "shards":
        return _shards(_classes(kind, y), counts, shards_per_client, generator)
    return _dirichlet(_classes(kind, y), counts, alpha, generator)


def apportion(total: int, weights: npt.NDArray[np.float64], minimum: int = 1) -> Counts:
    """Divide `total` things in proportion to weights, whole and exact, by largest remainders.

    Args:
        total: at least `minimum` for each.
        weights: [K], >= 0, not all 0.
        minimum: what each gets before the rest is divided.

    Returns:
        int64 [K] that sums to `total`.
    """
    assert total >= minimum * len(weights)
    quotas = (total - minimum * len(weights)) * weights / weights.sum()
    shares: Counts = np.floor(quotas).astype(np.int64)
    missing = total - minimum * len(weights) - int(shares.sum())
    shares[np.argsort(shares - quotas, kind="stable")[:missing]] += 1
    shares += minimum
    return shares


def _shares(num_clients: int, generator: np.random.Generator, sizes: str, exponent: float) -> npt.NDArray[np.float64]:
    """Return a weight for each client; the ranks of a power law are dealt at random, so that ids mean nothing."""
    if sizes not in SIZES:
        raise ScenarioError(
            f"data.partition.sizes.kind: expected one of {', '.join(SIZES)}, found {sizes!r}{nearest(sizes, SIZES)}"
        )
    if sizes == "listed":
        raise ScenarioError(
            "data.partition.sizes.kind: by_label cannot keep listed sizes, they follow from the labels; "
            "use equal or power_law"
        )
    if sizes == "equal":
        return np.ones(num_clients)
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ScenarioError(f"data.partition.sizes.exponent: expected a number >= 0, found {exponent:g}")
    ranks = np.asarray(generator.permutation(num_clients) + 1, np.float64)
    return np.asarray(ranks**-exponent, np.float64)


def _listed(values: Sequence[int] | None, num_clients: int) -> Counts:
    """Return listed sizes as an array, checked but for their sum."""
    where = "data.partition.sizes.values"
    if values is None or len(values) != num_clients:
        found = "none" if values is None else str(len(values))
        raise ScenarioError(f"{where}: expected {num_clients} sizes, one for each client, found {found}")
    for client, value in enumerate(values):
        if value != int(value) or value < 1:
            raise ScenarioError(f"{where}: client {client}: expected a whole number >= 1, found {value}")
    return np.array(values, dtype=np.int64)


def _client_sizes(
    n: int, num_clients: int, generator: np.random.Generator, sizes: str, exponent: float, values: Sequence[int] | None
) -> Counts:
    """Return how many of n examples each client gets, int64 [K]."""
    if sizes == "listed":
        counts = _listed(values, num_clients)
        if counts.sum() > n:
            raise ScenarioError(
                f"data.partition.sizes.values: they add up to {counts.sum()}, but there are {n} training examples"
            )
        return counts
    return apportion(n, _shares(num_clients, generator, sizes, exponent))


def _resample_sizes(
    n: int,
    num_clients: int,
    generator: np.random.Generator,
    sizes: str,
    exponent: float,
    values: Sequence[int] | None,
    size: int | None,
) -> Counts:
    """Return how many examples each client draws for itself, int64 [K], each from 1 to n."""
    if sizes == "listed":
        counts = _listed(values, num_clients)
    else:
        if size is None:
            raise ScenarioError("data.partition.size: resample needs the number of examples that each client draws")
        if size != int(size) or not 1 <= size <= n:
            raise ScenarioError(
                f"data.partition.size: expected 1 to {n} (the training examples; drawn without replacement), "
                f"found {size}"
            )
        counts = apportion(num_clients * int(size), _shares(num_clients, generator, sizes, exponent))
    if counts.max() > n:
        raise ScenarioError(
            f"data.partition.sizes: client {counts.argmax()} would draw {counts.max()} of {n} training examples "
            f"without replacement; use smaller sizes"
        )
    return counts


def _classes(kind: str, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return labels as 0..c-1 without gaps, or refuse the targets of a regression."""
    if y.dtype.kind not in "iu":
        raise ScenarioError(f"data.partition.kind: {kind} needs class labels, and this set has none; use iid")
    return np.unique(y, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _used(n: int, counts: Counts, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return as many examples as the clients hold together, in random order."""
    return generator.permutation(n)[: counts.sum()]


def _gather(examples: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], num_clients: int) -> Partition:
    """Return the partition in which the owner of each listed example holds it."""
    order = np.lexsort((examples, owners))
    offsets = np.zeros(num_clients + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=num_clients), out=offsets[1:])
    return Partition(examples[order].astype(np.int32), offsets)


def _shards(labels: npt.NDArray[np.int64], counts: Counts, shards: int, generator: np.random.Generator) -> Partition:
    """Sort by label, cut into K * s shards, give each client s of them at random.

    McMahan et al. 2017, section 3, https://arxiv.org/abs/1602.05629. A client's shards share its size equally, so any
    sizes will do.
    """
    num_clients = len(counts)
    if shards < 1:
        raise ScenarioError(f"data.partition.shards_per_client: expected at least 1, found {shards}")
    if counts.min() < shards:
        raise ScenarioError(
            f"data.partition.shards_per_client: client {counts.argmin()} has {counts.min()} examples for {shards} "
            f"shards; use fewer shards or clients"
        )
    owners = np.repeat(np.arange(num_clients), shards)
    lengths = counts[owners] // shards + (np.tile(np.arange(shards), num_clients) < counts[owners] % shards)
    order = generator.permutation(num_clients * shards)
    examples = _used(len(labels), counts, generator)
    examples = examples[np.argsort(labels[examples], kind="stable")]
    return _gather(examples, np.repeat(owners[order], lengths[order]), num_clients)


def _dirichlet(
    labels: npt.NDArray[np.int64], counts: Counts, alpha: float, generator: np.random.Generator
) -> Partition:
    """Let each client draw its label shares q ~ Dir(alpha c p), then its examples by them, without replacement.

    p [c] are the shares of the labels in the whole set, so that the clients' mean mix is the set's own. Hsu, Qi, Brown
    2019, https://arxiv.org/abs/1909.06335, whose alpha is c times ours; with balanced labels ours is the usual
    Dir(alpha, ..., alpha). When a label runs out, the client's other labels take its place, so the sizes are exact.
    Clients draw in random order: the last ones find what is left.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise ScenarioError(f"data.partition.alpha: expected a number > 0, found {alpha:g}")
    left = np.bincount(labels)
    shares = generator.dirichlet(alpha * len(left) * left / left.sum(), size=len(counts))
    taken = np.zeros((len(counts), len(left)), np.int64)
    for client in generator.permutation(len(counts)):
        taken[client] = _draw_labels(int(counts[client]), shares[client], left, generator)
        left -= taken[client]
    return _deal(labels, taken, generator)


def _draw_labels(
    size: int, shares: npt.NDArray[np.float64], left: Counts, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return how many examples of each label a client takes, int64 [c], at most what is left of each."""
    taken = np.zeros_like(left)
    while size:
        room = left - taken
        wanted = np.where(room > 0, shares, 0.0)
        total = wanted.sum()
        # Shares of a small alpha underflow: once the client's own labels are gone, it takes of what there is.
        wanted = wanted / total if total > 1e-12 else room / room.sum()
        drawn = np.minimum(generator.multinomial(size, wanted), room)
        taken += drawn
        size -= int(drawn.sum())
    return taken


def _deal(labels: npt.NDArray[np.int64], taken: Counts, generator: np.random.Generator) -> Partition:
    """Give out the examples of each label at random, `taken[k, c]` of label c to client k."""
    examples = generator.permutation(len(labels))
    examples = examples[np.argsort(labels[examples], kind="stable")]
    num_clients, num_labels = taken.shape
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=num_labels))])
    chosen = np.concatenate([np.arange(a, a + count) for a, count in zip(starts, taken.sum(axis=0), strict=False)])
    owners = np.repeat(np.tile(np.arange(num_clients), num_labels), taken.T.ravel())
    return _gather(examples[chosen], owners, num_clients)


def _by_label(
    labels: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], per_client: int, generator: np.random.Generator
) -> Partition:
    """Give each client `per_client` labels and divide the examples of a label among the clients that hold it.

    Li et al. 2022, https://arxiv.org/abs/2102.02079 (their #C = k), with labels dealt like cards, so that each is held
    by equally many clients up to one. Labels that nobody holds (K times labels per client below c) are not used.
    """
    per_label = np.bincount(labels)
    c = len(per_label)
    if not 1 <= per_client <= c:
        raise ScenarioError(f"data.partition.labels_per_client: expected 1 to {c} (the classes), found {per_client}")
    held = _deal_labels(len(weights), per_client, c, generator)
    taken = np.zeros((len(weights), c), np.int64)
    for label in range(c):
        holders = np.flatnonzero((held == label).any(axis=1))
        if len(holders) == 0:
            continue
        if len(holders) > per_label[label]:
            taken[generator.permutation(holders)[: per_label[label]], label] = 1
        else:
            taken[holders, label] = apportion(int(per_label[label]), weights[holders])
    empty = np.flatnonzero(taken.sum(axis=1) == 0)
    if len(empty):
        raise ScenarioError(
            f"data.partition.labels_per_client: {len(empty)} of {len(weights)} clients would get no example (the first "
            f"is client {empty[0]}): its labels have fewer examples than clients; use more labels per client or fewer "
            f"clients"
        )
    return _deal(labels, taken, generator)


def _deal_labels(
    num_clients: int, per_client: int, num_labels: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return the labels of each client, int64 [K, per_client], distinct within a client.

    Shuffled decks of all labels are dealt one after the other. Where a client's hand spans two decks, the labels it
    has already go to the bottom of the new one.
    """
    dealt: list[npt.NDArray[np.int64]] = []
    for start in range(0, num_clients * per_client, num_labels):
        keys = generator.random(num_labels)
        in_hand = start % per_client
        if in_hand:
            keys[dealt[-1][-in_hand:]] += 1.0
        dealt.append(np.argsort(keys))
    return np.concatenate(dealt)[: num_clients * per_client].reshape(num_clients, per_client)


def _resample(n: int, counts: Counts, generator: np.random.Generator) -> Partition:
    """Let each client draw its examples from the whole set, without replacement, on its own."""
    drawn = [np.sort(generator.choice(n, size=count, replace=False, shuffle=False)) for count in counts]
    return Partition(np.concatenate(drawn).astype(np.int32), np.concatenate([[0], np.cumsum(counts)]))
