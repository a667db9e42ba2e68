"""The study of asynchrony: the rule that tunes step sizes, and how its claims are judged, on made-up runs."""

import math

import pytest

from simfl.algorithms import ALGORITHMS
from simfl.papers.asynchrony import study, tuning
from simfl.papers.asynchrony.algorithms import BY_NAME, ENTRIES, QUICK
from simfl.papers.asynchrony.tuning import FINAL, GRID, TUNING
from simfl.reproduction.papers import Runs
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load
from tests.papers.made_up import MadeUpRun, made_up

ENTRY = BY_NAME["AD-PSGD"]


def tried(accuracy_of, powers=GRID, world="equal", entry=ENTRY, **others):
    """Made-up tuning runs, with an accuracy for each power of two and seed."""
    own = [tuning._tuning(world, entry, power, False) for power in powers]
    at = dict(zip(own, powers, strict=True))
    return made_up(own, lambda one, seed: accuracy_of(at[one], seed), 3, **others)


def test_the_step_with_which_most_runs_reach_the_target_is_the_best_then_the_fastest():
    runs = tried(lambda power, seed: {1: 0.95, 2: 0.99 if seed < 3 else 0.5}.get(power, 0.85))
    assert tuning.tuned(runs, "equal", ENTRY) == 1, "the faster one does not reach it with every seed"
    runs = tried(lambda power, seed: {1: 0.95, 2: 0.99}.get(power, 0.85))
    assert tuning.tuned(runs, "equal", ENTRY) == 2
    runs = tried(lambda power, seed: 0.8 - 0.01 * abs(power + 1))
    assert tuning.tuned(runs, "equal", ENTRY) == -1, "none reaches it: the best accuracy"


def test_a_run_that_diverges_does_not_reach_the_target():
    runs = tried(lambda power, seed: 0.99 if power == 3 else 0.92)
    for run in runs.of(TUNING, ("equal", ENTRY.name, tuning.step_of(ENTRY, 3))).values():
        run.status = "diverged"
    assert tuning.tuned(runs, "equal", ENTRY) == -4
    assert tuning.border(runs, "equal", ENTRY)


def test_a_grid_grows_while_its_best_is_at_the_border_at_most_twice():
    powers, added = list(GRID), []
    while True:
        later = tuning.later(tried(lambda power, seed: 0.9 + 0.005 * power, powers), False)
        if later[0].section is FINAL:
            break
        more = [round(math.log2(one.cell[-1] / ENTRY.center)) for one in later]
        added.append(more)
        powers += more
    assert added == [[4, 5], [6, 7]]
    (final,) = later
    assert (final.first, final.seeds) == (4, 6), "fresh seeds"
    assert f"step_size: {tuning.step_of(ENTRY, 7):g}}}" in final.overrides[0]


def test_no_result_follows_from_an_incomplete_grid():
    assert not tuning.later(tried(lambda power, seed: 0.95, range(-4, 3)), False)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_setting_is_valid_in_every_world(entry):
    for world in tuning.WORLDS:
        scenario = load(scenarios_folder() / "asynchrony" / f"{world}.yaml", [entry.section(tuning.step_of(entry, 3))])
        assert scenario.algorithm.kind in ALGORITHMS
        assert scenario.algorithm.batch_size == 16
        assert getattr(scenario.algorithm, "local_steps", 8) == 8


def test_worlds_differ_in_what_their_names_say():
    texts = {}
    for world in tuning.WORLDS:
        scenario = load(scenarios_folder() / "asynchrony" / f"{world}.yaml").resolved()
        assert scenario["clients"]["count"] == 16
        changed = ("name", "description", "stop", "evaluate", "slowdowns", "regions")
        texts[world] = {key: value for key, value in scenario.items() if key not in changed}
    texts["tails"]["clients"]["jitter"] = texts["equal"]["clients"]["jitter"]
    texts["regions"]["server"]["region"] = None
    assert all(text == texts["equal"] for text in texts.values())


def judged(first, second):
    """Readings of whether the first of two algorithms is faster; values are accuracies that make them so."""
    names = ("FedBuff", "FedAvg")
    own = {name: tuning._final("straggler", BY_NAME[name], 0, False) for name in names}
    made = {own[name]: {seed: MadeUpRun(own[name], seed, accuracy) for seed, accuracy in enumerate(values, 4)}
            for name, values in zip(names, (first, second), strict=True)}  # fmt: skip
    readings = study.pairs_of([names], ("straggler", "tails"))(Runs(made))
    return list(readings)


def test_a_claim_is_judged_by_pairs_of_seeds():
    (reading,) = judged([0.99, 0.98, 0.99, 0.98, 0.99, 0.98], [0.92, 0.91, 0.92, 0.91, 0.92, 0.91])
    assert reading.held
    assert not reading.own, "the study is not of one paper"
    assert " s, FedAvg " in reading.evidence
    (reading,) = judged([0.91] * 6, [0.99, 0.98] * 3)
    assert reading.held is False
    (reading,) = judged([0.99, 0.91] * 3, [0.91, 0.99] * 3)
    assert reading.held is None


def test_runs_that_never_reach_the_target_count_as_slowest():
    (reading,) = judged([0.99] * 6, [0.8] * 6)
    assert reading.held
    assert "FedAvg never s" in reading.evidence
    (reading,) = judged([0.8] * 6, [0.8] * 6)
    assert reading.held is None
    (reading,) = judged([0.8] * 6, [0.99] * 6)
    assert reading.held is False


def test_tables_write_the_end_of_runs_that_never_reach_the_target():
    own = [tuning._tuning("equal", ENTRY, power, False) for power in GRID]
    own += [tuning._final("equal", ENTRY, 0, False)]
    numbers = list(study.time_numbers(made_up(own, 0.8, 6)))
    assert [number.never for number in numbers if number.part == study.TABLE] == ["> 10"]


def test_the_quick_form_has_algorithms_of_every_family():
    assert {BY_NAME[name].family for name in QUICK} == {entry.family for entry in ENTRIES}
