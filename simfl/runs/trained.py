"""Predictions and evaluations by a run's model.

The data set of the run is loaded again, as its scenario says: what was fitted on it (principal axes, means) is fitted
again, bit for bit with the same version on the same device, and other examples go the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfl.build.data import load_data, model_of
from simfl.data import Dataset, npz, table
from simfl.data.base import show_label
from simfl.errors import DataError, ScenarioError, nearest, to_path
from simfl.models import AbstractModel
from simfl.records import Run, RunFolder, read
from simfl.scenario import Scenario, from_mapping
from simfl.scenario.data import RealData
from simfl.streams import Streams
from simfl.tape.evaluation import Evaluator
from simfl.tape.executor import choose_device
from simfl.tape.measures import OF_SCORES, OF_TARGETS, measure

PARTS = ("test", "train")
"""The parts of a run's own data set."""


class Trained:
    """A model with the data set that it was made for.

    Args:
        run: a run that kept its model.
        device: "cpu" or "gpu"; JAX's default otherwise.

    Raises:
        DataError: the run kept no model, or its data cannot be loaded.
        ScenarioError: its scenario is not one of this version of simfl.
    """

    def __init__(self, run: Run, device: str | None = None) -> None:
        chosen = choose_device(device)
        self.file = RunFolder(run.folder).models_path("model")
        parts = run.model
        self.scenario: Scenario = from_mapping(run.scenario, run.name)
        self.dataset: Dataset = load_data(self.scenario, Streams(self.scenario.seed), run.given.get("data"))
        self.model: AbstractModel = model_of(self.scenario, self.dataset, run.given.get("model"))
        self._evaluator = Evaluator(self.model, chosen, self.dataset.scaling)
        try:
            self.params = self.model.joined(parts)
        except ValueError as error:
            raise DataError(f"{self.file}: {error}; the data set of the run has changed") from None

    def predict(self, x: ArrayLike, scores: bool = False) -> NDArray[Any]:
        """Return predictions for examples; see `predict`."""
        if not self.model.predicts:
            raise ScenarioError(f"predict: model '{self.model.kind}' has no predict(params, x); give it one")
        prepared = self.dataset.prepared(x)
        outputs = self._evaluator.answers(self.params, prepared, self._any_labels(len(prepared)))[0]
        if scores or not self.dataset.num_classes:
            return outputs
        chosen = (outputs > 0).astype(np.int64) if outputs.ndim == 1 else outputs.argmax(axis=1)
        labels: NDArray[Any] = np.asarray(self.dataset.class_labels)[chosen]
        return labels

    def evaluate(
        self,
        data: str | Path | tuple[ArrayLike, ArrayLike] = "test",
        metrics: Sequence[str] = (),
        label: str | None = None,
    ) -> dict[str, float]:
        """Return how good the model is; see `evaluate`."""
        known = OF_SCORES if self.dataset.num_classes else OF_TARGETS if self.model.fits_targets else {}
        for name in metrics:
            if name not in known:
                expected = f"some of {', '.join(known)}" if known else f"none with model '{self.model.kind}'"
                raise ScenarioError(f"metrics: expected {expected}, found {name!r}{nearest(name, known)}")
        x, y = self._examples(data, label)
        loss, accuracy, own = self._evaluator.measure(self.params, self._evaluator.examples(x, y))
        values = {"examples": len(x), "loss": loss, "accuracy": accuracy, **own}
        if metrics:
            values |= measure(tuple(metrics), y, self._evaluator.answers(self.params, x, y)[0])
        return values

    def _examples(
        self, data: str | Path | tuple[ArrayLike, ArrayLike], label: str | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features as the model takes them, and labels as it numbers them."""
        own = self.dataset
        if isinstance(data, str) and data in PARTS:
            return (own.test_x, own.test_y) if data == "test" else (own.train_x, own.train_y)
        if isinstance(data, tuple):
            return self._numbered("data", *data)
        path = to_path(data, "data: test, train, a file, or (x, y)")
        if path.suffix in (".csv", ".parquet"):
            config = self.scenario.data
            apart = (getattr(config.partition, "column", None), getattr(config, "owner", None))
            drop = (*getattr(config, "drop", ()), *(name for name in apart if name is not None))
            usual = getattr(config, "label", None) or getattr(config, "target", None) or "label"
            columns = own.reader if isinstance(own.reader, table.Columns) else None
            file, x, y = table.read_examples(path, None, label or usual, drop, columns)
        elif path.suffix == ".npz":
            file, x, y = npz.read_examples(path, None)
        else:
            raise ScenarioError(f"data: expected test, train, or an .npz, .csv or .parquet file, found {str(data)!r}")
        return self._numbered(str(file), x, y)

    def _numbered(self, where: str, x: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return examples in the data set's classes; others are left out."""
        own, y = self.dataset, np.asarray(labels)
        prepared = own.prepared(x, where)
        if y.shape != (len(prepared),):
            raise DataError(f"{where}: expected one label for each of {len(prepared)} examples, found shape {y.shape}")
        if not own.num_classes:
            if y.dtype.kind not in "biuf":
                raise DataError(f"{where}: expected numbers as targets, found {y.dtype}")
            return prepared, y.astype(np.float32)
        names = np.asarray(own.class_labels)
        if (y.dtype.kind in "biuf") != (names.dtype.kind in "biuf"):
            raise DataError(f"{where}: expected labels like {show_label(names[0].item())}, found {y.dtype}")
        order = np.argsort(names)
        at = order[np.minimum(np.searchsorted(names[order], y), len(names) - 1)]
        known = names[at] == y
        chosen = isinstance(self.scenario.data, RealData) and self.scenario.data.classes is not None
        if not known.all() and not (chosen and known.any()):
            label = show_label(y[int(np.argmin(known))].item())
            shown = ", ".join(map(show_label, own.class_labels[:12])) + (", ..." if len(names) > 12 else "")
            raise DataError(f"{where}: expected labels {shown}, as in {own.name}, found {label}; remove such examples")
        return prepared[known], at[known].astype(np.int32)

    def _any_labels(self, count: int) -> NDArray[Any]:
        """Return arbitrary labels, on which predictions do not depend."""
        return np.zeros(count, self.dataset.train_y.dtype)


@functools.lru_cache(maxsize=1)
def _opened(folder: Path, written_ns: int) -> Trained:
    """Return a run's model ready for use; a run that is written anew is opened anew."""
    return Trained(Run(folder))


def open_trained(run: Run | str | Path) -> Trained:
    """Return a run's model with its data set, which are kept for the next call."""
    run = run if isinstance(run, Run) else read(run)
    file = RunFolder(run.folder).models_path("model")
    if run.given or not file.exists():
        return Trained(run)
    return _opened(run.folder.absolute(), file.stat().st_mtime_ns)


def predict(run: Run | str | Path, x: ArrayLike, *, scores: bool = False) -> NDArray[Any]:
    """Return a run's predictions for examples.

    Args:
        run: a run that kept its model, or its folder.
        x: [n, ...], as the loader of the run's data set gives examples before `normalize` and `pca`: pixels from 0 to 1
            of digits, MNIST and CIFAR-10, the values of a file as they are. What was fitted on the training data is
            applied to them. An example may also be flat.
        scores: return what the model computes, f32 [n, c] (f32 [n] of two classes by one score), and no labels.

    Returns:
        Labels [n] as they stand in the data, or targets f32 [n] of a regression.
    """
    return open_trained(run).predict(x, scores)


def evaluate(
    run: Run | str | Path,
    data: str | Path | tuple[ArrayLike, ArrayLike] = "test",
    *,
    metrics: Sequence[str] = (),
    label: str | None = None,
) -> dict[str, float]:
    """Evaluate a run's model on its own test set, or on other data.

    Args:
        run: a run that kept its model, or its folder.
        data: "test" or "train", the parts of the run's own data set; an .npz file with x_test and y_test or x and y, a
            .csv file; or (x, y). Features are as in `predict`, labels as they stand in the run's data.
        metrics: further measures, of classifiers: macro_f1, balanced_accuracy, auc; of regressions: mae, rmse, r2.
        label: the column of labels of a .csv file; that of the scenario by default, or "label".

    Returns:
        examples, loss (with the penalty), accuracy (NaN where there are no classes), the metrics of a model of your
        own, and the further measures.
    """
    return open_trained(run).evaluate(data, metrics, label)
