"""Means with intervals, the cost of reaching an accuracy, and pairs of runs against a baseline."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

import simfl
from simfl.comparison.comparing import (
    compare_groups,
    cost_of_accuracy,
    evaluations_until,
    explain,
    find_baselines,
    interval_of,
    interval_over,
    label_meant,
    ratio_of,
    speed_up_of,
    target_of,
)
from simfl.comparison.differences import describe_differences
from simfl.comparison.intervals import components
from simfl.comparison.sweeps import Group, group_runs, open_groups
from simfl.errors import DataError, ScenarioError
from simfl.plots.groups import shown_labels
from simfl.records import read, time_to_accuracy
from simfl.records.seeds import Crossed


def test_an_interval_is_that_of_students_t():
    values = [0.91, 0.94, 0.90, 0.95, 0.93]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(values), scale=stats.sem(values))
    interval = interval_of(values)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((np.mean(values), low, high), rel=1e-12)
    assert interval.half_width == pytest.approx(stats.t.ppf(0.975, 4) * stats.sem(values))
    assert interval.show(lambda mean, half: f"{mean} ± {half}") == f"{interval.mean} ± {interval.half_width}"
    alone = interval_of([3.0])
    assert alone.mean == 3.0
    assert math.isnan(alone.low)
    assert math.isnan(interval_of([1.0, math.nan]).mean), "a seed that never got there is not left out in silence"
    endless = interval_of([1.0, math.inf])  # an epsilon without noise
    assert (endless.mean, math.isnan(endless.low)) == (math.inf, True)


def test_ratios_are_averaged_so_that_the_inverse_is_the_inverse():
    ratios = [2.0, 3.0, 2.5]
    there, back = ratio_of(ratios), ratio_of([1 / value for value in ratios])
    assert there.mean == pytest.approx(stats.gmean(ratios))
    assert (back.mean, back.low, back.high) == pytest.approx((1 / there.mean, 1 / there.high, 1 / there.low))


def rates(write, **rates):
    """Groups of made-up runs, one per algorithm; each seed approaches an accuracy of 0.95 at its own rate."""
    groups = []
    for kind, own in rates.items():
        runs = {seed: read(write(name=f"{kind}-{seed}", algorithm=kind, rate=rate)) for seed, rate in enumerate(own)}
        groups.append(Group(kind, {"algorithm": kind}, runs))
    return groups


def test_the_cost_of_an_accuracy_is_read_between_two_evaluations(make_run):
    run = read(make_run(rate=1.0, privacy={"noise_multiplier": 2.0}))
    metrics, cost = run.metrics, cost_of_accuracy(run, 0.5)
    first = int(np.argmax(metrics["test_accuracy"] >= 0.5))
    assert evaluations_until(run, 0.5) == first
    for column in ("time_s", "updates", "rounds", "bytes_sent"):
        assert cost[column] == pytest.approx(np.interp(0.5, metrics["test_accuracy"], metrics[column]))
        assert metrics[column].iloc[first - 1] < cost[column] < metrics[column].iloc[first]
    assert cost["epsilon"] == metrics["epsilon"].iloc[first], "never less than what may have been spent"
    assert cost["time_s"] == time_to_accuracy(run, 0.5)
    measured = float(metrics["test_accuracy"].iloc[first])
    assert cost_of_accuracy(run, measured)["time_s"] == metrics["time_s"].iloc[first]
    assert cost_of_accuracy(run, 0.05)["time_s"] == 0.0, "the first evaluation is at the start"
    assert math.isnan(cost_of_accuracy(run, 0.99)["updates"])


def test_compare_takes_runs_and_folders(make_run):
    groups = rates(make_run, adpsgd=[0.8, 1.0], sync_sgd=[0.2, 0.25])
    runs = [run for group in groups for run in group.runs.values()]
    expected = compare_groups(open_groups([run.folder for run in runs])[0], 0.5, "sync_sgd")
    for given in (runs, [run.folder for run in runs], [str(run.folder) for run in runs]):
        pd.testing.assert_frame_equal(simfl.compare(given, target=0.5, baseline="sync_sgd"), expected)
    assert len(simfl.compare(runs[0])) == 1
    with pytest.raises(ScenarioError, match="compare: expected at least one run, found none"):
        simfl.compare([])


def test_groups_are_compared_at_what_every_run_reached(make_run):
    groups = rates(make_run, adpsgd=[0.8, 1.0, 1.2], sync_sgd=[0.2, 0.25, 0.3])
    table = compare_groups(groups, baseline="sync_sgd").set_index("label")
    slowest = 0.95 - 0.85 * math.exp(-0.2 * 10)
    assert target_of(groups) == pytest.approx(slowest)
    assert table["target"].tolist() == pytest.approx([slowest] * 2)
    assert table["reached"].tolist() == [3, 3]
    times = {group.label: [time_to_accuracy(run, slowest) for run in group.runs.values()] for group in groups}
    for label, own in times.items():
        interval = interval_of(own)
        assert table.loc[label, "to_target_time_s"] == interval.mean
        assert table.loc[label, "to_target_time_s_high"] == interval.high
    ratios = [slow / fast for slow, fast in zip(times["sync_sgd"], times["adpsgd"], strict=True)]
    assert table.loc["adpsgd", "speedup"] == pytest.approx(ratio_of(ratios).mean)
    assert table.loc["adpsgd", "speedup"] == pytest.approx(4.0, rel=0.1)
    assert table.loc["sync_sgd", "speedup"] == 1.0
    assert table.loc["adpsgd", "pairs"] == 3
    differences = [
        fast.metrics["test_accuracy"].iloc[-1] - slow.metrics["test_accuracy"].iloc[-1]
        for fast, slow in zip(groups[0].runs.values(), groups[1].runs.values(), strict=True)
    ]
    assert table.loc["adpsgd", "accuracy_difference"] == pytest.approx(np.mean(differences))
    assert table.loc["adpsgd", "accuracy_difference_low"] == pytest.approx(interval_of(differences).low)


def test_crossed_seeds_give_components_of_variance(make_run):
    rates = {(w, k): 1.0 + 0.2 * w + 0.01 * k for w in range(3) for k in range(2)}
    groups = []
    for kind, factor in (("adpsgd", 1.0), ("sync_sgd", 0.5)):
        runs = {Crossed(*pair): read(make_run(rate=rate * factor)) for pair, rate in rates.items()}
        groups.append(Group(kind, {"algorithm": kind}, runs))
    table = compare_groups(groups, 0.8, baseline="sync_sgd")
    first = table.iloc[0]
    assert (first["worlds"], first["learning_seeds"], first["pairs"]) == (3, 2, 6)
    times = {pair: cost_of_accuracy(groups[0].runs[Crossed(*pair)], 0.8)["time_s"] for pair in rates}
    parts = components({Crossed(*pair): time_s for pair, time_s in times.items()})
    assert first["to_target_time_s_sd_world"] == parts["world"].value > 3 * parts["learning"].value
    assert first["to_target_time_s_sd_world_high"] == parts["world"].high
    assert first["to_target_time_s_high"] == interval_over({Crossed(*p): t for p, t in times.items()}).high
    lines = explain(table)
    assert "seeds: 3 of the world x 2 of learning; the interval is over both" in lines
    assert any("adpsgd: time to the target: standard deviation" in line for line in lines)
    assert any("adpsgd: accuracy, difference: standard deviation" in line for line in lines)
    one = Group("adpsgd", {}, {Crossed(0, k): groups[0].runs[Crossed(0, k)] for k in range(2)})
    alone = compare_groups([one])
    assert "test_accuracy_sd_world" not in alone
    assert any("holds for this one world only" in line for line in explain(alone))


def test_few_seeds_show_their_extremes_and_coarse_times_a_note(make_run):
    groups = rates(make_run, adpsgd=[1.0, 2.0], sync_sgd=[0.25, 0.3])
    table = compare_groups(groups, target=0.5, baseline="sync_sgd").set_index("label", drop=False)
    times = {group.label: [time_to_accuracy(run, 0.5) for run in group.runs.values()] for group in groups}
    ratios = [slow / fast for slow, fast in zip(times["sync_sgd"], times["adpsgd"], strict=True)]
    interval = speed_up_of(table.loc["adpsgd"])
    assert (interval.low, interval.high) == (min(ratios), max(ratios))
    assert table.loc["adpsgd", "speedup_high"] > 10 * max(ratios), "an interval from two seeds says nothing"
    lines = explain(table)
    assert lines[0] == "target: a test accuracy of 50.00%, that every run reached; read off between two evaluations"
    assert any("(the smallest and the largest pair)" in line for line in lines)
    assert table["evaluations"].tolist() == [2, 9]
    assert any(line.startswith("coarse: ") for line in lines)
    late = compare_groups(groups, target=0.94)
    assert not any(line.startswith("coarse: ") for line in explain(late))
    assert explain(late)[0].startswith("target: a test accuracy of 94.00%, that 2 of 4 runs reached")


def test_epsilons_of_different_units_are_not_compared_in_silence(make_run):
    units = {"adpsgd": "one example of a client", "fedbuff": "a client with all its data", "sync_sgd": None}
    groups = []
    for kind, unit in units.items():
        extra = {"assumptions": {"unit": unit}} if unit else {}
        groups.append(Group(kind, {}, {1: read(make_run(algorithm=kind, extra=extra))}))
    line = "epsilons protect different things, and cannot be compared: one example of a client (adpsgd); "
    assert line + "a client with all its data (fedbuff)" in explain(compare_groups(groups))
    assert not any(line.startswith("epsilons") for line in explain(compare_groups([groups[0], groups[2]])))


def test_a_target_that_not_every_seed_reaches_has_no_mean(make_run):
    groups = rates(make_run, adpsgd=[0.05, 1.0], sync_sgd=[1.0, 1.0])
    table = compare_groups(groups, target=0.9).set_index("label")
    assert table["reached"].tolist() == [1, 2]
    assert table["to_target_time_s"].isna().tolist() == [True, False]


def test_a_run_that_diverged_is_counted_and_left_out(make_run):
    groups = rates(make_run, adpsgd=[1.0, 1.0])
    groups[0].runs[7] = read(make_run(name="gone", rate=0.01, status="diverged"))
    row = compare_groups(groups).iloc[0]
    assert (row["runs"], row["diverged"], row["reached"]) == (3, 1, 2)
    assert row["target"] > 0.9


def test_a_baseline_is_a_group_or_one_setting(make_run):
    run = {0: read(make_run())}
    groups = [
        Group(f"{kind}, {noise}", {"algorithm": kind, "noise": noise}, run)
        for kind in ("ours", "SYNC")
        for noise in ("none", "z = 1")
    ]
    baselines = find_baselines(groups, "SYNC")
    assert {label: base.label for label, base in baselines.items()} == {
        "ours, none": "SYNC, none",
        "ours, z = 1": "SYNC, z = 1",
        "SYNC, none": "SYNC, none",
        "SYNC, z = 1": "SYNC, z = 1",
    }
    assert {base.label for base in find_baselines(groups, "ours, none").values()} == {"ours, none"}
    with pytest.raises(
        ScenarioError, match=r"^--baseline: expected the label .*, found 'SYNK'; did you mean 'SYNC'\?$"
    ):
        find_baselines(groups, "SYNK")
    assert list(find_baselines(groups[:3], "SYNC")) == ["ours, none", "SYNC, none"], "a group without counterpart"


def test_a_baseline_is_named_in_any_case_and_as_tables_show_it(make_run, simfl_):
    groups = rates(make_run, fedbuff=[1.0], decentralized_sgd=[2.0])
    assert {label_meant(word, groups) for word in ("fedbuff", "FedBuff", "FEDBUFF")} == {"fedbuff"}
    assert {base.label for base in find_baselines(groups, "FedBuff").values()} == {"fedbuff"}
    assert label_meant("d-psgd", groups, shown_labels(groups)) == "decentralized_sgd"
    run = groups[0].runs
    alike = [Group(f"{kind}, {z}", {"kind": kind, "noise": z}, run) for kind in ("Ours", "OURS") for z in "ab"]
    assert label_meant("OURS", alike) == "OURS"
    with pytest.raises(ScenarioError, match=r"found 'ours', which may be 'Ours' or 'OURS'; write one of them$"):
        label_meant("ours", alike)
    folders = [run.folder for group in groups for run in group.runs.values()]
    tables = [simfl_("compare", *folders, "--baseline", word, "--csv", "-") for word in ("decentralized_sgd", "D-PSGD")]
    assert tables[0] == tables[1]
    assert tables[0][0] == 0


def test_single_runs_are_grouped_by_differences_other_than_seeds(make_run, tmp_path):
    folders = []
    for kind, size, seed in [("adpsgd", 8, 1), ("adpsgd", 8, 2), ("adpsgd", 16, 1), ("sync_sgd", 8, 1)]:
        folder = make_run(name=f"{kind}-{size}-{seed}", algorithm=kind)
        scenario = {"name": folder.parent.name, "seed": seed, "algorithm": {"kind": kind, "batch_size": size}}
        (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "seed": seed}))
        folders.append(folder)
    groups, baseline = open_groups(folders)
    assert baseline is None
    assert {group.label: list(group.runs) for group in groups} == {
        "adpsgd, batch_size=8": [1, 2],
        "adpsgd, batch_size=16": [1],
        "sync_sgd": [1],
    }
    table = compare_groups(groups, baseline="sync_sgd")
    assert table["pairs"].tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="expected at least one finished run"):
        group_runs([])


def test_a_section_that_some_runs_lack_is_one_word_of_a_label(make_run):
    noise = {"mechanism": "gaussian", "clipping_norm": 1.0, "claim": None}
    folders = []
    for i, privacy in enumerate([None, {**noise, "noise_multiplier": 1.0}, {**noise, "noise_multiplier": 2.0}]):
        folder = make_run(name=f"run-{i}", algorithm="adpsgd")
        scenario = {"name": "a", "seed": 0, "algorithm": {"kind": "adpsgd"}, "privacy": privacy}
        (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))
        folders.append(folder)

    def labels(*chosen):
        return [group.label for group in open_groups([folders[i] for i in chosen])[0]]

    assert labels(0, 1) == ["no privacy", "with privacy"]
    assert labels(0, 1, 2) == ["no privacy", "noise_multiplier=1.0", "noise_multiplier=2.0"]


def test_options_that_another_kind_lacks_are_left_out_of_labels(make_run):
    models = {
        "softmax": {"kind": "softmax", "l2": 0.0},
        "mlp": {"kind": "mlp", "l2": 0.1, "hidden": [64, 32], "activation": "relu"},
        "wide": {"kind": "mlp", "l2": 0.1, "hidden": [128, 32], "activation": "relu"},
    }
    many = {f"option_{i}": i for i in range(20)}

    def labels(*models, **sections):
        folders = []
        for i, model in enumerate(models):
            folder = make_run(name="same", algorithm="adpsgd")
            own = {name: values[i] for name, values in sections.items()}
            scenario = {"name": "a", "seed": 0, "algorithm": {"kind": "adpsgd"}, "model": model, **own}
            (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario))
            folders.append(folder)
        return [group.label for group in open_groups(folders)[0]]

    assert labels(models["softmax"], models["mlp"]) == ["softmax", "mlp"]
    assert labels(models["softmax"], models["mlp"], models["wide"]) == [
        "softmax", "mlp, hidden=[64, 32]", "mlp, hidden=[128, 32]"
    ]  # fmt: skip
    jitters = [{"jitter": {"kind": "constant", "value": 1}}, {"jitter": {"kind": "lognormal", "sigma": 0.1}}]
    assert labels(models["mlp"], models["mlp"], clients=jitters) == ["jitter=constant", "jitter=lognormal"]
    for label in labels(many, {key: value + 1 for key, value in many.items()}):
        assert len(label) <= 70
        assert label.endswith("16 more")


def test_differences_name_the_key_paths():
    one = {"name": "a", "seed": 1, "links": {"latency": "1 ms", "loss": 0.0}, "slowdowns": []}
    other = {"name": "b", "seed": 2, "links": {"latency": "2 ms", "loss": 0.0}, "slowdowns": [{"factor": 2}]}
    assert describe_differences([one, other]) == [
        {"links.latency": "1 ms", "slowdowns": "[]"},
        {"links.latency": "2 ms", "slowdowns": '[{"factor": 2}]'},
    ]
    assert describe_differences([one, one]) == [{}, {}]


def test_a_setting_that_is_called_like_a_measure_keeps_a_column(make_run):
    groups = [
        Group(f"epsilon={epsilon}", {"epsilon": epsilon, "noise": "low"}, {1: read(make_run(rate=rate))})
        for epsilon, rate in (("1", 0.5), ("3", 1.0))
    ]
    table = compare_groups(groups)
    assert table["epsilon_set"].tolist() == ["1", "3"]
    assert table["noise"].tolist() == ["low", "low"]
    assert table["epsilon"].isna().all(), "these runs have no privacy"
