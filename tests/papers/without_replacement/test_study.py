"""The study of SGD without replacement: the plan has the paper's settings, and verdicts follow from accuracies."""

import math
import types
import zlib

import numpy as np
import pandas as pd
import pytest

from simfl.papers.without_replacement import study
from simfl.reproduction.evidence import Verdict, gathered, verdict_of
from simfl.reproduction.papers import Runs
from simfl.reproduction.reproducing import scenarios_folder
from simfl.scenario import load

pytestmark = pytest.mark.slow

YES, UNDER, NO, NONE = Verdict.REPRODUCED, Verdict.MIXED, Verdict.NOT_REPRODUCED, Verdict.UNDECIDABLE
SPREAD = (0.0, 0.4, -0.3, 0.2, -0.3)
"""What seeds differ by."""


def made_up(accuracy, epsilon, time_s, seed):
    """What the study reads of a run; accuracies are in percent."""
    return types.SimpleNamespace(
        status="done",
        metrics=pd.DataFrame({"test_accuracy": [accuracy / 100]}),
        client_metrics=pd.DataFrame({"time_s": [time_s] * 2, "test_accuracy": [accuracy / 100] * 2}),
        manifest=types.SimpleNamespace(seed=seed, time_s=time_s),
        epsilon_and_delta=lambda: (epsilon, 1e-9),
    )


def runs_of(section, accuracy, spread=1.0, epsilon=1.0, time_s=lambda cell, seed: 10.0):
    """Made-up runs of a section of the full form, five seeds at most; accuracies follow from the cell."""
    groups = {}
    for own in study.experiments(False):
        if own.section == section:
            draws = np.random.default_rng(zlib.crc32(repr(own.cell).encode())).permutation(SPREAD)
            groups[own] = {
                seed: made_up(accuracy(*own.cell) + spread * draw, epsilon, time_s(own.cell, seed), seed)
                for seed, draw in enumerate(draws[: own.seeds], start=1)
            }
    return Runs(groups)


def method(curve):
    """The algorithm of a curve, whatever its order."""
    return curve.split(",")[0]


def verdict(readings):
    return verdict_of(list(readings))


def printed(reading, curve, case, count):
    """The paper's Table II."""
    return study.PRINTED[curve, case][study.NODES.index(count)]


def test_both_readings_are_those_of_table_2():
    for own in study.table2(study.NODES, study.table_seeds, study.CASES):
        reading, _curve, case, count = own.cell
        scenario = load(scenarios_folder() / own.base, own.overrides)
        assert scenario.clients.count == count
        assert scenario.data.pca_center is (reading == study.FIRST)
        assert scenario.model.intercept is (reading == study.SECOND)
        if scenario.privacy is not None:
            clipped = scenario.privacy.mechanism == "one_pass_gaussian"
            assert clipped is (reading == study.FIRST)
            assert scenario.privacy.lipschitz in (None, 1.0)
        if case == "strongly convex":
            smooth = (1 if reading == study.FIRST else 2) + scenario.model.l2
            bound = 1 / (2 * smooth) if reading == study.FIRST else 1 / smooth
            assert scenario.algorithm.largest_step(scenario.model.l2) == pytest.approx(bound, rel=1e-5)
        if case == "strongly convex" and reading == study.SECOND:
            steps = scenario.algorithm.steps(scenario.model.l2)
            assert [steps(t, 0, 0.0) for t in (0, 9)] == pytest.approx([1e4, 1e3]), "1/(l2 t), t from 1"


@pytest.mark.parametrize(("ahead", "spread", "expected"), [
    (lambda curve, case, epsilon: 3.0, 1.0, YES),
    (lambda curve, case, epsilon: 3.0 if case == "strongly convex" else -3.0, 1.0, NO),
    (lambda curve, case, epsilon: 3.0 if epsilon < 1 else -3.0, 1.0, NO),
    (lambda curve, case, epsilon: 3.0 if curve == "Algorithm 2" else -3.0, 1.0, UNDER),
    (lambda curve, case, epsilon: -3.0, 1.0, NO),
    (lambda curve, case, epsilon: 0.1, 20.0, NONE),
], ids=["ahead", "in one case", "at smaller epsilons", "in rounds", "behind", "level within the noise"])  # fmt: skip
def test_the_lead_of_deep_q_decides_the_verdict(ahead, spread, expected):
    """Cases and epsilons are parts of one reading; settings and orders are readings."""

    def accuracy(reading, curve, case, epsilon=math.inf):
        return 60.0 + (ahead(curve, case, epsilon) if method(curve) == "Algorithm 2" else 0.0)

    runs = runs_of(study.FIGURES, accuracy, spread)
    readings = gathered(study.ahead_in_figures((0.1, 0.2, 0.5, 1.0), runs))
    assert verdict_of(readings) == expected
    assert [tuple(reading.choices.values()) for reading in readings] == [
        *((study.FIRST, order) for order in ("rounds", "fewest", "round robin", "random")),
        (study.SECOND, "rounds"),
    ]
    assert [reading.own for reading in readings] == [True, False, False, False, False]
    assert [reading.afterwards for reading in readings] == [False, False, False, False, True]
    assert [len(reading.parts) for reading in readings] == [8, 2, 2, 2, 4]
    assert readings[0].parts[0].text.startswith("convex, ε = 0.1: ahead by ")


@pytest.mark.parametrize(("order", "expected"), [
    (["Noiseless", "Algorithm 2", "Algorithm 1", "DP-SGD-5"], YES),
    (["Noiseless", "Algorithm 1", "Algorithm 2", "DP-SGD-5"], NO),
])  # fmt: skip
def test_the_order_of_the_curves_decides_the_verdict(order, expected):
    runs = runs_of(study.FIGURES, lambda reading, curve, *rest: 90.0 - 10 * order.index(method(curve)))
    assert verdict(study.ordering(runs)) == expected


@pytest.mark.parametrize(("lead", "expected"), [(20.0, YES), (9.0, NO)])
def test_a_lead_of_up_to_15_points_is_judged_where_it_is_largest(lead, expected):
    def accuracy(reading, curve, case, epsilon=math.inf):
        return 70.0 + (lead if curve == "Algorithm 1" and epsilon == 0.5 else 0.0)

    runs = runs_of(study.FIGURES, accuracy)
    readings = gathered(study.up_to("Algorithm 1", "DP-SGD-5", 15.0, runs))
    assert verdict_of(readings) == expected
    assert [len(reading.parts) for reading in readings] == [2]
    assert all("at ε = 0.5 (bar: 15)" in reading.evidence for reading in readings)


@pytest.mark.parametrize("curve", ["Noiseless", "Algorithm 1", "Algorithm 2"])
def test_cells_of_table_2_decide_the_verdict(curve):
    right = runs_of(study.TABLE, lambda *cell: (printed(*cell) or 0.0) + 1.0, 0.1)
    wrong = runs_of(study.TABLE, lambda *cell: (printed(*cell) or 0.0) + 5.0, 0.1)
    assert verdict(gathered(study.cells(curve, right))) == YES
    assert verdict(gathered(study.cells(curve, wrong))) == NO
    one = runs_of(study.TABLE, lambda *cell: (printed(*cell) or 0.0) + (5.0 if cell[0] == study.FIRST else 0.0), 0.1)
    readings = gathered(study.cells(curve, one))
    assert verdict_of(readings) == UNDER
    assert all(reading.afterwards for reading in readings if reading.held)


def test_a_cell_may_be_off_by_what_one_run_is():
    """The paper prints one number for each cell."""
    few = (58.0, 62.0, 60.0, 59.0, 61.0)
    assert study.near(few, 60.5) is True
    assert study.near(few, 68.0) is False
    assert study.near(few, 63.0) is None
    assert study.near(few * 3, 62.0) is True, "the same spread over more seeds decides"
    assert study.near(few[:4], 60.0) is None, "too few"


@pytest.mark.parametrize(("accuracy", "spread", "expected"), [
    (lambda count: 60 + count, 0.1, YES),
    (lambda count: 60 + count - 8 * (count == 5), 0.1, NO),
    (lambda count: 60 + count - 8 * (count == 10), 0.1, UNDER),
    (lambda count: 60.0 + 0.01 * count, 10.0, NONE),
], ids=["grows", "drops at five", "drops at ten, which one setting has", "within the noise"])  # fmt: skip
def test_the_accuracy_with_more_nodes_decides_the_verdict(accuracy, spread, expected):
    runs = runs_of(study.TABLE, lambda reading, curve, case, count: accuracy(count), spread)
    assert verdict(gathered(study.more_nodes(runs))) == expected


def test_algorithm_2_in_table_2_is_judged_by_global_and_own_models():
    runs = runs_of(study.TABLE, lambda reading, curve, case, count: 70.0 + (curve == "Algorithm 2"), 0.05)
    for cell in runs.cells(study.TABLE):
        for run in runs.of(study.TABLE, cell).values():
            run.client_metrics["test_accuracy"] -= 0.05
    readings = gathered(study.ahead_in_table(runs))
    assert verdict_of(readings) == UNDER
    assert {reading.choices["Algorithm 2's model"] for reading in readings if reading.held} == {"the global one"}


@pytest.mark.parametrize(("lead", "spread", "expected"), [(5.0, 1.0, YES), (0.3, 1.0, NO), (1.5, 8.0, NONE)])
def test_the_network_is_compared_with_a_coin(lead, spread, expected):
    runs = runs_of(study.CHOICES, lambda choice, *rest: 70.0 - (lead if choice == study.COIN else 0.0), spread)
    assert verdict(gathered(study.learned(runs))) == expected


@pytest.mark.parametrize(
    ("slope", "small", "large"), [(0.05, YES, NO), (-0.05, NO, YES)], ids=["larger is better", "larger is worse"]
)
def test_the_accuracy_with_larger_batches_decides_the_verdict(slope, small, large):
    runs = runs_of(study.SIZES, lambda curve, case, size, epsilon: 60 + slope * size)
    for algorithm, orders in (("Algorithm 1", 1), ("Algorithm 2", 4)):
        readings = gathered(study.larger_batches(algorithm, (0.2, 0.5, 1.0), 1, runs))
        assert verdict_of(readings) == small
        assert [reading.own for reading in readings] == [True, False, False, False][:orders]
        assert len(readings[0].parts) == 6, "cases and epsilons"
        assert verdict(gathered(study.larger_batches(algorithm, (5.0,), -1, runs))) == large


@pytest.mark.parametrize(("lost", "expected"), [(5.0, YES), (7.0, NO)])
def test_what_noise_costs_at_twenty_nodes(lost, expected):
    runs = runs_of(study.TABLE, lambda reading, curve, *rest: 88.0 - lost * (curve == "Algorithm 2"), 0.1)
    readings = gathered(study.within_noiseless(runs))
    assert verdict_of(readings) == expected
    assert [reading.choices["setting"] for reading in readings] == [study.FIRST] * 2
    assert [len(reading.parts) for reading in readings] == [2, 2]


def test_a_pass_is_linear_under_the_orders_that_are():
    def time_s(cell, seed):
        order, _, count = cell
        return 10.0 / (count if order == "round robin" else count**0.7 * (1 + 0.001 * seed))

    runs = runs_of(study.SPEED, lambda *cell: 70.0, time_s=time_s)
    readings = list(study.linear(runs))
    assert verdict_of(readings) == UNDER
    assert {reading.choices["order"] for reading in readings if reading.held} == {"round robin"}
    assert study.speed_ups(runs, "round robin", "links in no time")[10] == (pytest.approx(10.0),)
    assert len(study.speed_ups(runs, "race", "links in no time")[10]) == 5


def test_epsilon_is_that_of_one_task_at_one_node_alone():
    runs = runs_of(study.TABLE, lambda *cell: 70.0, epsilon=2.852)
    readings = list(study.one_epsilon(runs))
    assert verdict_of(readings) == UNDER
    (alone,) = (reading for reading in readings if reading.held)
    assert alone.choices == {"counted": "one task at one node"}
    assert "0.85 (M = 1)" in alone.evidence


@pytest.mark.parametrize(("excess", "expected"), [
    (lambda l2, epochs: 1 / (1 + 120 * epochs), YES),
    (lambda l2, epochs: 1 / (1 + 120 * epochs) ** 0.5, NO),
    (lambda l2, epochs: 1 / (1 + 120 * epochs) ** (0.5 if l2 < 1 else 1.0), UNDER),
], ids=["1/t", "1/sqrt(t)", "not at the paper's l2"])  # fmt: skip
def test_the_rate_of_theorem_7(excess, expected):
    epochs = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    groups = {}
    for own in study.rates():
        name, l2 = own.cell
        loss = np.full(5, 3.0) if name == study.OPTIMUM else 3.0 + excess(l2, epochs)
        groups[own] = {
            seed: types.SimpleNamespace(
                status="done",
                metrics=pd.DataFrame({"epochs": epochs, "train_loss": 3.0 + (loss - 3.0) * (1 + 0.1 * draw)}),
            )
            for seed, draw in enumerate(SPREAD[: own.seeds], start=1)
        }
    readings = list(study.falls(Runs(groups)))
    assert verdict_of(readings) == expected
    assert [reading.own for reading in readings] == [True, False, False]
    assert "(bar: 1/2.8)" in readings[0].evidence


def test_the_runs_of_theorem_7_take_the_steps_that_it_names():
    for own in study.rates():
        scenario = load(scenarios_folder() / own.base, own.overrides)
        name, l2 = own.cell
        assert scenario.model.l2 == l2
        if name == study.OPTIMUM:
            continue
        assert scenario.algorithm.order == "rounds"
        least = scenario.algorithm.explore_to / 2
        steps = scenario.algorithm.steps(l2)
        assert [steps(t, 0, 0.0) for t in (0, 9)] == pytest.approx([1 / (least * l2), 1 / (10 * least * l2)])
        bound = scenario.algorithm.largest_step(l2)
        assert steps(study.ROUNDS // 4, 0, 0.0) < bound, "no bound acts where the rate is measured"
