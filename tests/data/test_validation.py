"""Examples that are set aside for validation, and what looks at them."""

import math

import numpy as np
import pytest

import simfl
from simfl.assembly.assemble import assemble
from simfl.comparison.comparing import compare_groups
from simfl.comparison.sweeps import group_runs
from simfl.data.base import Dataset
from simfl.errors import ScenarioError
from simfl.records import read
from simfl.scenario import from_mapping
from simfl.streams import Streams

BASE = {
    "algorithm": {"kind": "fedavg", "step_size": 0.3, "batch_size": 16},
    "clients": {"count": 4},
    "data": {"set": "digits"},
    "stop": {"epochs": 2},
    "evaluate": {"every": {"epochs": 0.5}},
}


def scenario(**sections):
    return from_mapping({**BASE, **sections})


def owned(*sizes, tokens=False):
    """Return a set whose example i has the feature i."""
    n = sum(sizes)
    x, y = np.arange(n, dtype=np.int32 if tokens else np.float32)[:, None], np.zeros(n, np.int32)
    groups = np.repeat([f"owner {i}" for i in range(len(sizes))], sizes)
    return Dataset("own", x, y, x[:1], y[:1], n, groups=groups, tokens=tokens)


@pytest.mark.parametrize("share", [0.1, 0.37, 0.8])
def test_every_owner_gives_its_share_and_keeps_one(share):
    sizes = (1, 5, 40, 7, 100)
    data = owned(*sizes)
    part = data.set_aside(share, Streams(3))
    given = part.validation[0][:, 0].astype(int)
    assert sorted([*given, *part.train_x[:, 0].astype(int)]) == list(range(sum(sizes)))
    counts = [int((data.groups[given] == f"owner {i}").sum()) for i in range(len(sizes))]
    assert all(abs(count - share * size) < 1.5 and count < size for count, size in zip(counts, sizes, strict=True))
    assert set(part.groups) == set(data.groups)
    assert not np.array_equal(given, data.set_aside(share, Streams(4)).validation[0][:, 0])


def test_windows_of_a_text_are_set_aside_at_its_end():
    part = owned(10, 20, tokens=True).set_aside(0.3, Streams(1))
    assert part.validation[0][:, 0].tolist() == [*range(7, 10), *range(24, 30)]


def test_the_optimum_is_that_of_the_remaining_examples():
    made = from_mapping(
        {**BASE, "data": {"set": "linear", "samples": 100, "dimension": 3, "validation": 0.25}, "model": "linear"}
    )
    data = assemble(made).dataset
    assert (len(data.train_x), len(data.validation[1])) == (75, 25)
    x = np.concatenate([data.train_x, np.ones((75, 1))], axis=1).astype(float)
    assert data.optimum == pytest.approx(np.linalg.lstsq(x, data.train_y, rcond=None)[0], abs=1e-5)
    assert np.abs(data.known.gradients(data.optimum).mean(axis=0)).max() < 1e-5


def test_a_share_of_no_example_is_refused():
    with pytest.raises(ScenarioError, match=r"data\.validation: expected a share of at least one example"):
        owned(4, 4).set_aside(0.01, Streams(1))


def test_nothing_is_written_without_the_option():
    assert "validation" not in scenario().resolved()["data"]
    assert scenario().digest() == scenario(data={"set": "digits", "validation": None}).digest()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    given = scenario(data={"set": "digits", "validation": 0.2}, stop={"epochs": 20, "accuracy": 0.85})
    return simfl.run(given, out=tmp_path_factory.mktemp("runs"))


def test_a_goal_is_reached_on_the_validation_part(run):
    rows = run.metrics
    assert rows["validation_accuracy"].iloc[-1] >= 0.85 > rows["validation_accuracy"].iloc[:-1].max()
    assert not np.allclose(rows["validation_accuracy"], rows["test_accuracy"])
    setup = assemble(from_mapping(run.scenario))
    x, y = setup.dataset.floats().validation
    model = np.concatenate([np.ravel(part) for part in run.model.values()])
    scores = np.asarray(setup.model.predict(model, x))
    assert rows["validation_accuracy"].iloc[-1] == pytest.approx((scores.argmax(axis=1) == y).mean(), abs=1e-6)
    assert sum(setup.sizes) + len(y) == len(setup.dataset.train_x) + len(y) == 1438


def test_the_target_of_a_comparison_is_one_of_the_validation_part(run):
    row = compare_groups(group_runs([read(run.folder)])).iloc[0]
    assert row["target_metric"] == "validation_accuracy"
    assert row["target"] == pytest.approx(run.metrics["validation_accuracy"].max())
    assert math.isfinite(row["to_target_time_s"])


def test_a_goal_of_the_test_set_is_refused():
    both = {"data": {"set": "digits", "validation": 0.2}, "stop": {"epochs": 1, "metric": "test_loss", "at_most": 1}}
    with pytest.raises(ScenarioError, match=r"stop\.metric: .*not of the test set.*validation_loss"):
        assemble(scenario(**both))
    both["stop"]["metric"] = "validation_loss"
    assert assemble(scenario(**both)).of_validation == ("validation_loss", "validation_accuracy")


def test_an_epsilon_does_not_count_what_validation_decides():
    private = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}
    given = scenario(
        data={"set": "digits", "validation": 0.1}, privacy=private, algorithm={"kind": "adpsgd", "step_size": 0.3}
    )
    (uncounted,) = assemble(given).ledger.terms.uncounted
    assert uncounted.startswith("what evaluations tell, and what is chosen by them, of the 144 examples of data.valida")
