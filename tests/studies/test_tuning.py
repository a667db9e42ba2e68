"""Tuning: which values are tried, which one is chosen, and the study on fresh seeds."""

import dataclasses
import itertools
import math
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

import simfl
from simfl.comparison.tuning import FILE, tuning_lines
from simfl.errors import ScenarioError
from simfl.scenario.syntax import write
from simfl.studies import tuning, worlds
from simfl.studies.plan import load_study
from simfl.studies.tune import Tune
from simfl.studies.tuning import Rule, Search, rule_of
from tests.helpers import RunOfOperations

BASE = {
    "algorithm": {"kind": "fedavg", "batch_size": 8, "step_size": 0.1},
    "clients": {"count": 4},
    "data": {"set": "digits", "validation": 0.2},
    "stop": {"epochs": 1},
}
STEP = "algorithm.step_size"
RANGE = {"from": 0.01, "to": 0.08, "by": "factor 2"}


class OfStep(Rule):
    """Takes results from the made-up runs themselves."""

    def results(self, run):
        """Return the result and the cost of a made-up run."""
        return run.result, run.cost


def searched(result, cost=lambda value: 1.0, *, values=None, least=0.0, **tune):
    """Return a search that has ended; `result(value, seed)` is that of a run."""
    section = Tune.model_validate({STEP: values or RANGE, "for": {"metric": "loss"}, **tune})

    def tried(setting, values, seed):
        if values[STEP] < least:
            raise ScenarioError("too small")
        return values[STEP], seed

    settings = [{"algorithm": SimpleNamespace(word="FedAvg")}]
    seeds = tuple(range(section.seeds))
    planner = SimpleNamespace(tried=tried, settings=settings, tuned=[[STEP]], tuning_seeds=seeds)
    rule = OfStep("validation_loss", smaller=True, words="least loss")
    search = Search(planner, section, rule, 0)
    while search.missing():
        for pair, (value, seed) in search.planned.items():
            outcome = result(value, seed)
            status = "diverged" if math.isinf(outcome) else "done"
            search.runs.setdefault(pair, SimpleNamespace(result=outcome, cost=cost(value), status=status))
    return search


def chosen(search):
    return search.values(search.best)[STEP]


@pytest.mark.parametrize(("optimum", "best"), [(0.05, 0.04), (0.7, 0.64), (0.0013, 0.00125), (1000.0, 20.48)])
def test_a_range_is_widened_until_the_best_value_lies_inside(optimum, best):
    search = searched(lambda value, seed: math.log(value / optimum) ** 2)
    assert chosen(search) == pytest.approx(best)
    tried = [row[STEP] for row in search.rows()]
    inside = min(tried) < best < max(tried)
    assert inside == (optimum < 1000)  # four times two values at most
    assert search.rows()[0]["border"] is not inside
    assert len(tried) == {0.05: 4, 0.7: 8, 0.0013: 8, 1000.0: 12}[optimum]


def test_a_range_ends_where_the_scenario_has_no_value():
    search = searched(lambda value, seed: value, least=0.004)
    assert chosen(search) == 0.005
    assert search.rows()[0]["border"] is True


def test_a_list_is_not_widened():
    search = searched(lambda value, seed: value, values=[0.3, 0.1, 0.2])
    assert (chosen(search), len(search.rows())) == (0.1, 3)
    assert not search.rows()[0]["border"]


def test_halving_gives_the_better_half_another_seed():
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    search = searched(lambda value, seed: abs(value - 0.6) + 0.01 * seed, values=values, by="halving")
    assert chosen(search) == 0.6
    assert [row["seeds"] for row in search.rows()] == [3, 3, 2, 2, 1, 1, 1, 1]
    assert [row["verdict"] for row in search.rows()].count("dropped") == 6
    assert len(search.runs) == 8 + 4 + 2


def test_more_results_count_first_then_the_mean_then_the_cost_then_the_order():
    diverges = {(0.1, 0): math.inf}
    few = searched(lambda value, seed: diverges.get((value, seed), 0.0 if value == 0.1 else 1.0), values=[0.1, 0.2])
    assert chosen(few) == 0.2
    cheap = searched(lambda value, seed: 1.0, lambda value: -value, values=[0.1, 0.3, 0.2])
    assert chosen(cheap) == 0.3
    assert chosen(searched(lambda value, seed: 1.0, values=[0.2, 0.1])) == 0.2


def test_a_choice_is_decided_if_all_paired_intervals_exclude_zero():
    def result(value, seed):
        return value + seed + {0.1: 0.0, 0.2: 0.05 * (seed - 1), 0.9: 0.001 * seed}[value]

    rows = searched(result, values=[0.1, 0.2, 0.9]).rows()
    # Over seeds the results differ by 1, and in pairs by 0.1 +- 0.05 and 0.8 +- 0.001.
    assert [row["verdict"] for row in rows] == ["chosen", "within noise", "worse"]
    assert rows[1]["against_chosen_low"] < 0 < rows[2]["against_chosen_low"]
    assert rows[2]["against_chosen"] == pytest.approx(0.801)
    rows = searched(result, values=[0.1, 0.9], seeds=1).rows()
    assert rows[1]["verdict"] == "within noise"  # one seed decides nothing


def tune(**section):
    return {"base": BASE, "tune": {STEP: RANGE, "for": {"metric": "loss"}, **section}}


def test_a_choice_without_any_result_is_said_to_be_not_decided(tmp_path):
    header = "setting,rule,algorithm.step_size,seeds,reached,result,verdict,border\n"
    rows = "FedAvg,least time,0.1,3,0,nan,chosen,False\nFedAvg,least time,0.2,3,0,nan,within noise,False\n"
    (tmp_path / FILE).write_text(header + rows)
    _, line = tuning_lines(tmp_path)
    words = "not decided: no run has a result by this rule; the best values of the metric count; 2 tried"
    assert line == f"  FedAvg: step_size=0.1 ({words})"


def test_the_study_has_other_seeds_than_its_tuning():
    def seeds(study, tuning):
        planner = load_study({**tune(seeds=tuning), "seeds": study}).tuning
        plan = planner.chosen([{STEP: 0.5}])
        assert {run.scenario.algorithm.step_size.value for run in plan.runs} == {0.5}
        return planner.tuning_seeds, tuple(run.seed for run in plan.runs)

    assert seeds(2, 3) == ((0, 1, 2), (3, 4))
    assert seeds([1, 5], 3) == ((0, 2, 3), (1, 5))
    assert seeds(3, [1, 7]) == ((1, 7), (0, 2, 3))
    assert seeds({"world": 2, "learning": 1}, 1) == ((0,), (1, 2))
    with pytest.raises(ScenarioError, match=r"tune\.seeds: expected seeds that the study does not have, found 4"):
        seeds([4], [4])


def test_a_key_path_is_tuned_where_a_setting_has_it():
    grid = {"algorithm": {name: {**BASE["algorithm"], "kind": name} for name in ("fedavg", "adpsgd")}}
    plan = load_study({**tune(also={"algorithm.server_step": [1, 2]}, seeds=1), "grid": grid})
    assert plan.tuning.tuned == [[STEP, "algorithm.server_step"], [STEP]]
    assert len(plan.runs) == 4 * 2 + 4
    assert plan.study.name == "study-tuning"
    keys = {worlds.world_key(run.scenario) for run in plan.runs}
    assert len(keys) == 2  # values of one algorithm are played together


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"also": {"algorithm.speed": [1, 2]}}, r"tune\.algorithm\.speed: expected a key path of a setting"),
        ({"for": {"metric": "test_loss"}}, r"tune\.for: expected a metric that is not of the test set"),
        ({"for": {"metric": "own_accuracy"}}, r"not of the test set, found 'own_accuracy'; .*on: test"),
        ({"for": {"time_to": 2}}, r"tune\.for\.time_to: expected a test accuracy in \(0, 1\]"),
        ({"for": {"speed": 2}}, r"tune\.for: expected a metric, or one of time_to"),
        ({STEP: {"from": 1, "to": 0.1}}, r"algorithm\.step_size: expected a smaller first value"),
        ({STEP: {"from": 1, "to": 4, "by": "step 1"}}, r"step_size\.by: expected factor and a number above 1"),
        ({STEP: 0.1}, r"algorithm\.step_size: expected the values to try, found 0\.1"),
        ({STEP: [-1, 1]}, r"tune\.algorithm\.step_size: expected a number >= 0"),
        ({"algorithm.seed": [1, 2]}, r"expected a key path other than a seed"),
    ],
)
def test_a_mistake_is_one_line(section, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        rule_of(load_study(tune(**section)).tuning.study.tune)
    assert "\n" not in str(caught.value)


def test_a_study_without_validation_chooses_on_the_test_set_only_if_it_says_so():
    base = {**BASE, "data": "digits"}
    with pytest.raises(ScenarioError, match=r"tune: \(study\) expected data\.validation, .* write on: test"):
        load_study({**tune(), "base": base})
    plan = load_study({**tune(on="test"), "base": base})
    assert rule_of(plan.tuning.study.tune).metric == "test_loss"


def test_results_of_runs_follow_the_rule():
    rows = [(0.0, 0.1), (1.0, 0.5), (2.0, 0.7), (3.0, 0.6)]
    run = SimpleNamespace(status="done", evaluations=Table(rows))
    for at, result in (("end", (0.6, 2.0)), ("best", (0.7, 2.0)), ("1.5 s", (0.5, 1.0))):
        rule = rule_of(Tune.model_validate({STEP: [1, 2], "for": {"metric": "accuracy", "at": at}}))
        assert rule.results(run) == (-result[0], result[1])
    rule = rule_of(Tune.model_validate({STEP: [1, 2], "for": {"time_to": 0.6}}))
    assert rule.results(run)[0] == pytest.approx(1.5)
    never = dataclasses.replace(rule, target=tuning.as_target(0.9, "validation_accuracy"))
    assert never.results(run)[0] == math.inf
    assert never.order([run, run]) == (0, -1.4, 0.0)
    assert rule.order([run, SimpleNamespace(status="diverged")])[0] == -1


class Table:
    """A made-up table of evaluations."""

    def __init__(self, rows):
        costs = ("updates", "epochs", "rounds", "bytes_sent", "epsilon")
        self._rows = [
            {"time_s": time, "validation_accuracy": value, **dict.fromkeys(costs, time)} for time, value in rows
        ]
        self.names = list(self._rows[0])

    def __getitem__(self, name):
        return simfl.comparison.comparing.np.array([row[name] for row in self._rows])

    def row(self, number):
        return self._rows[number]


class Judged(RunOfOperations):
    """Has accuracies that follow from the operations that made the models."""

    def of(self, setting):
        return Judged(self.problem, self.problems[1:], setting, self.rows)

    def evaluate(self, *asked):
        future, measures = Future(), super().evaluate(*asked).result()
        accuracy = measures.consensus_distance
        further = {**measures.further, "validation_accuracy": accuracy}
        future.set_result(dataclasses.replace(measures, test_accuracy=accuracy, further=further))
        return future


@pytest.mark.slow
def test_an_interrupted_tuning_ends_with_the_same_tables(simfl_, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", Judged)
    study = {
        "name": "fair",
        "base": {**BASE, "clients": {"count": 8}},
        "grid": {"algorithm": {name: {**BASE["algorithm"], "kind": name} for name in ("fedavg", "adpsgd")}},
        "tune": {STEP: {"from": 0.01, "to": 0.04}, "for": {"metric": "accuracy"}, "seeds": 2, "by": "halving"},
        "seeds": 2,
    }
    whole = simfl.sweep(study, out=tmp_path / "whole", jobs=1)
    assert [run.seed for run in whole.runs] == [2, 2, 3, 3]
    calls = itertools.count()

    def interrupted(plan):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return simfl.sweep(plan, out=tmp_path / "parts", jobs=1)

    with pytest.raises(KeyboardInterrupt):
        tuning.tuned(load_study(study), interrupted)
    parts = simfl.sweep(study, out=tmp_path / "parts", jobs=1)
    assert (parts.folder / FILE).read_bytes() == (whole.folder / FILE).read_bytes()
    assert parts.table().equals(whole.table())
    values = {run.changes[STEP] for run in whole.runs}
    assert all(any(f"{value:g}" in line for line in tuning_lines(whole.folder)) for value in values)
    (tmp_path / "fair.yaml").write_text(write(study))
    announced = simfl_.printed("sweep", "fair.yaml", "--out", "whole", "--quiet")
    assert "fair-tuning: 6 runs: algorithm (2) x step_size (3) x seed (1)\n" in announced
    assert "fair: 4 runs: algorithm (2)" in announced
    shown = simfl_.printed("compare", whole.folder)
    assert "tuned by the largest validation accuracy at the end, on 2 seeds of their own" in shown


@pytest.mark.parametrize(("by", "count"), [("all", 16), ("halving", 12)])
def test_a_dry_run_says_what_tuning_decides_and_how_many_runs_it_takes(simfl_, tmp_path, by, count):
    section = {STEP: RANGE, "for": {"time_to": 0.5}, "seeds": 2, "by": by}
    study = {"base": BASE, "grid": {"algorithm.fraction": [0.5, 1.0]}, "seeds": 3, "tune": section}
    (tmp_path / "small.yaml").write_text(write(study), encoding="utf-8")
    code, shown, told = simfl_("sweep", "small.yaml", "--dry-run")
    assert (code, told) == (0, "")
    what, runs, widened, then = shown.splitlines()[2:]
    assert what == f"tune: {rule_of(Tune.model_validate(section)).words} decides on {STEP}, for each of 2 settings"
    assert runs.startswith(f"tune: {count} runs with seeds 0, 1")
    assert widened == "tune: a range whose best value is at its border gets 2 more values, at most 4 times"
    assert then == "then: 6 runs of small with the best values and other seeds"
