"""Targets: an accuracy, or a value of any metric."""

import math

import pytest

from simfl import compare
from simfl.comparison.comparing import compare_groups, cost_of_accuracy, explain, target_in
from simfl.comparison.readable import cells_of
from simfl.comparison.sweeps import open_groups
from simfl.comparison.targets import Target, as_target
from simfl.errors import ScenarioError
from simfl.plots.costs import plot_costs
from simfl.records import read
from simfl.records.display import show_time
from simfl.reports.page import write_report


@pytest.mark.parametrize(("text", "value", "metric", "at_most", "short"), [
    ("0.9", 0.9, "test_accuracy", False, "90.00%"),
    ("test_loss=0.3", 0.3, "test_loss", True, "test loss ≤ 0.3"),
    ("macro_f1=0.8", 0.8, "macro_f1", False, "macro F1 ≥ 0.8"),
    ("bits <= 1.5", 1.5, "bits", True, "bits ≤ 1.5"),
    ("consensus_distance>=0.1", 0.1, "consensus_distance", False, "consensus distance ≥ 0.1"),
])  # fmt: skip
def test_a_target_is_read_from_a_text(text, value, metric, at_most, short):
    target = as_target(text)
    assert (float(target), target.metric, target.at_most, target.short) == (value, metric, at_most, short)
    assert as_target(target) is target
    assert as_target(0.9).metric == "test_accuracy"
    assert as_target(None) is None


@pytest.mark.parametrize("text", ["90", "0", "nan", "test_loss=", "test_loss=x", "test_loss==1", "=1", 2.0])
def test_text_that_is_not_a_target_is_one_line(text):
    with pytest.raises(ScenarioError, match=r"^--target: expected a test accuracy in \(0, 1\], .*, found") as raised:
        as_target(text)
    assert "\n" not in str(raised.value)


def test_the_cost_of_a_loss_is_read_off_between_two_evaluations(make_run):
    run = read(make_run(rate=1.0))  # whose loss is 2 minus its accuracy
    accuracy = cost_of_accuracy(run, 0.8)
    assert cost_of_accuracy(run, Target(1.2, "test_loss", at_most=True)) == pytest.approx(accuracy, nan_ok=True)
    assert math.isnan(cost_of_accuracy(run, Target(0.1, "test_loss", at_most=True))["time_s"])


def test_runs_without_an_accuracy_are_compared_by_their_loss(make_run, simfl_, tmp_path):
    folders = [make_run(accuracy=False), make_run(algorithm="sync_sgd", rate=0.5, accuracy=False)]
    table = compare(folders, target="test_loss=1.2", baseline="sync_sgd")
    assert target_in(table).words == "a test loss of at most 1.2"
    assert table["speedup"].tolist() == pytest.approx([2.0, 1.0], rel=0.02)
    assert cells_of(table)["time to test loss ≤ 1.2"] == [show_time(value) for value in table["to_target_time_s"]]
    assert explain(table)[0].startswith("target: a test loss of at most 1.2, that every run reached")
    groups = open_groups(folders)[0]
    figure = plot_costs(groups, ["time_s"], table=compare_groups(groups, "test_loss=1.2"))
    assert figure.get_suptitle() == "to a test loss of at most 1.2"
    out = simfl_.printed("compare", *folders, "--target", "test_loss=1.2")
    assert "time to test loss ≤ 1.2" in out
    page = write_report(folders, tmp_path / "report.html", target="test_loss=1.2").read_text()
    assert "Test loss ≤ 1.2, which every run reached, took 1.7" in page


def test_a_metric_that_a_run_lacks_is_one_line(make_run):
    with pytest.raises(ScenarioError, match=r"--target: .*: expected one of time_s, .*, found 'test_los'; did you"):
        compare(make_run(), target="test_los=1")
