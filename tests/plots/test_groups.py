"""Curves over seeds: the mean, the band, and the style of a group, which is the same in every figure."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from simfl.comparison.comparing import compare_groups, cost_of_accuracy, target_of
from simfl.comparison.sweeps import Group, Sweep, SweepRun
from simfl.errors import ScenarioError
from simfl.plots import plot
from simfl.plots.clients import plot_staleness, plot_time_shares
from simfl.plots.costs import plot_costs, plot_heatmap
from simfl.plots.groups import average, looks_of, plot_groups
from simfl.plots.style import color_of, shade
from simfl.records import read


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def group(make_run):
    def made(label="adpsgd", rates=(0.5, 0.8, 1.0, 2.0), settings=None, **options):
        runs = {
            seed: read(make_run(name=label, algorithm=label, rate=rate, **options)) for seed, rate in enumerate(rates)
        }
        return Group(label, settings or {"algorithm": label}, runs)

    return made


def test_a_band_is_students_interval_at_every_point(group):
    made = group()
    band = average(made, "time_s", "test_accuracy")
    curves = np.array([run.metrics["test_accuracy"] for run in made.runs.values()])
    np.testing.assert_array_equal(band.x, made.runs[0].metrics["time_s"])
    np.testing.assert_allclose(band.mean, curves.mean(axis=0), rtol=1e-12)
    half = stats.t.ppf(0.975, 3) * stats.sem(curves, axis=0)
    np.testing.assert_allclose(band.high - band.mean, half, atol=1e-12)
    np.testing.assert_allclose(band.mean - band.low, half, atol=1e-12)
    assert band.count == 4
    alone = average(group(rates=[1.0]), "time_s", "test_accuracy")
    assert np.isnan(alone.low).all()


def cut(run, last):
    """Shorten a run and change the times of its evaluations."""
    frame = run.metrics.iloc[:last].copy()
    frame["time_s"] *= 0.9
    run.__dict__["metrics"] = frame
    return frame


def test_runs_of_different_times_share_a_grid_that_all_cover(group):
    made = group(rates=[1.0, 1.0])
    short = cut(made.runs[1], 20)
    linear = average(made, "time_s", "test_accuracy")
    assert (linear.x[0], linear.x[-1]) == (0.0, short["time_s"].iloc[-1])
    whole = made.runs[0].metrics
    expected = [np.interp(linear.x, frame["time_s"], frame["test_accuracy"]) for frame in (whole, short)]
    np.testing.assert_allclose(linear.mean, np.mean(expected, axis=0))
    step = average(made, "time_s", "test_accuracy", "step")
    at = int(np.argmin(np.abs(step.x - 1.0)))
    held = [frame["test_accuracy"][frame["time_s"] <= step.x[at]].iloc[-1] for frame in (whole, short)]
    assert step.mean[at] == pytest.approx(np.mean(held))


def test_diverged_runs_are_left_out_and_counted_in_the_label(group, make_run):
    made = group(rates=[1.0, 1.0])
    made.runs[9] = read(make_run(name="gone", rate=0.01, status="diverged"))
    assert average(made, "time_s", "test_accuracy").count == 2
    assert looks_of([made])[0].label == "AD-PSGD (1 of 3 diverged)"
    ax = plot_groups([made])
    assert len(ax.lines) == 1 + 2, "the mean and two seeds"
    assert average(Group("x", {}, {9: made.runs[9]}), "time_s", "test_accuracy") is None


def test_algorithms_differ_in_color_and_groups_of_one_in_shade_and_line(group):
    groups = [group(), group("sync_sgd"), Group("adpsgd, z=1", {}, group().runs)]
    looks = looks_of(groups)
    assert looks[0].color == color_of("adpsgd").upper()
    assert looks[1].color == color_of("sync_sgd").upper()
    assert looks[2].color == shade(color_of("adpsgd"), 0.5)
    assert len({str(look.line) for look in looks}) == 3, "told apart in gray"
    assert [look.label for look in looks] == ["AD-PSGD", "SYNC", "AD-PSGD, z=1"]
    assert looks_of(groups[2:], groups) == looks[2:], "also where only some are drawn"
    assert shade("#000000", 0.25) == "#BFBFBF"


def test_the_figure_has_a_line_and_a_band_per_group_and_names_its_axes(group):
    ax = plot_groups([group(), group("sync_sgd")], "bytes", target=0.9)
    assert len(ax.collections) == 2
    assert len(ax.lines) == 3
    assert ax.get_xlabel() == "data sent by all clients (MB)"
    assert ax.get_ylabel() == "test accuracy"
    np.testing.assert_allclose(ax.lines[0].get_xdata()[-1], 160.0)
    distance = plot_groups([group()], "time", "consensus_distance")
    assert distance.get_yscale() == "log"
    with pytest.raises(ScenarioError, match=r"plot: x: expected one of .*, found 'tme'; did you mean 'time'\?"):
        plot_groups([group()], "tme")


def test_fewer_than_four_seeds_are_drawn_one_by_one(group):
    few = [group(rates=[1.0, 2.0]), group("sync_sgd", rates=[0.2, 0.3, 0.4])]
    ax = plot_groups(few)
    assert len(ax.collections) == 0, "no band"
    assert [len([line for line in ax.lines if line.get_linewidth() < 1]), len(ax.lines)] == [2 + 3, 2 + 3 + 2]
    own = few[0].runs[0].metrics
    np.testing.assert_allclose(ax.lines[0].get_ydata(), own["test_accuracy"])
    costs = plot_costs(few, ["time_s"]).axes[0]
    target = target_of(few)
    points = [line.get_xdata() for line in costs.lines]
    assert [list(values) for values in points] == [
        [cost_of_accuracy(run, target)["time_s"] for run in made.runs.values()] for made in few
    ]


def test_a_sweep_is_drawn_by_its_groups(group, simfl_, monkeypatch):
    made = group(rates=[1.0, 2.0])
    runs = [
        SweepRun(run.folder.name, "ours", {"a": "ours"}, {}, seed, "k", status="done")
        for seed, run in made.runs.items()
    ]
    (folder,) = {run.folder.parent for run in made.runs.values()}
    study = {"compare": {"x": ["time"], "y": "test_accuracy", "target": None}}
    Sweep(folder, "s", "", "0", study, {"a": ["ours"]}, tuple(runs)).write()
    ax = plot(folder)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ours"]
    assert len(ax.lines) == 3
    drawn = []
    monkeypatch.setattr("simfl.plots.save", lambda ax, path: drawn.append(len(ax.lines)) or path)
    assert simfl_.printed("plot", folder) == "test_accuracy-by-time.png\n"
    assert simfl_.printed("plot", *(folder / run.folder for run in runs)) == "test_accuracy-by-time.png\n"
    assert drawn == [3, 2], "two seeds and their mean, or two runs"


def test_bars_show_the_cost_of_the_target(group):
    groups = [group(rates=[1.0, 1.2]), group("sync_sgd", rates=[0.2, 0.3])]
    table = compare_groups(groups)
    figure = plot_costs(groups, ["time_s", "bytes_sent"], table=table)
    times, sent = figure.axes
    assert [bar.get_width() for bar in times.patches] == pytest.approx(table["to_target_time_s"].tolist())
    assert [bar.get_width() for bar in sent.patches] == pytest.approx((table["to_target_bytes_sent"] / 1e6).tolist())
    unreached = plot_costs(groups, ["rounds"], target=0.94)
    assert any("not reached" in text.get_text() for text in unreached.axes[0].texts)
    assert unreached.axes[0].get_ylim() == (1.5, -0.5), "a row without a bar has its room"


def test_a_heat_map_shows_the_mean_over_seeds_and_gaps(group):
    groups = [
        group(f"k{k}", rates=(rate, rate), settings={"noise": noise, "step": step})
        for k, (noise, step, rate) in enumerate([("1", "a", 1.0), ("2", "a", 0.1), ("1", "b", 0.2)])
    ]
    ax = plot_heatmap(groups, "noise", "step")
    cells = np.asarray(ax.images[0].get_array())
    assert cells.shape == (2, 2)
    assert cells[0, 1] == pytest.approx(0.95 - 0.85 * np.exp(-1.0))
    assert [text.get_text() for text in ax.texts] == ["95.0", "63.7", "83.5", "–"]
    with pytest.raises(ScenarioError, match=r"expected two of the settings that differ \(noise, step\), found 'steps'"):
        plot_heatmap(groups, "noise", "steps")
    twice = [*groups, Group("again", {"noise": "1", "step": "a"}, groups[0].runs)]
    with pytest.raises(ScenarioError, match="expected one group per cell, found several at noise=1, step=a"):
        plot_heatmap(twice, "noise", "step")


def test_bars_of_clients_add_up_to_their_time(group):
    run = group().runs[0]
    ax = plot_time_shares(run)
    assert len(ax.patches) == 3 * 4, "nobody was offline"
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 4)
    np.testing.assert_allclose(widths, [[0.8] * 4, [0.1] * 4, [0.1] * 4])
    assert ax.get_xlim() == (0.0, 1.0)
    assert ax.get_xlabel() == "share of 10 s of virtual time, in total", "no course of events"


def test_shares_of_staleness_add_up_to_one(group):
    ax = plot_staleness([group(), group("sync_sgd")])
    heights = ax.patches[0].get_data().values
    assert heights.sum() == pytest.approx(1.0)
    assert heights[3] == 1.0
    assert ax.get_legend().get_texts()[0].get_text() == "AD-PSGD (3, at most 3)"
    assert ax.get_legend().get_title().get_text() == "mean, largest"
    assert ax.get_xlabel() == "staleness (updates of all clients)"


def test_staleness_of_server_steps_has_a_panel_of_its_own(group):
    first = plot_staleness([group(), group("fedbuff")])
    assert [ax.get_xlabel() for ax in first.figure.axes] == [
        "staleness (updates of all clients)",
        "staleness (steps of the server)",
    ]
    assert [len(ax.patches) for ax in first.figure.axes] == [1, 1]
    with pytest.raises(ScenarioError, match=r"plot_staleness: ax: expected groups whose staleness counts one thing"):
        plot_staleness([group(), group("fedbuff")], ax=first)


def test_values_beyond_the_last_bin_are_a_mark(group):
    made = group(rates=[1.0])
    frame = made.runs[0].updates
    frame = frame.loc[frame.index.repeat(100)].reset_index(drop=True)
    frame.loc[:1, "staleness"] = 900
    made.runs[0].__dict__["updates"] = frame
    ax = plot_staleness([made])
    assert ax.patches[0].get_data().values[-1] == pytest.approx(1 - 2 / len(frame))
    (mark,) = ax.lines
    assert (mark.get_marker(), mark.get_ydata()[0]) == (">", pytest.approx(2 / len(frame)))
    assert ax.get_xlabel() == "staleness (updates of all clients); ▸: more than 4"


def test_zeros_and_rounding_do_not_stretch_the_axis_of_consensus_distances(group):
    made, equal = group(), group("sync_sgd")
    for run in made.runs.values():
        run.metrics.loc[0, "consensus_distance"] = 0.0
    for run in equal.runs.values():
        run.metrics["consensus_distance"] = 1e-9  # models that are averaged are equal but for rounding
    ax = plot_groups([made, equal], "time", "consensus_distance")
    assert len(ax.lines) == 1
    assert ax.get_ylim()[0] > 0.05


def test_an_algorithm_without_rounds_has_no_bar_of_rounds(group):
    axes = plot_costs([group(), group("fedavg")], ["rounds", "updates"]).axes
    assert [text.get_text() for text in axes[0].texts] == [" has no rounds"]
    widths = [bar.get_width() for bar in axes[0].patches]
    assert np.isnan(widths[0])
    assert widths[1] > 0
    assert all(bar.get_width() > 0 for bar in axes[1].patches)
