"""Assignment of training examples to clients.

Every kind but `resample` gives each example to at most one client. Each client gets at least one example, since a
client without data has no gradient. `simfl.scenario.partitions` checks the options by themselves; here they are checked
against the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simfl.errors import ScenarioError

Indices = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
SizesKind = Literal["equal", "power_law", "listed"]


@dataclass(frozen=True, eq=False)
class Partition:
    """The examples of all clients, concatenated.

    `indices`, int32 [total], are indices into the training part, ascending within a client; client k holds
    `indices[offsets[k]:offsets[k + 1]]`, offsets int64 [K + 1].
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

    def holders(self) -> npt.NDArray[np.bool_]:
        """Return the distinct sets of clients that share an example, bool [s, K]."""
        held = np.zeros((int(self.indices.max()) + 1, self.num_clients), dtype=bool)
        held[self.indices, np.repeat(np.arange(self.num_clients), self.sizes)] = True
        distinct = np.unique(np.packbits(held[held.any(axis=1)], axis=1), axis=0)
        return np.unpackbits(distinct, axis=1, count=self.num_clients).astype(bool)

    def of(self, client: int) -> Indices:
        """Return the examples of one client."""
        if not 0 <= client < self.num_clients:
            raise IndexError(f"client {client}: expected 0 to {self.num_clients - 1}")
        return self.indices[self.offsets[client] : self.offsets[client + 1]]


@dataclass(frozen=True)
class _Request:
    num_clients: int
    generator: np.random.Generator
    sizes: SizesKind = "equal"
    exponent: float = 1.0
    values: Sequence[int] | None = None

    def shares(self) -> npt.NDArray[np.float64]:
        """Return a weight for each client; power-law ranks are random."""
        if self.sizes == "equal":
            return np.ones(self.num_clients)
        ranks = np.asarray(self.generator.permutation(self.num_clients) + 1, np.float64)
        return np.asarray(ranks**-self.exponent, np.float64)

    def listed(self) -> Counts:
        """Return the listed sizes; their sum is checked by the caller."""
        values = np.array(self.values, dtype=np.int64)
        assert values.shape == (self.num_clients,)
        return values

    def check_count(self, n: int) -> None:
        """Refuse more clients than examples."""
        if self.num_clients > n:
            raise ScenarioError(
                f"clients.count: {self.num_clients} clients but only {n} training examples, and each needs one; "
                f"use fewer clients or partition kind: resample"
            )

    def counts(self, n: int) -> Counts:
        """Return how many of n examples each client gets, int64 [K]."""
        self.check_count(n)
        counts = self.listed() if self.sizes == "listed" else apportion(n, self.shares())
        if counts.sum() > n:
            raise ScenarioError(
                f"data.partition.sizes.values: they add up to {counts.sum()}, but there are {n} training examples"
            )
        return counts


def partition(
    kind: str,
    y: npt.NDArray[Any],
    num_clients: int,
    generator: np.random.Generator,
    *,
    sizes: SizesKind = "equal",
    exponent: float = 1.0,
    values: Sequence[int] | None = None,
    **options: Any,
) -> Partition:
    """Divide the training examples with labels y [n] among `num_clients` >= 1 clients.

    `sizes` is equal, power_law or listed. For `by_label`, they are clients' shares of each label; for `resample` with
    "power_law", `size` is the mean. `exponent` >= 0 is the power law's; 0 means equal sizes. `values` are the listed
    sizes, K whole numbers >= 1; if they add up to less than n, the rest is unused. `options` are keywords of the kind's
    function in `PARTITIONS`.
    """
    return PARTITIONS[kind](y, _Request(num_clients, generator, sizes, exponent, values), **options)


def of_owners(partition: Partition, groups: npt.NDArray[Any], test_groups: npt.NDArray[Any]) -> Partition:
    """Return the test examples of each client's owner.

    Those of other owners are unused. `groups` [n] and `test_groups` [m] are the owners of training and test examples.
    """
    if groups.dtype.kind != test_groups.dtype.kind:
        groups, test_groups = groups.astype(str), test_groups.astype(str)
    values, first = np.unique(groups[partition.indices[partition.offsets[:-1]]], return_index=True)
    place = np.minimum(np.searchsorted(values, test_groups), len(values) - 1)
    held = np.flatnonzero(values[place] == test_groups)
    return _gather(held, first[place[held]], partition.num_clients)


def in_the_same_mix(
    partition: Partition, y: npt.NDArray[Any], test_y: npt.NDArray[Any], generator: np.random.Generator
) -> Partition:
    """Deal test examples so that each client has its mix of labels, and its share.

    A label's test examples are dealt in proportion to the numbers of training examples that clients have of it, up to
    rounding, each to one client at most. Targets and sequences of labels count as one label. `y` are the labels of the
    training examples, `test_y` [m] those of the test examples.
    """
    if y.ndim > 1 or y.dtype.kind not in "iu":
        y, test_y = np.zeros(len(y), np.int64), np.zeros(len(test_y), np.int64)
    num_clients = partition.num_clients
    holder, held_y = np.repeat(np.arange(num_clients), partition.sizes), y[partition.indices]
    examples: list[npt.NDArray[np.int64]] = []
    owners: list[npt.NDArray[np.int64]] = []
    for label in np.unique(test_y):
        shares = np.cumsum(np.bincount(holder[held_y == label], minlength=num_clients))
        members, start = generator.permutation(np.flatnonzero(test_y == label)), generator.random()
        if not shares[-1]:
            continue  # no client trains on it
        ends = np.floor(shares / shares[-1] * len(members) + start).astype(np.int64)
        owners.append(np.repeat(np.arange(num_clients), np.diff(ends, prepend=0)))
        examples.append(members)
    if not examples:
        return Partition(np.zeros(0, np.int32), np.zeros(num_clients + 1, np.int64))
    return _gather(np.concatenate(examples), np.concatenate(owners), num_clients)


def apportion(total: int, weights: npt.NDArray[np.float64], minimum: int = 1) -> Counts:
    """Divide `total` in proportion to weights into integers, by largest remainders.

    `weights` [K] are >= 0, not all 0. Each share, int64 [K], is at least `minimum`; they sum to `total`.
    """
    assert total >= minimum * len(weights)
    quotas = (total - minimum * len(weights)) * weights / weights.sum()
    shares: Counts = np.floor(quotas).astype(np.int64)
    missing = total - minimum * len(weights) - int(shares.sum())
    shares[np.argsort(shares - quotas, kind="stable")[:missing]] += 1
    shares += minimum
    return shares


def _classes(kind: str, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return labels as 0..c-1 without gaps; refuse regression targets."""
    if y.dtype.kind not in "iu":
        raise ScenarioError(f"data.partition.kind: {kind} needs class labels, and this set has none; use iid")
    return np.unique(y, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _iid(y: npt.NDArray[Any], request: _Request) -> Partition:
    counts = request.counts(len(y))
    owners = np.repeat(np.arange(request.num_clients), counts)
    return _gather(request.generator.permutation(len(y))[: counts.sum()], owners, request.num_clients)


def _gather(examples: npt.NDArray[np.int64], owners: npt.NDArray[np.int64], num_clients: int) -> Partition:
    """Return the partition in which `owners[i]` holds `examples[i]`."""
    order = np.lexsort((examples, owners))
    offsets = np.zeros(num_clients + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=num_clients), out=offsets[1:])
    return Partition(examples[order].astype(np.int32), offsets)


def _shards(y: npt.NDArray[Any], request: _Request, *, shards_per_client: int = 2) -> Partition:
    """Sort by label, cut into K * s shards, give each client s of them at random.

    McMahan et al. 2017, section 3, https://arxiv.org/abs/1602.05629. A client's shards divide its size equally.
    """
    counts, shards, generator = request.counts(len(y)), shards_per_client, request.generator
    labels, num_clients = _classes("shards", y), request.num_clients
    if counts.min() < shards:
        raise ScenarioError(
            f"data.partition.shards_per_client: client {counts.argmin()} has {counts.min()} examples for {shards} "
            f"shards; use fewer shards or clients"
        )
    owners = np.repeat(np.arange(num_clients), shards)
    lengths = counts[owners] // shards + (np.tile(np.arange(shards), num_clients) < counts[owners] % shards)
    order = generator.permutation(num_clients * shards)
    examples = generator.permutation(len(labels))[: counts.sum()]
    examples = examples[np.argsort(labels[examples], kind="stable")]
    return _gather(examples, np.repeat(owners[order], lengths[order]), num_clients)


def _dirichlet(y: npt.NDArray[Any], request: _Request, *, alpha: float = 0.5) -> Partition:
    """Draw label shares q ~ Dir(alpha c p) for each client, then its examples.

    p [c] are the shares of the labels in the whole set, so that the clients' mean mix equals the set's. Hsu, Qi, Brown
    2019, https://arxiv.org/abs/1909.06335, whose alpha is c times ours; with balanced labels ours is the usual
    Dir(alpha, ..., alpha). Examples are drawn without replacement, by the clients in random order. When a label runs
    out, the client's other labels replace it, so the sizes are exact.
    """
    counts, labels, generator = request.counts(len(y)), _classes("dirichlet", y), request.generator
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
    """Return a client's number of examples of each label, int64 [c], at most `left`."""
    taken = np.zeros_like(left)
    while size:
        room = left - taken
        odds = np.where(room > 0, shares, 0.0)
        total = odds.sum()
        # Shares of a small alpha underflow: once the client's own labels are used up, it draws from the rest.
        odds = odds / total if total > 1e-12 else room / room.sum()
        drawn = np.minimum(generator.multinomial(size, odds), room)
        taken += drawn
        size -= int(drawn.sum())
    return taken


def _deal(labels: npt.NDArray[np.int64], taken: Counts, generator: np.random.Generator) -> Partition:
    """Deal the examples of each label at random, `taken[k, c]` of label c to client k."""
    examples = generator.permutation(len(labels))
    examples = examples[np.argsort(labels[examples], kind="stable")]
    num_clients, num_labels = taken.shape
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=num_labels))])
    used = np.concatenate([np.arange(a, a + count) for a, count in zip(starts, taken.sum(axis=0), strict=False)])
    owners = np.repeat(np.tile(np.arange(num_clients), num_labels), taken.T.ravel())
    return _gather(examples[used], owners, num_clients)


def _by_label(y: npt.NDArray[Any], request: _Request, *, labels_per_client: int = 2) -> Partition:
    """Give each client `labels_per_client` labels, shared by their holders.

    Li et al. 2022, https://arxiv.org/abs/2102.02079 (their #C = k), with labels dealt like cards, so that numbers of
    holders differ by at most one. Labels without a holder (K * labels_per_client < c) are unused.
    """
    request.check_count(len(y))
    labels, weights, generator = _classes("by_label", y), request.shares(), request.generator
    per_client, per_label = labels_per_client, np.bincount(labels)
    c = len(per_label)
    if per_client > c:
        raise ScenarioError(f"data.partition.labels_per_client: expected 1 to {c} (the classes), found {per_client}")
    held = _deal_labels(len(weights), per_client, c, generator)
    taken = np.zeros((len(weights), c), np.int64)
    for label in range(c):
        holders = np.flatnonzero((held == label).any(axis=1))
        if len(holders) > per_label[label]:
            taken[generator.permutation(holders)[: per_label[label]], label] = 1
        elif len(holders):
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
    """Return the distinct labels of each client, int64 [K, per_client].

    Shuffled decks of all labels are dealt in turn. If a client's hand spans two decks, the labels it already has go to
    the bottom of the new deck.
    """
    dealt: list[npt.NDArray[np.int64]] = []
    for start in range(0, num_clients * per_client, num_labels):
        keys = generator.random(num_labels)
        in_hand = start % per_client
        if in_hand:
            keys[dealt[-1][-in_hand:]] += 1.0
        dealt.append(np.argsort(keys))
    return np.concatenate(dealt)[: num_clients * per_client].reshape(num_clients, per_client)


def _resample(y: npt.NDArray[Any], request: _Request, *, size: int | None = None) -> Partition:
    n = len(y)
    if request.sizes == "listed":
        counts = request.listed()
    else:
        assert size is not None
        if size > n:
            raise ScenarioError(
                f"data.partition.size: expected 1 to {n} (the training examples; drawn without replacement), "
                f"found {size}"
            )
        counts = apportion(request.num_clients * size, request.shares())
    if counts.max() > n:
        raise ScenarioError(
            f"data.partition.sizes: client {counts.argmax()} would draw {counts.max()} of {n} training examples "
            f"without replacement; use smaller sizes"
        )
    choose, ends = request.generator.choice, np.cumsum(counts)
    drawn = np.empty(ends[-1], np.int32)
    for count, end in zip(counts.tolist(), ends.tolist(), strict=True):
        drawn[end - count : end] = choose(n, count, replace=False, shuffle=False)
    if counts.min() == counts.max():
        drawn.reshape(len(counts), -1).sort(axis=1)
    else:
        for count, end in zip(counts.tolist(), ends.tolist(), strict=True):
            drawn[end - count : end].sort()
    return Partition(drawn, np.concatenate([[0], ends]))


def _by_column(y: npt.NDArray[Any], request: _Request, *, groups: npt.NDArray[Any], column: str) -> Partition:
    values, owners = np.unique(groups, return_inverse=True)
    if len(values) != request.num_clients:
        raise ScenarioError(
            f"clients.count: expected {len(values)}, the number of different values of column {column!r} in the "
            f"training examples, found {request.num_clients}; set clients.count: {len(values)}"
        )
    return _gather(np.arange(len(y)), owners.reshape(-1), len(values))


def _natural(y: npt.NDArray[Any], request: _Request, *, groups: npt.NDArray[Any], owners: str = "all") -> Partition:
    """Give the examples of each owner to a client, in sorted order of the owners.

    "drawn" draws K of the owners; the examples of the others are unused.
    """
    values, numbers = np.unique(groups, return_inverse=True)
    numbers, count = numbers.reshape(-1), request.num_clients
    if count > len(values) or (count < len(values) and owners == "all"):
        drawn = ", or data.partition.owners: drawn for some of them" if count < len(values) else ""
        raise ScenarioError(
            f"clients.count: expected {len(values)}, the number of owners of the training examples, found {count}; set "
            f"clients.count: {len(values)}{drawn}"
        )
    if count < len(values):
        drawn_owners = np.sort(request.generator.choice(len(values), count, replace=False))
        place = np.full(len(values), -1)
        place[drawn_owners] = np.arange(count)
        numbers = place[numbers]
    held = np.flatnonzero(numbers >= 0)
    return _gather(held, numbers[held], count)


PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "by_label": _by_label,
    "resample": _resample,
    "by_column": _by_column,
    "natural": _natural,
}
"""The kinds: (labels, request, **options) -> the partition."""
