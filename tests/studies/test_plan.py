"""Studies: their plans, names, and the places of errors."""

import itertools
import re
import shutil
from pathlib import Path

import pytest
import yaml

from simfl.comparison.sweeps import run_key
from simfl.errors import ScenarioError
from simfl.scenario import load, loads
from simfl.scenario.syntax import write
from simfl.studies.plan import load_study

BASE = {"seed": 5, "algorithm": {"kind": "adpsgd", "batch_size": 8}, "clients": {"count": 4}, "stop": {"updates": 8}}


@pytest.fixture
def plan(tmp_path):
    """Return a function that writes a study and its base, and plans it."""

    def write(*, overrides=(), seeds=None, **study):
        (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
        path = tmp_path / "my study.yaml"
        path.write_text(yaml.safe_dump({"base": "base.yaml", **study}, sort_keys=False))
        return load_study(path, overrides, seeds)

    return write


def refused(plan, tmp_path, **study):
    with pytest.raises(ScenarioError) as caught:
        plan(**study)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


def test_a_study_is_list_times_grid_times_seeds(plan):
    made = plan(
        list=[{"label": "ring"}, {"label": "full", "set": {"topology": "complete"}}],
        grid={"algorithm.step_size": [0.5, 0.1], "algorithm.batch_size": [4, 8, 16]},
        seeds=3,
    )
    assert made.axes == {"case": ("ring", "full"), "step_size": ("0.5", "0.1"), "batch_size": ("4", "8", "16")}
    assert len(made.runs) == 2 * 2 * 3 * 3
    assert [run.seed for run in made.runs[::12]] == [5, 6, 7], "the scenario's own seed and those after it"
    assert made.runs[0].label == "ring, step_size=0.5, batch_size=4"
    combinations = {
        (
            run.scenario.topology.kind,
            run.scenario.algorithm.step_size.value,
            run.scenario.algorithm.batch_size,
            run.seed,
        )
        for run in made.runs
    }
    assert combinations == set(itertools.product(("ring", "complete"), (0.5, 0.1), (4, 8, 16), (5, 6, 7)))
    assert {run.scenario.name for run in made.runs} == {"my-study"}
    assert len({run.folder for run in made.runs}) == len(made.runs)


def test_seeds_of_world_and_learning_are_crossed(plan):
    made = plan(grid={"algorithm.step_size": [0.5, 0.1]}, seeds={"world": [3, "7..8"], "learning": 2})
    pairs = list(itertools.product((3, 7, 8), (5, 6)))
    assert [(run.seed, run.learning_seed) for run in made.runs[::2]] == pairs, "learning begins at the base's seed"
    assert [(run.scenario.seed, run.scenario.learning_seed) for run in made.runs[::2]] == pairs
    assert len({run.folder for run in made.runs}) == 12
    assert "-seed3-5-" in made.runs[0].folder
    base = {**BASE, "learning_seed": 9}
    again = plan(base=base, seeds={"world": 2, "learning": 2}).runs
    assert [(run.seed, run.learning_seed) for run in again] == [(5, 9), (5, 10), (6, 9), (6, 10)]
    assert [(run.seed, run.learning_seed) for run in plan(base=base, seeds=2).runs] == [(5, None), (6, None)]
    assert load_study({"base": BASE, "seeds": made.study.model_dump(mode="json")["seeds"]}).runs


@pytest.mark.parametrize(("seeds", "words"), [
    ({"world": 2}, "seeds: expected world and learning"),
    ({"world": 2, "learning": 0}, "seeds.learning: expected an integer >= 1"),
    ({"world": [1, 1], "learning": 1}, "seeds.world: expected different seeds"),
    ({"world": ["4..1"], "learning": 1}, "seeds.world: expected a range"),
    ({"world": ["a"], "learning": 1}, "seeds.world: expected an integer >= 0"),
    (["0..9999999"], "seeds: expected a range"),
])  # fmt: skip
def test_wrong_seeds_are_one_line(plan, tmp_path, seeds, words):
    (line,) = refused(plan, tmp_path, seeds=seeds)
    assert line.startswith("my study.yaml: ")
    assert words in line


def test_a_seed_is_not_a_change(plan, tmp_path):
    for name in ("seed", "learning_seed"):
        (line,) = refused(plan, tmp_path, grid={name: [1, 2]})
        assert f"grid.{name}: expected a key path other than {name}" in line


def test_blocks_replace_those_of_the_base(plan):
    noise = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    made = plan(
        grid={
            "algorithm": {"ours": {"kind": "adpsgd", "batch_size": 4}, "SYNC": {"kind": "sync_sgd", "batch_size": 4}},
            "privacy": [None, noise],
            "algorithm.step_size": [0.25],
        }
    )
    assert [run.label for run in made.runs[:2]] == [
        "ours, privacy=none, step_size=0.25",
        "ours, gaussian, step_size=0.25",
    ]
    assert [run.scenario.privacy is None for run in made.runs] == [True, False] * 2
    assert {run.scenario.algorithm.step_size.value for run in made.runs} == {0.25}
    assert made.runs[0].settings == {"algorithm": "ours", "privacy": "none", "step_size": "0.25"}
    assert made.runs[0].changes["algorithm"] == {"kind": "adpsgd", "batch_size": 4}


def test_key_of_a_run_depends_on_its_scenario_not_its_names(plan):
    made = plan(grid={"algorithm.step_size": {"small": 0.1, "large": 0.5}})
    other = plan(name="other", grid={"algorithm.step_size": [0.5, 0.1]})
    assert [run.key for run in made.runs] == [run.key for run in reversed(other.runs)]
    assert made.runs[0].folder.endswith(made.runs[0].key[:8])
    digest = made.runs[0].scenario.digest()
    assert run_key(digest, "1") != run_key(digest, "2") != made.runs[0].key
    twice = plan(grid={"algorithm.batch_size": {"as it is": 8, "eight": 8}})
    assert [run.label for run in twice.runs] == ["as it is"], "the same run need not be made twice"


def test_a_scenario_may_be_written_in_the_study(plan, tmp_path):
    made = plan(base=BASE, name="inline", seeds=[3, 1], grid={"clients.count": [4, 8]})
    assert [(run.seed, run.scenario.clients.count) for run in made.runs] == [(3, 4), (3, 8), (1, 4), (1, 8)]
    assert loads(made.runs[0].scenario.to_yaml()).digest() == made.runs[0].scenario.digest()


def test_overrides_and_seeds_of_the_command_line_apply(plan):
    made = plan(overrides=["stop={updates: 3}", "seed=9"], seeds=2, grid={"clients.count": [4, 6]})
    assert [(run.seed, run.scenario.stop.updates) for run in made.runs] == [(9, 3), (9, 3), (10, 3), (10, 3)]
    assert [run.scenario.clients.count for run in made.runs[:2]] == [4, 6], "the grid comes after them"


@pytest.mark.parametrize(
    ("study", "line"),
    [
        ({"grid": {"clients.count": [4, -1]}}, "my study.yaml: grid.clients.count.1: expected an integer "
            ">= 1, found -1"),
        (
            {"grid": {"algorithm": {"a": {"kind": "adpsgd", "batchsize": 8}}}},
            "my study.yaml: grid.algorithm.a.batchsize: expected a key of kind adpsgd",
        ),
        (
            {"list": [{"label": "x", "set": {"links.latency": "soon"}}]},
            "my study.yaml: list.0.set.links.latency: expected a time",
        ),
        ({"set": {"model": "sofmax"}}, "my study.yaml: set.model: "),
        ({"overrides": ["links.latency=soon"]}, "--set: links.latency: expected a time"),
        ({"base": "nowhere.yaml"}, "nowhere.yaml: expected a scenario file, found nothing there; check the path"),
        ({"base": {"clients": {"count": 4}}}, "my study.yaml: base.algorithm: expected a value"),
        ({"base": 3}, "my study.yaml: base: expected a scenario, found 3"),
        ({"gird": {}}, "my study.yaml: gird: expected a key of a study, found 'gird'; did you mean 'grid'?"),
        ({"grid": {"clients.count": 4}}, "my study.yaml: grid.clients.count: expected the values to try, found 4"),
        ({"grid": {"clients..count": [4]}}, "my study.yaml: grid: expected a key path, found 'clients..count'"),
        ({"grid": {"seed.x": [1]}}, "my study.yaml: grid.seed.x.0: expected a mapping or list at seed, found 5"),
        ({"seeds": [1, 1]}, "my study.yaml: seeds: expected different seeds, found [1, 1]"),
        ({"seeds": 0}, "my study.yaml: seeds: expected an integer >= 1"),
        ({"list": [{"label": "x"}, {"label": "x"}]}, "my study.yaml: list: expected each label once, found 'x' twice"),
        (
            {"grid": {"algorithm": {"ours": {"kind": "adpsgd"}}}, "baseline": "our"},
            "my study.yaml: baseline: expected a label of this study, found 'our'; did you mean 'ours'?",
        ),
        ({"compare": {"x": ["tme"]}}, "my study.yaml: compare.x: expected time, updates, epochs, rounds, bytes, eps"),
        ({"grid": {"links.latency": [1.0] * 400, "links.loss": [0.1] * 400}}, "my study.yaml: grid: expected at most"),
        (
            {"grid": {"seed": [1, 2, 3]}},
            "my study.yaml: grid.seed: expected a key path other than seed, found [1, 2, 3]; write seeds: [1, 2, 3]",
        ),
        (
            {"list": [{"label": "x", "set": {"seed": 3}}]},
            "my study.yaml: list.0.set.seed: expected a key path other than seed, found 3; write seeds: ",
        ),
    ],
)  # fmt: skip
def test_problems_are_reported_where_they_are_written(plan, tmp_path, study, line):
    problems = refused(plan, tmp_path, **study)
    assert problems[0].startswith(line), problems
    assert "; " in problems[0], "what to do about it"


def test_a_scenario_in_the_place_of_a_study_and_the_reverse_is_one_line(tmp_path):
    scenario, study = tmp_path / "one.yaml", tmp_path / "many.yaml"
    scenario.write_text("algorithm: {kind: adpsgd, batch_size: 8}\nseed: 3\nlinks: {loss: 0.1}\n")
    study.write_text("base: one.yaml\nseeds: 3\ngrid: {links.loss: [0, 0.1]}\n")
    with pytest.raises(ScenarioError) as error:
        load_study(scenario)
    assert str(error.value) == (
        f"{scenario}: expected a study, found a scenario; run it with 'simfl run {scenario}', or write a study with "
        "base: one.yaml"
    )
    with pytest.raises(ScenarioError) as error:
        load(study, ["links.loss=0"])
    assert str(error.value) == (
        f"{study}: expected a scenario, found a study; run it with 'simfl sweep {study}', or give the scenario that "
        "its base names"
    )


def test_planned_study_includes_its_base_and_overrides(tmp_path):
    (tmp_path / "base.yaml").write_text("algorithm: {kind: adpsgd, batch_size: 8}\nclients: {count: 4}\nseed: 3\n")
    (tmp_path / "studies").mkdir()
    written = tmp_path / "studies" / "s.yaml"
    written.write_text("base: ../base.yaml\nset: {links.loss: 0.1}\nseeds: 2\ngrid: {clients.count: [4, 6]}\n")
    plan = load_study(written, ["seed=9", "stop.updates=5", "links.loss=0.2"], seeds=3)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mailed.yaml").write_text(write(plan.study.model_dump(by_alias=True, mode="json")))
    again = load_study(elsewhere / "mailed.yaml")
    assert [run.key for run in again.runs] == [run.key for run in plan.runs]
    assert [(run.seed, run.scenario.links.loss, run.scenario.stop.updates) for run in again.runs[::2]] == [
        (seed, 0.2, 5) for seed in (9, 10, 11)
    ]


def test_mistake_in_the_base_is_reported_once(plan, tmp_path):
    problems = refused(plan, tmp_path, base={**BASE, "links": {"loss": 2}}, grid={"clients.count": [4, 5, 6]}, seeds=4)
    assert len(problems) == 1
    assert problems[0].startswith("my study.yaml: base.links.loss: expected ")


def test_axes_are_named_by_unique_ends_of_their_paths(plan):
    grid = {"links.latency": ["1 ms"], "clients.count": [4], "slowdowns.0": [{"clients": [1], "factor": 2}]}
    assert list(plan(grid=grid).axes) == ["latency", "count", "slowdowns.0"]


def test_the_study_in_the_documentation_is_valid(tmp_path):
    root = Path(__file__).parents[2]
    text, *_ = re.findall(r"```yaml\n(.*?)```", (root / "docs" / "studies.md").read_text(encoding="utf-8"), re.DOTALL)
    shutil.copy(root / "scenarios" / "demo" / "adpsgd.yaml", tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "example.yaml").write_text(text)
    plan = load_study(tmp_path / "studies" / "example.yaml")
    assert len(plan.runs) == 2 * 3 * 4
    assert plan.runs[0].label == "AD-PSGD, noise_multiplier=1"
