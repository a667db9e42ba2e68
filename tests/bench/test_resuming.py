"""What checkpoints cost: the figures of a case that is tiny."""

from simfl.bench import resuming
from tests.helpers import RunWithoutNumbers


def test_figures_of_a_case(monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    found = resuming.measure("digits-softmax-adpsgd-16", 400, repeats=1)
    assert found["case"] == "digits-softmax-adpsgd-16"
    assert found["parameters"] == 650
    assert 16 * 2600 < found["bytes"] < 60 * 2600
    assert found["first_s"] > 0
    assert found["replay_share"] > 0
