import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from simfl.data.base import Dataset, check_features, class_labels, split
from simfl.errors import DataError, ScenarioError


def test_dataset_is_read_only_and_fits_together() -> None:
    x, y = np.zeros((3, 2), np.float32), np.zeros(3, np.int32)
    data = Dataset("small", x, y, x, y, num_classes=2)
    assert data.input_shape == (2,)
    with pytest.raises(ValueError, match="read-only"):
        data.train_x[0, 0] = 1.0
    with pytest.raises(ValueError, match="one label per example, found 3 and 2"):
        Dataset("small", x, y[:2], x, y, num_classes=2)
    with pytest.raises(ValueError, match=r"\(2,\), tests \(1,\)"):
        Dataset("small", x, y, x[:, :1], y, num_classes=2)


@pytest.mark.parametrize("spelling", [[-1, 1], [1, 2], list(range(1, 11)), [0.0, 5.0, 7.0]])
def test_labels_are_mapped_in_sorted_order(spelling: list[float]) -> None:
    train = np.array((spelling * 3)[::-1], dtype=np.float64)
    (first, second), labels = class_labels("file", train, np.array(spelling[:1]))
    assert labels == tuple(spelling)
    assert first.dtype == np.int32
    np.testing.assert_array_equal(np.array(spelling)[first], train)
    np.testing.assert_array_equal(second, [0])


def test_a_label_of_the_test_part_alone_counts_as_a_class() -> None:
    (train, test), labels = class_labels("file", np.array([3, 1, 3, 1]), np.array([2, 1]))
    assert (labels, train.tolist(), test.tolist()) == ((1, 2, 3), [2, 0, 2, 0], [1, 0])


@pytest.mark.parametrize(("labels", "message"), [
    ([0.0, 0.5, 1.0], r"^file: labels must be whole numbers \(classes\), found 0.5;.*`model.kind: linear`"),
    ([0.0, np.nan], "whole numbers .* found nan"),
    ([2.0, 2.0], "at least two classes, found the single label 2"),
    (list(range(100)), "found 100 labels in 100 examples; these are not classes"),
])  # fmt: skip
def test_labels_that_are_not_classes_are_refused(labels: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        class_labels("file", np.array(labels))


def test_features_must_be_finite() -> None:
    x = np.zeros((4, 2, 3), np.float32)
    check_features("file", x)
    x[2, 1, 0] = np.nan
    with pytest.raises(DataError, match=r"^file: example 2: features must be finite"):
        check_features("file", x)
    with pytest.raises(DataError, match=r"no examples with features \(shape \(0, 3\)\)"):
        check_features("file", np.zeros((0, 3)))


def test_split_is_disjoint_complete_and_keeps_shares() -> None:
    y = np.repeat(np.arange(4, dtype=np.int32), [10, 20, 30, 40])
    train, test = split(y, 0.2, np.random.default_rng(0), stratify=True)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(100))
    np.testing.assert_array_equal(np.bincount(y[test]), [2, 4, 6, 8])
    again, _ = split(y, 0.2, np.random.default_rng(0), stratify=True)
    np.testing.assert_array_equal(again, train)


@pytest.mark.parametrize("stratify", [True, False])
def test_split_equals_that_of_scikit_learn(stratify: bool) -> None:
    draws = np.random.default_rng(3)
    for seed, fraction in enumerate(draws.uniform(0.1, 0.9, 40)):
        y = draws.choice([0, 1, 3, 4, 7], size=draws.integers(30, 300), p=[0.3, 0.3, 0.2, 0.1, 0.1]).astype(np.int32)
        train, test = split(y, fraction, np.random.default_rng(seed), stratify=stratify)
        shares = stratify and np.bincount(y)[[0, 1, 3, 4, 7]].min() >= 2 and min(len(train), len(test)) >= 5
        expected = train_test_split(
            np.arange(len(y)),
            test_size=round(len(y) * fraction),
            random_state=int(np.random.default_rng(seed).integers(2**31)),
            stratify=y if shares else None,
        )
        np.testing.assert_array_equal(train, np.sort(expected[0]))
        np.testing.assert_array_equal(test, np.sort(expected[1]))


def test_split_is_not_stratified_if_a_class_is_too_rare() -> None:
    y = np.array([0] * 9 + [1], np.int32)
    train, test = split(y, 0.3, np.random.default_rng(0), stratify=True)
    assert (len(train), len(test)) == (7, 3)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2.0, float("nan")])
def test_split_refuses_a_fraction_outside_0_to_1(fraction: float) -> None:
    with pytest.raises(ScenarioError, match=r"^data\.test_fraction: expected a number between 0 and 1"):
        split(np.zeros(10, np.int32), fraction, np.random.default_rng(0), stratify=False)


def test_split_refuses_an_empty_part() -> None:
    with pytest.raises(ScenarioError, match=r"0\.01 of 10 examples leaves 10 for training and 0 for testing"):
        split(np.zeros(10, np.int32), 0.01, np.random.default_rng(0), stratify=False)
