"""Data sets, file formats, and partitions over clients.

`load_dataset` gives a `Dataset` of arrays, `partition` says which client holds which of its training examples.
Downloading is apart, in `simfl.data.fetch`. scikit-learn is imported when a set needs it, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simfl.data.base import Dataset
from simfl.data.partitions import PARTITIONS, SIZES, Partition, partition
from simfl.errors import ScenarioError, nearest
from simfl.streams import Streams

__all__ = ["DATASETS", "PARTITIONS", "SIZES", "Dataset", "Partition", "load_dataset", "partition"]

DATASETS: dict[str, str] = {
    "digits": "handwritten digits, 8x8, 1,797 of 10 classes; comes with scikit-learn, needs no file",
    "mnist": "handwritten digits, 28x28, 60,000 + 10,000 of 10 classes; four IDX files in mnist/",
    "cifar10": "colour images, 32x32, 10 classes; the binary archive in cifar10/",
    "libsvm": "any LIBSVM file, plain, .bz2 or .gz, named by path; bare names in libsvm/",
    "npz": "any NumPy archive with x_train, y_train[, x_test, y_test] or x, y, named by path",
    "quadratic": "synthetic: points around a centre, f_i(w) = 1/2 (w - a_i)' H (w - a_i); optimum known",
    "linear": "synthetic: least squares with noise; optimum known",
    "logistic": "synthetic: binary logistic regression with noisy labels; optimum known",
}
"""Kind -> one line for a listing."""

_SYNTHETIC = ("quadratic", "linear", "logistic")
_TAKES = {
    "path": ("mnist", "cifar10", "libsvm", "npz"),
    "test_path": ("libsvm", "npz"),
    "features": ("libsvm",),
    "noise": _SYNTHETIC,
    "curvature": _SYNTHETIC,
    "classes": ("digits", "mnist", "cifar10", "libsvm", "npz"),
    "pca": ("digits", "mnist", "cifar10", "libsvm", "npz"),
    "normalize": ("digits", "mnist", "cifar10", "libsvm", "npz"),
}
"""Which kinds an option means something to; elsewhere it is refused rather than ignored."""


def load_dataset(
    kind: str,
    *,
    root: Path | None,
    streams: Streams,
    path: str | Path | None = None,
    test_path: str | Path | None = None,
    test_fraction: float = 0.2,
    features: int | None = None,
    classes: Sequence[int] | None = None,
    pca: int | None = None,
    normalize: str = "none",
    regression: bool = False,
    samples: int = 1000,
    dimension: int | None = None,
    condition_number: float | None = None,
    noise: float | None = None,
    curvature: Sequence[float] | None = None,
    l2: float = 0.0,
    intercept: bool = True,
) -> Dataset:
    """Load or make a data set.

    Args:
        kind: one of `DATASETS`.
        root: the folder of data sets (SIMFL_DATA), for the kinds that read files.
        streams: draws the split ("split") and the synthetic problems ("synthetic").
        path: the file of libsvm and npz; another place for mnist (a folder) and cifar10 (a folder or archive).
        test_path: a test file for libsvm and npz.
        test_fraction: share set aside for testing, where the set has no test part of its own; of a synthetic set, the
            test examples drawn in addition, per training example.
        features: number of features of libsvm, to pad to.
        classes: those to keep, numbered anew in this order; None keeps all.
        pca: principal components to keep.
        normalize: "none", "unit_sphere" or "standard", after the PCA.
        regression: libsvm and npz: keep the labels as float targets.
        samples: training examples of a synthetic set.
        dimension: features of a synthetic set; None is 20.
        condition_number: of a synthetic set, >= 1; None is 10.
        noise: of a synthetic set; None is the kind's default.
        curvature: spectrum of a synthetic set instead of dimension and condition_number.
        l2: the model's lambda, which the known optimum depends on.
        intercept: whether the model of a synthetic set has one, likewise.
    """
    if kind not in DATASETS:
        raise ScenarioError(f"data.set: expected one of {', '.join(DATASETS)}, found {kind!r}{nearest(kind, DATASETS)}")
    given = {
        "path": path is not None,
        "test_path": test_path is not None,
        "features": features is not None,
        "noise": noise is not None,
        "curvature": curvature is not None,
        "classes": classes is not None,
        "pca": pca is not None,
        "normalize": normalize != "none",
    }
    for option, is_given in given.items():
        if is_given and kind not in _TAKES[option]:
            raise ScenarioError(f"data.{option}: has no meaning for set {kind}, only for {', '.join(_TAKES[option])}")
    if kind in _SYNTHETIC:
        from simfl.data.synthetic import Synthetic, make_linear, make_logistic, make_quadratic

        spec = Synthetic(
            samples=samples,
            dimension=20 if dimension is None else dimension,
            condition_number=10.0 if condition_number is None else condition_number,
            noise=noise,
            curvature=curvature,
            test_fraction=test_fraction,
            l2=l2,
            intercept=intercept,
        )
        return {"quadratic": make_quadratic, "linear": make_linear, "logistic": make_logistic}[kind](spec, streams)

    from simfl.data.transforms import keep_classes, transform

    if kind == "digits":
        from simfl.data.digits import load_digits

        data = load_digits(test_fraction, streams.generator("split"))
    elif kind == "mnist":
        from simfl.data.idx import load_mnist

        data = load_mnist(root, path)
    elif kind == "cifar10":
        from simfl.data.cifar import load_cifar10

        data = load_cifar10(root, path)
    elif kind == "libsvm":
        from simfl.data.libsvm import load_libsvm

        data = load_libsvm(
            path,
            root=root,
            generator=streams.generator("split"),
            test_path=test_path,
            test_fraction=test_fraction,
            features=features,
            regression=regression,
        )
    else:
        from simfl.data.npz import load_npz

        data = load_npz(
            path,
            root=root,
            generator=streams.generator("split"),
            test_path=test_path,
            test_fraction=test_fraction,
            regression=regression,
        )
    if classes is not None:
        data = keep_classes(data, classes)
    return transform(data, pca, normalize)
