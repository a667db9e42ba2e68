"""Callbacks of runs: a protocol, and adapters for TensorBoard, W&B and MLflow.

    class Print(simfl.callbacks.Callback):
        def on_evaluation(self, metrics):
            print(metrics["time_s"], metrics["test_accuracy"])

    simfl.run(scenario, callbacks=[Print(), simfl.callbacks.TensorBoard("logs")])

Callbacks only observe: they cannot change the run, and one that raises is dropped with a warning. An adapter imports
its library when it is created: `pip install 'simfl[tensorboard]'`, `'simfl[wandb]'` or `'simfl[mlflow]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.errors import ScenarioError, raised

if TYPE_CHECKING:
    from simfl.records import Run

__all__ = ["Callback", "MLflow", "TensorBoard", "WandB"]

#: The column that numbers the evaluations, and the columns that have no curve over it.
STEP, NO_CURVES = "updates", ("updates", "wall_s")


class Callback:
    """Receives the events of a run; subclasses override the methods."""

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Handle the start of the run in its folder; the scenario is resolved."""

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Handle an evaluation, a row of `metrics` by column.

        A resumed run repeats the earlier evaluations. Epsilons during a run are upper bounds.
        """

    def on_end(self, run: Run) -> None:
        """Handle the end of the run, when all files are written; see `run.status`."""


class TensorBoard(Callback):
    """Writes every measure as a curve over updates (through tensorboardX).

    `logdir` is the folder of all logs; a run writes to `<logdir>/<name>/<run>`.
    """

    def __init__(self, logdir: str | Path) -> None:
        self.logdir = Path(logdir)
        self._library = _library("tensorboardX", "tensorboard")

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Open the run's log."""
        self._writer = self._library.SummaryWriter(str(self.logdir / folder.parent.name / folder.name))

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Add a point to each curve, except for values that are NaN."""
        step = int(metrics[STEP])
        for name, value in metrics.items():
            if name not in NO_CURVES and value == value:
                self._writer.add_scalar(name, value, step)

    def on_end(self, run: Run) -> None:
        """Close the log."""
        self._writer.close()


class WandB(Callback):
    """Logs every measure over updates to Weights & Biases.

    `options` are those of `wandb.init`, such as project, entity and mode; `name` is by default that of the run.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._library = _library("wandb", "wandb")

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Start a run of Weights & Biases."""
        usual = {"name": f"{folder.parent.name}-{folder.name}", "config": dict(scenario)}
        self._run = self._library.init(**{**usual, **self.options})

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Log the values that are not NaN."""
        values = {name: value for name, value in metrics.items() if name not in NO_CURVES and value == value}
        self._run.log(values, step=int(metrics[STEP]))

    def on_end(self, run: Run) -> None:
        """Log the status and finish."""
        self._run.summary["status"] = run.status
        self._run.finish(exit_code=int(run.status == "failed"))


class MLflow(Callback):
    """Logs every measure over updates to MLflow, and the scenario as parameters.

    `options` are those of `mlflow.start_run`, such as experiment_id, nested and tags; `run_name` is by default that of
    the run. The tracking server is that of `mlflow.set_tracking_uri`.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._library = _library("mlflow", "mlflow")

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Start a run of MLflow; `algorithm.step_size` is a parameter."""
        self._library.start_run(**{"run_name": f"{folder.parent.name}-{folder.name}", **self.options})
        self._library.log_params(dict(_by_path(scenario)))

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Log the values that are not NaN."""
        values = {name: value for name, value in metrics.items() if name not in NO_CURVES and value == value}
        self._library.log_metrics(values, step=int(metrics[STEP]))

    def on_end(self, run: Run) -> None:
        """Log the status and finish."""
        self._library.set_tag("status", run.status)
        self._library.end_run("FAILED" if run.status == "failed" else "FINISHED")


class Callbacks:
    """The callbacks of a run; one that raises is not called again.

    `warn` gets a line about each callback that raised. An object without the methods of `Callback` is a
    `ScenarioError`.
    """

    def __init__(self, callbacks: Iterable[Callback], warn: Callable[[str], None]) -> None:
        self._callbacks, self._warn = list(callbacks), warn
        for callback in self._callbacks:
            if not all(callable(getattr(callback, name, None)) for name in ("on_start", "on_evaluation", "on_end")):
                raise ScenarioError(
                    "callbacks: expected objects with on_start, on_evaluation and on_end, found "
                    f"{type(callback).__name__}; derive a class from simfl.callbacks.Callback"
                )

    def started(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Call `on_start` of all callbacks."""
        self._call(lambda callback: callback.on_start(scenario, folder))

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Call `on_evaluation` of all callbacks."""
        self._call(lambda callback: callback.on_evaluation(metrics))

    def ended(self, run: Run) -> None:
        """Call `on_end` of all callbacks."""
        self._call(lambda callback: callback.on_end(run))

    def _call(self, event: Callable[[Callback], None]) -> None:
        for callback in list(self._callbacks):
            try:
                event(callback)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._callbacks.remove(callback)
                self._warn(f"callbacks: {type(callback).__name__} raised {raised(error)}; it is not called again")


def _by_path(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by key path."""
    for key, value in values.items():
        yield from _by_path(value, f"{above}{key}.") if isinstance(value, Mapping) else [(f"{above}{key}", value)]


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"callbacks: expected {name} to be installed, found {error}; pip install 'simfl[{extra}]'"
        ) from None
