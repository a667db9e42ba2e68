"""A user's own data from end to end: named in a scenario, given from Python, read from files."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

import simfl
from simfl.assembly.data import digest_of_data, is_same_data, load_data, share_out, sources_of
from simfl.errors import DataError, ScenarioError
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import loads
from simfl.streams import Streams
from tests.helpers import run_until

MODULE = """
import numpy as np

def load(count=40, shift=0):
    generator = np.random.default_rng(1)
    x = generator.integers(0, 256, (count, 4)).astype(np.uint8)
    y = (x[:, 0] > 128 + shift).astype(int)
    return {"x": x, "y": y, "x_test": x[:10], "y_test": y[:10], "owner": np.arange(count) % 4}

def broken():
    return np.zeros(3) @ np.zeros(4)
"""
TEXT = """
data: {set: "own_data_of_a_test:load", options: {count: 48}, scale: 1/255, partition: natural}
model: {kind: softmax}
clients: {count: 4}
algorithm: {kind: sync_sgd, batch_size: 6, step_size: 0.5}
stop: {updates: 40}
evaluate: {every: {updates: 20}}
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    file = tmp_path / "own_data_of_a_test.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield file
    sys.modules.pop("own_data_of_a_test", None)


def loaded(text):
    scenario = loads(text, "own")
    return scenario, load_data(scenario, Streams(scenario.seed))


@pytest.mark.slow
def test_a_function_gives_the_data_and_owners_are_clients(module, tmp_path):
    scenario, data = loaded(TEXT)
    assert (data.name, data.train_x.dtype, len(data.train_y)) == ("load", np.uint8, 48)
    assert scenario.data.scale == 1 / 255
    assert float(data.scaling.divisor) == 255.0
    shares = share_out(scenario, data, Streams(0))
    assert [shares.of(client).tolist() for client in range(4)] == [list(range(k, 48, 4)) for k in range(4)]
    assert sources_of(scenario, data) == {"digest": digest_of_data(data)}
    other = loaded(TEXT.replace("count: 48", "count: 48, shift: 60"))[1]
    assert digest_of_data(other) != digest_of_data(data)
    floats = loaded(TEXT.replace("partition", "normalize: unit_sphere, pca: 2, partition"))[1]
    assert (floats.train_x.dtype, floats.train_x.shape) == (np.float32, (48, 2))
    # The same numbers as floats from Python give the same run, bit for bit.
    made = run(scenario, out=tmp_path)
    parts = (data.floats().train_x, data.train_y, data.floats().test_x, data.test_y, data.groups)
    given = run({**scenario.resolved(), "data": {"partition": "natural"}}, data=parts, out=tmp_path)
    assert made.manifest.digest == given.manifest.digest
    assert given.scenario["data"]["set"] == "object:tuple"
    assert made.manifest.extra["data"]["digest"] != given.manifest.extra["data"]["digest"]
    assert made.manifest.extra["own_code"].keys() == {"own_data_of_a_test"}
    x = np.array([[255, 0, 0, 0], [0, 255, 0, 0]], np.uint8)
    again = simfl.read(given.folder, data=parts)
    np.testing.assert_array_equal(made.predict(x, scores=True), again.predict(x / np.float32(255), scores=True))
    with pytest.raises(ScenarioError, match=r"^data\.set: 'object:tuple' is an object .* again as data=\.\.\. of"):
        simfl.read(given.folder).predict(x)


def test_changed_data_are_noticed(module, tmp_path):
    cut = run_until(prepare(loads(TEXT, "own")), 20, tmp_path)[0].folder
    module.write_text(MODULE.replace("128", "127"))
    with pytest.raises(simfl.SimflError, match=r"source of the user's own modules|data"):
        resume(cut)
    module.write_text(MODULE)
    assert resume(cut).manifest.status in ("done", "finished", "completed")


def test_frames_use_their_columns(tmp_path):
    frame = pd.DataFrame({"age": range(20), "ward": list("ab") * 10, "sick": [0, 0, 1, 1] * 5, "site": list("xy") * 10})
    mapping = {
        "data": {"target": "sick", "owner": "site", "partition": "natural", "normalize": "standard"},
        "clients": {"count": 2},
        "algorithm": {"kind": "sync_sgd", "batch_size": 4},
    }
    setup = prepare(mapping, data=frame)
    assert (setup.scenario.data.set, setup.model.input_shape) == ("object:DataFrame", (3,))
    assert setup.dataset.train_x.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-6)
    with pytest.raises(
        DataError, match=r"data: expected a column 'sit', which data.owner or data.partition.column names"
    ):
        prepare(mapping | {"data": {"target": "sick", "owner": "sit"}}, data=frame)


def test_a_file_that_changed_is_another_run(tmp_path):
    frame = pd.DataFrame({"a": range(20), "target": [0, 1] * 10})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    mapping = {
        "data": {"set": "table", "path": str(tmp_path / "mine.csv")},
        "clients": {"count": 2},
        "algorithm": {"kind": "sync_sgd", "batch_size": 4},
        "stop": {"updates": 4},
    }
    setup = prepare(mapping)
    made = run(setup, out=tmp_path / "results")
    assert list(made.manifest.extra["data"]["files"]) == [str(tmp_path / "mine.csv")]
    assert is_same_data(setup.scenario, made.manifest.extra["data"])
    assert not is_same_data(setup.scenario, None), "of an older version"
    frame.assign(a=0).to_csv(tmp_path / "mine.csv", index=False)
    assert not is_same_data(setup.scenario, made.manifest.extra["data"])
    (tmp_path / "mine.csv").unlink()
    assert not is_same_data(setup.scenario, made.manifest.extra["data"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("load", "broken"), r"^data\.set: '.*:broken' raised ValueError: .*_of_a_test\.py:11$"),
        (("count: 48", "cuont: 48"), r"^data\.options: .* takes \(count=40, shift=0\), found cuont .*mean 'count'"),
        (("softmax", "cnn"), r"^cnn: input_shape: expected a side >= 4, found 2 "),
        ((":load", ":laod"), r"^data\.set: cannot load 'own_data_of_a_test:laod'"),
        (("count: 4}", "count: 5}"), r"^clients\.count: expected 4, the number of owners .* set clients\.count: 4$"),
    ],
)  # fmt: skip
def test_mistakes_in_own_data_are_one_line(module, change, message):
    text = TEXT.replace(*change)
    with pytest.raises(simfl.SimflError, match=message) as refused:
        prepare(loads(text.replace("{count: 48}", "{}") if "broken" in change else text, "own"))
    assert "\n" not in str(refused.value)


def test_texts_need_models_of_sequences(tmp_path):
    for text in ("data: text\nmodel: softmax\nalgorithm: adpsgd", "data: digits\nmodel: lstm\nalgorithm: adpsgd"):
        with pytest.raises(ScenarioError, match=r"model: expected .* data set '(text|digits)', found '(softm|lst)"):
            loads(text)
    np.savez(tmp_path / "some.npz", x=np.zeros((40, 8), np.uint8), y=np.arange(40) % 2)
    mapping = {"data": {"set": "npz", "path": str(tmp_path / "some.npz")}, "model": "lstm", "algorithm": "adpsgd"}
    with pytest.raises(ScenarioError, match="which holds examples that are not sequences of tokens, found 'lstm'"):
        prepare(mapping)


def test_natural_partition_without_owners_is_rejected():
    with pytest.raises(ScenarioError, match=r"data\.partition: expected another kind for data set 'digits'"):
        loads("data: {set: digits, partition: natural}\nalgorithm: adpsgd")
