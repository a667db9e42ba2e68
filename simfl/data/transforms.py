"""Changes of a set before training: a choice of classes, PCA, normalization.

Principal axes, means and deviations are fitted on the training part only and applied to all parts. Fitting on clients'
data is not covered by any epsilon. With `fit_on: {public: N}` the fit uses N training examples that the seed draws and
that no client holds: they stand for public data.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simfl.data.base import Aside, Dataset, FloatArray, Step, show_label
from simfl.errors import DataError, ScenarioError, nearest
from simfl.streams import Streams

OPTIONS = ("classes", "class_groups", "pca", "pca_center", "normalize", "fit_on")
"""Options of `transform`."""
NORMALIZATIONS = ("none", "unit_sphere", "standard", "unit_sphere_with_constant")


def transform(
    data: Dataset,
    classes: Sequence[int] | None = None,
    class_groups: Sequence[Sequence[int]] | None = None,
    pca: int | None = None,
    pca_center: bool = True,
    normalize: str = "none",
    fit_on: Mapping[str, int] | None = None,
    streams: Streams | None = None,
    validation: Aside = None,
) -> Dataset:
    """Keep some classes, set `validation` aside, apply PCA, then normalize.

    `classes` are renumbered in their order, and so are `class_groups`, each of which becomes one class; None keeps all
    as they are. `pca` is the number of principal components, None keeps the
    features; `pca_center` subtracts the mean before. `normalize` is "none", "unit_sphere" (each example divided by its
    L2 norm), "unit_sphere_with_constant" (with a constant feature) or "standard" (features with mean 0 and deviation
    1). `fit_on` of {"public": N} takes N training examples out, drawn from `streams` ("public"), and fits on them.
    """
    if normalize not in NORMALIZATIONS:
        raise ScenarioError(
            f"data.normalize: expected one of {', '.join(NORMALIZATIONS)}, found {normalize!r}"
            f"{nearest(normalize, NORMALIZATIONS)}"
        )
    if classes is not None:
        data = keep_classes(data, classes)
    if class_groups is not None:
        data = merge_classes(data, class_groups)
    streams = streams or Streams(0)
    if validation == "own":
        data = data.with_own_validation()
    elif validation is not None:
        data = data.set_aside(validation, streams)
    public = None
    if fit_on is not None:
        n, count = len(data.train_x), fit_on["public"]
        if not 1 <= count < n:
            raise ScenarioError(
                f"data.fit_on.public: expected 1 to {n - 1}, less than the training part, found {count}"
            )
        drawn = np.zeros(n, bool)
        drawn[streams.generator("public").choice(n, count, replace=False)] = True
        data, public = data.training_part(~drawn), data.scaling(data.train_x[drawn])
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


def keep_classes(data: Dataset, classes: Sequence[int]) -> Dataset:
    """Keep at least two distinct classes, renumbered 0, 1, ... in their order."""
    if data.num_classes == 0:
        raise ScenarioError(f"data.classes: has no meaning for a regression, which has no classes ({data.name})")
    if len(set(classes)) < max(2, len(classes)) or not all(0 <= kept < data.num_classes for kept in classes):
        raise ScenarioError(
            f"data.classes: expected at least two different classes of 0 to {data.num_classes - 1}, found "
            f"{list(classes)}"
        )
    return _renumbered(data, [[kept] for kept in classes], tuple(data.class_labels[kept] for kept in classes))


def merge_classes(data: Dataset, groups: Sequence[Sequence[int]]) -> Dataset:
    """Make one class of each group of classes, numbered 0, 1, ... in their order.

    Its label is made of theirs: `0 or 2 or 4`. Classes in no group are left out.
    """
    if data.num_classes == 0:
        raise ScenarioError(f"data.class_groups: has no meaning for a regression, which has no classes ({data.name})")
    members = list(itertools.chain(*groups))
    known = all(0 <= member < data.num_classes for member in members)
    if len(groups) < 2 or not all(groups) or len(set(members)) < len(members) or not known:
        raise ScenarioError(
            f"data.class_groups: expected at least two groups of the classes 0 to {data.num_classes - 1}, with every "
            f"class in at most one, found {[list(group) for group in groups]}"
        )
    names = [show_label(label).strip("'") for label in data.class_labels]
    return _renumbered(data, groups, tuple(" or ".join(names[member] for member in group) for group in groups))


def _renumbered(data: Dataset, groups: Sequence[Sequence[int]], labels: tuple[float | str, ...]) -> Dataset:
    """Return the set with a class of each group; the classes of no group are left out."""
    numbers = np.full(data.num_classes, -1, np.int32)
    for number, group in enumerate(groups):
        numbers[list(group)] = number
    parts = []
    for part, targets in (("training", data.train_y), ("test", data.test_y)):
        renumbered = numbers[targets.astype(np.int32)]
        if not (renumbered >= 0).any():
            raise DataError(f"{data.name}: no {part} example of the classes {[*itertools.chain(*groups)]}; name others")
        parts.append(renumbered)
    train, test = (renumbered >= 0 for renumbered in parts)
    first = len(test) - data.own_validation
    return replace(
        data.training_part(train),
        train_y=parts[0][train],
        test_x=data.test_x[test],
        test_y=parts[1][test],
        test_groups=None if data.test_groups is None else data.test_groups[test],
        own_validation=int(test[first:].sum()),
        num_classes=len(groups),
        labels=labels,
    )


def principal_axes(fitted: FloatArray, components: int, center: bool = True) -> Step:
    """Return the projection to principal axes, [n, ...] to f32 [n, k].

    z = V^T (x - mean), V [p, k] the k = `components` eigenvectors of the covariance of `fitted` [n, ...], flattened to
    [n, p], with the largest eigenvalues; without centering, z = V^T x, V those of the matrix of second moments.
    """
    from sklearn.decomposition import PCA

    flat = fitted.reshape(len(fitted), -1)
    n, p = flat.shape
    if not 1 <= components <= min(n, p):
        raise ScenarioError(
            f"data.pca: expected 1 to {min(n, p)} components ({n} examples, {p} features), found {components}"
        )
    if not center:
        gram = flat.astype(np.float64)
        vectors = np.linalg.eigh(gram.T @ gram)[1][:, ::-1] if n >= p else np.linalg.svd(gram, full_matrices=False)[2].T
        vectors = vectors[:, :components]
        # Signs are arbitrary; the largest entry of each axis is positive.
        axes = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(components)])
        return lambda x: (x.reshape(len(x), -1) @ axes).astype(np.float32)
    # Both solvers are exact and draw nothing; scikit-learn's own choice would be random for large sets.
    solver = PCA(n_components=components, whiten=False, svd_solver="covariance_eigh" if n >= p else "full")
    solver.fit(flat.astype(np.float64))
    return lambda x: solver.transform(x.reshape(len(x), -1)).astype(np.float32)


def project_to_sphere(x: FloatArray) -> FloatArray:
    """Divide each example by its L2 norm; zero examples are unchanged."""
    flat = x.reshape(len(x), -1)
    norms = np.sqrt(np.einsum("ij,ij->i", flat, flat, dtype=np.float64))
    norms[norms == 0.0] = 1.0
    scaled: FloatArray = flat / norms[:, None].astype(np.float32)
    return scaled.reshape(x.shape)


def with_constant(x: FloatArray) -> FloatArray:
    """Project to the sphere with a constant: (x/||x||, 1)/sqrt 2, [n, p + 1].

    The constant's weight acts as an intercept. In a model with an intercept of its own, (x, 1) has norm sqrt 2.
    """
    flat = project_to_sphere(x.reshape(len(x), -1))
    together: FloatArray = np.concatenate([flat, np.ones((len(x), 1), np.float32)], axis=1)
    return project_to_sphere(together)


def standard_scale(fitted: FloatArray) -> Step:
    """Return the step to mean 0 and deviation 1 of `fitted`; constants become 0."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(fitted.reshape(len(fitted), -1).astype(np.float64))
    return lambda x: scaler.transform(x.reshape(len(x), -1)).astype(np.float32).reshape(x.shape)
