"""Data from sets that give one item at a time.

Such are those of PyTorch and torchvision, and partitions of flwr-datasets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from simfl.data.table import TARGETS
from simfl.errors import DataError


def from_dataset(
    dataset: Any,
    test: Any = None,
    *,
    columns: tuple[str, str] | None = None,
    owners: Sequence[Any] | None = None,
    channels_first: bool = False,
) -> dict[str, Any]:
    """Return the arrays of a set of items, for `simfl.run(scenario, data=...)`.

    No library is imported: anything with a length and items works, such as a `torch.utils.data.Dataset`. An item is a
    pair of an example and its label, or a mapping. Each is read once, so a transform that draws is drawn once:
    `data.augment` draws anew for every mini-batch.

    Args:
        dataset: the training part, or a partitioner of flwr-datasets, with `num_partitions` and `load_partition`. The
            number of its partition is then the owner of an example, so that `partition: natural` has a client for each.
        test: the test part; None: `data.test_fraction` of the examples are set aside.
        columns: names of the example and the label in items that are mappings; None: label or target, and the other.
        owners: the owner of each training example.
        channels_first: whether images are [channels, height, width], as torchvision's ToTensor makes them; they become
            [height, width, channels], or [height, width] with one channel.

    Returns:
        A mapping with x, y, and, where known, x_test, y_test and owner.

    Raises:
        DataError: an item is neither, or examples differ in shape.
    """
    if hasattr(dataset, "load_partition"):
        parts = [dataset.load_partition(number) for number in range(dataset.num_partitions)]
        owners = [number for number, part in enumerate(parts) for _ in range(len(part))]
    else:
        parts = [dataset]
    x, y = _arrays("dataset", parts, columns, channels_first)
    made = {"x": x, "y": y}
    if test is not None:
        made["x_test"], made["y_test"] = _arrays("test", [test], columns, channels_first)
    return made if owners is None else {**made, "owner": np.asarray(owners)}


def _arrays(where: str, parts: Sequence[Any], columns: tuple[str, str] | None, channels_first: bool) -> tuple[Any, Any]:
    xs, ys = [], []
    for number, item in enumerate(_items(parts)):
        at = f"from_dataset: {where}: item {number}"
        pair = _pair(at, item, columns) if isinstance(item, Mapping) else item
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DataError(f"{at}: expected an example and its label, found {type(item).__name__}; return a pair")
        xs.append(np.asarray(pair[0]))
        ys.append(np.asarray(pair[1]))
        for name, arrays in (("examples", xs), ("labels", ys)):
            if arrays[-1].shape != arrays[0].shape:
                shapes = f"{arrays[0].shape} and {arrays[-1].shape}"
                raise DataError(f"{at}: expected {name} of one shape, found {shapes}; bring them to one, or pad them")
    if not xs:
        raise DataError(f"from_dataset: {where}: expected items, found none")
    x = np.stack(xs)
    if channels_first:
        if x.ndim != 4:
            raise DataError(f"from_dataset: {where}: expected images [channels, height, width], found {x.shape[1:]}")
        x = x[:, 0] if x.shape[1] == 1 else np.moveaxis(x, 1, -1)
    return x, np.stack(ys)


def _items(parts: Sequence[Any]) -> Iterator[Any]:
    return (part[number] for part in parts for number in range(len(part)))


def _pair(at: str, item: Mapping[str, Any], columns: tuple[str, str] | None) -> tuple[Any, Any]:
    labels = [name for name in TARGETS if name in item]
    others = [name for name in item if name not in labels]
    if columns is None and (len(labels), len(others)) == (1, 1):
        columns = others[0], labels[0]
    if columns is None or not {*columns} <= item.keys():
        raise DataError(f"{at}: expected the names of example and label in columns, found {', '.join(item)}")
    return item[columns[0]], item[columns[1]]
