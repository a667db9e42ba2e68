"""Run a paper's study as a sweep, and read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simfl import plugins
from simfl.catalogue import Catalogue
from simfl.comparison.sweeps import Sweep
from simfl.errors import ScenarioError, nearest
from simfl.records.results import Run
from simfl.reproduction.pages import write
from simfl.reproduction.papers import Experiment, Paper, Runs
from simfl.reproduction.reading import Reproduction, argument_of
from simfl.scenario import load
from simfl.shipped import scenarios
from simfl.studies import Report, sweep
from simfl.studies.plan import PlannedRun, Study, StudyPlan

#: The papers that can be reproduced, with a line about each.
PAPERS: Mapping[str, str] = Catalogue(
    lambda: {name: plugins.plugins()[plugin].summary for name, plugin in plugins.names("studies").items()}
)
#: Below the folder of all results.
FOLDER = "reproduction"


def find_paper(name: str) -> Paper:
    """Return a paper by its name, which may be written with dashes."""
    module = name.replace("-", "_")
    if module not in PAPERS:
        valid = [argument_of(paper) for paper in PAPERS]
        raise ScenarioError(
            f"reproduce: expected one of {', '.join(valid)}, found {name!r}"
            + (nearest(name, valid) or "; leave it out for all of them")
        )
    paper = plugins.load("studies", module)
    assert isinstance(paper, Paper)
    return paper


def scenarios_folder(named: Path | None = None, paper: Paper | None = None) -> Path:
    """Return the folder of a paper's scenarios: `named`, the paper's, or the clone's."""
    if named is None and paper is not None and paper.scenarios is not None:
        return paper.scenarios
    places = [named] if named is not None else [scenarios(), Path("scenarios")]
    for place in places:
        if (place / "adp2sgd").is_dir():
            return place
    raise ScenarioError(
        f"reproduce: expected the folder of the papers' scenarios, found none at {places[-1]}; run it in a clone of "
        "simfl, or name the folder with --scenarios"
    )


def part_of(paper: Paper, quick: bool, only: str = "", seeds: int | None = None) -> Paper:
    """Return the part of a study whose experiments' "part, setting" matches.

    `only` is a regular expression. The experiments have `seeds` seeds, by default as many as in the study.

    Raises:
        ScenarioError: it is no regular expression, or no experiment of this form of the study matches.
    """
    options = f" --only '{only}'" * bool(only) + f" --seeds {seeds}" * bool(seeds)

    def some(experiments: Sequence[Experiment]) -> list[Experiment]:
        matching = [own for own in experiments if re.search(only, f"{own.section}, {own.label}")]
        return [replace(own, seeds=seeds or own.seeds) for own in matching]

    try:
        if not some(paper.experiments(quick)):
            first = paper.experiments(quick)[0]
            line = (
                f"expected a part of {argument_of(paper.name)} such as '{first.section}, {first.label}', found {only!r}"
            )
            raise ScenarioError(f"--only: {line}")
    except re.error as error:
        raise ScenarioError(f"--only: expected a regular expression, found {only!r}: {error}") from None
    later = paper.later
    return replace(
        paper,
        part=options,
        experiments=lambda quick: some(paper.experiments(quick)),
        later=None if later is None else lambda runs, quick: some(later(runs, quick)),
    )


def with_the_data(paper: Paper, missing: Sequence[str], scenarios: Path) -> Paper:
    """Return a study whose quick form leaves out experiments that need missing data.

    Its claims say what to fetch. Nothing is left out if every experiment needs them.
    """
    if not missing:
        return paper
    read = {own: load(scenarios / own.base, own.overrides).data for own in paper.experiments(True)}
    kept = [own for own, data in read.items() if not {data.set, str(getattr(data, "path", ""))} & {*missing}]
    return replace(paper, experiments=lambda quick: kept, missing=tuple(missing)) if kept else paper


def plan_of(
    paper: Paper,
    quick: bool,
    scenarios: Path,
    later: Sequence[Experiment] = (),
    known: dict[Experiment, list[PlannedRun]] | None = None,
) -> tuple[StudyPlan, dict[Experiment, list[str]]]:
    """Return a study's plan, with equal runs once, and the experiments' run keys.

    `later` are experiments that followed from runs of the others, `known` the runs of experiments that were planned
    before; new ones are added.
    """
    known = {} if known is None else known
    runs: dict[str, PlannedRun] = {}
    keys: dict[Experiment, list[str]] = {}
    places = set()
    for experiment in (*paper.experiments(quick), *later):
        if (experiment.section, experiment.cell) in places:
            raise ValueError(f"{paper.name}: two experiments {experiment.section.title!r}, {experiment.label!r}")
        places.add((experiment.section, experiment.cell))
        planned = known[experiment] = known.get(experiment) or _planned(paper, experiment, scenarios)
        for run in planned:
            runs.setdefault(run.key, run)
        keys[experiment] = [run.key for run in planned]
    study = Study(name=paper.name, description=paper.title, base={})
    ordered = sorted(runs.values(), key=lambda run: run.seed)  # an interrupted study has all runs of the first seeds
    return StudyPlan(study, scenarios, (), {}, tuple(ordered)), keys


def _planned(paper: Paper, experiment: Experiment, scenarios: Path) -> list[PlannedRun]:
    settings = {"part": experiment.section.title, "setting": experiment.label}
    planned = []
    for seed in range(experiment.first, experiment.first + experiment.seeds):
        overrides = [*experiment.overrides, f"seed={seed}", f"name={paper.name}"]
        scenario = load(scenarios / experiment.base, overrides)
        planned.append(PlannedRun(", ".join(settings.values()), settings, {}, seed, scenario))
    return planned


def reproduce(
    paper: Paper | str,
    *,
    quick: bool = False,
    out: str | Path = "results",
    jobs: int | None = None,
    device: str | None = None,
    scenarios: Path | None = None,
    tell: Callable[[Report], None] | None = None,
) -> Reproduction:
    """Run the missing runs of a paper's study, and write its page.

    Arguments that are not listed are as for `sweep`. Results that need a failed or missing run say so.

    Args:
        paper: one of `PAPERS`.
        quick: a form that takes minutes: fewer settings, fewer seeds.
        out: the folder of all results; the study is in `<out>/reproduction/`.
        scenarios: the folder of the papers' scenarios, needed if simfl does not run from a clone.

    Raises:
        ScenarioError, DataError: bad input or missing data, before anything runs.
    """
    study = find_paper(paper) if isinstance(paper, str) else paper
    place, root = scenarios_folder(scenarios, study), Path(out) / FOLDER
    later: list[Experiment] = []
    planned: dict[Experiment, list[PlannedRun]] = {}
    opened: dict[str, Run] = {}
    while True:
        plan, keys = plan_of(study, quick, place, later, planned)
        swept = sweep(plan, out=root, jobs=jobs, device=device, write_table=False, progress=tell)
        runs = open_runs(swept, keys, opened)
        interrupted = any(run.status == "missing" for run in swept.runs)
        more = (
            [] if study.later is None or interrupted else [one for one in study.later(runs, quick) if one not in keys]
        )
        if not more:
            return write(study, quick, swept, runs, root)
        later += more


def open_runs(swept: Sweep, keys: dict[Experiment, list[str]], opened: dict[str, Run] | None = None) -> Runs:
    """Return the finished runs of a sweep by experiment.

    `opened` are runs by key that are open already; others are added.
    """
    opened = {} if opened is None else opened
    finished = {run.key: opened.get(run.key) or swept.open(run) for run in swept.finished}
    opened |= finished
    groups = {}
    for experiment, needed in keys.items():
        by_seed = {finished[key].manifest.seed: finished[key] for key in needed if key in finished}
        if len(by_seed) == len(needed):  # fewer seeds would give another number than the study's
            groups[experiment] = by_seed
    return Runs(groups)
