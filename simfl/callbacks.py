"""Callbacks of runs: a protocol, and adapters for TensorBoard and W&B.

    class Print(simfl.callbacks.Callback):
        def on_evaluation(self, metrics):
            print(metrics["time_s"], metrics["test_accuracy"])

    simfl.run(scenario, callbacks=[Print(), simfl.callbacks.TensorBoard("logs")])

Callbacks look on: nothing that they do changes the run, and one that raises is dropped with a warning. An adapter
imports its library when it is made: `pip install 'simfl[tensorboard]'` or `'simfl[wandb]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.errors import ScenarioError, raised

if TYPE_CHECKING:
    from simfl.records import Run

__all__ = ["Callback", "TensorBoard", "WandB"]

#: By what evaluations are numbered, and what would say nothing as a curve over it.
STEP, NO_CURVES = "updates", ("updates", "wall_s")


class Callback:
    """Receives the events of a run; subclasses override the methods."""

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """The run begins.

        Args:
            scenario: as resolved, every field with its value.
            folder: of the run.
        """

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Handle an evaluation; a resumed run repeats the earlier ones.

        Args:
            metrics: a row of the table `metrics` by column. Epsilons in the course of a run are upper bounds.
        """

    def on_end(self, run: Run) -> None:
        """The run is over, and everything is written.

        Args:
            run: its tables, its model; `run.status` says how it ended.
        """


class TensorBoard(Callback):
    """Writes every measure as a curve over updates (through tensorboardX).

    Args:
        logdir: the folder of all logs; a run writes to `<logdir>/<name>/<run>`.
    """

    def __init__(self, logdir: str | Path) -> None:
        self.logdir = Path(logdir)
        self._library = _library("tensorboardX", "tensorboard")

    def on_start(self, scenario: Mapping[str, Any], folder: Path) -> None:
        """Open the run's log."""
        self._writer = self._library.SummaryWriter(str(self.logdir / folder.parent.name / folder.name))

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Add a point to each curve that has one here."""
        step = int(metrics[STEP])
        for name, value in metrics.items():
            if name not in NO_CURVES and value == value:
                self._writer.add_scalar(name, value, step)

    def on_end(self, run: Run) -> None:
        """Close the log."""
        self._writer.close()


class WandB(Callback):
    """Logs every measure over updates to Weights & Biases.

    Args:
        options: of `wandb.init`, such as project, entity and mode; the name is the run's unless it is given.
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
        """Say how it ended."""
        self._run.summary["status"] = run.status
        self._run.finish(exit_code=int(run.status == "failed"))


class Audience:
    """The callbacks of a run; one that raises is not called again.

    Args:
        callbacks: with the methods of `Callback`.
        warn: told in a line of one that raised.

    Raises:
        ScenarioError: one of them is something else.
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
        """Tell that the run begins."""
        self._tell(lambda callback: callback.on_start(scenario, folder))

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Tell of an evaluation."""
        self._tell(lambda callback: callback.on_evaluation(metrics))

    def ended(self, run: Run) -> None:
        """Tell that the run is over."""
        self._tell(lambda callback: callback.on_end(run))

    def _tell(self, what: Callable[[Callback], None]) -> None:
        for callback in list(self._callbacks):
            try:
                what(callback)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self._callbacks.remove(callback)
                self._warn(f"callbacks: {type(callback).__name__} raised {raised(error)}; it is told nothing more")


def _library(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(
            f"callbacks: expected {name} to be installed, found {error}; pip install 'simfl[{extra}]'"
        ) from None
