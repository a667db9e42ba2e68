"""The folder of a sweep, `<root>/<study>/`: sweep.json, summary.csv, runs.

sweep.json says what was planned, how each run is called, what differs, and how far it is. It is written anew as runs
end, and what a run is known by stands in its own manifest too: no sweep.json can claim a run that is not there.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simfl.errors import DataError
from simfl.records.differences import ABSENT, describe_differences
from simfl.records.folder import replace_text
from simfl.records.results import UNFINISHED, Run, read
from simfl.records.writer import regular

if TYPE_CHECKING:
    import pandas as pd

FINISHED = ("done", "diverged")
"""Statuses that need no second attempt: a run that diverges would diverge again."""

_OF_THE_HOST = ["wall_s", "updates_per_s"]
NONE = "null"
"""A section that a scenario does without, as `describe_differences` writes it."""

_KINDS = ("kind", "set", "mechanism")
"""The keys by which a section says which of several it is."""

SIDE_BY_SIDE = 8
"""Runs that have a column each in a notebook; more have a row each."""

_LONGEST = 60
"""Characters of a label."""


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep, as sweep.json has it.

    Args:
        folder: its name below the folder of the sweep.
        label: what tells it from the others, seeds apart.
        settings: the label of its value along every axis.
        changes: the key paths that were changed, with their values.
        seed: of its scenario.
        key: what it is known by.
        status: missing, or that of its manifest.
        reason: why it ended so.
        wall_s: host seconds that it took.
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

    @property
    def finished(self) -> bool:
        """Whether the run needs no more work."""
        return self.status in FINISHED


@dataclass(frozen=True, repr=False)
class Sweep:
    """A sweep, finished or not.

    Args:
        folder: where it is.
        name: of the study.
        description: its question.
        version: of simfl.
        study: as it was written, every default filled in.
        axes: the labels along every axis, in their order.
        runs: all that were planned.
        baseline: the label that others are compared with.
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
        """Return the same sweep with other states of its runs."""
        return dataclasses.replace(self, runs=tuple(runs))

    def write(self) -> None:
        """Write sweep.json, or replace it."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self) if entry.name != "folder"}
        values["runs"] = [dataclasses.asdict(run) for run in self.runs]
        replace_text(self.folder / "sweep.json", json.dumps(values, indent=1, ensure_ascii=False) + "\n")

    def open(self, run: SweepRun) -> Run:
        """Return the tables of one run."""
        return read(self.folder / run.folder)

    @property
    def finished(self) -> list[SweepRun]:
        """The runs that are done, or diverged."""
        return [run for run in self.runs if run.finished]

    @property
    def failed(self) -> list[SweepRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.status == "failed"]

    def table(self) -> pd.DataFrame:
        """Return one row per finished run: label, differences, summary.

        Equal plans give equal tables, wherever and in whatever order the runs were computed.
        """
        return self._rows(lambda run: run.summary().drop(columns=["name", "seed", *_OF_THE_HOST]))

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation of finished runs: label, differences, seed, metrics."""
        return self._rows(lambda run: run.metrics.drop(columns=_OF_THE_HOST, errors="ignore"))

    def _rows(self, rows_of: Callable[[Run], pd.DataFrame]) -> pd.DataFrame:
        """Return rows of every finished run, with columns that identify the run."""
        import pandas as pd

        tables = []
        for run in self.finished:
            own = rows_of(self.open(run))
            own = own.rename(columns={name: f"{name}_kind" for name in run.settings})  # a setting may have its name
            values = {axis: _value_at(run.changes, axis) for axis in run.settings}
            told = {
                axis: value if isinstance(value, int | float) else run.settings[axis] for axis, value in values.items()
            }
            first = pd.DataFrame([{"label": run.label, **told, "seed": run.seed}] * len(own), index=own.index)
            tables.append(pd.concat([first, own], axis=1))
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"label": []})

    def _repr_html_(self) -> str:
        """Show in notebooks the progress, and the table of finished runs."""
        state = html.escape(f"{self.name}: {len(self.finished)} of {len(self.runs)} runs in {self.folder}")
        table = self.table()
        few = len(table) <= SIDE_BY_SIDE  # then a column for each run is easier to read
        shown = (table.set_index("label").T if few else table).to_html(
            index=few, float_format="{:.6g}".format, max_rows=None if few else 40
        )
        return f"<p>{state}</p>{shown}"

    def __repr__(self) -> str:
        return f"<Sweep {self.name}: {len(self.finished)} of {len(self.runs)} runs; {self.folder}>"

    def write_table(self) -> Path:
        """Write the table as summary.csv beside sweep.json and return its path."""
        path = self.folder / "summary.csv"
        replace_text(path, self.table().to_csv(index=False))
        return path


def read_sweep(folder: str | Path) -> Sweep:
    """Open the folder of a sweep.

    Raises:
        DataError: there is no sweep.json, or it is damaged.
    """
    path = Path(folder) / "sweep.json"
    try:
        values = json.loads(regular(path).read_text(encoding="utf-8"))
        values["runs"] = tuple(SweepRun(**run) for run in values["runs"])
        return _checked(Sweep(folder=Path(folder), **values))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())[:200]
        raise DataError(f"{path}: expected the plan of a sweep: {problem}") from error


def _checked(sweep: Sweep) -> Sweep:
    """Reject a plan that no sweep writes, so that readers can rely on types."""
    wanted = sweep.study["compare"]
    own = {"name": sweep.name, "description": sweep.description, "version": sweep.version, "y": wanted["y"]}
    own |= {"baseline": "" if sweep.baseline is None else sweep.baseline}
    labels = [label for axis in sweep.axes.values() for label in [*axis]]
    texts = [*own.values(), *wanted["x"], *sweep.axes, *labels]
    for run in sweep.runs:
        texts += [run.folder, run.label, run.key, run.status, run.reason, *run.settings, *run.settings.values()]
        if not isinstance(run.seed, int) or not 0 <= run.wall_s < math.inf or not isinstance(run.changes, dict):
            raise ValueError(f"runs: found {str(run)[:60]!r}")
        if run.folder in {"", ".", ".."} or "/" in run.folder or "\\" in run.folder:
            raise ValueError(f"runs: folder: expected a plain name, found {run.folder[:60]!r}")
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    target = wanted["target"]
    if wrong is not None or not (target is None or 0 < target <= 1):
        raise ValueError(f"found {str(target if wrong is None else wrong)[:60]!r}")
    return sweep


def is_sweep(folder: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (folder / "sweep.json").exists()


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone.

    Args:
        label: names them in tables and figures.
        settings: what tells them from the other groups, by axis.
        runs: by seed.
        values: the plain value at each axis, where the axis is a key path.
    """

    label: str
    settings: dict[str, str]
    runs: dict[int, Run]
    values: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def good(self) -> dict[int, Run]:
        """The runs that neither diverged nor failed."""
        return {seed: run for seed, run in self.runs.items() if run.status not in {"diverged", "failed"}}

    @property
    def algorithm(self) -> str:
        """The kind of the algorithm."""
        return next(iter(self.runs.values())).algorithm

    @property
    def private(self) -> bool:
        """Whether the runs add noise."""
        return next(iter(self.runs.values())).privacy is not None


def open_groups(
    paths: Sequence[str | Path], tell: Callable[[str], None] = warnings.warn
) -> tuple[list[Group], str | None]:
    """Open runs and sweeps, and group the runs that differ only in seeds.

    Args:
        paths: folders of runs, or of sweeps.
        tell: told in a line of every run that is damaged and left out, or that ends where its process was killed.

    Returns:
        The groups in the order in which they were met, and the baseline of the sweep if there is one sweep alone and
        its baseline is among what has finished.

    Raises:
        DataError: no such folder, or nothing in it that is finished.
    """
    folders = [Path(path) for path in paths]
    if len(folders) == 1 and is_sweep(folders[0]):
        sweep = read_sweep(folders[0])
        groups = _groups_of(sweep, tell)
        return groups, sweep.baseline if sweep.baseline in labels_of(groups) else None
    return group_runs(open_runs(folders, tell)), None


def open_runs(paths: Sequence[str | Path], tell: Callable[[str], None] = warnings.warn) -> list[Run]:
    """Open runs, and the finished runs of sweeps; see `open_groups`.

    Raises:
        DataError: none of them can be read.
    """
    folders: list[Path] = []
    for path in map(Path, paths):
        if is_sweep(path):
            folders += [path / run.folder for run in read_sweep(path).finished]
        else:
            folders.append(path)
    return list(_readable(folders, tell).values())


def _readable(folders: Sequence[Path], tell: Callable[[str], None]) -> dict[Path, Run]:
    """Return the readable runs with at least one evaluation, by folder."""
    readable: dict[Path, Run] = {}
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
        readable[folder] = run
    if problems and not readable:
        raise DataError("\n".join(problems))
    for problem in problems:
        tell(f"{problem} (left out)")
    return readable


def labels_of(groups: Iterable[Group]) -> list[str]:
    """Return the possible baselines: labels of groups and of settings."""
    own = list(groups)
    return list(
        dict.fromkeys([*(group.label for group in own), *(v for group in own for v in group.settings.values())])
    )


def _groups_of(sweep: Sweep, tell: Callable[[str], None]) -> list[Group]:
    groups: dict[str, Group] = {}
    readable = _readable([sweep.folder / run.folder for run in sweep.finished], tell)
    for run in sweep.finished:
        if (opened := readable.get(sweep.folder / run.folder)) is None:
            continue
        values = {axis: _value_at(run.changes, axis) for axis in run.settings}
        group = groups.setdefault(run.label, Group(run.label, run.settings, {}, values))
        group.runs[run.seed] = opened
    if not groups:
        raise DataError(
            f"{sweep.folder}: expected finished runs, found none of {len(sweep.runs)}; simfl sweep it first"
        )
    return list(groups.values())


def _value_at(changes: Mapping[str, Any], axis: str) -> Any:
    """Return the value set along an axis, which is the end of a key path."""
    return next((value for key, value in changes.items() if key == axis or key.endswith("." + axis)), None)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by the differences of resolved scenarios, without seeds."""
    if not runs:
        raise DataError("compare: expected at least one finished run, found none")
    settings = describe_differences([run.settings for run in runs])
    groups: dict[tuple[tuple[str, str], ...], Group] = {}
    for run, own in zip(runs, settings, strict=True):
        words = [
            word
            for key in sorted(own, key=lambda key: key != "algorithm.kind")
            if (word := _word(key, own, run, runs, settings))
        ]
        label = _joined(words) or run.algorithm
        group = groups.setdefault(tuple(own.items()), Group(label, own, {}))
        group.runs.setdefault(run.manifest.seed, run)
    return _told_apart(list(groups.values()))


def _word(
    key: str, own: Mapping[str, str], run: Run, runs: Sequence[Run], settings: Sequence[Mapping[str, str]]
) -> str:
    """Return a setting's word in a label, "" if it adds no information.

    What all runs of this algorithm share tells nothing beside the algorithm's name. Of a section that some runs do
    without, such as `privacy: null`, those that have it are told by what differs among them.
    """
    value, last = own[key], key.rsplit(".", 1)[-1]
    if key == "algorithm.kind":
        return value
    # What all of one kind share tells nothing beside that kind: what a softmax regression has, and a network has not.
    chosen = [f"{root}.{word}" for root in _roots(key) for word in _KINDS if f"{root}.{word}" in own]
    like = [
        other
        for other, its in zip(settings, runs, strict=True)
        if its.algorithm == run.algorithm and all(other[way] == own[way] for way in chosen if way != key)
    ]
    below = [inner for inner in own if inner.startswith(f"{key}.")]
    if below and {other[key] for other in like} == {ABSENT, NONE}:
        having = [other for other in like if other[key] == ABSENT]
        told = any(len({other[inner] for other in having}) > 1 for inner in below)
        return f"no {last}" if value == NONE else "" if told else f"with {last}"
    there = {other[key] for other in like}
    if any({other[root] for other in like} == {ABSENT, NONE} for root in _roots(key) if root in own):
        there -= {ABSENT}  # runs without it lack the whole section, which is shown
        if value == ABSENT:
            return ""
    if last in _KINDS:
        section, nested = _roots(key)[-1], key.count(".") > 1
        last, value = ("", value) if not nested else (section.rsplit(".", 1)[-1] + "=", value)
        return f"{last}{value}" if len(there) > 1 else ""
    return f"{last}={value}" if len(there) > 1 else ""


def _joined(words: Sequence[str]) -> str:
    """Return a label of the words, shortened for a legend."""
    label, left = "", list(words)
    while left and len(label) + 2 + len(left[0]) <= _LONGEST:
        label += (", " if label else "") + left.pop(0)
    more = f"{len(left)} more" if left else ""
    return label or words[0][: _LONGEST - 1] + "…" if words and not label else ", ".join(filter(None, (label, more)))


def _roots(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _told_apart(groups: list[Group]) -> list[Group]:
    labels = [group.label for group in groups]
    return [
        group if labels.count(group.label) == 1 else dataclasses.replace(group, label=f"{group.label} ({i})")
        for i, group in enumerate(groups, start=1)
    ]
