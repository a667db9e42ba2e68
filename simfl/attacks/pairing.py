"""Pairs of an example that a client trained on and a similar one that it did not.

Both have the same label, so clients and test set may have different shares of labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.setup import Setup
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.streams import Streams

#: Maximum number of pairs for each client.
MOST_PAIRS = 1000


@dataclass(frozen=True)
class Pairs:
    """Features [m, ...] of one client's examples and of others, with labels [m]."""

    members: NDArray[Any]
    others: NDArray[Any]
    labels: NDArray[Any]
    other_labels: NDArray[Any]


def match(
    own: NDArray[Any], pool: NDArray[Any], labels: NDArray[Any] | None, generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return positions [m] of examples and others in pairs with the same label.

    `own` and `pool` are the labels of both sides, `labels` the classes; None: any two examples may form a pair.
    """
    first, second = [], []
    for label in [None] if labels is None else labels:
        one, other = (
            generator.permutation(len(side) if label is None else np.flatnonzero(side == label)) for side in (own, pool)
        )
        count = min(len(one), len(other))
        first.append(one[:count])
        second.append(other[:count])
    return np.concatenate(first).astype(np.int64), np.concatenate(second).astype(np.int64)


def pairs_of(setup: Setup, targets: Sequence[int]) -> dict[int, Pairs]:
    """Return pairs of each client's examples and examples of the test set."""
    dataset, generator = setup.dataset, Streams(setup.scenario.seed).generator("attack-pairs")
    pairs = {}
    for client in targets:
        rows = np.asarray(setup.partition.of(client))
        own, other = match(dataset.train_y[rows], dataset.test_y, _classes(dataset), generator)
        order = generator.permutation(len(own))[:MOST_PAIRS]
        members, others = (dataset.train_x, dataset.train_y, rows[own[order]]), (dataset.test_x, dataset.test_y)
        what = "pairs of an example and one of the test set with its label"
        pairs[client] = _pairs(dataset, client, members, (*others, other[order]), what)
    return pairs


class Coins:
    """Leaves out half of some clients' examples by coins, before the data is used."""

    def __init__(self, targets: Sequence[int], streams: Streams) -> None:
        self.pairs: dict[int, Pairs] = {}
        self._targets, self._generator = targets, streams.generator("attack-coins")

    def split(
        self, dataset: Dataset, partition: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        """Halve each client's share: of each pair with the same label, a coin keeps one."""
        parts = [np.asarray(partition.of(client)) for client in range(partition.num_clients)]
        for client in self._targets:
            rows = self._generator.permutation(parts[client])
            halves = rows[::2], rows[1::2]
            labels = [dataset.train_y[half] for half in halves]
            first, second = match(labels[0], labels[1], _classes(dataset), self._generator)
            both = np.stack((halves[0][first], halves[1][second]))
            coins = self._generator.random(len(first)) < 0.5
            kept, left = np.where(coins, both, both[::-1])
            parts[client] = np.setdiff1d(parts[client], left, assume_unique=True).astype(parts[client].dtype)
            some = self._generator.permutation(len(kept))[:MOST_PAIRS]  # of all classes
            x, y = dataset.train_x, dataset.train_y
            what = "pairs of its examples with the same label"
            self.pairs[client] = _pairs(dataset, client, (x, y, kept[some]), (x, y, left[some]), what)
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(partition.offsets.dtype)
        return replace(dataset, groups=None), Partition(np.concatenate(parts), offsets), model


def _classes(dataset: Dataset) -> NDArray[Any] | None:
    return np.arange(dataset.num_classes) if dataset.num_classes and dataset.train_y.ndim == 1 else None


def _pairs(
    dataset: Dataset, client: int, members: tuple[Any, Any, Any], others: tuple[Any, Any, Any], what: str
) -> Pairs:
    if len(members[2]) < 2:
        raise ScenarioError(
            f"--client: expected two {what} or more of client {client}, found {len(members[2])}; name another client, "
            "or say --held-out coins"
        )
    features = [
        x[rows].astype(np.int32) if dataset.tokens else dataset.scaling(x[rows]) for x, _, rows in (members, others)
    ]
    return Pairs(features[0], features[1], members[1][members[2]], others[1][others[2]])
