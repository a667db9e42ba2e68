"""Further measures of evaluations: for classes, targets and the worst clients.

For classifiers, y [m] are labels in 0..c-1 and z [m, c] are the scores that the model predicts; for two classes z may
be [m], the score of class 1. A class that the examples do not have is left out of a mean over classes.

- `macro_f1`: mean over classes of 2 P R / (P + R), with precision P and recall R.
- `balanced_accuracy`: mean over classes of recall.
- `auc`: area under the ROC curve, the probability that an example of a class is ranked above one of another class. Of
  more than two classes, the mean over classes of each against the rest. Examples are ranked by log p_c - log(1 - p_c)
  with p = softmax(z).
- `worst_decile`: accuracy of the evaluated model on each client's own training examples, the mean over that tenth of
  the clients for whom it is lowest (at least one).
- Of a regression, with targets y [m] and predictions z [m]: `mae`, the mean of |z - y|; `rmse`, the root of the mean of
  (z - y)^2; `r2` = 1 - sum (z - y)^2 / sum (y - mean y)^2.
- Of a problem whose minimizer w* is known (`simfl.data.synthetic`), in float64: `suboptimality`, f(w) - f(w*) with the
  training loss f, and `distance`, the Euclidean norm of w - w*.
- `worst_decile_models`: accuracy of each client's own model on the test set, again the mean over the lowest tenth.
- `own_classes`: accuracy of the evaluated model on test data of each client, the mean over clients.
- `own_classes_models`: accuracy of each client's own model on its test data, the mean over clients. The test data of a
  client are the examples of the test set, weighted so that their classes are as frequent as in the client's training
  examples.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]
Classes = NDArray[np.int32]


def worst_decile(accuracy: NDArray[np.float64]) -> float:
    """Return the mean of the lowest tenth of the clients' accuracies [K]."""
    count = max(1, len(accuracy) // 10)
    return float(np.sort(accuracy)[:count].mean())


def mean_of_known(values: NDArray[np.float64]) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


class OwnClasses:
    """The test set in each client's mix of classes.

    With the labels y [m] of the test set and p_k(c), the share of class c among the training examples of client k whose
    class the test set has, a test example has the weight p_k(y_j) / (number of test examples of class y_j).

    Args:
        y: labels of the test set.
        train_y: labels of the training examples.
        indices, offsets: client k holds `indices[offsets[k]:offsets[k + 1]]`.
    """

    def __init__(self, y: NDArray[Any], train_y: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any]) -> None:
        self._classes, self._place, self._counts = np.unique(y, return_inverse=True, return_counts=True)
        there = np.isin(train_y, self._classes)
        mix = np.zeros((len(offsets) - 1, len(self._classes)))
        for client, (begin, end) in enumerate(itertools.pairwise(offsets)):
            part = indices[begin:end]
            np.add.at(mix[client], np.searchsorted(self._classes, train_y[part[there[part]]]), 1.0)
        with np.errstate(invalid="ignore"):
            self._mix = mix / mix.sum(axis=1, keepdims=True)

    def accuracy(self, right: NDArray[Any]) -> NDArray[np.float64]:
        """Return the accuracy [K] of a model whose answers [m] are right (1) or not (0).

        It is NaN for a client that has no class of the test set.
        """
        of_classes = np.bincount(self._place, weights=right, minlength=len(self._classes)) / self._counts
        accuracy: NDArray[np.float64] = self._mix @ of_classes
        return accuracy


def measure(names: tuple[str, ...], y: NDArray[Any], scores: Scores) -> dict[str, float]:
    """Return the named `OF_SCORES` and `OF_TARGETS`; NaN for scores not finite."""
    wanted = [name for name in names if name in OF_SCORES or name in OF_TARGETS]
    if not np.isfinite(scores).all():
        return dict.fromkeys(wanted, float("nan"))
    if any(name in OF_TARGETS for name in wanted):
        targets, error = y.astype(np.float64), scores.reshape(y.shape).astype(np.float64) - y
        return {name: OF_TARGETS[name](targets, error) for name in wanted}
    each = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
    return {name: OF_SCORES[name](y, each) for name in wanted}


def _macro_f1(y: Classes, scores: Scores) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(y, scores.argmax(axis=1), labels=np.unique(y), average="macro", zero_division=0.0))


def _balanced_accuracy(y: Classes, scores: Scores) -> float:
    from sklearn.metrics import balanced_accuracy_score

    with warnings.catch_warnings():  # of predicted classes that the examples do not have
        warnings.simplefilter("ignore", UserWarning)
        return float(balanced_accuracy_score(y, scores.argmax(axis=1)))


def _auc(y: Classes, scores: Scores) -> float:
    from scipy.special import logsumexp
    from sklearn.metrics import roc_auc_score

    there = np.unique(y)
    if len(there) < 2:
        return float("nan")
    z = scores.astype(np.float64)
    if z.shape[1] == 2:
        return float(roc_auc_score(y == 1, z[:, 1] - z[:, 0]))
    others = [logsumexp(np.delete(z, label, axis=1), axis=1) for label in there]
    areas = [roc_auc_score(y == label, z[:, label] - rest) for label, rest in zip(there, others, strict=True)]
    return float(np.mean(areas))


OF_SCORES: dict[str, Callable[[Classes, Scores], float]] = {
    "macro_f1": _macro_f1,
    "balanced_accuracy": _balanced_accuracy,
    "auc": _auc,
}
"""Measures of labels int32 [m] and finite scores f32 [m, c]."""


def _r2(y: NDArray[np.float64], error: NDArray[np.float64]) -> float:
    spread = float(np.sum((y - y.mean(axis=0)) ** 2))
    return 1.0 - float(np.sum(error**2)) / spread if spread > 0 else float("nan")


OF_TARGETS: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], float]] = {
    "mae": lambda y, error: float(np.abs(error).mean()),
    "rmse": lambda y, error: float(np.sqrt(np.mean(error**2))),
    "r2": _r2,
}
"""Measures of targets [m] and errors [m] of finite predictions."""

OF_CLIENTS = ("worst_decile", "worst_decile_models", "own_classes", "own_classes_models")
"""Measures of all clients' accuracies."""
