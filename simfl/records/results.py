"""A recorded run: its tables as pandas frames, each read on first use."""

from __future__ import annotations

import base64
import dataclasses
import functools
import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from simfl import plugins
from simfl.errors import DataError, ScenarioError, to_path
from simfl.records.display import show_number, show_range
from simfl.records.folder import Manifest, RunFolder, digest_text
from simfl.records.models import digest_parts, read_models
from simfl.records.seeds import Seed, seed_of
from simfl.records.tables import GRADIENTS, MOST_EDGES, SCHEMAS, UNDIGESTED, Columns, read_table
from simfl.records.writer import regular

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")


def _frame(name: str, about: str) -> functools.cached_property[pd.DataFrame]:
    def frame(run: RunFiles) -> pd.DataFrame:
        rows: pd.DataFrame = run._read(name, read_table).to_pandas()
        return rows

    frame.__doc__ = about
    return functools.cached_property(frame)


_HOW_TO_RECORD = {
    "updates": "set record.updates: true",
    "messages": "set record.messages: true",
    "timeline": "set record.timeline: true",
    "client_metrics": "set evaluate.clients: true",
    "releases": "add a privacy section",
    "uses": "add a privacy section about examples, with sampling: shuffle",
    "cohorts": "add a privacy section with unit: user",
    "secure_sums": "add algorithm.secure_sum",
    "edges": f"only graphs of up to {MOST_EDGES:,} edges are kept, by this version of simfl and later ones",
    "aggregation": "add an aggregation section",
    "client_epsilon": "add a privacy section whose epsilon can be certified, and set record.epsilon: true",
}


FINISHED = ("done", "diverged")
"""Statuses that need no second attempt: a diverged run would diverge again."""

UNFINISHED = ("killed", "running")
"""Statuses of runs whose tables end with the last flush."""

ALWAYS = ("metrics", "clients")
"""Tables of every run, empty until the first flush."""

NOISE = ("noise_multiplier", "epsilon_per_release", "noise_std")
"""Fields of a privacy section that determine a client's noise."""

ACCOUNTS = ("releases", "uses")
"""Tables that are read only when complete: a partial account understates the spending."""


class RunFiles:
    """The files of a run, read on first use: scenario, manifest, tables, models."""

    def __init__(self, folder: Path, given: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        self.given = dict(given or {})

    @functools.cached_property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario: every field with its value."""
        from simfl.scenario.syntax import read as read_yaml

        folder = RunFolder(self.folder)
        path = folder.scenario_path
        try:
            text = regular(path).read_text(encoding="utf-8")
            if folder.read_manifest().extra.get("scenario_text", digest := digest_text(text)) != digest:
                raise ValueError("it is not what the run wrote")
            values = read_yaml(text, path.name).content
        except (OSError, ValueError, ScenarioError) as error:
            raise DataError(f"{path}: expected the scenario of a run: {' '.join(str(error).split())}") from error
        if not isinstance(values, dict):
            raise DataError(f"{path}: expected the scenario of a run, found {type(values).__name__}")
        return values

    @functools.cached_property
    def manifest(self) -> Manifest:
        """How the run went: status, versions, seed, device, wall time, digest.

        For a killed or running run, time and updates are those of its last readable evaluation.
        """
        manifest = RunFolder(self.folder).read_manifest()
        if manifest.status not in UNFINISHED:
            return manifest
        try:
            last = self.evaluations.row(-1)
        except (DataError, IndexError):
            return manifest
        time_s, updates, wall_s = float(last["time_s"]), int(last["updates"]), float(last["wall_s"])
        return dataclasses.replace(manifest, time_s=time_s, updates=updates, wall_s=wall_s)

    metrics = _frame("metrics", "One row per evaluation of the average model.")
    updates = _frame("updates", "One row per update, in order of application.")
    clients = _frame("clients", "One row per client.")
    messages = _frame("messages", "One row per message, with `record.messages`.")
    client_metrics = _frame("client_metrics", "One row per client and evaluation, with `evaluate.clients`.")
    releases = _frame("releases", "One row per client and kind of noisy release.")
    uses = _frame("uses", "One row per client and number of copies of an example in a release (shuffled data).")
    secure_sums = _frame("secure_sums", "One row per secure sum of updates, with aborted ones.")
    cohorts = _frame("cohorts", "One row per release of a server's sum of updates and user in it.")
    aggregation = _frame(
        "aggregation", "One row per evaluation, receiver and sender: messages, and how much of them counted."
    )
    client_epsilon = _frame("client_epsilon", "One row per client and evaluation: the epsilon spent so far.")
    timeline = _frame("timeline", "One row per interval of a client's activity (`ACTIVITIES`), with `record.timeline`.")
    edges = _frame("edges", "One row per pair of communicating clients; a server is numbered after the last client.")

    @functools.cached_property
    def evaluations(self) -> Columns:
        """The table of `metrics`, of which only used columns are read."""
        return self._read("metrics", Columns)

    @property
    def measures(self) -> list[str]:
        """Columns of `metrics` that scenario or model add, except about gradients."""
        usual = {*SCHEMAS["metrics"].names, *GRADIENTS.names}
        return [name for name in self.evaluations.names if name not in usual]

    @property
    def has_accuracy(self) -> bool:
        """Whether an evaluation has a test accuracy; that of a regression has none."""
        return not np.isnan(self.evaluations["test_accuracy"]).all()

    @functools.cached_property
    def model(self) -> dict[str, NDArray[np.float32]]:
        """The final model, the mean of all or the server's: its parameter arrays by name."""
        status = self.manifest.status
        ended = f"it was {status} before it was over; go on with it by `simfl resume {self.folder}`"
        older = "it was written by an older version of simfl, or failed before it had a model"
        return self._models("model", ended if status in UNFINISHED else older)

    @functools.cached_property
    def client_models(self) -> dict[str, NDArray[np.float32]]:
        """Each client's final model, with `record.client_models`: arrays [K, ...]."""
        return self._models("client_models", "set record.client_models: true")

    def _models(self, name: str, advice: str) -> dict[str, NDArray[np.float32]]:
        path = RunFolder(self.folder).models_path(name)
        if not path.exists():
            raise DataError(f"{path}: this run kept no such file; {advice}")
        parts = read_models(path)
        written = RunFolder(self.folder).read_manifest().extra.get("models")
        if isinstance(written, dict) and written.get(name, digest := digest_parts(parts)) != digest:
            raise DataError(f"{path}: the model is damaged: it is not what the run wrote; run it again")
        return parts

    def _read(self, name: str, reader: Callable[[Path, pa.Schema, str], T]) -> T:
        folder = RunFolder(self.folder)
        path, manifest = folder.table_path(name), folder.read_manifest()
        # Spending is never read from a partial account.
        flushed = name not in ACCOUNTS and folder.stream_path(name).exists()
        if not (path.exists() or flushed or (name in ALWAYS and manifest.status in UNFINISHED)):
            advice = _HOW_TO_RECORD.get(name, "run it again")
            if manifest.status in UNFINISHED:
                advice = f"it is {manifest.status}: such a table is written at the end"
            raise DataError(f"{path}: this run recorded no table of {name.replace('_', ' ')}; {advice}")
        return reader(path, (SCHEMAS | UNDIGESTED)[name], manifest.tables.get(name, ""))


class Run(RunFiles):
    """A finished (or interrupted) run in its folder.

    `given` are objects that the run got from Python, `model` or `data`; its model is usable only with them.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """The scenario, and whether it was simulated or live: the basis of comparisons."""
        return {**self.scenario, "run": "live" if self.is_live else "simulated"}

    @property
    def is_live(self) -> bool:
        """Whether real processes ran it (`simfl live`), in wall time."""
        return "live" in self.manifest.extra

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors for `load_state_dict` of a PyTorch module, by name."""
        import simfl

        return simfl.to_torch(self.model)

    def predict(self, x: ArrayLike, *, scores: bool = False) -> NDArray[Any]:
        """Return the model's predictions for examples; see `simfl.predict`."""
        import simfl

        return simfl.predict(self, x, scores=scores)

    def evaluate(
        self,
        data: str | Path | tuple[ArrayLike, ArrayLike] = "test",
        *,
        metrics: Sequence[str] = (),
        label: str | None = None,
    ) -> dict[str, float]:
        """Return metrics on the test set or on other data; see `simfl.evaluate`."""
        import simfl

        return simfl.evaluate(self, data, metrics=metrics, label=label)

    def dp_event(self, client: int) -> Any:
        """Return what was released of a client, a `DpEvent`; see `simfl.dp_event`."""
        import simfl

        return simfl.dp_event(self, client)

    def play(self, other: Run | str | Path | None = None, *, height: int = 900) -> Any:
        """Return a page that plays this run, beside another one if given.

        A notebook displays it in a frame of `height` pixels; its `save(PATH)` writes it. See `simfl.play`.
        """
        import simfl

        return simfl.play([self] if other is None else [self, other], None, height=height)

    @property
    def seeds(self) -> Seed:
        """The run's seed, or that of its world and that of its learning."""
        return seed_of(self.manifest.seed, self.manifest.extra.get("learning_seed"))

    @property
    def status(self) -> str:
        """One of done, diverged, interrupted, failed, killed, running."""
        return self.manifest.status

    @property
    def name(self) -> str:
        """The scenario's name."""
        return str(self.scenario.get("name", self.folder.parent.name))

    @property
    def algorithm(self) -> str:
        """The kind of the algorithm, such as adpsgd; "" without one."""
        algorithm = self.scenario.get("algorithm")
        return str(algorithm.get("kind", "")) if isinstance(algorithm, dict) else ""

    @property
    def title(self) -> str:
        """The name that the algorithm's class has for legends and tables; "" without."""
        return str(self.manifest.extra.get("title", ""))

    @property
    def privacy(self) -> dict[str, Any] | None:
        """The scenario's privacy section, or None."""
        privacy = self.scenario.get("privacy")
        return privacy if isinstance(privacy, dict) else None

    @property
    def noise(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest noise of a client as used, by field of the privacy section."""
        privacy, written = self.privacy or {}, self.manifest.extra.get("noise")
        fields = {name: privacy.get(name) for name in NOISE}
        fields |= written if isinstance(written, dict) else {}  # the noise that a budget implies
        each = {name: np.asarray(value, dtype=float) for name, value in fields.items() if value is not None}
        return {name: (float(values.min()), float(values.max())) for name, values in each.items()}

    def summary(self) -> pd.DataFrame:
        """Return one row: the setup, how the run ended, and the final measures."""
        import pandas as pd

        return pd.DataFrame([self.outcome()])

    def outcome(self) -> dict[str, Any]:
        """Return the values of `summary` by column."""
        manifest = self.manifest
        last: Mapping[str, Any] = self.evaluations.row(-1) if len(self.evaluations) else {"bytes_sent": 0}
        epsilon, delta = self.epsilon_and_delta()
        least, most = self.noise.get("noise_multiplier", (math.nan, math.nan))
        return {
            "name": self.name,
            "run": self.folder.name,
            "algorithm": self.algorithm,
            "status": manifest.status,
            "seed": manifest.seed,
            "time_s": manifest.time_s,
            "updates": manifest.updates,
            **{name: last.get(name, math.nan) for name in ("epochs", "test_accuracy", "test_loss")},
            "bytes_sent": int(last["bytes_sent"]),
            "epsilon": epsilon,
            "delta": delta,
            "noise_multiplier_least": least,
            "noise_multiplier_most": most,
            "wall_s": manifest.wall_s,
            "updates_per_s": manifest.updates_per_s,
        }

    def epsilon_and_delta(self) -> tuple[float, float]:
        """Return the largest epsilon over clients and its delta, or (NaN, NaN)."""
        clients = self._read("clients", Columns)
        epsilons = clients["epsilon"]
        if np.isnan(epsilons).all():
            return math.nan, math.nan
        worst = int(np.nanargmax(epsilons))
        return float(epsilons[worst]), float(clients["delta"][worst])

    def __repr__(self) -> str:
        manifest = self.manifest
        ending = f"{manifest.updates:,} updates in {manifest.time_s:.6g} s of {clock_of([self])}"
        if len(self.metrics):
            accuracy = self.metrics["test_accuracy"].iloc[-1]
            loss = self.metrics["test_loss"].iloc[-1]
            ending += f", test loss {loss:.4g}" if math.isnan(accuracy) else f", test accuracy {accuracy:.2%}"
        return f"<Run {self.name} ({self.algorithm}): {manifest.status}, {ending}; {self.folder}>"

    def _repr_html_(self) -> str:
        import simfl

        table = str(self.summary().T.to_html(header=False, float_format="{:.6g}".format))
        if len(self.metrics) < 2 or "runs" not in plugins.names("figures"):
            return table
        picture = base64.b64encode(simfl.thumbnail(self)).decode()
        return f'{table}<img alt="{html.escape(repr(self))}" src="data:image/png;base64,{picture}">'


def read(folder: str | Path, **given: Any) -> Run:
    """Open the folder of a run; DataError if it is missing, or is not a run's.

    `given` are objects that the run got from Python, such as `model=net`; its model is usable only with them.
    """
    path = to_path(folder, "the folder of a run")
    if not path.is_dir():
        raise DataError(f"{path}: expected the folder of a run, found {'a file' if path.exists() else 'nothing there'}")
    if not RunFolder(path).manifest_path.exists():
        inside = sorted(entry.parent.name for entry in path.glob("*/manifest.json"))
        shown = inside[:2] + ["..."] * (len(inside) > 3) + inside[2:][-1:]
        advice = f"; name a run in it: {', '.join(shown)}" if inside else ""
        raise DataError(f"{path}: expected the folder of a run, found no manifest.json in it{advice}")
    run = Run(path, given)
    _ = run.manifest, run.scenario  # report a damaged folder now rather than at the first plot
    return run


def describe_noise(run: Run) -> str:
    """Return a run's noise in the papers' letters, "" for a run without noise."""
    privacy = run.privacy
    if privacy is None:
        return ""
    noise = run.noise
    if "noise_std" in noise:
        return f"noise {show_range(*noise['noise_std'])}, unclipped"
    letters = {"noise_multiplier": ("z", ""), "epsilon_per_release": ("ε", " per release")}
    parts = [f"{letters[name][0]} = {show_range(*ends)}{letters[name][1]}" for name, ends in noise.items()]
    norm = privacy.get("clipping_norm")
    if norm is not None:
        parts.append("adaptive C" if isinstance(norm, Mapping) else f"C = {show_number(norm)}")
    return ", ".join(parts)


def clock_of(runs: Iterable[Run]) -> str:
    """Return the kind of the runs' times in words."""
    kinds = {run.is_live for run in runs}
    return "virtual and wall time" if len(kinds) > 1 else "wall time" if kinds == {True} else "virtual time"
