"""Transformations before training: classes, PCA, unit sphere, standardization.

What is fitted (principal axes, means, deviations) comes from the training part alone; the test part is only mapped.
Fitting on what clients hold is outside of any epsilon. With `fit_on: {public: N}` it is fitted on N training examples
that the seed draws and removes from the clients: they stand for public data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simfl.data.base import Dataset, FloatArray, Step
from simfl.errors import DataError, ScenarioError, nearest
from simfl.streams import Streams

OPTIONS = ("classes", "pca", "pca_center", "normalize", "fit_on")
"""What `transform` takes."""
NORMALIZATIONS = ("none", "unit_sphere", "standard", "unit_sphere_with_constant")


def transform(
    data: Dataset,
    classes: Sequence[int] | None = None,
    pca: int | None = None,
    pca_center: bool = True,
    normalize: str = "none",
    fit_on: Mapping[str, int] | None = None,
    streams: Streams | None = None,
) -> Dataset:
    """Keep some classes, apply PCA, then the normalisation.

    Args:
        data: the set as loaded.
        classes: those to keep, numbered anew in this order; None keeps all.
        pca: number of principal components to keep, or None to keep the features.
        pca_center: subtract the mean before.
        normalize: "none", "unit_sphere" (each example divided by its L2 norm), "unit_sphere_with_constant" (the same,
            with a constant feature) or "standard" (each feature brought to mean 0 and deviation 1).
        fit_on: {"public": N}: what is fitted comes from N training examples, which are taken out; None: from all.
        streams: draws these ("public").

    Returns:
        The changed set; after PCA the examples are flat and no longer images.
    """
    if normalize not in NORMALIZATIONS:
        expected = ", ".join(NORMALIZATIONS)
        raise ScenarioError(
            f"data.normalize: expected one of {expected}, found {normalize!r}{nearest(normalize, NORMALIZATIONS)}"
        )
    if classes is not None:
        data = keep_classes(data, classes)
    public = None
    if fit_on is not None:
        data, public = set_apart(data, fit_on["public"], (streams or Streams(0)).generator("public"))
    if pca is not None:
        project = principal_axes(data.scaling(data.train_x) if public is None else public, pca, pca_center)
        public = None if public is None else project(public)
        data = data.through(project, image_shape=None)
    if normalize == "unit_sphere":
        data = data.through(project_to_sphere)
    elif normalize == "unit_sphere_with_constant":
        data = data.through(with_constant, image_shape=None)
    elif normalize == "standard":
        data = data.through(standard_scale(data.scaling(data.train_x) if public is None else public))
    return data


def set_apart(data: Dataset, count: int, generator: np.random.Generator) -> tuple[Dataset, FloatArray]:
    """Remove training examples; return the rest and their features, f32 [count, ...]."""
    n = len(data.train_x)
    if not 1 <= count < n:
        raise ScenarioError(
            f"data.fit_on.public: expected 1 to {n - 1}, one less than there are to train on, found {count}"
        )
    chosen = np.zeros(n, bool)
    chosen[generator.choice(n, count, replace=False)] = True
    return data.training_part(~chosen), data.scaling(data.train_x[chosen])


def keep_classes(data: Dataset, classes: Sequence[int]) -> Dataset:
    """Keep the examples of some classes, renamed 0, 1, ... in the given order.

    Args:
        data: the set as loaded.
        classes: at least two different ones, from 0 to num_classes - 1.

    Returns:
        The smaller set, whose examples keep their order.
    """
    if data.num_classes == 0:
        raise ScenarioError(f"data.classes: has no meaning for a regression, which has no classes ({data.name})")
    if len(set(classes)) < max(2, len(classes)) or not all(0 <= kept < data.num_classes for kept in classes):
        raise ScenarioError(
            f"data.classes: expected at least two different classes of 0 to {data.num_classes - 1}, found "
            f"{list(classes)}"
        )
    numbers = np.full(data.num_classes, -1, np.int32)
    numbers[list(classes)] = np.arange(len(classes), dtype=np.int32)
    parts = []
    for part, labels in (("training", data.train_y), ("test", data.test_y)):
        renamed = numbers[labels.astype(np.int32)]
        if not (renamed >= 0).any():
            raise DataError(f"{data.name}: no {part} example of the classes {list(classes)}; name others")
        parts.append(renamed)
    train, test = (renamed >= 0 for renamed in parts)
    return replace(
        data.training_part(train),
        train_y=parts[0][train],
        test_x=data.test_x[test],
        test_y=parts[1][test],
        num_classes=len(classes),
        labels=tuple(data.class_labels[kept] for kept in classes),
    )


def principal_axes(fitted: FloatArray, components: int, center: bool = True) -> Step:
    """Return the projection to principal axes, [n, ...] to f32 [n, k].

    z = V^T (x - mean), V [p, k] the k eigenvectors of the covariance with the largest eigenvalues; without centring,
    z = V^T x, V those of the matrix of second moments.

    Args:
        fitted: [n, ...], flattened to [n, p]: what mean and axes are taken from.
        components: k, from 1 to min(n, p).
        center: subtract the mean.
    """
    from sklearn.decomposition import PCA

    flat = fitted.reshape(len(fitted), -1)
    n, p = flat.shape
    if not 1 <= components <= min(n, p):
        raise ScenarioError(
            f"data.pca: expected 1 to {min(n, p)} components ({n} examples, {p} features), found {components}"
        )
    if not center:
        axes = _uncentred(flat.astype(np.float64), components)
        return lambda x: (x.reshape(len(x), -1) @ axes).astype(np.float32)
    # Both solvers are exact and draw nothing; scikit-learn's own choice would be random for large sets.
    solver = PCA(n_components=components, whiten=False, svd_solver="covariance_eigh" if n >= p else "full")
    solver.fit(flat.astype(np.float64))
    return lambda x: solver.transform(x.reshape(len(x), -1)).astype(np.float32)


def _uncentred(flat: NDArray[np.float64], components: int) -> NDArray[np.float64]:
    """Return the right singular vectors of the largest singular values, [p, k]."""
    n, p = flat.shape
    axes = np.linalg.eigh(flat.T @ flat)[1][:, ::-1] if n >= p else np.linalg.svd(flat, full_matrices=False)[2].T
    axes = axes[:, :components]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(components)]
    signed: NDArray[np.float64] = axes * np.sign(largest)
    return signed


def project_to_sphere(x: FloatArray) -> FloatArray:
    """Divide each example by its L2 norm; an example of zeros stays."""
    flat = x.reshape(len(x), -1)
    norms = np.sqrt(np.einsum("ij,ij->i", flat, flat, dtype=np.float64))
    norms[norms == 0.0] = 1.0
    scaled: FloatArray = flat / norms[:, None].astype(np.float32)
    return scaled.reshape(x.shape)


def with_constant(x: FloatArray) -> FloatArray:
    """Return (x/.

    x||, 1)/sqrt 2, [n, p + 1], of norm 1.

    The weight of the constant is an intercept; a model with one of its own has examples of norm sqrt 2 instead.
    """
    flat = project_to_sphere(x.reshape(len(x), -1))
    together: FloatArray = np.concatenate([flat, np.ones((len(x), 1), np.float32)], axis=1)
    return project_to_sphere(together)


def standard_scale(fitted: FloatArray) -> Step:
    """Return the scaling to mean 0 and deviation 1 over `fitted` [n, ...]."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(fitted.reshape(len(fitted), -1).astype(np.float64))
    return lambda x: scaler.transform(x.reshape(len(x), -1)).astype(np.float32).reshape(x.shape)
