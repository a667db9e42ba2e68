"""Memory is returned after every run if the C library can do it, and nothing else changes."""

import ctypes

import numpy as np
import pytest

import simfl
from simfl.runs import memory

pytestmark = pytest.mark.usefixtures("without_numbers")

SCENARIO = {"algorithm": "sync_sgd", "clients": 2, "stop": {"updates": 4}}


@pytest.fixture
def trims(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "_trim", lambda: calls.append)
    monkeypatch.setattr(memory, "REST", 0.0)
    monkeypatch.setattr(memory, "_next_s", 0.0)
    return calls


def test_free_memory_is_returned_after_a_run_and_tables_stay(trims, tmp_path, monkeypatch):
    given = simfl.run(SCENARIO, out=tmp_path)
    assert trims == [0]
    monkeypatch.setattr(memory, "_trim", lambda: None)
    assert simfl.run(SCENARIO, out=tmp_path).manifest.digest == given.manifest.digest
    assert trims == [0]


def test_a_failed_run_returns_memory_too(trims, tmp_path):
    broken = {**SCENARIO, "algorithm": {"kind": "tests.algorithms.custom:Broken"}, "stop": {"updates": 400}}
    with pytest.raises(simfl.RunError, match="by mistake"):
        simfl.run(broken, out=tmp_path)
    assert trims == [0]


def test_returning_memory_takes_a_small_share_of_the_time(trims, monkeypatch):
    monkeypatch.setattr(memory, "REST", 20.0)
    times = iter(
        [100.0, 100.5, 101.0, 110.4, 110.6, 111.0]
    )  # the first call takes half a second, so the next waits for ten
    monkeypatch.setattr(memory, "monotonic", lambda: next(times))
    counts = []
    for _ in range(4):
        memory.give_back()
        counts.append(len(trims))
    assert counts == [1, 1, 1, 2]


def test_returning_memory_does_not_change_arrays(monkeypatch):
    monkeypatch.setattr(memory, "_next_s", 0.0)
    held = np.arange(2**16)
    memory.give_back()
    assert (held == np.arange(2**16)).all()


def test_without_malloc_trim_nothing_is_returned(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory._trim.cache_clear()
    assert memory._trim() is None
    memory.give_back()
    memory._trim.cache_clear()
