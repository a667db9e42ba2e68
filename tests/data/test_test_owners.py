"""Who owns a test example: what loaders keep, and how partitions deal the test part."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.assembly.assemble import assemble
from simfl.data import load_dataset, partition
from simfl.data.arrays import from_object
from simfl.data.partitions import in_the_same_mix, of_owners
from simfl.data.transforms import keep_classes
from simfl.errors import DataError, ScenarioError
from simfl.scenario import from_mapping
from simfl.streams import Streams

X, Y, OWNER = np.arange(6.0)[:, None], np.arange(6) % 2, np.array(["a", "b"] * 3)


def loaded(kind, **options):
    return load_dataset(kind, root=None, streams=Streams(0), **options)


def test_leaf_keeps_the_users_of_its_test_part(tmp_path):
    for part, users in (("train", {"a": 2, "b": 3}), ("test", {"b": 1, "c": 2})):
        (tmp_path / part).mkdir()
        data = {user: {"x": [[float(ord(user))]] * n, "y": [0, 1, 0][:n]} for user, n in users.items()}
        content = {"users": [*users], "num_samples": [*users.values()], "user_data": data}
        (tmp_path / part / "all.json").write_text(json.dumps(content))
    data = loaded("leaf", path=tmp_path)
    assert data.test_groups.tolist() == ["b", "c", "c"]
    clients = partition("natural", data.train_y, 2, np.random.default_rng(0), groups=data.groups)
    tests = of_owners(clients, data.groups, data.test_groups)
    assert [tests.of(k).tolist() for k in range(2)] == [[], [0]], "c is not a client"


def test_a_part_that_is_drawn_keeps_its_owners(tmp_path):
    table = pd.DataFrame({"f": np.arange(40.0), "owner": np.arange(40) % 4, "target": np.arange(40) % 2})
    table.to_csv(tmp_path / "all.csv", index=False)
    data = loaded("table", path=tmp_path / "all.csv", group="owner")
    assert np.array_equal(data.test_groups, data.test_x[:, 0] % 4)
    table[:10].to_csv(tmp_path / "test.csv", index=False)
    data = loaded("table", path=tmp_path / "all.csv", test_path=tmp_path / "test.csv", group="owner")
    assert np.array_equal(data.test_groups, np.arange(10) % 4)
    kept = keep_classes(data, [1, 0])
    assert np.array_equal(kept.test_groups, kept.test_x[:, 0] % 4)


def test_archives_and_objects_name_owners_of_tests(tmp_path):
    arrays = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2], "who": OWNER}
    np.savez(tmp_path / "a.npz", **arrays, who_test=OWNER[:2])
    assert loaded("npz", path=tmp_path / "a.npz", group="who").test_groups.tolist() == ["a", "b"]
    np.savez(tmp_path / "b.npz", **arrays)
    assert loaded("npz", path=tmp_path / "b.npz", group="who").test_groups is None
    np.savez(tmp_path / "c.npz", **arrays, who_test=OWNER)
    with pytest.raises(DataError, match="who_test: expected a value for each of 2 examples"):
        loaded("npz", path=tmp_path / "c.npz", group="who")
    given_ = X, Y, X[:2], Y[:2], OWNER, OWNER[:2]
    assert from_object(given_, "data", "d", Streams(0), regression=False).test_groups.tolist() == ["a", "b"]
    with pytest.raises(DataError, match="owner_test: expected one for each of 2 examples"):
        from_object((*given_[:5], OWNER), "data", "d", Streams(0), regression=False)


def test_the_end_of_a_text_is_its_speakers():
    data = loaded("text", length=8, generate={"speakers": 3, "length": 200})
    assert set(data.test_groups) == set(data.groups)
    assert len(data.test_groups) == len(data.test_x)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=60),
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(0, 99),
)
def test_clients_have_their_mix_of_labels_up_to_rounding(train, tests, clients, seed):
    y, test_y, draw = np.array(train), np.array(tests), np.random.default_rng(seed)
    held = partition("dirichlet", y, clients, draw, alpha=0.3)
    dealt = in_the_same_mix(held, y, test_y, draw)
    assert len(set(dealt.indices.tolist())) == len(dealt.indices), "an example has one client at most"
    for label in range(5):
        there, owned = int((test_y == label).sum()), int((y == label).sum())
        got = [int((test_y[dealt.of(k)] == label).sum()) for k in range(clients)]
        assert sum(got) == (there if owned else 0)
        for k in range(clients):
            share = (y[held.of(k)] == label).sum() / max(owned, 1) * there
            assert abs(got[k] - share) < 1.0


def test_targets_are_dealt_by_sizes():
    held = partition("iid", np.zeros(40), 4, np.random.default_rng(0), sizes="listed", values=[4, 8, 12, 16])
    dealt = in_the_same_mix(held, np.zeros(40, np.float32), np.zeros(20, np.float32), np.random.default_rng(1))
    assert dealt.sizes.tolist() == [2, 4, 6, 8]


def own(**data):
    return from_mapping(
        {
            "algorithm": {"kind": "fedavg", "batch_size": 2},
            "clients": {"count": 2},
            "data": data,
            "stop": {"epochs": 1},
            "evaluate": {"clients": "own"},
        }
    )


def test_a_partition_by_owners_needs_owners_of_tests(tmp_path):
    arrays = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2], "who": OWNER}
    np.savez(tmp_path / "a.npz", **arrays)
    data = {"set": "npz", "path": str(tmp_path / "a.npz"), "partition": {"kind": "by_column", "column": "who"}}
    with pytest.raises(ScenarioError, match=r"evaluate.clients: own needs the owner of each test example.*none of a"):
        assemble(own(**data))
    np.savez(tmp_path / "a.npz", **arrays, who_test=np.array(["c", "c"]))
    with pytest.raises(ScenarioError, match="only owners that are not clients, such as c"):
        assemble(own(**data))
    np.savez(tmp_path / "a.npz", **arrays, who_test=np.array(["b", "b"]))
    setup = assemble(own(**data))
    assert setup.tests.sizes.tolist() == [0, 2]
    assert any("1 of 2 clients have no test example" in warning for warning in setup.warnings)
