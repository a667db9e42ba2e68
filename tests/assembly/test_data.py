"""Data that runs share: loaded once where it is the same, and never where it is not."""

import numpy as np
import pytest

import simfl.assembly.data as module
from simfl.assembly.data import load_data, shared_data
from simfl.data import load_dataset
from simfl.scenario import from_mapping
from simfl.streams import Streams

IMAGES = {"set": "npz", "path": "images.npz", "normalize": "unit_sphere"}


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """Count the sets that are loaded; `images.npz` has a test part, so nothing is drawn."""
    generator = np.random.default_rng(0)
    parts = {f"x_{part}": generator.random((40, 6)).astype(np.float32) for part in ("train", "test")}
    labels = {f"y_{part}": generator.integers(0, 3, 40) for part in ("train", "test")}
    np.savez(tmp_path / "images.npz", **parts, **labels)
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    kinds = []

    def load(kind, **options):
        kinds.append(kind)
        return load_dataset(kind, **options)

    monkeypatch.setattr(module, "load_dataset", load)
    return kinds


def data_of(data, seed=0, **changes):
    scenario = from_mapping({"name": "shared", "data": data, "algorithm": "adpsgd", "seed": seed, **changes})
    return load_data(scenario, Streams(scenario.seed))


def test_a_set_without_draws_is_loaded_once_for_all_seeds_and_models(loads):
    with shared_data():
        first = data_of(IMAGES)
        assert data_of(IMAGES, seed=1, model={"kind": "softmax", "l2": 0.1}) is first
    assert loads == ["npz"]


def test_a_set_that_is_drawn_belongs_to_its_seed(loads):
    with shared_data():
        split = data_of("digits")
        other = data_of("digits", seed=1)
        assert data_of("digits") is split
        assert data_of("digits", seed=1) is other
    assert loads == ["digits", "digits"]
    assert not np.array_equal(split.train_x, other.train_x)


def test_a_transform_that_draws_belongs_to_its_seed(loads):
    drawn = {**IMAGES, "normalize": "standard", "fit_on": {"public": 10}}
    with shared_data():
        one, other = (data_of(drawn, seed).train_x for seed in (0, 1))
        assert data_of(IMAGES).train_x is data_of(IMAGES, seed=1).train_x
    assert not np.array_equal(one, other)


def test_sets_of_a_known_optimum_belong_to_their_model(loads):
    with shared_data():
        one, other = (data_of("linear", model={"kind": "linear", "l2": l2}) for l2 in (0.1, 0.2))
    assert one.optimal_loss != other.optimal_loss


def test_a_few_sets_are_kept_and_old_ones_go(loads, monkeypatch):
    monkeypatch.setattr(module, "MOST_SHARED_BYTES", 3000)
    with shared_data():
        data_of(IMAGES)
        data_of("digits")
        data_of(IMAGES)
        assert loads == ["npz", "digits"]
        data_of("digits", seed=1)  # the small set was used after the first large one, which goes
        data_of(IMAGES)
        assert loads == ["npz", "digits", "digits"]
        data_of("digits")
    assert loads == ["npz", "digits", "digits", "digits"]
