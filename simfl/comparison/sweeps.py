"""The folder of a sweep: sweep.json, summary.csv and a folder for every run.

sweep.json lists the planned runs with their names, differences and states. It is rewritten as runs end; each run's key
is in its own manifest too, so sweep.json cannot claim a missing run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import html
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.comparison.differences import ABSENT, describe_differences
from simfl.errors import DataError
from simfl.records.folder import replace_text
from simfl.records.results import FINISHED, UNFINISHED, Run, read
from simfl.records.seeds import Seed, seed_of
from simfl.records.writer import regular

if TYPE_CHECKING:
    import pandas as pd

_OF_THE_HOST = ["wall_s", "updates_per_s"]
NONE = "null"
"""`describe_differences` writes a missing section like this."""

_KINDS = ("kind", "set", "mechanism")
"""Keys that name the kind of a section."""

SIDE_BY_SIDE = 8
"""Most runs with a column each in a notebook; more runs have a row each."""

_LONGEST = 60
"""Most characters of a label."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep, as in sweep.json.

    `folder` is its name in the sweep's folder; `label` distinguishes it from runs other than its seeds; `settings` are
    the labels of its values along every axis, `changes` the changed key paths with their values. `key` identifies the
    run. `status` is missing, or that of its manifest, with its reason and host seconds. `learning_seed` is None if
    learning has the run's one seed.
    """

    folder: str
    label: str
    settings: dict[str, str]
    changes: dict[str, Any]
    seed: int
    key: str
    status: str = "missing"
    reason: str = ""
    wall_s: float = 0.0
    learning_seed: int | None = None

    @property
    def seeds(self) -> Seed:
        """The run's seed, or its two seeds."""
        return seed_of(self.seed, self.learning_seed)

    @property
    def finished(self) -> bool:
        """Whether the run needs no more work."""
        return self.status in FINISHED


@dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep, finished or not.

    `description` is the study's question, `version` simfl's, `study` the study with all defaults filled in. `axes` are
    the labels along every axis in order, `runs` all planned runs; `baseline` is a label to compare with.
    """

    folder: Path
    name: str
    description: str
    version: str
    study: dict[str, Any]
    axes: dict[str, list[str]]
    runs: tuple[SweepRun, ...]
    baseline: str | None = None

    def with_runs(self, runs: Iterable[SweepRun]) -> Sweep:
        """Return the same sweep with new states of its runs."""
        return dataclasses.replace(self, runs=tuple(runs))

    def write(self) -> None:
        """Write or replace sweep.json."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.name != "folder"}
        values["runs"] = [dataclasses.asdict(run) for run in self.runs]
        replace_text(self.folder / "sweep.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def open(self, run: SweepRun) -> Run:
        """Return one run with its tables."""
        return read(self.folder / run.folder)

    @property
    def finished(self) -> list[SweepRun]:
        """The runs that are done or diverged."""
        return [run for run in self.runs if run.finished]

    @property
    def failed(self) -> list[SweepRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.status == "failed"]

    def table(self) -> pd.DataFrame:
        """Return one row per finished run: label, settings, seed, summary.

        Equal plans give equal tables, independent of where and in which order the runs were computed.
        """
        return self._rows(lambda run: run.summary().drop(columns=["name", "seed", *_OF_THE_HOST]))

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation of every finished run, without host times."""
        return self._rows(lambda run: run.metrics.drop(columns=_OF_THE_HOST, errors="ignore"))

    def _rows(self, rows_of: Callable[[Run], pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        tables = []
        for run in self.finished:
            rows = rows_of(self.open(run))
            rows = rows.rename(columns={name: f"{name}_kind" for name in run.settings})  # a setting may have its name
            values = {axis: _value_at(run.changes, axis) for axis in run.settings}
            settings = {
                axis: value if isinstance(value, int | float) else run.settings[axis] for axis, value in values.items()
            }
            learning = {} if run.learning_seed is None else {"learning_seed": run.learning_seed}
            begin = {"label": run.label, **settings, "seed": run.seed, **learning}
            first = pd.DataFrame([begin] * len(rows), index=rows.index)
            tables.append(pd.concat([first, rows], axis=1))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"label": []})

    def _repr_html_(self) -> str:
        state = html.escape(f"{self.name}: {len(self.finished)} of {len(self.runs)} runs in {self.folder}")
        table = self.table()
        few = len(table) <= SIDE_BY_SIDE
        options: dict[str, Any] = {"index": few, "float_format": "{:.6g}".format, "max_rows": None if few else 40}
        shown = (table.set_index("label").T if few else table).to_html(**options)
        return f"<p>{state}</p>{shown}"

    def __repr__(self) -> str:
        return f"<Sweep {self.name}: {len(self.finished)} of {len(self.runs)} runs; {self.folder}>"

    def write_table(self) -> Path:
        """Write the table as summary.csv next to sweep.json and return its path."""
        path = self.folder / "summary.csv"
        replace_text(path, self.table().to_csv(index=False))
        return path


def read_sweep(folder: str | Path) -> Sweep:
    """Open the folder of a sweep; DataError if sweep.json is missing or damaged."""
    path = Path(folder) / "sweep.json"
    try:
        values = json.loads(regular(path).read_text(encoding="utf-8"))
        values["runs"] = tuple(SweepRun(**run) for run in values["runs"])
        return _checked(Sweep(folder=Path(folder), **values))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())[:200]
        raise DataError(f"{path}: expected the plan of a sweep: {problem}") from error


def _checked(sweep: Sweep) -> Sweep:
    compare = sweep.study["compare"]
    labels = [label for axis in sweep.axes.values() for label in [*axis]]
    texts = [sweep.name, sweep.description, sweep.version, compare["y"]]
    texts += [*([] if sweep.baseline is None else [sweep.baseline]), *compare["x"], *sweep.axes, *labels]
    for run in sweep.runs:
        texts += [run.folder, run.label, run.key, run.status, run.reason, *run.settings, *run.settings.values()]
        if not isinstance(run.seed, int) or not isinstance(run.learning_seed, int | None):
            raise ValueError(f"runs: found {str(run)[:60]!r}")
        if not 0 <= run.wall_s < math.inf or not isinstance(run.changes, dict):
            raise ValueError(f"runs: found {str(run)[:60]!r}")
        if run.folder in {"", ".", ".."} or "/" in run.folder or "\\" in run.folder:
            raise ValueError(f"runs: folder: expected a plain name, found {run.folder[:60]!r}")
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    target = compare["target"]
    if wrong is not None or not (target is None or 0 < target <= 1):
        raise ValueError(f"found {str(target if wrong is None else wrong)[:60]!r}")
    return sweep


def run_key(digest: str, version: str) -> str:
    """Return the key of a run of a resolved scenario under a version of simfl."""
    return hashlib.sha256(f"{digest}:{version}".encode()).hexdigest()


def is_sweep(folder: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    return (folder / "sweep.json").exists()


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds.

    `settings` distinguish them from other groups, by axis; `runs` are by seed; `values` are the plain values of axes
    that are key paths.
    """

    label: str
    settings: dict[str, str]
    runs: dict[Seed, Run]
    values: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def good(self) -> dict[Seed, Run]:
        """The runs that neither diverged nor failed."""
        return {seed: run for seed, run in self.runs.items() if run.status not in {"diverged", "failed"}}

    @property
    def algorithm(self) -> str:
        """The kind of the algorithm; "" without one."""
        return next(iter(self.runs.values())).algorithm

    @property
    def title(self) -> str:
        """The name that the algorithm's class has for legends and tables; "" without."""
        return next(iter(self.runs.values())).title

    @property
    def private(self) -> bool:
        """Whether the runs have a privacy section."""
        return next(iter(self.runs.values())).privacy is not None


def open_groups(
    paths: Sequence[str | Path], tell: Callable[[str], None] = warnings.warn
) -> tuple[list[Group], str | None]:
    """Open runs and sweeps, and group the runs by their differences other than seeds.

    `tell` gets a line for every damaged run, which is left out, and for every killed or running one. The groups are in
    order of appearance; the baseline is that of a single sweep, if it is among the finished runs. DataError if a folder
    is missing, or contains no finished run.
    """
    folders = [Path(path) for path in paths]
    if len(folders) == 1 and is_sweep(folders[0]):
        sweep = read_sweep(folders[0])
        by_label = _groups_of(sweep, tell)
        groups, baseline = list(by_label.values()), sweep.baseline
        if baseline in by_label:
            return groups, by_label[baseline].label
        return groups, baseline if baseline in labels_of(groups) else None
    return group_runs(open_runs(folders, tell)), None


def open_runs(paths: Sequence[str | Path], tell: Callable[[str], None] = warnings.warn) -> list[Run]:
    """Open runs, and the finished runs of sweeps; DataError if none is readable."""
    folders: list[Path] = []
    for path in map(Path, paths):
        if is_sweep(path):
            folders += [path / run.folder for run in read_sweep(path).finished]
        else:
            folders.append(path)
    return list(_readable(folders, tell).values())


def _readable(folders: Sequence[Path], tell: Callable[[str], None]) -> dict[Path, Run]:
    runs: dict[Path, Run] = {}
    problems = []
    for folder in folders:
        try:
            run = read(folder)
            count, _ = len(run.evaluations), run.clients
        except DataError as error:
            problems.append(str(error))
            continue
        if not count:
            problems.append(f"{folder}: {run.status} before the first evaluation: there is nothing to compare")
            continue
        if run.status in UNFINISHED:
            tell(f"{folder}: {run.status}: {run.manifest.reason or 'under way'}; its last evaluation counts as its end")
        runs[folder] = run
    if problems and not runs:
        raise DataError("\n".join(problems))
    for problem in problems:
        tell(f"{problem} (left out)")
    return runs


def labels_of(groups: Iterable[Group]) -> list[str]:
    """Return possible names of a baseline: labels of groups, single settings."""
    listed = list(groups)
    values = [value for group in listed for value in group.settings.values()]
    return list(dict.fromkeys([*(group.label for group in listed), *values]))


def _groups_of(sweep: Sweep, tell: Callable[[str], None]) -> dict[str, Group]:
    """Return the groups by their labels in the plan, which have no titles."""
    groups: dict[str, Group] = {}
    readable = _readable([sweep.folder / run.folder for run in sweep.finished], tell)
    for run in sweep.finished:
        if (opened := readable.get(sweep.folder / run.folder)) is None:
            continue
        values = {axis: _value_at(run.changes, axis) for axis in run.settings}
        label = ", ".join(opened.title or word if word == opened.algorithm else word for word in run.label.split(", "))
        group = groups.setdefault(run.label, Group(label, run.settings, {}, values))
        group.runs[run.seeds] = opened
    if not groups:
        raise DataError(
            f"{sweep.folder}: expected finished runs, found none of {len(sweep.runs)}; simfl sweep it first"
        )
    return dict(zip(groups, _distinguished(list(groups.values())), strict=True))


def _value_at(changes: Mapping[str, Any], axis: str) -> Any:
    """Return the value that was set along an axis, which is the end of its key path."""
    return next((value for key, value in changes.items() if key == axis or key.endswith("." + axis)), None)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by differences between their resolved scenarios."""
    if not runs:
        raise DataError("compare: expected at least one finished run, found none")
    settings = describe_differences([run.settings for run in runs])
    groups: dict[tuple[tuple[str, str], ...], Group] = {}
    for run, run_settings in zip(runs, settings, strict=True):
        keys = sorted(run_settings, key=lambda key: key != "algorithm.kind")
        words = [word for key in keys if (word := _word(key, run_settings, run, runs, settings))]
        label = _joined(words) or run.title or run.algorithm
        group = groups.setdefault(tuple(run_settings.items()), Group(label, run_settings, {}))
        group.runs.setdefault(run.seeds, run)
    return _distinguished(list(groups.values()))


def _word(
    key: str, run_settings: Mapping[str, str], run: Run, runs: Sequence[Run], settings: Sequence[Mapping[str, str]]
) -> str:
    """Return a setting's part of a label, "" if it adds nothing to the others.

    A setting that all runs of this algorithm share adds nothing to the algorithm's name. If some runs lack a section,
    such as `privacy: null`, those that have it are distinguished by the differences within it.
    """
    value, last = run_settings[key], key.rsplit(".", 1)[-1]
    if key == "algorithm.kind":
        return run.title or value
    # Settings that all runs of one kind share add nothing to that kind: a softmax regression's, which a network lacks.
    kinds = [f"{root}.{word}" for root in _roots(key) for word in _KINDS if f"{root}.{word}" in run_settings]
    like = [
        other
        for other, its in zip(settings, runs, strict=True)
        if its.algorithm == run.algorithm and all(other[kind] == run_settings[kind] for kind in kinds if kind != key)
    ]
    values = {other[key] for other in like}
    below = [inner for inner in run_settings if inner.startswith(f"{key}.")]
    if below and values == {ABSENT, NONE}:
        having = [other for other in like if other[key] == ABSENT]
        if value == NONE:
            return f"no {last}"
        return "" if any(len({other[inner] for other in having}) > 1 for inner in below) else f"with {last}"
    if any({other[root] for other in like} == {ABSENT, NONE} for root in _roots(key) if root in run_settings):
        values -= {ABSENT}  # a run without the key lacks the whole section, and its label says so
        if value == ABSENT:
            return ""
    if len(values) <= 1:
        return ""
    if last not in _KINDS:
        return f"{last}={value}"
    return value if key.count(".") <= 1 else f"{_roots(key)[-1].rsplit('.', 1)[-1]}={value}"


def _joined(words: Sequence[str]) -> str:
    """Return a label with as many of the words as are readable in a legend."""
    label, left = "", list(words)
    while left and len(label) + 2 + len(left[0]) <= _LONGEST:
        label += (", " if label else "") + left.pop(0)
    more = f"{len(left)} more" if left else ""
    return label or words[0][: _LONGEST - 1] + "…" if words and not label else ", ".join(filter(None, (label, more)))


def _roots(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _distinguished(groups: list[Group]) -> list[Group]:
    labels = [group.label for group in groups]
    return [
        group if labels.count(group.label) == 1 else dataclasses.replace(group, label=f"{group.label} ({i})")
        for i, group in enumerate(groups, start=1)
    ]
