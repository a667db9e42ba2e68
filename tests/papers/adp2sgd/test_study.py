"""The study of A(DP)²SGD: results of its checks on made-up runs, and Theorem 2 against the account."""

import math

import numpy as np
import pytest

import simfl
from simfl.papers.adp2sgd import study as adp2sgd
from simfl.papers.adp2sgd.study import CLIPPED, EDGE, LARGE, LENET5, LSTM, MLP, RESNET, SLOW, SOFTMAX, SYNC, UNCLIPPED
from simfl.reproduction.evidence import Verdict, gathered, under, verdict_of
from simfl.reproduction.papers import Runs
from simfl.reproduction.reading import counted
from simfl.scenario import load
from tests.papers.made_up import SCENARIOS, made_up

pytestmark = pytest.mark.slow

NAN = math.nan


def runs_of(accuracy, *sections, seeds=5, **others):
    """Made-up runs of some sections of the full form, whose accuracies in percent depend on section, cell and seed."""
    own = [experiment for experiment in adp2sgd.experiments(False) if experiment.section in sections]
    return made_up(own, lambda one, seed: accuracy(one.section, one.cell, seed) / 100, seeds, **others)


def held(readings):
    """Whether each reading holds, by its label."""
    return {reading.label: reading.held for reading in readings}


@pytest.mark.parametrize(
    ("sync", "adpsgd", "expected"),
    [
        ([10] * 8, [90] * 8, True),
        ([NAN] * 8, [NAN] * 2 + [90] * 6, True),
        ([90] * 8, [90] * 8, False),
        ([90] * 5, [90] * 5, None),
        ([10] * 12 + [90] * 4, [10] * 6 + [90] * 10, None),
        ([10] * 13 + [90] * 3, [10] * 6 + [90] * 10, True),
        ([10] * 8, [NAN] * 8, False),
        ([10] * 5 + [90] * 3, [10] * 2 + [90] * 6, None),
        ([10] * 8, [10] * 4 + [90] * 4, None),
        ([10] * 4, [90] * 4, None),
    ],
    ids=[
        "one collapses",
        "as counted in eight seeds",
        "none does",
        "in five seeds none does",
        "p = 0.073",
        "p = 0.029",
        "both do",
        "too close",
        "a coin",
        "four seeds",
    ],
)
def test_a_collapse_is_a_count_of_seeds(sync, adpsgd, expected):
    part = adp2sgd.collapses(sync, adpsgd, 80.0)
    assert part.held is expected
    assert f"of {len(sync)} seeds" in part.text


def test_case_three_depends_on_how_models_are_averaged():
    def accuracy(section, cell, seed):
        lost = section is EDGE and cell[1] == adp2sgd.DOUBLED_STEP and cell[3] in (SYNC, "messages")
        return 20 + seed if lost else 90 + 0.1 * seed

    readings = tuple(adp2sgd.large_batches(runs_of(accuracy, EDGE, SOFTMAX, seeds=8)))
    assert verdict_of(readings) == Verdict.MIXED
    assert under(readings) == "models are averaged: at once (Algorithm 1)"
    assert [one.choices["batch"] for one in readings] == ["128", "128", "64", "64", "128"]
    assert [one.own for one in readings] == [True, True, False, False, False], "twice the scenario's batch"
    assert not readings[-1].held, "with clipping nothing collapses"


@pytest.mark.parametrize(("half", "expected"), [(90, True), (20, False)], ids=["converges", "collapses too"])
def test_case_three_needs_a_sync_that_converges_at_half_the_batch_and_step(half, expected):
    def accuracy(section, cell, seed):
        if section is EDGE and cell[:2] == (64, 0.4):
            return half + 0.1 * seed
        return 20 if section is EDGE and cell[3] == SYNC else 90 + 0.1 * seed

    readings = [one for one in adp2sgd.large_batches(runs_of(accuracy, EDGE, seeds=8)) if one.own]
    assert [one.held for one in readings] == [expected] * 2
    assert "at half the batch and step size SYNC ends below 80 % in" in readings[0].evidence


@pytest.mark.parametrize(
    ("values", "expected"),
    [([90] * 6, True), ([10] * 6, False), ([10] * 3 + [90] * 3, None), ([90] * 5, None), ([NAN] * 8, False)],
)
def test_convergence_is_a_count_of_seeds(values, expected):
    assert adp2sgd.converges(values, 80.0).held is expected


def test_the_edge_has_8_seeds_and_its_middle_16():
    counts = {own.cell: own.seeds for own in adp2sgd.experiments(False) if own.section is EDGE}
    assert min(counts.values()) == 8
    assert {cell for cell, count in counts.items() if count == 16} == {(*adp2sgd.MIDDLE, kind) for kind in
                                                                      (SYNC, "atomic", "messages")}  # fmt: skip


def test_theorem_2_is_refuted_with_a_sender_that_is_seen_or_hidden():
    readings = gathered(adp2sgd.theorem_holds(Runs({})))
    assert verdict_of(readings) == Verdict.NOT_REPRODUCED
    assert [[part.held for part in reading.parts] for reading in readings] == [[False, None]] * 2 + [[False, False]] * 2
    assert [reading.own for reading in readings] == [False, True, False, False]
    paper = adp2sgd.claimed(*adp2sgd.PRIVACY[next(iter(adp2sgd.PRIVACY))])
    assert [theorem.certified().epsilon for theorem in paper] == pytest.approx([10.083, 14.214, 24.889], rel=1e-4)
    assert "certified is ε 10.1, 14.2, 24.9, δ is at least 2.41e-05, 0.000362, 0.00234" in readings[0].evidence
    assert "certified is nothing, δ is at least 2.41e-05, 0.000362, 0.00234" in readings[1].evidence


def test_theorem_2_holds_where_the_certified_epsilon_is_as_small(monkeypatch):
    monkeypatch.setattr(adp2sgd, "PRIVACY", {"few workers": (3750, 64, 18750, (5.0, 10.0))})
    readings = gathered(adp2sgd.theorem_holds(Runs({})))
    assert [reading.held for reading in readings] == [True, None, False, False]


@pytest.mark.parametrize(("spent", "expected"), [
    (lambda own, seed: 1.0 if own.section is SOFTMAX else None, [True, False]),
    (lambda own, seed: None if own.section is MLP else 1.0 + (own.cell[1] == "sync"), [False, False]),
], ids=["equal", "SYNC spends more"])  # fmt: skip
def test_without_clipping_nothing_is_certified(spent, expected):
    runs = runs_of(lambda *cell: 90, SOFTMAX, MLP, epsilon=spent)
    readings = list(adp2sgd.runs_are_private(runs))
    assert [own.held for own in readings] == expected
    assert readings[1].evidence == "nothing is certified"
    certified = {own.part for own in adp2sgd.accuracies(runs) if own.column.startswith("certified")}
    assert certified == {f"Accuracy at the end ({SOFTMAX})"}


@pytest.mark.parametrize(
    ("times", "gap", "seeds", "expected"),
    [((1.2, 1.8, 9.0), 0.0, 5, [True, True]), ((1.8, 1.8, 9.0), 0.0, 5, [False, True]),
     ((1.2, 1.8, 3.0), 0.0, 5, [True, False]), ((1.2, 1.8, 9.0), 5.0, 5, [True, True]),
     ((1.2, 1.8, 9.0), 0.0, 4, [None, None])],
    ids=["faster", "as fast without a slow learner", "not much in case II", "less accurate", "four seeds"],
)  # fmt: skip
def test_slow_learners_are_judged_against_the_ratio_without_one(times, gap, seeds, expected):
    def accuracy(section, cell, seed):
        return 90 + 0.01 * seed - gap * (cell[1] == "adpsgd")

    def time(own, seed):
        ratio = dict(zip((adp2sgd.EQUALLY_FAST, *SLOW), times, strict=True)).get(own.cell[0], 1.0)
        return 10.0 * (ratio if own.cell[1] == "sync" else 1.0) * (1 + 0.01 * seed)

    runs = runs_of(accuracy, SOFTMAX, MLP, LSTM, seeds=seeds, time_s=time)
    for sections, count in (((SOFTMAX, MLP), 2), ((LSTM,), 1)):
        readings = gathered(adp2sgd.slow_learners(runs, sections))
        equal = None if seeds < 5 else not gap
        assert [[part.held for part in own.parts] for own in readings] == [
            [expected[0], equal, expected[1], equal]
        ] * count
    if times == (1.8, 1.8, 9.0):
        assert (
            "case I: SYNC takes 1.80 times as long as A(DP)²SGD, and 1.80 times without a slow learner: 1.00 times as "
            "much (1.00 to 1.00; bar: 1.37; geometric means) (does not hold)" in readings[0].evidence
        )


def test_the_quick_form_has_the_case_without_a_slow_learner():
    cases = {own.cell[0] for own in adp2sgd.experiments(True) if own.section is MLP}
    assert cases == {adp2sgd.EQUALLY_FAST, [*SLOW][1]}


def test_no_bar_is_tighter_than_the_papers_table():
    """In Table 1 ShuffleNet loses 2.41 points at large noise, and the LSTM 0.02 at medium and at large."""
    spreads = [adp2sgd.spread(table) for table in (adp2sgd.TABLE1, adp2sgd.TABLE1_LOSSES)]
    assert spreads == pytest.approx([2.41, 0.02])


def test_equal_accuracy_is_an_interval_within_the_bar():
    def accuracy(section, cell, seed):
        away = {SOFTMAX: 0.1, MLP: 3.0 * (cell[0] == "large noise"), LENET5: 3.0 * (-1) ** seed}.get(section, 0.0)
        return 90 + 0.1 * seed + away * (cell[1] == "adpsgd")

    readings = gathered(adp2sgd.equal_accuracy(runs_of(accuracy, SOFTMAX, MLP, LENET5, RESNET)))
    assert {own.choices["network"]: (own.held, own.own) for own in readings} == {
        "softmax regression": (True, False), "MLP": (False, False), "LeNet-5": (None, True),
        "residual network": (True, True),
    }  # fmt: skip
    assert [len(own.parts) for own in readings][:3] == [4, 4, 4], "every noise level is a part"
    assert (
        "large noise: A(DP)²SGD minus SYNC: +3.00 points (bar: 2.41 either way) (does not hold)" in readings[1].evidence
    )


@pytest.mark.parametrize(
    ("gap", "seeds", "expected"),
    [(1.0, 5, True), (0.0, 5, False), (-1.0, 5, False), (1.0, 4, None)],
    ids=["ahead", "alike", "behind", "four seeds"],
)
def test_ad_psgd_is_ahead_without_noise_only_if_its_lead_is_as_large_as_a_quarter_of_the_papers(gap, seeds, expected):
    def accuracy(section, cell, seed):
        return 90 + 0.1 * seed + (gap + 0.01 * (seed % 2)) * (cell == ("no noise", "adpsgd"))

    readings = list(adp2sgd.ahead_without_noise(runs_of(accuracy, *adp2sgd.NETWORKS, seeds=seeds)))
    assert {own.held for own in readings} == {expected}
    assert len(readings) == 4 + 2
    assert [own.choices["evaluated"] for own in readings if own.own] == ["the mean model"] * 2
    assert "(Table 1: +0.52 in the mean, 6 of 9 ahead)" in readings[0].evidence


def test_costs_of_clipping_and_of_noise_are_separate():
    def accuracy(section, cell, seed):
        return 90 + 0.1 * seed - (3 if cell[0] != "no noise" else 0) - (cell[0] == "large noise")

    runs = runs_of(accuracy, SOFTMAX)
    by_start = held(gathered(adp2sgd.noise_costs(runs)))
    assert by_start == {
        "network: softmax regression, without noise: not clipped": None,
        "network: softmax regression, without noise: clipped": None,
    }, "small and medium noise cost the same, to the digit"
    costs = {(own.row, own.column): own.interval.mean for own in adp2sgd.costs(runs)}
    assert costs["clipping", SYNC] == pytest.approx(3.0)
    assert costs["small noise beside clipping", SYNC] == pytest.approx(0.0)
    assert costs["large noise beside clipping", "A(DP)²SGD"] == pytest.approx(1.0)


@pytest.mark.parametrize(("without", "small", "medium", "large", "expected"), [
    ({"no noise": 92, CLIPPED: 90}, 89, 88, 87, {"not clipped": True, "clipped": True}),
    ({"no noise": 92, CLIPPED: 88}, 89, 88, 87, {"not clipped": True, "clipped": False}),
    ({"no noise": 92, CLIPPED: 90}, 88, 89, 87, {"not clipped": False, "clipped": False}),
], ids=["all of them", "small noise helps who clips", "medium noise helps"])  # fmt: skip
def test_more_noise_costs_accuracy_at_every_step(without, small, medium, large, expected):
    levels = {**without, "small noise": small, "medium noise": medium, "large noise": large}
    runs = runs_of(lambda section, cell, seed: levels.get(cell[0], 90) + 0.01 * seed, SOFTMAX)
    assert {own.choices["without noise"]: own.held for own in gathered(adp2sgd.noise_costs(runs))} == expected


def test_the_lead_is_lost_only_if_large_noise_costs_it():
    assert adp2sgd.lead_in_table1("no noise") == pytest.approx(4.70 / 9)
    assert adp2sgd.lead_in_table1("large noise") == pytest.approx(-12.07 / 8, abs=0.01)

    def accuracy(turns):
        def of(section, cell, seed):
            return 90 + 0.1 * (seed % 3) * (cell[1] == "sync") - turns * (cell == ("large noise", "adpsgd"))

        return of

    for turns, expected in ((2.0, True), (0.0, False), (-2.0, False)):
        readings = held(adp2sgd.lead_is_lost(runs_of(accuracy(turns), LENET5, RESNET, MLP)))
        assert set(readings.values()) == {expected}
        assert sum("a worker's own model" in label for label in readings) == 2
    few = held(adp2sgd.lead_is_lost(runs_of(accuracy(2.0), LENET5, seeds=4)))
    assert set(few.values()) == {None}


def test_an_lstm_is_judged_by_its_loss_and_in_case_three_with_and_without_clipping():
    def accuracy(section, cell, seed):
        return 48 + 0.1 * seed - 40 * (cell == (UNCLIPPED, "sync"))

    runs = runs_of(accuracy, LSTM, seeds=8)
    assert set(held(gathered(adp2sgd.equal_losses(runs))).values()) == {True}
    for run in runs.of(LSTM, ("no noise", "adpsgd")).values():
        run.metrics["test_loss"] += 0.2
    readings = [own for own in gathered(adp2sgd.equal_losses(runs)) if not own.held]
    assert [own.choices for own in readings] == [{"measured": "held-out loss"}]
    assert [part.held for part in readings[0].parts] == [False, True], "the exception is named"
    assert readings[0].own
    assert held(adp2sgd.large_batches_of_sequences(runs)) == {
        "gradients: clipped": False, "gradients: not clipped (nearest to the paper)": True,
    }  # fmt: skip


def test_numbers_include_the_papers():
    runs = runs_of(lambda section, cell, seed: 90 + 0.1 * seed, LENET5, RESNET, MLP, SOFTMAX, EDGE)
    numbers = {(own.part, own.row, own.column): own for own in counted(adp2sgd.PAPER, runs)}
    (lead,) = [own for place, own in numbers.items() if place[1:] == ("large noise", "LeNet-5")]
    assert lead.paper == pytest.approx(-12.07 / 8, abs=0.01)
    assert any(case == CLIPPED for _, case, _ in numbers)
    assert {LARGE, *SLOW} <= {row for _, row, _ in numbers}
    collapsed = [own.values for (_, _, column), own in numbers.items() if column == SYNC and "edge" in own.part]
    assert collapsed == [(0.0,)] * 3


TABLE2 = {"VGG-19": (76.45, 7.42 / 300 / 50e3, 256), "ResNet-18": (42.63, 5.56 / 300 / 50e3, 256),
          "MobileNet": (12.27, 3.55 / 300 / 50e3, 256), "LSTM": (164.62, 102.41 / 20 / 4.2e6, 128)}  # fmt: skip
"""Megabytes of a model, hours for a sample, and samples of a batch."""
PARAMETERS = {"softmax": 7850, "lenet5": 61706, "resnet": 77850, "lstm": 5512, "vgg": 20_035_018,
              "mobilenet": 3_217_226}  # fmt: skip
RESNET18 = 11_173_962


@pytest.mark.parametrize("path", sorted((SCENARIOS / "adp2sgd").glob("*.yaml")), ids=lambda path: path.stem)
def test_computing_and_messages_take_as_long_as_in_the_papers_table(path):
    scenario = load(path)
    network = {"lstm": "LSTM", "resnet": "ResNet-18", "mobilenet": "MobileNet"}.get(scenario.model.kind, "VGG-19")
    megabytes, hours, samples = TABLE2[network]
    batch = scenario.algorithm.batch_size / (2 if "case3" in path.stem else 1)
    parameters = RESNET18 if path.stem.endswith("resnet18") else PARAMETERS[scenario.model.kind]
    message_s = 4 * parameters / scenario.links.bandwidth
    assert batch * scenario.clients.seconds_per_example == pytest.approx(3600 * hours * samples, rel=0.005)
    assert message_s == pytest.approx(8 * megabytes * 1e6 / 100e9, rel=0.005)


@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize(
    ("section", "message", "changes"),
    [(SOFTMAX, 6.116 / 455.9, ("data=digits", "links.bandwidth=3.4 Mbit/s", "stop={updates: 3000}")),
     (LSTM, 13.17 / 561.8, ("stop={updates: 3000}",))],
    ids=["images", "text"],
)  # fmt: skip
def test_ratios_of_times_are_those_of_an_independent_simulation(section, message, changes, tmp_path):
    """Digits make a model of 2,600 bytes; `message` is the share of a batch that a message takes in the paper."""
    usual = np.random.default_rng(1).lognormal(-0.005, 0.1, (50_000, 16))
    rates = dict(zip((adp2sgd.EQUALLY_FAST, *SLOW), (16, 16 / (1 + 1 / 16), 15.1), strict=True))
    for factor, (case, rate) in zip((1, 2, 10), rates.items(), strict=True):
        times = usual * np.array([factor, *[1] * 15])
        sync, adpsgd = (
            simfl.run(load(SCENARIOS / own.base, [*own.overrides, *changes]), out=tmp_path)
            for own in adp2sgd.experiments(False)
            if own.section is section and own.cell[0] == case
        )
        expected = (times.max(axis=1).mean() + 15 / 8 * message) * rate / 16
        assert adp2sgd.throughput(sync, adpsgd) == pytest.approx(expected, rel=0.02)
