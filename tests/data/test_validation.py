"""Examples that are set aside for validation, and what looks at them."""

import math
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simfl
from simfl.assembly.assemble import assemble
from simfl.assembly.data import divided, is_same_data, load_data, share_out, shared_data, sources_of
from simfl.comparison.comparing import compare_groups
from simfl.comparison.sweeps import group_runs
from simfl.data.base import Dataset, drawn_of
from simfl.errors import DataError, ScenarioError
from simfl.privacy.releases import Releases
from simfl.records import read
from simfl.scenario import from_mapping
from simfl.streams import Streams
from simfl.studies.setups import is_one_world
from tests.helpers import run_until

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


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.floats(0.01, 0.99), st.randoms())
def test_what_is_drawn_has_exact_counts_and_leaves_everyone_one(sizes, share, random):
    owners = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(order := list(range(len(owners))))
    owners = owners[order]
    try:
        drawn = drawn_of(share, owners, np.random.default_rng(1).random(len(owners)))
    except ScenarioError:
        assert max(sizes) == 1 or math.floor(share * sum(sizes) + 0.5) <= sizes.count(1)
        return
    counts = np.bincount(owners[drawn], minlength=len(sizes))
    for count, size in zip(counts, sizes, strict=True):
        assert count in {min(whole, size - 1) for whole in (math.floor(share * size), math.ceil(share * size))}
    if all(count < size - 1 for count, size in zip(counts, sizes, strict=True)):
        assert counts.sum() == math.floor(share * sum(sizes) + 0.5)


def of_clients(share, partition, **sections):
    data = {"set": "digits", "partition": partition, "validation": {"clients": share}}
    return scenario(data=data, clients={"count": 10}, **sections)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from([0.1, 0.25, 0.6]),
    st.sampled_from(["iid", {"kind": "dirichlet", "alpha": 0.2}, {"kind": "by_label", "labels_per_client": 2}]),
    st.integers(0, 5),
)
def test_clients_keep_their_own_shares_out_of_training(share, partition, seed):
    with_share = of_clients(share, partition, seed=seed)
    streams = Streams(seed)
    whole = load_data(scenario(seed=seed), streams)
    full = share_out(with_share, whole, streams)
    data, kept = divided(with_share, streams)
    x, y = data.validation
    assert len(x) + len(data.train_x) == len(whole.train_x)
    number_of = {row.tobytes(): i for i, row in enumerate(np.column_stack([whole.train_x, whole.train_y]))}
    assert len(number_of) == len(whole.train_x)
    aside = {number_of[row.tobytes()] for row in np.column_stack([x, y])}
    trained = [number_of[row.tobytes()] for row in np.column_stack([data.train_x, data.train_y])]
    assert aside.isdisjoint(trained)
    for client in range(10):
        before, after = set(full.of(client).tolist()), {trained[i] for i in kept.of(client)}
        assert after < before
        assert before - after <= aside
        count = len(before - after)
        assert count in (math.floor(share * len(before)), math.ceil(share * len(before)))
        assert kept.sizes[client] == len(before) - count >= 1
    again, same = divided(with_share, Streams(seed))
    assert all(np.array_equal(one, two) for one, two in zip(data.arrays, again.arrays, strict=True))
    assert np.array_equal(kept.indices, same.indices)


def test_sizes_weights_and_privacy_are_those_of_what_clients_train_on():
    private = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}
    algorithm = {"kind": "adpsgd", "step_size": 0.3, "batch_size": 16}
    made, full = (
        assemble(scenario(data=data, privacy=private, algorithm=algorithm))
        for data in ({"set": "digits", "validation": {"clients": 0.25}}, {"set": "digits"})
    )
    assert made.sizes.sum() + len(made.dataset.validation[1]) == full.sizes.sum() == 1438
    assert made.training.sizes.tolist() == made.sizes.tolist() != full.sizes.tolist()
    assert (made.ledger.epsilon(Releases([50] * 4)) > full.ledger.epsilon(Releases([50] * 4))).all()
    (uncounted,) = made.ledger.terms.uncounted
    assert "of the 360 examples of data.validation, which are of the clients' own data: it covers tr" in uncounted


def test_an_example_that_several_clients_hold_cannot_be_kept():
    shared = {"kind": "resample", "size": 500}
    with pytest.raises(ScenarioError, match=r"data\.validation\.clients: expected examples that one client holds"):
        assemble(of_clients(0.1, shared))


def test_a_resumed_run_keeps_the_same_examples(tmp_path):
    made = of_clients(0.2, {"kind": "dirichlet", "alpha": 0.5}, stop={"updates": 60})
    whole, events = run_until(simfl.prepare(made), math.inf, tmp_path)
    cut, _ = run_until(simfl.prepare(made), events // 2, tmp_path)
    assert cut.status == "interrupted"
    resumed = simfl.resume(cut.folder)
    assert resumed.manifest.digest == whole.manifest.digest
    assert resumed.metrics["validation_accuracy"].tolist() == whole.metrics["validation_accuracy"].tolist()
    assert simfl.evaluate(resumed, "train")["examples"] == assemble(made).sizes.sum()


def archive(tmp_path, **changes):
    random = np.random.default_rng(3)
    parts = {
        f"{key}_{part}": random.integers(0, 200, (n, 4), np.uint8) if key == "x" else np.arange(n) % 3
        for part, n in (("train", 60), ("test", 12), ("validation", 9))
        for key in "xy"
    }
    parts |= {"user_test": np.arange(12), "user": np.arange(60) % 4} | changes
    np.savez(tmp_path / "set.npz", **{key: part for key, part in parts.items() if part is not None})
    return parts


OWN = {"set": "npz", "validation": "own"}


def test_an_archive_has_a_validation_part_of_its_own(tmp_path):
    parts = archive(tmp_path)
    data = OWN | {"path": str(tmp_path / "set.npz"), "partition": {"kind": "by_column", "column": "user"}}
    algorithm = BASE["algorithm"] | {"batch_size": 8}
    setup = assemble(scenario(data=data, algorithm=algorithm))
    x, y = setup.dataset.validation
    assert (x.tolist(), y.tolist()) == (parts["x_validation"].tolist(), parts["y_validation"].tolist())
    assert setup.dataset.test_x.tolist() == parts["x_test"].tolist()
    assert setup.dataset.test_groups.tolist() == list(range(12))
    assert setup.of_validation == ("validation_loss", "validation_accuracy")
    some = assemble(scenario(data=data | {"classes": [2, 0], "normalize": "standard"}, algorithm=algorithm)).dataset
    assert some.validation[1].tolist() == [1, 0] * 3
    assert some.test_y.tolist() == [1, 0] * 4
    private = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}
    told = assemble(scenario(data=data, privacy=private, algorithm=algorithm | {"kind": "adpsgd"}))
    assert "the 9 examples of data.validation, which no client holds" in told.ledger.terms.uncounted[0]
    ignored = assemble(scenario(data=data | {"validation": None}, algorithm=algorithm)).dataset
    assert ignored.validation is None
    assert len(ignored.test_x) == 12


@pytest.mark.parametrize("missing", ["x_validation", "y_validation", "x_test"])
def test_an_archive_without_the_parts_is_refused(tmp_path, missing):
    archive(tmp_path, **{missing: None, missing.replace("x", "y"): None, "user_test": None})
    with pytest.raises(DataError, match=r"x_validation and y_validation|missing key y_validation"):
        assemble(scenario(data=OWN | {"path": str(tmp_path / "set.npz")}))


def test_a_set_without_a_part_of_its_own_is_refused_in_one_line():
    message = r"^data\.validation: own: expected .*x_validation, .* found \d+ and 0 examples in {}; use a share"
    with pytest.raises(ScenarioError, match=message.format("digits")):
        assemble(scenario(data={"set": "digits", "validation": "own"}))
    given = np.zeros((9, 2), np.float32), np.arange(9) % 2
    with pytest.raises(ScenarioError, match=message.format("tuple")):
        simfl.prepare(scenario(data={"set": "data:given", "validation": "own"}), data=given)


@pytest.mark.parametrize("wrong", [1.5, 0, "mine", {"clients": 1}, {"clients": 0.1, "share": 1}, [0.1], True])
def test_other_values_are_refused(wrong):
    with pytest.raises(ScenarioError, match=r"data\.validation"):
        scenario(data={"set": "digits", "validation": wrong})


def test_runs_of_one_world_share_the_set_that_clients_train_on():
    with shared_data():
        one, other = (
            assemble(of_clients(0.2, "iid", algorithm=BASE["algorithm"] | {"step_size": size})) for size in (0.1, 0.2)
        )
        assert is_one_world(one, other)


def test_own_data_are_known_again(monkeypatch):
    module = types.ModuleType("own_sets")
    module.load = lambda: (np.arange(120.0).reshape(60, 2), np.arange(60) % 3)
    monkeypatch.setitem(sys.modules, "own_sets", module)
    data = {"set": "own_sets:load", "validation": {"clients": 0.3}}
    made = scenario(data=data, algorithm=BASE["algorithm"] | {"batch_size": 4})
    assert is_same_data(made, sources_of(made, assemble(made).dataset))


def test_windows_of_a_text_are_those_at_the_end_of_a_client():
    text = {"set": "text", "generate": {"speakers": 4}, "partition": "natural", "validation": {"clients": 0.2}}
    whole = assemble(scenario(data=text | {"validation": None}, model={"kind": "transformer"}))
    made = assemble(scenario(data=text, model={"kind": "transformer"}))
    for client in range(4):
        kept = made.dataset.train_x[made.partition.of(client)]
        assert np.array_equal(kept, whole.dataset.train_x[whole.partition.of(client)[: len(kept)]])


def test_the_optimum_is_that_of_what_clients_train_on():
    data = {"set": "linear", "samples": 100, "dimension": 3, "validation": {"clients": 0.25}}
    dataset = assemble(scenario(data=data, model="linear")).dataset
    assert (len(dataset.train_x), len(dataset.validation[1])) == (75, 25)
    assert np.abs(dataset.known.gradients(dataset.optimum).mean(axis=0)).max() < 1e-5
