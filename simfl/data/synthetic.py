"""Problems with known optimum: quadratic, linear, logistic; drawn or of a file.

All three share one spectrum h [d]: given as `curvature`, or log-spaced from 1 down to 1 / condition_number. It is the
diagonal of H for the quadratic and the variances of the features for the others, so that the Hessian of least squares
is close to diag(h). The optimum is that of the model of the same kind, with its l2 and intercept, on the examples as
rounded to float32; flat parameters are the weights, then the intercept.

With `owners`, example i belongs to owner i mod owners. Owners differ by `heterogeneity` s: owner k's points are around
c + s N(0, I), and its labels are those of the weights w + s w_k, w_k drawn as w.

With `path`, the examples are those of an .npz file (`simfl.data.matrices`), and also serve as the test part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, FloatArray, Loader
from simfl.data.known import DoubleArray, Forms, Indices, Known, Minimum, Points, Rows, design_of
from simfl.data.matrices import binary, read_forms, read_rows
from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams

NOISE = {"quadratic": 1.0, "linear": 0.1, "logistic": 0.05}
"""Default `noise`: deviation of the points, deviation of the targets, share of flipped labels."""

GRADIENT_TOLERANCE = 1e-8
"""Largest norm of the loss's gradient at a computed optimum of a logistic problem."""


@dataclass(frozen=True)
class Synthetic:
    """Size and shape of a synthetic problem.

    The test part has `test_fraction` times as many examples as the `samples` for training, drawn in the same way.
    `curvature` is the spectrum, [d], each > 0; without it, d is `dimension` and `condition_number` >= 1 the ratio of
    its extremes. `noise` is as in `NOISE`; `l2` >= 0 is the lambda of lambda / 2 ||w||^2, intercept included.
    `simfl.scenario.data` checks these numbers, apart from the limits of float32.
    """

    samples: int = 1000
    dimension: int = 20
    condition_number: float = 10.0
    noise: float | None = None
    curvature: Sequence[float] | None = None
    test_fraction: float = 0.2
    l2: float = 0.0
    intercept: bool = True
    owners: int | None = None
    heterogeneity: float = 0.0
    path: str | Path | None = None

    def spectrum(self) -> DoubleArray:
        """Return h, [d], rounded to float32 as models get it."""
        if self.curvature is not None:
            h = np.asarray(self.curvature, np.float64)
            if h.ndim != 1 or not len(h) or not ((h >= 1e-30) & (h <= 1e30)).all():
                raise ScenarioError("data.curvature: expected a list of numbers > 0 (1e-30 to 1e30), one per dimension")
            return h.astype(np.float32).astype(np.float64)
        if self.condition_number > 1e30:  # beyond that, float32 cannot represent the smallest value
            raise ScenarioError(f"data.condition_number: expected 1 to 1e30, found {self.condition_number:g}")
        h = np.geomspace(1.0, 1.0 / self.condition_number, self.dimension)
        return h.astype(np.float32).astype(np.float64)

    def noise_of(self, kind: str) -> float:
        """Return the noise, or the kind's default."""
        return NOISE[kind] if self.noise is None else self.noise

    def owners_of(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the owners of `count` examples; None without owners."""
        return None if self.owners is None else np.arange(count) % self.owners

    def shifts(self, streams: Streams, width: int) -> DoubleArray:
        """Draw what owners add to a common center or to weights, [owners, width].

        Without owners, return 0 [width].
        """
        if self.owners is None:
            return np.zeros(width)
        return streams.generator("synthetic", count=3).standard_normal((self.owners, width))

    def counts(self, width: int) -> tuple[int, int]:
        """Return the number of training and of test examples."""
        tests = max(1, round(self.samples * self.test_fraction))
        if (self.samples + tests) * width * 8 > MEMORY_LIMIT_BYTES:
            raise ScenarioError(
                f"data.samples: {self.samples} examples of {width} features need more than "
                f"{MEMORY_LIMIT_BYTES // 2**30} GiB; use fewer"
            )
        return self.samples, tests


def load_quadratic(root: Path | None, streams: Streams, **options: Any) -> Dataset:
    """Make points for f_i(w) = 1/2 (w - a_i)^T H (w - a_i), H = diag(h).

    The points a_i = c + noise N(0, I) [n, d] are the features; labels are unused zeros. The optimum is the mean of the
    points, (H + lambda I)^-1 H mean with l2.
    """
    spec = Synthetic(**options)
    if spec.path is not None:
        return _forms(*read_forms(spec.path, root), spec.l2)
    h = spec.spectrum()
    n, m = spec.counts(len(h))
    noise = spec.noise_of("quadratic")
    center = streams.generator("synthetic").standard_normal(len(h))
    center = center + spec.heterogeneity * spec.shifts(streams, len(h))
    train, test = (
        (
            _of_owners(center, size)
            + noise * streams.generator("synthetic", count=part).standard_normal((size, len(h)))
        ).astype(np.float32)
        for part, size in ((1, n), (2, m))
    )

    def minimum_of(examples: Indices) -> Minimum:
        points = train[examples].astype(np.float64)
        best = h * points.mean(axis=0) / (h + spec.l2)
        loss = 0.5 * float(((points - best) ** 2 @ h).mean()) + 0.5 * spec.l2 * float(best @ best)

        def suboptimality(w: DoubleArray) -> float:
            return 0.5 * float((h + spec.l2) @ (w - best) ** 2)

        return Minimum(best, loss, suboptimality)

    return Dataset(
        "quadratic",
        train,
        np.zeros(n, np.float32),
        test,
        np.zeros(m, np.float32),
        num_classes=0,
        **_answers(Points(h, train), minimum_of),
        curvature=h.astype(np.float32),
        groups=spec.owners_of(n),
    )


def _answers(known: Known, minimum_of: Callable[[Indices], Minimum]) -> dict[str, Any]:
    """Return the fields of a `Dataset` of known optimum."""
    least = minimum_of(slice(None))
    return {
        "optimum": least.optimum,
        "optimal_loss": least.loss,
        "suboptimality": least.suboptimality,
        "known": known,
        "minimum_of": minimum_of,
    }


def _forms(file: Path, matrices: FloatArray, vectors: FloatArray, owners: npt.NDArray[Any], l2: float) -> Dataset:
    """Return f_i(w) = 1/2 w^T A_i w - b_i^T w; an example is A_i by rows, then b_i.

    The optimum is that of the mean of all f_i, (mean A + lambda I)^-1 mean b.
    """
    n, d = vectors.shape
    known = Forms(matrices, vectors)

    def minimum_of(examples: Indices) -> Minimum:
        hessian = matrices[examples].mean(axis=0, dtype=np.float64) + l2 * np.eye(d)
        vector = vectors[examples].mean(axis=0, dtype=np.float64)
        least, largest = known.curvatures(examples)
        if not least + l2 > 1e-12 * (largest + l2):
            whose = "all matrices" if isinstance(examples, slice) else "the matrices of honest clients"
            raise DataError(
                f"{file}: A: expected a positive definite mean of {whose}, as a single optimum needs, found the least "
                f"eigenvalue {least + l2:.3g}; change A, or set model.l2 > 0"
            )
        best = np.linalg.solve(hessian, vector)

        def suboptimality(w: DoubleArray) -> float:
            return 0.5 * float((w - best) @ hessian @ (w - best))

        return Minimum(best, -0.5 * float(vector @ best), suboptimality)

    x, y = np.concatenate([matrices.reshape(n, -1), vectors], axis=1), np.zeros(n, np.float32)
    return Dataset(
        file.stem,
        x,
        y,
        x,
        y,
        num_classes=0,
        **_answers(known, minimum_of),
        groups=owners,
        files=(file,),
    )


def load_linear(root: Path | None, streams: Streams, **options: Any) -> Dataset:
    """Make least squares: x ~ N(0, diag(h)), y = x.w + noise N(0, 1), w ~ N(0, I).

    The optimum minimizes 1/n sum_i 1/2 (x_i.w + b - y_i)^2 + lambda/2 ||(w, b)||^2 (numpy.linalg.lstsq, the shortest
    minimizer).
    """
    spec = Synthetic(**options)
    if spec.path is not None:
        file, x, y, owners = read_rows(spec.path, root)
        return _least_squares(file.stem, (x, y, x, y), spec, owners, (file,))
    h = spec.spectrum()
    noise = spec.noise_of("linear")
    weights = streams.generator("synthetic").standard_normal(len(h))
    weights = weights + spec.heterogeneity * spec.shifts(streams, len(h))
    parts = []
    for part, size in enumerate(spec.counts(len(h)), start=1):
        generator = streams.generator("synthetic", count=part)
        x = (generator.standard_normal((size, len(h))) * np.sqrt(h)).astype(np.float32)
        parts.append((x, (_products(x, weights) + noise * generator.standard_normal(size)).astype(np.float32)))
    return _least_squares("linear", (*parts[0], *parts[1]), spec, spec.owners_of(len(parts[0][0])))


def _least_squares(
    name: str,
    arrays: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    spec: Synthetic,
    owners: npt.NDArray[Any] | None,
    files: tuple[Path, ...] = (),
) -> Dataset:
    """Return train x and y, test x and y with the optimum of the training part."""

    def minimum_of(examples: Indices) -> Minimum:
        train_x, train_y = (array[examples] for array in arrays[:2])
        design, n = design_of(train_x, spec.intercept), len(train_x)
        ridge = math.sqrt(n * spec.l2) * np.eye(design.shape[1])
        best = np.linalg.lstsq(
            np.concatenate([design, ridge]) if spec.l2 else design,
            np.concatenate([train_y, np.zeros(len(ridge))]) if spec.l2 else train_y.astype(np.float64),
            rcond=None,
        )[0]
        loss = 0.5 * float(((design @ best - train_y) ** 2).mean()) + 0.5 * spec.l2 * float(best @ best)

        def suboptimality(w: DoubleArray) -> float:
            away = w - best  # the loss is quadratic, so this difference does not cancel
            return 0.5 * float(((design_of(train_x, spec.intercept) @ away) ** 2).mean()) + 0.5 * spec.l2 * float(
                away @ away
            )

        return Minimum(best, loss, suboptimality)

    known = Rows(*arrays[:2], spec.intercept, logistic=False)
    return Dataset(name, *arrays, 0, groups=owners, files=files, **_answers(known, minimum_of))


def load_logistic(root: Path | None, streams: Streams, **options: Any) -> Dataset:
    """Make noisy binary labels from a logistic model.

    x ~ N(0, diag(h)), P(y = 1) = 1 / (1 + exp(-x.w)), w scaled so that x.w has deviation 2; then a share `noise` of the
    labels is flipped. The optimum minimizes 1/n sum_i log(1 + exp(-(2 y_i - 1)(x_i.w + b))) + lambda/2 ||(w, b)||^2, by
    scikit-learn's Newton, to a gradient of at most 1e-8.
    """
    spec = Synthetic(**options)
    if spec.path is not None:
        file, given_x, given_y, owners = read_rows(spec.path, root)
        y = binary(file, given_y)
        return _classified(file.stem, (given_x, y, given_x, y), spec, owners, (file,))
    h = spec.spectrum()
    noise = spec.noise_of("logistic")
    weights = streams.generator("synthetic").standard_normal(len(h))
    weights *= 2.0 / math.sqrt(h @ weights**2)
    if spec.heterogeneity:
        shifts = spec.shifts(streams, len(h))
        weights = weights + spec.heterogeneity * 2.0 * shifts / np.sqrt(shifts**2 @ h)[:, None]
    parts: list[tuple[FloatArray, npt.NDArray[np.int32]]] = []
    for part, size in enumerate(spec.counts(len(h)), start=1):
        generator = streams.generator("synthetic", count=part)
        x = (generator.standard_normal((size, len(h))) * np.sqrt(h)).astype(np.float32)
        positive = generator.random(size) < 1.0 / (1.0 + np.exp(-_products(x, weights)))
        parts.append((x, (positive ^ (generator.random(size) < noise)).astype(np.int32)))
    return _classified("logistic", (*parts[0], *parts[1]), spec, spec.owners_of(len(parts[0][0])))


def _classified(
    name: str,
    arrays: tuple[FloatArray, npt.NDArray[np.int32], FloatArray, npt.NDArray[np.int32]],
    spec: Synthetic,
    owners: npt.NDArray[Any] | None,
    files: tuple[Path, ...] = (),
) -> Dataset:
    """Return train x and y, test x and y with the optimum of the training part."""
    train_x, train_y = arrays[:2]

    def minimum_of(examples: Indices) -> Minimum:
        x, y = train_x[examples], train_y[examples]
        best, loss = _logistic_optimum(design_of(x, spec.intercept), y, spec.l2)

        def suboptimality(w: DoubleArray) -> float:
            margins = (2.0 * y - 1.0) * (design_of(x, spec.intercept) @ w)
            return float(np.logaddexp(0.0, -margins).mean()) + 0.5 * spec.l2 * float(w @ w) - loss

        return Minimum(best, loss, suboptimality)

    known = Rows(train_x, np.where(train_y == 1, np.float32(1), np.float32(-1)), spec.intercept, logistic=True)
    return Dataset(name, *arrays, 2, groups=owners, files=files, **_answers(known, minimum_of))


def _of_owners(values: DoubleArray, count: int) -> DoubleArray:
    """Return the values of each example's owner, [count, width].

    Values without owners, [width], are for all examples.
    """
    return values if values.ndim == 1 else values[np.arange(count) % len(values)]


def _products(x: FloatArray, weights: DoubleArray) -> DoubleArray:
    """Return x_i.w with the weights of the owner of each example."""
    products = x @ weights if weights.ndim == 1 else (x * _of_owners(weights, len(x))).sum(axis=1)
    return np.asarray(products, np.float64)


def _logistic_optimum(design: DoubleArray, y: npt.NDArray[np.int32], l2: float) -> tuple[DoubleArray, float]:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    signs = 2.0 * y - 1.0
    advice = "use more data.samples or data.noise, or set model.l2 > 0"
    if abs(signs.sum()) == len(signs):
        raise ScenarioError(f"data.samples: all {len(signs)} labels of this logistic problem are equal; {advice}")
    solver = LogisticRegression(
        C=1.0 / (len(signs) * l2) if l2 else np.inf,
        fit_intercept=False,  # the intercept is a column of the design: the model's l2 covers it as well
        solver="newton-cholesky",
        tol=0.1 * GRADIENT_TOLERANCE,
        max_iter=200,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # judged by the gradient below
        warnings.simplefilter("ignore", RuntimeWarning)
        best = solver.fit(design, y).coef_[0].astype(np.float64)
    margins = signs * (design @ best)
    gradient = -(design.T @ (signs / (1.0 + np.exp(margins)))) / len(signs) + l2 * best
    separable = not l2 and bool((margins > 0).all())
    if separable or not np.linalg.norm(gradient) <= GRADIENT_TOLERANCE:
        state = "the labels can be separated, so it has no finite optimum" if separable else "no optimum was found"
        raise ScenarioError(f"data.samples: logistic problem of {len(signs)} examples: {state}; {advice}")
    return best, float(np.logaddexp(0.0, -margins).mean()) + 0.5 * l2 * float(best @ best)


LOADERS = (
    Loader(
        "quadratic",
        "synthetic: points around a center, f_i(w) = 1/2 (w - a_i)' H (w - a_i); optimum known",
        load_quadratic,
        Synthetic,
        transforms=False,
    ),
    Loader("linear", "synthetic: least squares with noise; optimum known", load_linear, Synthetic, transforms=False),
    Loader(
        "logistic",
        "synthetic: binary logistic regression with noisy labels; optimum known",
        load_logistic,
        Synthetic,
        transforms=False,
    ),
)
"""Their options are the fields of `Synthetic`."""
