"""Studies: one base scenario, changes to it, and seeds; planned as scenarios.

A study is list x grid x seeds. Each case of `list` is a set of changes; each entry of `grid` is a key path with the
values to try, which may be whole blocks. Changes are applied in the order base, `set`, case, grid, seed, so a grid may
change a block of a case. Everything is checked here, before anything runs. Each problem is reported at the key of the
study that caused it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from simfl import shipped
from simfl.comparison.sweeps import run_key
from simfl.errors import ScenarioError, to_path
from simfl.scenario.errors import first_lines, lines, problems_of
from simfl.scenario.fields import DISCRIMINATORS, Config, Count, Share, Text, Within, option
from simfl.scenario.loading import file_text
from simfl.scenario.overrides import SOURCE, Override, apply_override, parse_override, path_of
from simfl.scenario.problems import InvalidValueError, Path, Problem, invalid, one_of, show, spell, suggestion
from simfl.scenario.scenario import Scenario, checked_name, name_from
from simfl.scenario.syntax import Document, read
from simfl.studies.tune import Tune
from simfl.version import __version__

MAX_RUNS = 100_000
CASE = "case"
"""The axis along which the entries of `list` differ."""

_SEEDS = {"seed", "learning_seed"}
_RANGE = re.compile(r"(\d{1,20})\.\.(\d{1,20})")
_ANY_SEED = Within(at_least=0, below=2**64)

X_WORDS = ("time", "updates", "epochs", "rounds", "bytes", "epsilon", "energy", "money", "carbon")


class CrossedSeeds(Config):
    """Seeds of the world and of learning; all pairs are run."""

    world: int | tuple[int, ...] = Field(description="seeds of the world")
    learning: int | tuple[int, ...] = Field(description="seeds of learning")


def _seeds(value: object) -> tuple[int, ...] | int | CrossedSeeds:
    match value:
        case CrossedSeeds():
            return value
        case Mapping() if set(value) == {"world", "learning"}:
            return CrossedSeeds(world=_listed(value["world"], "world"), learning=_listed(value["learning"], "learning"))
        case Mapping():
            advice = "write {world: 5, learning: 5}; the seeds of one of them alone are 1, or a list of one"
            raise invalid("world and learning", show(value), advice)
    return _listed(value)


def _listed(value: object, *at: str) -> tuple[int, ...] | int:
    """Return a number of seeds, or the seeds of a list, in which `0..4` is a range."""
    match value:
        case list() | tuple():
            seeds = [number for seed in value for number in _range(seed, at)]
            if not seeds or len(set(seeds)) < len(seeds):
                raise invalid("different seeds", show(value), "write a number of seeds, or list each once", at)
            return tuple(seeds)
    return _number(value, at, Within(at_least=1, at_most=MAX_RUNS))


def _range(seed: object, at: Path) -> range:
    """Return the seeds of an item of a list."""
    match seed:
        case str() if ends := _RANGE.fullmatch(seed):
            first, last = (_number(int(end), at) for end in ends.groups())
        case _:
            first = last = _number(seed, at)
    if not first <= last < first + MAX_RUNS:
        raise invalid(f"a range of at most {MAX_RUNS:,} seeds", show(seed), "write the smaller one first", at)
    return range(first, last + 1)


def _number(value: object, at: Path, within: Within = _ANY_SEED) -> int:
    try:
        return within.integer(value)
    except InvalidValueError as error:
        raise InvalidValueError(*(problem.below(at) for problem in error.problems)) from None


def _changes(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid("a mapping of key paths", show(value), "write key.path: value")
    for key in value:
        path_of(str(key))
    return dict(value)


def _no_seed(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Reject a seed among the changes: results are averaged over seeds."""
    for name in _SEEDS & set(changes):
        advice = "write seeds: [1, 2, 3], or how many, or {world: 5, learning: 5}, at the top of the study"
        raise invalid(f"a key path other than {name}", show(changes[name]), advice, (name,))
    return changes


def _grid(value: object) -> dict[str, Any]:
    for key, values in _no_seed(_changes(value)).items():
        at = tuple(key.split("."))
        match values:
            case Mapping() if values:
                labels = values.keys()
            case list() | tuple() if values:
                continue
            case _:
                advice = "write a list of values, or a mapping from labels to values"
                raise invalid("the values to try", show(values), advice, at)
        for label in labels:
            if not label.strip() or not label.isprintable() or len(label) > 60:
                advice = "it names runs in tables and figures"
                raise invalid("a label of at most 60 characters", show(label), advice, at)
    return dict(value)  # type: ignore[call-overload,no-any-return]


def _base(value: object) -> str | dict[str, Any]:
    match value:
        case Mapping():
            return dict(value)
        case str() if value.strip():
            return value
    raise invalid("a scenario", show(value), "name a file, seen from the study's folder, or write the scenario here")


_OBJECT = WithJsonSchema({"type": "object"})
Changes = Annotated[dict[str, Any], BeforeValidator(_changes), _OBJECT]
CaseChanges = Annotated[dict[str, Any], BeforeValidator(lambda value: dict(_no_seed(_changes(value)))), _OBJECT]
Grid = Annotated[dict[str, Any], BeforeValidator(_grid), _OBJECT]
Base = Annotated[str | dict[str, Any], BeforeValidator(_base), WithJsonSchema({"type": ["string", "object"]})]
_SCHEMA_OF_SEEDS: dict[str, Any] = {"type": ["integer", "array"], "items": {"type": ["integer", "string"]}}
Seeds = Annotated[
    int | tuple[int, ...] | CrossedSeeds,
    BeforeValidator(_seeds),
    WithJsonSchema(
        {
            **_SCHEMA_OF_SEEDS,
            "type": ["integer", "array", "object"],
            "properties": {"world": _SCHEMA_OF_SEEDS, "learning": _SCHEMA_OF_SEEDS},
            "required": ["world", "learning"],
            "additionalProperties": False,
        }
    ),
]


class StudyCase(Config):
    """One set of changes that belong together."""

    label: Text = Field(description="names these runs in tables and figures")
    set: CaseChanges = option({}, "key paths with the values they take")


class Comparison(Config):
    """The defaults of `simfl compare`."""

    target: Share | None = option(None, "the test accuracy to be reached; null: the best that all runs reached")
    x: tuple[str, ...] = option(("time",), "what figures are drawn against: " + one_of(X_WORDS))
    y: Text = option("test_accuracy", "the column of metrics that figures show")


class Study(Config):
    """Runs for one question: a base scenario, changes to it, and seeds."""

    name: Annotated[str, BeforeValidator(checked_name)] = option(
        "study", "names the folder of results; by default the name of the file without its ending"
    )
    description: str = option("", "the question, for the reader")
    base: Base = Field(description="a scenario file, seen from the study's folder, or a scenario written here")
    set: Changes = option({}, "key paths that take another value in every run")
    cases: tuple[StudyCase, ...] = option((), "sets of changes, each of which is run", alias="list")
    grid: Grid = option(
        {}, "key paths with the values to try, as a list or with a label each; all combinations are run"
    )
    seeds: Seeds = option(
        1,
        "how many seeds, from the scenario's own onwards, or a list of them; `{world: ..., learning: ...}`: all pairs "
        "of seeds of the world and of learning",
    )
    tune: Tune | None = option(
        None,
        "values to try for each setting of the grid, and the rule that chooses; the runs of the study are then those "
        "of the best values",
        exclude_if=lambda value: value is None,
    )
    baseline: str | None = option(None, "the label that others are compared with")
    compare: Comparison = option(Comparison(), "what a comparison shows")
    jobs: Count | None = option(None, "runs at a time; null: as many as there are cores")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study.

    Attributes:
        label: distinguishes it from runs of other settings.
        settings: the label of its value on each axis.
        changes: the values of changed key paths, without the seed.
        learning_seed: that of learning; None: `seed`.
    """

    label: str
    settings: dict[str, str]
    changes: dict[str, Any]
    seed: int
    scenario: Scenario
    learning_seed: int | None = None

    @functools.cached_property
    def key(self) -> str:
        """The digest of the resolved scenario and simfl's version, in hexadecimal."""
        return run_key(self.scenario.digest(), __version__)

    @property
    def folder(self) -> str:
        """The name of its folder, which ends with the beginning of its key."""
        words = re.sub(r"[^\w.+=-]+", "-", self.label).strip("-.")[:60] or "run"
        learning = "" if self.learning_seed is None else f"-{self.learning_seed}"
        return f"{words}-seed{self.seed}{learning}-{self.key[:8]}"


@dataclass(frozen=True)
class StudyPlan:
    """A study that is ready to run.

    Attributes:
        study: with the base and all overrides, so that it needs no other file.
        source: the file.
        beside: files beside which modules of users are looked up.
        axes: the labels on each axis, in order.
        runs: all runs, those of the first seed first; no two have the same key.
        tuning: plans the runs of a study with `tune`, and the study once the best values are known; `runs` are then
            the first ones that tune. None without `tune`.
    """

    study: Study
    source: FilePath
    beside: tuple[FilePath, ...]
    axes: dict[str, tuple[str, ...]]
    runs: tuple[PlannedRun, ...]
    tuning: Planner | None = None


def load_study(
    path: str | PathLike[str] | Mapping[str, Any],
    overrides: Iterable[str] = (),
    seeds: int | Sequence[int] | None = None,
) -> StudyPlan:
    """Read a study and plan its runs.

    Args:
        path: a YAML file, or a mapping with its content. In a mapping the base may be a `Scenario`, and files are
            relative to the current folder.
        overrides: changes `key.path=value` to the scenario of every run, applied before grid and list.
        seeds: take the place of the study's seeds.

    Raises:
        ScenarioError: the study, the base or one of the runs is not valid; one line per problem.
    """
    file, instead = FilePath("study"), "run it with simfl.run, or write a study with 'base': scenario"
    match path:
        case {"base": Scenario() as base, **others}:
            document = Document({**others, "base": base.given()}, {})
        case Mapping():
            document = Document(dict(path), {})
        case _:
            named = to_path(path, "the path of a study, or a mapping of what would stand in it")
            file = shipped.path_of(named, short=True)
            document = read(file_text(file, "study"), str(path))
            instead = f"run it with 'simfl run {file}', or write a study with base: {file.name}"
    if not isinstance(document.content, dict):
        found = "an empty document" if document.content is None else show(document.content)
        raise ScenarioError(f"{file}: expected key: value pairs, found {found}; a study needs at least base: FILE")
    if "base" not in document.content and "algorithm" in document.content:
        raise ScenarioError(f"{file}: {Problem('a study', 'a scenario', instead)}")
    content = document.content if seeds is None else {**document.content, "seeds": seeds}
    try:
        study = Study.model_validate({"name": name_from(file.stem), **content})
    except ValidationError as error:
        problems = problems_of(error, Study, content)
        raise ScenarioError("\n".join(lines(problems, str(file), document.positions))) from None
    for word in study.compare.x:
        if word not in X_WORDS:
            problem = Problem(one_of(X_WORDS), show(word), suggestion(word, X_WORDS, "choose some of them"))
            raise ScenarioError(f"{file}: compare.x: {problem}")
    return Planner(study, file, [parse_override(override) for override in overrides]).plan()


@dataclass(frozen=True)
class _Change:
    """A value at a key path; `origin` says where in the study it is written."""

    path: Path
    value: Any
    origin: str


@dataclass(frozen=True)
class _Choice:
    """One value on an axis; `word` is its part of a run's label."""

    label: str
    word: str
    changes: tuple[_Change, ...]


class Planner:
    """Plans the runs of a study, and of its tuning."""

    def __init__(self, study: Study, file: FilePath, overrides: list[Override]) -> None:
        self.study, self.file = study, file
        base: Any = study.base
        self.base_file: FilePath | None = None
        if isinstance(base, str):
            self.base_file = file.parent / base
            base = read(file_text(self.base_file), str(self.base_file)).content
            if not isinstance(base, dict):
                raise ScenarioError(f"{self.base_file}: expected key: value pairs, found {show(base)}")
        self.base: dict[str, Any] = base
        self.common = self._changes("set", study.set)
        self.common += [_Change(each.path, each.value, f"{SOURCE}: {spell(each.path)}") for each in overrides]

    def _changes(self, at: str, values: Mapping[str, Any]) -> list[_Change]:
        return [_Change(path_of(key), value, f"{self.file}: {at}.{key}") for key, value in values.items()]

    def plan(self) -> StudyPlan:
        """Return the runs of the study; those that tune it, if it is tuned."""
        axes = self._axes()
        number = math.prod(len(choices) for choices in axes.values())
        seeds = self._seeds()
        if number * len(seeds) > MAX_RUNS:
            problem = Problem(f"at most {MAX_RUNS:,} runs", f"{number * len(seeds):,}", "make several studies of it")
            raise ScenarioError(f"{self.file}: grid: {problem}")
        self.settings = [dict(zip(axes, choices, strict=True)) for choices in itertools.product(*axes.values())]
        if self.study.tune is not None:
            return self._to_be_tuned(self.study.tune)
        return self.chosen([{}] * number)

    def chosen(self, values: Sequence[Mapping[str, Any]]) -> StudyPlan:
        """Return the study's own runs, with values of tuned key paths for each setting."""
        wrong: list[str] = []
        runs: dict[str, PlannedRun] = {}
        for world, learning in self._seeds():
            for choices, tuned in zip(self.settings, values, strict=True):
                try:
                    run = self._run(choices, world, learning, tuned)
                except ScenarioError as error:
                    wrong += [line for line in str(error).splitlines() if line not in wrong]
                else:
                    runs.setdefault(run.key, run)
            if wrong:  # other seeds have the same problems
                raise ScenarioError("\n".join(first_lines(wrong, str(self.file))))
        labels = {name: tuple(choice.label for choice in choices) for name, choices in self._axes().items()}
        self._check_baseline(labels, [run.label for run in runs.values()])
        return self._plan_of(self._whole(), labels, list(runs.values()))

    def _plan_of(self, study: Study, labels: dict[str, tuple[str, ...]], runs: Sequence[PlannedRun]) -> StudyPlan:
        beside = (self.file,) if self.base_file is None else (self.file, self.base_file)
        return StudyPlan(study, self.file, beside, labels, tuple(runs))

    def _to_be_tuned(self, tune: Tune) -> StudyPlan:
        """Return the first runs that tune; check that all settings can be tuned."""
        resolved = []
        for choices in self.settings:
            run = self._run(choices, self.tuning_seeds[0], None)
            if tune.on == "validation" and run.scenario.data.validation is None:
                problem = Problem(
                    "data.validation, whose examples choose",
                    "none",
                    "add it, or write on: test, to choose on the test set",
                )
                raise ScenarioError(f"{self.file}: tune: ({run.label}) {problem}")
            resolved.append(run.scenario.resolved())
        #: The key paths that each setting has and that are tuned.
        self.tuned = [[key for key in tune.also if _has(scenario, path_of(key))] for scenario in resolved]
        for key in tune.also:
            if not any(key in tuned for tuned in self.tuned):
                problem = Problem("a key path of a setting", "one that none has", "remove it, or correct it")
                raise ScenarioError(f"{self.file}: tune.{key}: {problem}")
        self._names = _axis_names([*self.study.grid, *tune.also])
        values = [[tune.values[key].listed for key in tuned] for tuned in self.tuned]
        seeds = self.tuning_seeds if tune.by == "all" else self.tuning_seeds[:1]
        runs = [
            self.tried(setting, dict(zip(self.tuned[setting], some, strict=True)), seed)
            for seed in seeds
            for setting, listed in enumerate(values)
            if listed
            for some in itertools.product(*listed)
        ]
        self.chosen(
            [
                dict(zip(keys, (v[0] for v in listed), strict=True))
                for keys, listed in zip(self.tuned, values, strict=True)
            ]
        )
        return dataclasses.replace(self.tuning(runs), tuning=self)

    def tried(self, setting: int, values: Mapping[str, Any], seed: int) -> PlannedRun:
        """Return a run that tunes: a setting with values of its tuned key paths."""
        choices = dict(self.settings[setting])
        for key, value in values.items():
            name, (label,) = self._names[key], _labels([value])
            change = _Change(path_of(key), value, f"{self.file}: tune.{key}")
            choices[name] = _Choice(label, f"{name}={label}", (change,))
        return self._run(choices, seed, None, name=f"{self.study.name}-tuning")

    def tuning(self, runs: Sequence[PlannedRun]) -> StudyPlan:
        """Return a study of runs that tune."""
        study = self._whole().model_copy(update={"name": f"{self.study.name}-tuning", "tune": None, "baseline": None})
        labels: dict[str, dict[str, None]] = {}
        for run in runs:
            for name, label in run.settings.items():
                labels.setdefault(name, {})[label] = None
        of_key = {run.key: run for run in runs}
        return self._plan_of(study, {name: tuple(some) for name, some in labels.items()}, list(of_key.values()))

    @functools.cached_property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds that tune, which the study itself does not have."""
        tune, seeds = self.study.tune, self.study.seeds
        if tune is None:
            return ()
        parts = (seeds.world, seeds.learning) if isinstance(seeds, CrossedSeeds) else (seeds,)
        used = {seed for part in parts if isinstance(part, tuple) for seed in part}
        if isinstance(tune.seeds, tuple):
            if used & set(tune.seeds):
                problem = Problem("seeds that the study does not have", show(min(used & set(tune.seeds))), "use others")
                raise ScenarioError(f"{self.file}: tune.seeds: {problem}")
            return tune.seeds
        return tuple(itertools.islice((n for n in itertools.count(self._first("seed")) if n not in used), tune.seeds))

    @property
    def num_chosen(self) -> int:
        """The number of runs of the study itself, with the best values."""
        return len(self.settings) * len(self._seeds())

    def _whole(self) -> Study:
        """Return the study with the content of its base, independent of other files."""
        changed = dict(self.study.set)
        for change in self.common[len(changed) :]:
            changed.pop(spell(change.path), None)  # the last one counts, and comes last
            changed[spell(change.path)] = change.value
        return self.study.model_copy(update={"base": self.base, "set": changed})

    def _seeds(self) -> list[tuple[int, int | None]]:
        """Return the seeds of the world and of learning."""
        match self.study.seeds:
            case CrossedSeeds(world=world, learning=learning):
                worlds = self._each(world, "seed")
                return list(itertools.product(worlds, self._each(learning, "seed", "learning_seed")))
            case seeds:
                return [(seed, None) for seed in self._each(seeds, "seed")]

    def _each(self, seeds: int | tuple[int, ...], *names: str) -> tuple[int, ...]:
        """Return seeds; a number of them begins at the base's of the last name it has."""
        if isinstance(seeds, tuple):
            return seeds
        fresh = (n for n in itertools.count(self._first(*names)) if n not in self.tuning_seeds)
        return tuple(itertools.islice(fresh, seeds))

    def _first(self, *names: str) -> int:
        first = 0
        for name in names:
            value = self.base.get(name)
            for change in self.common:
                value = change.value if change.path == (name,) else value
            first = value if type(value) is int else first
        return first

    def _axes(self) -> dict[str, list[_Choice]]:
        axes: dict[str, list[_Choice]] = {}
        cases = self.study.cases
        if cases:
            labels = [case.label for case in cases]
            if len(set(labels)) < len(labels):
                again = next(label for label in labels if labels.count(label) > 1)
                raise ScenarioError(
                    f"{self.file}: list: expected each label once, found {again!r} twice; give each its own label"
                )
            axes[CASE] = [
                _Choice(case.label, case.label, tuple(self._changes(f"list.{i}.set", case.set)))
                for i, case in enumerate(cases)
            ]
        names = _axis_names(list(self.study.grid))
        for key, values in self.study.grid.items():
            axes[names[key]] = list(self._choices(key, names[key], values))
        return axes

    def _choices(self, key: str, name: str, values: Any) -> Iterator[_Choice]:
        path = path_of(key)
        if isinstance(values, Mapping):
            for label, value in values.items():
                yield _Choice(label, label, (_Change(path, value, f"{self.file}: grid.{key}.{label}"),))
            return
        labels = _labels(values)
        for i, (label, value) in enumerate(zip(labels, values, strict=True)):
            word = label if isinstance(value, Mapping | str) else f"{name}={label}"
            yield _Choice(label, word, (_Change(path, value, f"{self.file}: grid.{key}.{i}"),))

    def _run(
        self,
        choices: Mapping[str, _Choice],
        seed: int,
        learning: int | None,
        tuned: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> PlannedRun:
        of_run = [change for choice in choices.values() for change in choice.changes]
        of_run += self._changes("tune", tuned or {})
        changes = [*self.common, *of_run, _Change(("seed",), seed, f"{self.file}: seeds")]
        if learning is not None:
            changes.append(_Change(("learning_seed",), learning, f"{self.file}: seeds"))
        mapping = copy.deepcopy(self.base)
        for change in changes:
            try:
                apply_override(mapping, Override(change.path, copy.deepcopy(change.value)))
            except ScenarioError as error:
                reason = str(error).removeprefix(f"{SOURCE}: ").split(": ", 1)[1]
                raise ScenarioError(f"{change.origin}: {reason}") from None
        mapping["name"] = name or self.study.name
        try:
            scenario = Scenario.model_validate(mapping)
        except ValidationError as error:
            problems = problems_of(error, Scenario, mapping)
            raise ScenarioError("\n".join(self._trace(problem, changes) for problem in problems)) from None
        label = ", ".join(choice.word for choice in choices.values()) or self.study.name
        settings = {name: choice.label for name, choice in choices.items()}
        values = {".".join(map(str, change.path)): change.value for change in of_run}
        return PlannedRun(label, settings, values, seed, scenario, learning)

    def _trace(self, problem: Problem, changes: Sequence[_Change]) -> str:
        """Return a problem as a line with its key in the study or the base."""
        at = tuple(map(str, problem.at))
        for change in reversed(changes):
            path = tuple(map(str, change.path))
            if at[: len(path)] == path:
                return f"{change.origin}{''.join('.' + part for part in at[len(path) :])}: {problem}"
        place = ".".join(at)
        if self.base_file is None:
            return f"{self.file}: {'.'.join(['base', *at])}: {problem}"
        return f"{self.base_file}: {place}: {problem}" if place else f"{self.base_file}: {problem}"

    def _check_baseline(self, axes: Mapping[str, Sequence[str]], labels: Iterable[str]) -> None:
        baseline = self.study.baseline
        valid = list(dict.fromkeys([*labels, *itertools.chain(*axes.values())]))
        if baseline is not None and baseline not in valid:
            advice = suggestion(baseline, valid, "choose one of the labels")
            raise ScenarioError(f"{self.file}: baseline: expected a label of this study, found {baseline!r}; {advice}")


def _has(section: Any, path: Path) -> bool:
    """Return whether a resolved scenario has a key path."""
    for part in path:
        if isinstance(section, Mapping) and str(part) in section:
            section = section[str(part)]
        elif isinstance(section, list) and isinstance(part, int) and part < len(section):
            section = section[part]
        else:
            return False
    return True


def _axis_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the last word of every key path, or the whole path if ambiguous."""
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    counts = Counter(last.values())
    return {k: k if counts[word] > 1 or word.isdigit() or word == CASE else word for k, word in last.items()}


def _labels(values: Sequence[Any]) -> list[str]:
    """Return a label for each value of an axis: the value, or a block's kind."""
    labels = []
    for value in values:
        match value:
            case Mapping():
                label = next((value[key] for key in DISCRIMINATORS if isinstance(value.get(key), str)), "block")
            case None:
                label = "none"
            case float():
                label = f"{value:g}"
            case str():
                label = value
            case _:
                label = show(value)
        labels.append(label)
    return [label if labels.count(label) == 1 else f"{label} ({i})" for i, label in enumerate(labels, start=1)]
