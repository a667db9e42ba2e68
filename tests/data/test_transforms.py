from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simfl.data import load_dataset
from simfl.data.base import Dataset
from simfl.data.transforms import (
    keep_classes,
    merge_classes,
    principal_axes,
    project_to_sphere,
    standard_scale,
    transform,
)
from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams


def features(n: int, p: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((n, p)) * np.arange(1, p + 1) + 3).astype(np.float32)


@pytest.mark.parametrize(("n", "p", "k"), [(60, 8, 3), (60, 8, 8), (6, 10, 4)])
def test_pca_agrees_with_the_singular_values(n: int, p: int, k: int) -> None:
    train, test = features(n, p), features(5, p, seed=1)
    project = principal_axes(train, k)
    reduced, mapped = project(train), project(test)
    mean = train.mean(axis=0, dtype=np.float64)
    _, singular, axes = np.linalg.svd(train - mean, full_matrices=False)
    # No whitening: the components keep their spread. Signs are free.
    np.testing.assert_allclose(np.linalg.norm(reduced, axis=0), singular[:k], rtol=1e-4)
    np.testing.assert_allclose(np.abs(mapped), np.abs((test - mean) @ axes[:k].T), rtol=1e-3, atol=1e-3)
    assert reduced.dtype == np.float32


@pytest.mark.parametrize(("n", "p", "k"), [(60, 8, 3), (6, 10, 4)])
def test_pca_without_centering_keeps_the_mean(n: int, p: int, k: int) -> None:
    train, test = features(n, p), features(5, p, seed=1)
    project = principal_axes(train, k, center=False)
    _, singular, axes = np.linalg.svd(train, full_matrices=False)
    np.testing.assert_allclose(np.linalg.norm(project(train), axis=0), singular[:k], rtol=1e-4)
    np.testing.assert_allclose(np.abs(project(test)), np.abs(test @ axes[:k].T), rtol=1e-3, atol=1e-3)
    assert np.linalg.norm(project(train).mean(axis=0)) > 1.0 > np.linalg.norm(principal_axes(train, k)(train).mean(0))


@pytest.mark.parametrize("components", [0, 9])
def test_pca_needs_as_many_features_as_components(components: int) -> None:
    message = rf"^data\.pca: expected 1 to 8 components \(60 examples, 8 features\), found {components}$"
    with pytest.raises(ScenarioError, match=message):
        principal_axes(features(60, 8), components)


def test_examples_on_the_sphere_have_norm_one() -> None:
    x = features(10, 6).reshape(10, 3, 2)
    x[4] = 0.0
    on_it = project_to_sphere(x)
    norms = np.linalg.norm(on_it.reshape(10, -1), axis=1)
    np.testing.assert_allclose(norms, np.where(np.arange(10) == 4, 0.0, 1.0), atol=1e-6)
    np.testing.assert_allclose(on_it[0] / on_it[0, 0, 0], x[0] / x[0, 0, 0], rtol=1e-5)
    assert (on_it.shape, on_it.dtype) == (x.shape, np.float32)


def test_standard_uses_the_training_part_only() -> None:
    train, test = features(50, 3), features(5, 3, seed=1)
    train[:, 1] = 2.0
    scale = standard_scale(train)
    scaled, mapped = scale(train), scale(test)
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(mapped[:, 0], (test[:, 0] - train[:, 0].mean()) / train[:, 0].std(), rtol=1e-4)
    assert mapped.dtype == np.float32


def test_pca_comes_before_normalization(streams: Streams) -> None:
    data = load_dataset("digits", root=None, streams=streams, pca=10, normalize="unit_sphere")
    assert data.input_shape == (10,)
    assert data.image_shape is None
    np.testing.assert_allclose(np.linalg.norm(data.test_x, axis=1), 1.0, atol=1e-6)
    plain = load_dataset("digits", root=None, streams=streams, normalize="standard")
    assert plain.image_shape == (8, 8)
    assert np.abs(plain.train_x.mean(axis=0)).max() < 1e-6


def test_an_unknown_normalization_is_refused() -> None:
    x, y = np.zeros((2, 1), np.float32), np.zeros(2, np.int32)
    with pytest.raises(ScenarioError, match=r"^data\.normalize: .*found 'sphere'"):
        transform(Dataset("small", x, y, x, y, num_classes=2), normalize="sphere")


def test_classes_are_kept_in_their_order(streams: Streams) -> None:
    whole = load_dataset("digits", root=None, streams=streams)
    kept = load_dataset("digits", root=None, streams=streams, classes=[7, 1])
    assert kept.num_classes == 2
    assert kept.image_shape == (8, 8)
    for x, y, all_x, all_y in (
        (kept.train_x, kept.train_y, whole.train_x, whole.train_y),
        (kept.test_x, kept.test_y, whole.test_x, whole.test_y),
    ):
        chosen = np.isin(all_y, [7, 1])
        np.testing.assert_array_equal(x, all_x[chosen])
        np.testing.assert_array_equal(y, np.where(all_y[chosen] == 7, 0, 1))
        assert y.dtype == np.int32


def test_groups_of_classes_become_classes(streams: Streams) -> None:
    whole = load_dataset("digits", root=None, streams=streams)
    parity = load_dataset("digits", root=None, streams=streams, class_groups=[[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])
    np.testing.assert_array_equal(parity.train_x, whole.train_x)
    np.testing.assert_array_equal(parity.test_y, whole.test_y % 2)
    assert (parity.num_classes, parity.class_labels) == (2, ("0 or 2 or 4 or 6 or 8", "1 or 3 or 5 or 7 or 9"))
    some = load_dataset("digits", root=None, streams=streams, class_groups=[[9], [0, 1]])
    np.testing.assert_array_equal(
        some.test_y, np.array([1, 1, *[-1] * 7, 0])[whole.test_y[np.isin(whole.test_y, [0, 1, 9])]]
    )


@pytest.mark.parametrize("groups", [[[0, 1]], [[0], []], [[0, 1], [1, 2]], [[0], [10]]])
def test_groups_that_cannot_be_classes_are_refused(streams: Streams, groups: list[list[int]]) -> None:
    with pytest.raises(
        ScenarioError,
        match=r"^data\.class_groups: expected at least two groups of the classes 0 to 9, with every class",
    ):
        load_dataset("digits", root=None, streams=streams, class_groups=groups)


@pytest.mark.parametrize("classes", [[3], [3, 3], [3, 10], [-1, 3]])
def test_classes_that_cannot_be_kept_are_refused(streams: Streams, classes: list[int]) -> None:
    with pytest.raises(
        ScenarioError, match=r"^data\.classes: expected at least two different classes of 0 to 9, found"
    ):
        load_dataset("digits", root=None, streams=streams, classes=classes)


def test_classes_without_examples_are_refused() -> None:
    x, y = features(4, 2), np.array([0, 0, 1, 2], np.int32)
    with pytest.raises(DataError, match=r"^mine: no test example of the classes \[1, 2\]; name others"):
        keep_classes(Dataset("mine", x, y, x[:2], y[:2], 3), [1, 2])
    targets = y.astype(np.float32)
    with pytest.raises(ScenarioError, match=r"^data\.classes: has no meaning for a regression"):
        keep_classes(Dataset("mine", x, targets, x[:2], targets[:2], 0), [0, 1])
    with pytest.raises(ScenarioError, match=r"^data\.class_groups: has no meaning for a regression"):
        merge_classes(Dataset("mine", x, targets, x[:2], targets[:2], 0), [[0], [1]])


def test_fits_use_public_examples_that_no_client_holds() -> None:
    x, test = features(60, 8), features(5, 8, seed=1)
    data = Dataset("made", x, np.arange(60, dtype=np.int32), test, np.arange(5, dtype=np.int32), num_classes=60)
    options = {"pca": 3, "normalize": "standard", "fit_on": {"public": 20}}
    transformed = transform(data, **options, streams=Streams(7))
    left = transformed.train_y
    assert len(left) == len(transformed.train_x) == 40
    public = x[np.setdiff1d(np.arange(60), left)]
    project = principal_axes(public, 3)
    reduced, mapped, axes = project(x[left]), project(test), project(public)
    np.testing.assert_allclose(axes.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(
        transformed.train_x, (reduced - axes.mean(axis=0)) / axes.std(axis=0), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        transformed.test_x, (mapped - axes.mean(axis=0)) / axes.std(axis=0), rtol=1e-4, atol=1e-5
    )
    again, other = (transform(data, **options, streams=Streams(seed)) for seed in (7, 8))
    np.testing.assert_array_equal(transformed.train_x, again.train_x)
    assert not np.array_equal(left, other.train_y)
    # What others hold changes nothing of the map.
    moved = transform(
        replace(data, train_x=np.where(np.isin(np.arange(60), left)[:, None], 2 * x, x)), **options, streams=Streams(7)
    )
    np.testing.assert_array_equal(moved.test_x, transformed.test_x)


@pytest.mark.parametrize("options", [
    {"pca": 5, "normalize": "standard"},
    {"normalize": "unit_sphere_with_constant"},
    {"pca": 5, "normalize": "unit_sphere", "fit_on": {"public": 100}},
    {"pca": 5, "pca_center": False, "normalize": "unit_sphere"},
    {"normalize": "none"},
])  # fmt: skip
def test_other_examples_go_through_the_same_steps(streams: Streams, options: dict[str, Any]) -> None:
    plain = load_dataset("digits", root=None, streams=streams)
    data = load_dataset("digits", root=None, streams=streams, **options)
    np.testing.assert_array_equal(data.prepared(plain.test_x), data.test_x)
    np.testing.assert_array_equal(data.prepared(plain.test_x[:2].reshape(2, 8, 8).astype(float)), data.test_x[:2])
    for wrong, message in (
        (np.zeros((2, 63)), r"^x: expected examples of shape \(64,\), as in digits, found \(63,\)$"),
        (np.full((2, 64), np.nan), "^x: example 0: features must be finite"),
        ([["a"] * 64], "^x: expected examples as numbers"),
        (np.zeros((0, 64)), "no examples"),
        (3.0, "expected examples of shape"),
    ):
        with pytest.raises(DataError, match=message):
            data.prepared(wrong)
