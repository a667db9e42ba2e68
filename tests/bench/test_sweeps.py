"""The cases of `simfl bench` that are sweeps."""

import dataclasses

import pytest

from simfl.bench import sweeps
from simfl.bench.cases import CASES, QUICK
from simfl.bench.command import show_bench
from simfl.studies.worlds import world_key


def test_every_case_has_one_name():
    assert not set(CASES) & set(sweeps.SWEEPS)
    assert set(QUICK) <= {*CASES, *sweeps.SWEEPS}


@pytest.mark.parametrize(("name", "count"), [("sweep", 8), ("sweep-private", 16)])
def test_settings_of_a_case_have_one_world(name, count):
    scenarios = sweeps.scenarios_of(name, 10)
    assert len({scenario.digest() for scenario in scenarios}) == count
    assert len({world_key(scenario) for scenario in scenarios}) == 1
    assert scenarios[0].stop.updates == sweeps.SWEEPS[name].updates // 10


@pytest.mark.slow
def test_a_sweep_is_measured_against_runs_alone(monkeypatch, capsys):
    short = dataclasses.replace(sweeps.SWEEPS["sweep"], updates=20_000)
    monkeypatch.setitem(sweeps.SWEEPS, "sweep", short)
    measured = sweeps.measure("sweep", "cpu", quick=True)
    assert (measured["settings"], measured["ratio"]) == (8, pytest.approx(measured["ratios"][0]))
    assert measured["ratio"] == pytest.approx(measured["together_s"] / 8 / measured["alone_s"], rel=0.05)
    show_bench([measured])
    assert "of as many alone" in capsys.readouterr().out
