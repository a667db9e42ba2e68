"""The study of MAPA: its readings follow from accuracies, counts of updates and certificates."""

import math
import os

import numpy as np
import pytest

from simfl.assembly.data import load_data
from simfl.papers.mapa import study_claims as claims
from simfl.papers.mapa import study_runs
from simfl.reproduction.evidence import NotMeasuredError, Verdict, gathered, verdict_of
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load
from simfl.streams import Streams
from tests.papers.made_up import made_up

pytestmark = pytest.mark.slow

LR = study_runs.PARITY


def runs_of(section, value, keep=lambda *cell: True, seeds=5, **others):
    """Made-up runs of a section whose accuracy in percent depends on the cell, with a spread of 0.1 over seeds."""
    own = [one for one in study_runs.experiments(False) if one.section == section and keep(*one.cell)]
    return made_up(own, lambda one, seed: (value(*one.cell) + 0.05 * (seed - 3)) / 100, seeds=seeds, **others)


def held(readings):
    """Whether each reading holds, by its label."""
    return {reading.label: reading.held for reading in readings}


def figure6(value, *tasks, seeds=5):
    """Made-up runs of some tasks, by default all; the value depends on the task's text and the rest of the cell."""
    return runs_of(study_runs.ACCURACY, value, lambda task, *rest: not tasks or task in map(str, tasks), seeds)


LEVELS = {"G: measured": 86.0, "G: 4": 88.0, "G: 4, unclipped": 91.0}


def level(task, algorithm, sigma, *rest):
    """AUDP's accuracy by its G, MAPA's by its σ."""
    if algorithm == study_runs.PRINTED:
        return 92.0
    return 90.0 - 0.1 * sigma if algorithm == "MAPA" else LEVELS.get(rest[0] if rest else "", 90.0)


def test_sigma_and_g_decide_which_algorithm_is_ahead():
    readings = gathered(claims.beats_audp(figure6(level, LR), "LR"))
    assert [(tuple(reading.choices.values())[1:], reading.held) for reading in readings] == [
        ((str(sigma), clips, bound), accuracy(sigma) > other)
        for clips, sigmas, accuracy in (
            ("each example", study_runs.SIGMAS, lambda sigma: 90.0 - 0.1 * sigma),
            ("the mean, as printed", study_runs.SIGMAS[:1], lambda sigma: 92.0),
        )
        for sigma in sigmas
        for bound, other in zip(study_runs.BOUNDS, LEVELS.values(), strict=True)
    ]
    assert [reading.label for reading in readings if reading.own] == [
        "classes: even or odd, σ = 5, MAPA clips: the mean, as printed, G = 4, unclipped (nearest to the paper)"
    ]
    (first, *_) = gathered(claims.beats_audp(figure6(level, LR), "LR"))
    assert first.evidence == (
        "LR, even or odd on USPS: +3.5 points ahead at ε = 0.1: 89.5 ± 0.1 % against AUDP's 86.0 ± 0.1 %, "
        f"clipped to {LR.bound:.1f}"
    )
    undecided = gathered(claims.beats_audp(figure6(level, LR, seeds=4), "LR"))
    assert {reading.held for reading in undecided} == {None}, "four seeds decide nothing"


def test_two_way_regression_is_nearest_and_data_sets_are_parts():
    def worse_on_mnist(task, algorithm, *rest):
        return level(task, algorithm, *rest) - (10.0 if "MNIST" in task and algorithm == "MAPA" else 0.0)

    everything = gathered(claims.beats_audp(figure6(worse_on_mnist), "LR"))
    nearest = [reading.choices for reading in everything if reading.own]
    assert [choices["classes"] for choices in nearest] == ["even or odd", "below five or not"], "no groups are named"
    assert {(choices["σ"], choices["G"], choices["MAPA clips"]) for choices in nearest} == {
        ("5", study_runs.UNCLIPPED, "the mean, as printed")
    }
    readings = [one for one in everything if one.choices["σ"] == "5" and one.choices["MAPA clips"] == "each example"]
    measured = {one.choices["classes"]: one for one in readings if one.choices["G"] == study_runs.MEASURED}
    assert [one.held for one in measured.values()] == [False, True, True], "USPS and MNIST must both hold"
    assert "on MNIST: -6.5 points ahead at ε = 0.1" in measured["even or odd"].evidence
    assert "(does not hold)" in measured["even or odd"].evidence.split("on MNIST")[1]


def test_all_sub_figures_are_parts_of_one_reading():
    def networks_lose(task, algorithm, sigma, *rest):
        return 80.0 if algorithm == "MAPA" and task.startswith("CNN") and rest == (0.5,) else level(task, algorithm, 5)

    def ahead(task, algorithm, *rest):
        return 92.0 if algorithm == "MAPA" else 85.0

    assert verdict_of(gathered(claims.beats_audp_everywhere(figure6(ahead)))) == Verdict.REPRODUCED
    lost = gathered(claims.beats_audp_everywhere(figure6(networks_lose)))
    assert verdict_of(lost) == Verdict.NOT_REPRODUCED, "the network at ε = 0.5 alone is enough"
    assert len(lost) == 3 * 2 * 3, "classes, hinges, G"
    assert {len(reading.parts) for reading in lost} == {7, 8, 9}
    assert verdict_of(gathered(claims.beats_audp_everywhere(figure6(ahead, seeds=4)))) == Verdict.UNDECIDABLE


def test_the_largest_leads_are_judged_by_three_quarters_of_the_papers():
    def doubled(task, algorithm, sigma, *rest):
        audp = 40.0 if rest[:1] == ("G: measured",) else 60.0
        return audp if algorithm == "AUDP" else 78.0

    runs = figure6(doubled)
    for reading in claims.leads_by(runs, "f"):
        assert reading.choices["panel"] == "CNN on MNIST"
        assert reading.held is (reading.choices["G"] == study_runs.MEASURED), "95 % and 30 % of 100 %"
    panels = {reading.choices["panel"] for reading in claims.leads_by(runs, "c")}
    assert panels == {"CNN on USPS", "SVM, each class on USPS", "SVM, worst class on USPS"}
    assert {reading.held for reading in claims.leads_by(runs, "c")} == {True}, "18 points, 30 % of 60 %"
    equal = figure6(lambda *cell: 80.0)
    assert {reading.held for panel in "cf" for reading in claims.leads_by(equal, panel)} == {False}
    numbers = {(number.row, number.paper) for number in claims.lead_numbers(runs)}
    assert ("(f) CNN on MNIST, G: measured", 100.0) in numbers


@pytest.mark.parametrize(("small", "verdict"), [(3.0, Verdict.REPRODUCED), (-3.0, Verdict.NOT_REPRODUCED)])
def test_the_lead_is_larger_at_small_epsilon(small, verdict):
    def accuracy(task, algorithm, sigma, *rest):
        return 85.0 + (small if algorithm == "MAPA" and rest[0] == 0.1 else 0.0)

    assert verdict_of(gathered(claims.leads_most_at_small_epsilon(figure6(accuracy)))) == verdict


@pytest.mark.parametrize(("curve", "result"), [((85.0, 87.0, 88.0), True), ((85.0, 82.0, 88.0), False)])
def test_curves_grow_only_if_they_do_not_fall_on_the_way(curve, result):
    def accuracy(task, algorithm, sigma, *rest):
        return curve[study_runs.EPSILONS.index(rest[-1])] if algorithm in study_runs.CLIPS else 90.0

    runs = figure6(accuracy)
    assert {reading.choices["classes"]: reading.held for reading in gathered(claims.mapa_grows(runs))} == {
        "even or odd": result,
        "below five or not": True,
        "ten-way": True,
    }, "three ε were run with even or odd alone"
    assert {reading.held for reading in gathered(claims.audp_grows(runs))} == {True}, "the two ends count"
    fallen = figure6(lambda *cell: 90.0 - 10.0 * (cell[-1] == 0.5))
    assert {reading.held for reading in gathered(claims.audp_grows(fallen))} == {False}


def test_mapa_is_compared_with_algorithms_without_noise():
    def accuracy(task, algorithm, sigma, *rest):
        mapa_ = 86.0 if task.startswith("SVM, worst") else 84.0 if "ten-way" in task else 89.0
        return {"ASGD": 88.0, "CSGD": 92.0}.get(algorithm, mapa_)

    runs = figure6(accuracy)
    assert {reading.choices["classes"]: reading.held for reading in gathered(claims.near_asgd(runs))} == {
        "even or odd": True,
        "below five or not": True,
        "ten-way": False,
    }
    assert held(gathered(claims.beyond_asgd(runs))) == {
        "classes: even or odd, σ = 5, MAPA clips: each example": True,
        "classes: below five or not, σ = 5, MAPA clips: each example": True,
        "classes: ten-way, σ = 5, MAPA clips: each example": False,
        "classes: even or odd, σ = 30, MAPA clips: each example": True,
        "classes: even or odd, σ = 5, MAPA clips: the mean, as printed (nearest to the paper)": True,
        "classes: below five or not, σ = 5, MAPA clips: the mean, as printed (nearest to the paper)": True,
        "classes: ten-way, σ = 5, MAPA clips: the mean, as printed": False,
    }


def test_clipping_norms_are_compared_within_one_task():
    ends = {200: 86.0, 100: 86.5, 10: 87.0, 15: 86.0, 3: 84.0, 0.2: 40.0}

    def accuracy(task, algorithm, *clip):
        lost = 10.0 if algorithm == "MAPA" and "ten-way" in task and clip == (200,) else 0.0
        return (ends[clip[0]] if clip else 50.0) - lost

    runs = runs_of(study_runs.NORMS, accuracy)
    expected = {"classes: even or odd (nearest to the paper)": True, "classes: ten-way": False}
    assert held(claims.insensitive(runs)) == expected
    assert held(claims.as_good_as_audp(runs)) == expected
    assert set(held(claims.bad_bound(runs, 0.2, study_runs.CLOSE)).values()) == {True}
    assert set(held(claims.bad_bound(runs, 15, 0.0)).values()) == {False}, "the largest norm was the best"


def figure7(count):
    """Made-up runs of figure 7; the cell gives the number of updates in which the loss falls to 0."""
    runs = runs_of(study_runs.CONVERGENCE, lambda *cell: 80.0)
    for cell in runs.cells(study_runs.CONVERGENCE):
        start = 0.69 if "even" in cell[0] else 2.3
        for seed, run in runs.of(study_runs.CONVERGENCE, cell).items():
            updates = run.metrics["updates"]
            run.metrics["train_loss"] = start * np.maximum(0.0, 1.0 - updates / (count(*cell) * (1 + 0.001 * seed)))
    return runs


def test_counts_of_updates_follow_from_the_mean_of_five_losses():
    runs = figure7(lambda *cell: 10_000)
    cell = str(study_runs.TEN_WAY[0]), 10, "MAPA"
    run = runs.first(study_runs.CONVERGENCE, cell)
    assert claims.updates_until(run, 1.0) == pytest.approx(10_010 * (1 - 1 / 2.3)), "its losses are on a line"
    assert claims.updates_at_least(run, 1.0) == claims.updates_until(run, 1.0)
    run.metrics = run.metrics.iloc[::10]
    assert claims.updates_until(run, 1.0) == pytest.approx(10_010 * (1 - 1 / 2.3), rel=0.01), "however seldom they are"
    assert math.isinf(claims.updates_until(run, -1.0))


def test_a_run_that_ends_early_counts_a_lower_bound_of_updates():
    runs = figure7(lambda task, servers, algorithm, *rest: 1_000_000)
    ten_way = str(study_runs.TEN_WAY[0])
    asgd = runs.first(study_runs.CONVERGENCE, (ten_way, 100, "ASGD"))
    assert math.isinf(claims.updates_until(asgd, 0.3))
    assert claims.updates_at_least(asgd, 1.15) == pytest.approx(500_500, rel=1e-3), "its losses are on a line"
    audp = runs.first(study_runs.CONVERGENCE, (ten_way, 10, "AUDP", "G: measured"))
    assert claims.updates_at_least(audp, 1.15) == 120_000, "noise may end a fall: no more is known than how long it ran"


@pytest.mark.parametrize(("audp", "asgd", "result"), [(60_000, 400_000, True), (4_000, 8_000, False)])
def test_orders_of_magnitude_follow_from_counts_of_updates(audp, asgd, result):
    def count(task, servers, algorithm, *bound):
        return {"AUDP": audp, "ASGD": asgd}.get(algorithm, 2_000)

    runs = figure7(count)
    # At the largest loss alone, which all of them reach within their runs or need more than ten times as many for.
    against_audp = {one.label: one.held for one in gathered(claims.saves_against_audp(runs))}
    assert against_audp["classes: ten-way, loss: 1, G = measured"] is result
    assert against_audp["classes: even or odd, loss: 0.5, G = 4"] in (result, None)
    against_asgd = held(gathered(claims.saves_against_asgd(runs)))
    assert against_asgd["classes: ten-way, loss: 1"] is result, "K = 100 and 1,000 must both hold"
    assert against_asgd["classes: even or odd, loss: 0.5 (nearest to the paper)"] is result


def test_more_servers_cost_every_algorithm_updates():
    runs = figure7(lambda task, servers, *rest: 1_000 * servers**0.5)
    assert {reading.held for reading in gathered(claims.more_servers(runs))} == {True}
    runs = figure7(lambda task, servers, algorithm, *rest: 9_000 if algorithm == "AUDP" else 1_000 * servers**0.5)
    for reading in gathered(claims.more_servers(runs)):
        assert reading.held is not True
        assert [part.held for part in reading.parts][::2] == [True, True], "MAPA and ASGD"
    one_machine = {"fewest": 500, "not fewest": 2_900}
    for name, needed in one_machine.items():
        runs = figure7(lambda task, servers, algorithm, *rest, own=needed: own if algorithm == "CSGD" else 1_500)
        assert {reading.held for reading in gathered(claims.fewest_on_one_machine(runs))} == {name == "fewest"}


def test_the_testbed_is_judged_on_the_network_after_every_count():
    def accuracy(algorithm, *rest):
        unclipped = rest[1:] == ("G: 4, unclipped",)
        return {"MAPA": 88.0, "ASGD": 80.0, "CSGD": 90.0}.get(algorithm, 95.0 if unclipped else 83.0)

    runs = runs_of(study_runs.TESTBED, accuracy)
    for reading in gathered(claims.on_the_testbed(runs)):
        assert reading.held is (reading.choices["G"] == study_runs.FOUR)
        assert len(reading.parts) == len(study_runs.SERVERS) == 4
    assert {reading.held for reading in claims.beyond_asgd_on_the_testbed(runs)} == {True}
    assert held(gathered(claims.near_csgd(runs))) == {"G = 4": False, "G = 4, unclipped (nearest to the paper)": True}
    assert all(own.overrides[0] == "data={set: mnist}" for own in study_runs.on_testbed())
    at_15 = runs_of(study_runs.TESTBED, lambda *cell: accuracy(*cell) - 20.0 * (cell[:2] == ("MAPA", 15)))
    for reading in gathered(claims.on_the_testbed(at_15)):
        assert reading.held is False
        assert "K = 15: " in reading.evidence.split("; ")[2], "the exception is named"


def test_parameters_matter_where_accuracies_differ():
    values = {("σ", 100): 80.0, ("b", 24): 90.0, ("L", 2.5): 90.0, ("ε", 0.01): 60.0,
              ("θ", 0.25): 80.0, ("θ", 0.75): 90.0}  # fmt: skip
    runs = runs_of(study_runs.PARAMETERS, lambda *cell: values.get(cell, 87.0))
    (sigma,) = claims.no_matter(runs, "σ")
    assert sigma.own
    assert [part.held for part in sigma.parts] == [True, False], "5 and 100 for 30"
    assert sigma.held is False
    assert held(claims.no_matter(runs, "δ")) == {"the only one": True}
    assert held(claims.matters(runs)) == {"the only one": True}
    for name, falling in (("b", False), ("L", True), ("θ", False)):
        for updates in (study_runs.BETWEEN[0], study_runs.BETWEEN[-1]):
            assert [reading.held for reading in claims.rises(runs, name, updates, falling)] == [True]
            assert [reading.held for reading in claims.rises(runs, name, updates, not falling)] == [False]
    four = runs_of(study_runs.PARAMETERS, lambda *cell: values.get(cell, 87.0), seeds=4)
    assert [reading.held for reading in claims.rises(four, "θ", study_runs.BETWEEN[-1])] == [None]


@pytest.mark.parametrize(
    ("few", "many", "results"),
    [(0.0, 0.9, (True, True)), (0.4, 0.9, (False, False)), (0.0, 0.1, (False, False))],
)
def test_images_are_judged_by_correlations(monkeypatch, few, many, results):
    made = {
        (law, epsilon): tuple(tuple(value + 0.001 * seed for _ in range(20)) for seed in range(5))
        for law in claims.LAWS
        for epsilon, value in zip(claims.LEVELS, (few, 0.3, many), strict=True)
    }
    monkeypatch.setattr(claims, "correlations", lambda: made)
    assert tuple(reading.held for reading in claims.blurs(None)) == results
    assert len(list(claims.inversion_numbers(None))) == 2 * 3 * 2


def test_images_are_not_judged_without_mnist(monkeypatch, tmp_path):
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    claims.correlations.cache_clear()
    with pytest.raises(NotMeasuredError, match=r"^Figure 4: .*mnist"):
        list(claims.blurs(None))


def test_privacy_claims_follow_the_certified_epsilon():
    own = [*study_runs.over_epsilon([LR, study_runs.TEN_WAY[0]], 5, study_runs.EPSILONS), *study_runs.private_noise()]

    def epsilon(one, seed):
        return 0.2 if one.section == study_runs.PRIVATE else None

    runs = made_up(own, 0.12, seeds=5, epsilon=epsilon)
    readings = list(claims.private(runs))
    assert [(reading.held, reading.own) for reading in readings] == [(False, False), (True, False), (False, True)]
    assert "an iteration costs 1.2 at ε = 0.1" in readings[-1].evidence
    assert {reading.held for reading in claims.useful_and_private(runs)} == {True}, "ASGD guesses as well"
    runs = made_up(own, lambda one, seed: 0.12 if one.section == study_runs.PRIVATE else 0.9, seeds=5, epsilon=epsilon)
    assert {reading.held for reading in claims.useful_and_private(runs)} == {False}
    assert [reading.choices for reading in claims.useful_and_private(runs) if reading.own] == [
        {"ε": "0.1", "stages": "one dimension"}
    ]


def test_without_clipping_the_noise_equals_that_of_the_codes_bound():
    """Noise has the same size, sensitivity over epsilon, whether the clipping norm is 4 or exceeds all norms."""
    sizes = {}
    for bound in (study_runs.FOUR, study_runs.UNCLIPPED):
        privacy = load(
            scenarios_folder() / study_runs.FILE.format("audp"), list(study_runs._noise(LR, bound, 0.1))
        ).privacy
        sizes[bound] = privacy.clipping_norm / privacy.epsilon_per_release
    assert sizes[study_runs.UNCLIPPED] == pytest.approx(sizes[study_runs.FOUR])
    assert 10 * max(task.bound for task in study_runs.TASKS if task.choice) < study_runs.NO_CLIP


def needs_data():
    if "SIMFL_DATA" not in os.environ:
        pytest.skip("SIMFL_DATA names no folder of data sets")


@pytest.mark.parametrize("name", study_runs.SETS)
def test_the_largest_example_matches_the_data(name):
    needs_data()
    data = load_data(
        load(scenarios_folder() / study_runs.FILE.format("audp"), [f"data={study_runs.SETS[name].format('')}"]),
        Streams(1),
    )
    x = data.train_x.reshape(len(data.train_x), -1).astype(np.float64) / (255.0 if data.train_x.max() > 1.0 else 1.0)
    assert math.sqrt((x * x).sum(axis=1).max() + 1.0) == pytest.approx(study_runs.LARGEST[name], abs=1e-3)
