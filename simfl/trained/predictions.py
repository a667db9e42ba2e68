"""Predictions and evaluations by a run's model.

The run's data set is loaded again from its scenario. Transformations fitted on it (principal axes, means) are fitted
again, bit for bit with the same version on the same device, and are applied to other examples.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfl.assembly.data import divided, model_of
from simfl.data import Dataset, npz, table
from simfl.data.base import show_label
from simfl.data.files import plain_name
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


class Trained:
    """A run's model with the data set that it was trained for.

    Raises a `DataError` if the run kept no model, or if its data cannot be loaded, and a `ScenarioError` if its
    scenario is not valid in this version of simfl.
    """

    def __init__(self, run: Run, device: str | None = None) -> None:
        self.file = RunFolder(run.folder).models_path("model")
        parts = run.model
        self.scenario: Scenario = from_mapping(run.scenario, run.name)
        self.dataset: Dataset = divided(self.scenario, Streams(self.scenario.seed), run.given.get("data"))[0]
        self.model: AbstractModel = model_of(self.scenario, self.dataset, run.given.get("model"))
        self._evaluator = Evaluator(self.model, choose_device(device), self.dataset.scaling)
        try:
            self.params = self.model.joined(parts)
        except ValueError as error:
            raise DataError(f"{self.file}: {error}; the data set of the run has changed") from None

    def predict(self, x: ArrayLike, scores: bool = False) -> NDArray[Any]:
        """Return predictions for examples; see `predict`."""
        if not self.model.predicts:
            raise ScenarioError(f"predict: model '{self.model.kind}' has no predict(params, x); give it one")
        prepared = self.dataset.prepared(x)
        any_labels = np.zeros(len(prepared), self.dataset.train_y.dtype)
        outputs = self._evaluator.answers(self.params, prepared, any_labels)[0]
        if scores or not self.dataset.num_classes:
            return outputs
        classes = (outputs > 0).astype(np.int64) if outputs.ndim == 1 else outputs.argmax(axis=1)
        labels: NDArray[Any] = np.asarray(self.dataset.class_labels)[classes]
        return labels

    def evaluate(
        self,
        data: str | Path | tuple[ArrayLike, ArrayLike] = "test",
        metrics: Sequence[str] = (),
        label: str | None = None,
    ) -> dict[str, float]:
        """Return measures of the model's quality; see `evaluate`."""
        valid = OF_SCORES if self.dataset.num_classes else OF_TARGETS if self.model.fits_targets else {}
        for name in metrics:
            if name not in valid:
                expected = f"some of {', '.join(valid)}" if valid else f"none with model '{self.model.kind}'"
                raise ScenarioError(f"metrics: expected {expected}, found {name!r}{nearest(name, valid)}")
        x, y = self._examples(data, label)
        loss, accuracy, further = self._evaluator.measure(self.params, self._evaluator.examples(x, y))
        values = {"examples": len(x), "loss": loss, "accuracy": accuracy, **further}
        if metrics:
            values |= measure(tuple(metrics), y, self._evaluator.answers(self.params, x, y)[0])
        return values

    def _examples(
        self, data: str | Path | tuple[ArrayLike, ArrayLike], label: str | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return features as the model takes them, and labels as it numbers them."""
        dataset = self.dataset
        if isinstance(data, str) and data in PARTS:
            return (dataset.test_x, dataset.test_y) if data == "test" else (dataset.train_x, dataset.train_y)
        if isinstance(data, tuple):
            return self._numbered("data", *data)
        path = to_path(data, "data: test, train, a file, or (x, y)")
        if Path(plain_name(path)).suffix in (".csv", ".parquet"):
            config = self.scenario.data
            special = (getattr(config.partition, "column", None), getattr(config, "owner", None))
            drop = (*getattr(config, "drop", ()), *(name for name in special if name is not None))
            default = getattr(config, "label", None) or getattr(config, "target", None) or "label"
            columns = dataset.reader if isinstance(dataset.reader, table.Columns) else None
            options = {name: getattr(config, name) for name in ("categories", "missing") if hasattr(config, name)}
            file, x, y = table.read_examples(path, None, label or default, drop, columns, **options)
        elif path.suffix == ".npz":
            file, x, y = npz.read_examples(path, None)
        else:
            raise ScenarioError(f"data: expected test, train, or an .npz, .csv or .parquet file, found {str(data)!r}")
        return self._numbered(str(file), x, y)

    def _numbered(self, where: str, x: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Return examples in the data set's classes; others are left out."""
        dataset, y = self.dataset, np.asarray(labels)
        prepared = dataset.prepared(x, where)
        if y.shape != (len(prepared),):
            raise DataError(f"{where}: expected one label for each of {len(prepared)} examples, found shape {y.shape}")
        if not dataset.num_classes:
            if y.dtype.kind not in "biuf":
                raise DataError(f"{where}: expected numbers as targets, found {y.dtype}")
            return prepared, y.astype(np.float32)
        names = np.asarray(dataset.class_labels)
        if (y.dtype.kind in "biuf") != (names.dtype.kind in "biuf"):
            raise DataError(f"{where}: expected labels like {show_label(names[0].item())}, found {y.dtype}")
        order = np.argsort(names)
        at = order[np.minimum(np.searchsorted(names[order], y), len(names) - 1)]
        is_known = names[at] == y
        has_subset = isinstance(self.scenario.data, RealData) and self.scenario.data.num_kept is not None
        if not is_known.all() and not (has_subset and is_known.any()):
            label = show_label(y[int(np.argmin(is_known))].item())
            shown = ", ".join(map(show_label, dataset.class_labels[:12])) + (", ..." if len(names) > 12 else "")
            expected = f"expected labels {shown}, as in {dataset.name}, found {label}"
            raise DataError(f"{where}: {expected}; remove such examples")
        return prepared[is_known], at[is_known].astype(np.int32)


@functools.lru_cache(maxsize=1)
def _opened(folder: Path, written_ns: int) -> Trained:
    """Return a run's model ready for use; a run that is written again is opened again."""
    return Trained(Run(folder))


def open_trained(run: Run | str | Path) -> Trained:
    """Return a run's model with its data set, cached for the next call."""
    run = run if isinstance(run, Run) else read(run)
    file = RunFolder(run.folder).models_path("model")
    if run.given or not file.exists():
        return Trained(run)
    return _opened(run.folder.absolute(), file.stat().st_mtime_ns)


def predict(run: Run | str | Path, x: ArrayLike, *, scores: bool = False) -> NDArray[Any]:
    """Return a run's predictions for examples.

    Args:
        run: a run that kept its model, or its folder.
        x: [n, ...] or flat, as the loader of the run's data set gives examples before `normalize` and `pca`: pixels
            from 0 to 1 of digits, MNIST and CIFAR-10, the values of a file as they are. Transformations fitted on the
            training data are applied to them.
        scores: return the model's scores, f32 [n, c] (f32 [n] of two classes by one score), instead of labels.

    Returns:
        Labels [n] as in the data, or targets f32 [n] of a regression.
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
            .csv file; or (x, y). Features are as in `predict`, labels as in the run's data.
        metrics: further measures, of classifiers: macro_f1, balanced_accuracy, auc; of regressions: mae, rmse, r2.
        label: the column of labels of a .csv file; that of the scenario by default, or "label".

    Returns:
        examples, loss (with the penalty), accuracy (NaN without classes), the metrics of the user's own model, and
        `metrics`.
    """
    return open_trained(run).evaluate(data, metrics, label)
