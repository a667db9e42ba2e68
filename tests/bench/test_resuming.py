"""The cost of checkpoints, for a tiny case."""

from simfl.bench import resuming
from tests.helpers import RunWithoutNumbers


def test_the_costs_of_a_case_are_measured(monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    costs = resuming.measure("digits-softmax-adpsgd-16", 400, repeats=1)
    assert costs["case"] == "digits-softmax-adpsgd-16"
    assert costs["parameters"] == 650
    assert 16 * 2600 < costs["bytes"] < 60 * 2600
    assert costs["first_s"] > 0
    assert costs["replay_share"] > 0
