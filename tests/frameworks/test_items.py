"""Sets of items, as PyTorch, torchvision and flwr-datasets have them, without these libraries."""

from typing import Any

import numpy as np
import pytest

import simfl
from simfl.errors import DataError
from simfl.frameworks.items import from_dataset

IMAGES = np.random.default_rng(3).random((12, 3, 5, 4)).astype(np.float32)
LABELS = np.arange(12) % 3


class Tensor:
    """What NumPy sees of a tensor."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values, dtype)


class Items:
    """A `torch.utils.data.Dataset`: only a length and items by number."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        return self.items[number]


class Partitioner:
    """What is used of a `flwr_datasets.partitioner.Partitioner`."""

    num_partitions = 3

    def load_partition(self, partition_id: int) -> Items:
        rows = np.flatnonzero(2 - partition_id == LABELS)
        return Items([{"image": IMAGES[row, 0], "label": int(LABELS[row]), "id": "a"} for row in rows])


PAIRS = Items([(Tensor(image), int(label)) for image, label in zip(IMAGES, LABELS, strict=True)])


def test_pairs_become_arrays_and_images_have_their_channels_last() -> None:
    made = from_dataset(PAIRS, Items(PAIRS.items[:2]), owners=["a", "b"] * 6, channels_first=True)
    np.testing.assert_array_equal(made["x"], IMAGES.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(made["x_test"], made["x"][:2])
    assert (made["y"].tolist(), made["owner"].tolist()) == (LABELS.tolist(), ["a", "b"] * 6)
    gray = from_dataset(Items([(image[:1], 0) for image in IMAGES]), channels_first=True)
    np.testing.assert_array_equal(gray["x"], IMAGES[:, 0])
    mappings = from_dataset(Items([{"pixels": IMAGES[0], "target": 1}] * 2))
    assert (mappings["x"].shape, mappings["y"].tolist()) == ((2, 3, 5, 4), [1, 1])


def test_partitions_are_clients() -> None:
    data = from_dataset(Partitioner(), columns=("image", "label"))
    assert data["owner"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data["y"].tolist() == [2] * 4 + [1] * 4 + [0] * 4
    scenario = {"data": {"partition": "natural"}, "clients": {"count": 3}, "model": "softmax",
                "algorithm": {"kind": "fedavg", "batch_size": 2}, "stop": {"updates": 3}}  # fmt: skip
    setup = simfl.prepare(scenario, data={**data, "x_test": data["x"], "y_test": data["y"]})
    assert [set(setup.dataset.train_y[setup.partition.of(client)]) for client in range(3)] == [{2}, {1}, {0}]


@pytest.mark.parametrize(("items", "options", "message"), [
    ([1.0], {}, "from_dataset: dataset: item 0: expected an example and its label, found float; return a pair"),
    ([(IMAGES[0], 1), (IMAGES[0, 0], 1)], {}, r"item 1: expected examples of one shape, found \(3, 5, 4\) and"),
    ([{"a": 1, "b": 2}], {}, "item 0: expected the names of example and label in columns, found a, b"),
    ([], {}, "from_dataset: dataset: expected items, found none"),
    ([(IMAGES[0, 0], 1)], {"channels_first": True}, r"expected images \[channels, height, width\], found \(5, 4\)"),
])  # fmt: skip
def test_other_items_are_one_line(items: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_dataset(Items(items), **options)
