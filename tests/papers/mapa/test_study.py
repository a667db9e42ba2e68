"""The study of MAPA: what its readings say follows from accuracies, counts of updates and certificates."""

import math
import os

import jax
import numpy as np
import pytest

from simfl.build.assembly import assemble
from simfl.build.data import load_data
from simfl.papers.mapa import study as mapa
from simfl.scenario import load
from simfl.streams import Streams
from simfl.studies.evidence import Verdict, verdict_of
from simfl.studies.reproducing import scenarios_folder
from tests.papers.made_up import made_up

pytestmark = pytest.mark.slow

LR = mapa.TEN_WAY[0]


def runs_of(section, value, keep=lambda *cell: True, seeds=5, **others):
    """Made-up runs of a section whose accuracy in percent depends on the cell, with a spread of 0.1 over seeds."""
    own = [one for one in mapa.experiments(False) if one.section == section and keep(*one.cell)]
    return made_up(own, lambda one, seed: (value(*one.cell) + 0.05 * (seed - 3)) / 100, seeds=seeds, **others)


def held(readings):
    """What the readings say, by their label."""
    return {reading.label: reading.held for reading in readings}


def figure6(value, seeds=5):
    """Made-up runs of logistic regression on USPS with ten classes."""
    return runs_of(mapa.ACCURACY, value, lambda task, *rest: task == str(LR), seeds)


def test_sigma_and_g_decide_which_algorithm_is_ahead():
    def accuracy(task, algorithm, sigma, *rest):
        if algorithm == "MAPA":
            return 90.0 - 0.2 * sigma
        return {"G: measured": 86.0, "G: 4": 88.0, "G: 4, unclipped": 91.0}.get(rest[0] if rest else "", 90.0)

    held_by_label = held(mapa.beats_audp(figure6(accuracy), "LR"))
    where = "data: USPS, classes: ten-way, "
    assert held_by_label == {
        f"{where}σ = {sigma}, G = {bound}": 90.0 - 0.2 * sigma > other
        for sigma in mapa.SIGMAS
        for bound, other in zip(mapa.BOUNDS, (86.0, 88.0, 91.0), strict=True)
    }
    (first, *_) = mapa.beats_audp(figure6(accuracy), "LR")
    assert first.evidence == (
        f"+3.0 points ahead at ε = 0.1: 89.0 ± 0.1 % against AUDP's 86.0 ± 0.1 %, clipped to {LR.bound:.1f}"
    )
    assert set(held(mapa.beats_audp(figure6(accuracy, seeds=4), "LR")).values()) == {None}, "four seeds decide nothing"


@pytest.mark.parametrize(("small", "verdict"), [(3.0, Verdict.REPRODUCED), (-3.0, Verdict.NOT_REPRODUCED)])
def test_the_lead_is_larger_at_small_epsilon(small, verdict):
    def accuracy(task, algorithm, sigma, *rest):
        return 85.0 + (small if algorithm == "MAPA" and rest[0] == 0.1 else 0.0)

    assert verdict_of(list(mapa.leads_most_at_small_epsilon(figure6(accuracy)))) == verdict


def test_curves_grow_only_if_they_do_not_fall_on_the_way():
    curves = {5: (85.0, 87.0, 88.0), 14: (85.0, 82.0, 88.0), 30: (88.0, 88.0, 87.0)}

    def accuracy(task, algorithm, sigma, *rest):
        return curves[sigma][mapa.EPSILONS.index(rest[-1])] if algorithm in mapa.CLIPS else 90.0

    runs = figure6(accuracy)
    assert [reading.held for reading in mapa.mapa_grows(runs)] == [True, False, False]
    assert {reading.choices["σ"]: reading.held for reading in mapa.audp_grows(runs)} == {
        "5": True,
        "14": True,
        "30": False,
    }


def test_mapa_is_compared_with_algorithms_without_noise():
    def accuracy(task, algorithm, sigma, *rest):
        return {"ASGD": 88.0, "CSGD": 92.0}.get(algorithm, {5: 89.0, 14: 86.0, 30: 80.0}[sigma])

    runs = figure6(accuracy)
    assert [reading.held for reading in mapa.near_asgd(runs)] == [True, True, False]
    assert [reading.held for reading in mapa.beyond_asgd(runs)] == [True, False, False]
    assert [reading.held for reading in mapa.csgd_is_best(runs)] == [True] * 3
    worse = figure6(lambda *cell: accuracy(*cell) - 5.0 * (cell[1] == "CSGD"))
    assert [reading.held for reading in mapa.csgd_is_best(worse)] == [False] * 3


def test_clipping_norms_are_compared_within_one_sigma():
    ends = {200: 86.0, 100: 86.5, 10: 87.0, 15: 86.0, 3: 84.0, 0.2: 40.0}

    def accuracy(algorithm, sigma, *clip):
        lost = 10.0 if algorithm == "MAPA" and sigma == 30 and clip == (200,) else 0.0
        return (ends[clip[0]] if clip else 50.0) - lost

    runs = runs_of(mapa.NORMS, accuracy)
    assert held(mapa.insensitive(runs)) == {"σ = 5": True, "σ = 30": False}
    assert held(mapa.as_good_as_audp(runs)) == {"σ = 5": True, "σ = 30": False}
    assert set(held(mapa.bad_bound(runs, 0.2, mapa.CLOSE)).values()) == {True}
    assert set(held(mapa.bad_bound(runs, 15, 0.0)).values()) == {False}, "the largest norm was the best"


def figure7(count):
    """Made-up runs of figure 7 whose loss falls to 0 in so many updates, by their cell."""
    runs = runs_of(mapa.CONVERGENCE, lambda *cell: 80.0)
    for cell in runs.cells(mapa.CONVERGENCE):
        for seed, run in runs.of(mapa.CONVERGENCE, cell).items():
            updates = run.metrics["updates"]
            run.metrics["train_loss"] = 2.3 * np.maximum(0.0, 1.0 - updates / (count(*cell) * (1 + 0.001 * seed)))
    return runs


def test_counts_of_updates_follow_from_the_mean_of_five_losses():
    runs = figure7(lambda *cell: 10_000)
    cell = str(LR), 10, "MAPA", 5
    run = runs.first(mapa.CONVERGENCE, cell)
    assert mapa.updates_until(run, 1.0) == pytest.approx(10_010 * (1 - 1 / 2.3)), "its losses are on a line"
    assert mapa.updates_at_least(run, 1.0) == mapa.updates_until(run, 1.0)
    run.metrics = run.metrics.iloc[::10]
    assert mapa.updates_until(run, 1.0) == pytest.approx(10_010 * (1 - 1 / 2.3), rel=0.01), "however seldom they are"
    assert math.isinf(mapa.updates_until(run, -1.0))


def test_a_run_that_ends_early_counts_a_lower_bound_of_updates():
    runs = figure7(lambda task, servers, algorithm, *rest: 1_000_000)
    asgd = runs.first(mapa.CONVERGENCE, (str(LR), 100, "ASGD", 5))
    assert math.isinf(mapa.updates_until(asgd, 0.3))
    assert mapa.updates_at_least(asgd, 1.15) == pytest.approx(500_500, rel=1e-3), "its losses are on a line"
    audp = runs.first(mapa.CONVERGENCE, (str(LR), 10, "AUDP", 5, "G: measured"))
    assert mapa.updates_at_least(audp, 1.15) == 120_000, "noise may end a fall: no more is known than how long it ran"


@pytest.mark.parametrize(
    ("audp", "asgd", "verdicts"),
    [
        (60_000, 400_000, (Verdict.REPRODUCED, Verdict.REPRODUCED)),
        (4_000, 8_000, (Verdict.NOT_REPRODUCED, Verdict.NOT_REPRODUCED)),
    ],
)
def test_orders_of_magnitude_follow_from_counts_of_updates(audp, asgd, verdicts):
    def count(task, servers, algorithm, sigma, *bound):
        return {"AUDP": audp, "ASGD": asgd}.get(algorithm, 2_000)

    runs = figure7(count)
    # At the largest loss alone, which all of them reach within their runs or need more than ten times as many for.
    against_audp = [one for one in mapa.saves_against_audp(runs) if one.choices["loss"] == "1"]
    short = [one for one in against_audp if one.choices["G"] == mapa.MEASURED]
    assert verdict_of(short) == verdicts[0]
    at_100 = [one for one in mapa.saves_against_asgd(runs) if one.choices["K"] == "100 on USPS"]
    assert verdict_of(at_100) == verdicts[1]


def test_runs_that_end_early_do_not_decide_against_an_order():
    runs = figure7(lambda task, servers, algorithm, *rest: 10**7 if algorithm == "AUDP" else 30_000)
    verdicts = {reading.held for reading in mapa.saves_against_audp(runs)}
    assert verdicts == {None}, "120,000 updates are less than ten times MAPA's, and AUDP was not there yet"


def test_more_servers_cost_every_algorithm_updates():
    runs = figure7(lambda task, servers, *rest: 1_000 * servers**0.5)
    assert {reading.held for reading in mapa.more_servers(runs)} == {True}
    runs = figure7(lambda task, servers, algorithm, *rest: 9_000 if algorithm == "AUDP" else 1_000 * servers**0.5)
    assert {reading.choices["algorithm"] for reading in mapa.more_servers(runs) if not reading.held} == {"AUDP"}
    one_machine = {"fewest": 500, "not fewest": 2_900}
    for name, needed in one_machine.items():
        runs = figure7(lambda task, servers, algorithm, *rest, own=needed: own if algorithm == "CSGD" else 1_500)
        assert {reading.held for reading in mapa.fewest_on_one_machine(runs)} == {name == "fewest"}


def test_the_testbed_is_judged_on_the_network_after_every_count():
    def accuracy(algorithm, *rest):
        unclipped = rest[1:] == ("G: 4, unclipped",)
        return {"MAPA": 88.0, "ASGD": 80.0, "CSGD": 90.0}.get(algorithm, 95.0 if unclipped else 83.0)

    runs = runs_of(mapa.TESTBED, accuracy)
    for reading in mapa.on_the_testbed(runs):
        assert reading.held is (reading.choices["G"] == mapa.FOUR)
    assert {reading.held for reading in mapa.beyond_asgd_on_the_testbed(runs)} == {True}
    assert held(mapa.near_csgd(runs)) == {
        f"K = {count}, algorithm: {name}": name != "AUDP, G: 4"
        for name in ("MAPA", "AUDP, G: 4", "AUDP, G: 4, unclipped")
        for count in mapa.SERVERS
    }
    assert all(own.overrides[0] == "data={set: mnist}" for own in mapa.on_testbed())


def test_parameters_matter_where_accuracies_differ():
    values = {("σ", 100): 80.0, ("b", 24): 90.0, ("L", 2.5): 90.0, ("ε", 0.01): 60.0,
              ("θ", 0.25): 80.0, ("θ", 0.75): 90.0}  # fmt: skip
    runs = runs_of(mapa.PARAMETERS, lambda *cell: values.get(cell, 87.0))
    assert held(mapa.no_matter(runs, "σ")) == {"σ = 5 for 30": True, "σ = 100 for 30": False}
    assert set(held(mapa.no_matter(runs, "δ")).values()) == {True}
    assert held(mapa.matters(runs)) == {"the paper's setting": True}
    assert [reading.held for reading in mapa.slower_reduction(runs)] == [True, False]
    for name, falling in (("b", False), ("L", True)):
        assert [reading.held for reading in mapa.faster_at_first(runs, name, falling)] == [True]
        assert [reading.held for reading in mapa.faster_at_first(runs, name, not falling)] == [False]


def test_privacy_claims_follow_the_certified_epsilon():
    own = [*mapa.over_epsilon([LR], mapa.SIGMAS, mapa.EPSILONS), *mapa.private_noise()]

    def epsilon(one, seed):
        return 0.2 if one.section == mapa.PRIVATE else None

    runs = made_up(own, 0.12, seeds=5, epsilon=epsilon)
    assert [reading.held for reading in mapa.private(runs)] == [False, True]
    assert {reading.held for reading in mapa.useful_and_private(runs)} == {True}, "ASGD guesses as well"
    runs = made_up(own, lambda one, seed: 0.12 if one.section == mapa.PRIVATE else 0.9, seeds=5, epsilon=epsilon)
    assert {reading.held for reading in mapa.useful_and_private(runs)} == {False}


def test_without_clipping_the_noise_equals_that_of_the_codes_bound():
    """The same size of noise, sensitivity over epsilon, whether gradients are clipped to 4 or to what none exceeds."""
    sizes = {}
    for bound in (mapa.FOUR, mapa.UNCLIPPED):
        privacy = load(scenarios_folder() / mapa.FILE.format("audp"), list(mapa._noise(LR, bound, 0.1))).privacy
        sizes[bound] = privacy.clipping_norm / privacy.epsilon_per_release
    assert sizes[mapa.UNCLIPPED] == pytest.approx(sizes[mapa.FOUR])
    assert 10 * max(task.bound for task in mapa.TASKS if task.choice) < mapa.NO_CLIP


def needs_data():
    if "SIMFL_DATA" not in os.environ:
        pytest.skip("SIMFL_DATA names no folder of data sets")


@pytest.mark.parametrize("name", mapa.SETS)
def test_the_largest_example_matches_the_data(name):
    needs_data()
    data = load_data(
        load(scenarios_folder() / mapa.FILE.format("audp"), [f"data={mapa.SETS[name].format('')}"]), Streams(1)
    )
    x = data.train_x.reshape(len(data.train_x), -1).astype(np.float64) / (255.0 if data.train_x.max() > 1.0 else 1.0)
    assert math.sqrt((x * x).sum(axis=1).max() + 1.0) == pytest.approx(mapa.LARGEST[name], abs=1e-3)


def test_the_largest_gradient_of_the_network_matches_a_first_model():
    """Of the third seed's, which is the largest of five."""
    needs_data()
    changes = [*mapa.Task("CNN", "", "USPS").changes, "seed=3"]
    setup = assemble(load(scenarios_folder() / mapa.FILE.format("audp"), changes))
    norms = jax.jit(setup.model.gradient_norms)(setup.training.initial, setup.dataset.train_x, setup.dataset.train_y)
    assert float(norms.max()) == pytest.approx(mapa.AT_START["USPS"], abs=0.01)
