"""How the study of users at night chooses clipping norms and judges, on made-up runs."""

import math
import types

import pandas as pd
import pytest

from simfl.papers.user_privacy import study
from simfl.papers.user_privacy.study import BUFFERS, CLIPS, EQUAL, NORMS, ROUNDS, TUNING
from simfl.reproduction.papers import Experiment, Runs
from simfl.reproduction.reproducing import plan_of, scenarios_folder

HOURS = 3600.0


def made_up(accuracies, hours=(1.0, 2.0, 3.0, 4.0)):
    """A run with these accuracies in percent, at these hours."""
    metrics = pd.DataFrame(
        {"test_accuracy": [value / 100 for value in accuracies], "time_s": [h * HOURS for h in hours]}
    )
    return types.SimpleNamespace(metrics=metrics, status="done")


def runs_of(cells, section=EQUAL):
    """Runs of (server, noise, epsilon), with the clipping norm while it is chosen -> a list of accuracies a seed."""
    return Runs(
        {
            Experiment(section, cell, ""): {seed: made_up(values) for seed, values in enumerate(of, start=1)}
            for cell, of in cells.items()
        }
    )


def steady(*ends):
    return [[10.0, end, end, end] for end in ends]


def test_first_seeds_choose_the_clipping_norm_and_fresh_ones_are_judged():
    ends = dict(zip(CLIPS, (70.0, 80.0, 75.0, 60.0), strict=True))
    cells = {(BUFFERS, "tree", 4.0, clip): steady(*[end] * TUNING) for clip, end in ends.items()}
    (judged,) = study.later(runs_of(cells, NORMS), quick=False)
    assert judged.cell == (BUFFERS, "tree", 4.0)
    assert "privacy.clipping_norm=0.2" in judged.overrides
    assert judged.first == TUNING + 1
    del cells[BUFFERS, "tree", 4.0, 0.8]
    assert study.later(runs_of(cells, NORMS), quick=False) == [], "a norm was not tried yet"


def test_hours_to_the_target_are_of_the_first_evaluation_there():
    assert study.hours_to_target(made_up([10.0, 79.9, 80.0, 70.0])) == 3.0
    assert study.hours_to_target(made_up([10.0, 20.0, 30.0, 40.0])) == math.inf


@pytest.mark.parametrize(("buffers", "held"), [([90, 90, 90, 90], True), ([10, 10, 10, 90], False)])
def test_buffers_must_need_half_of_the_time(buffers, held):
    """Rounds reach the target after four hours."""
    cells = {
        (ROUNDS, "tree", 4.0): [[10, 10, 10, 90]] * 5,
        (BUFFERS, "tree", 4.0): [buffers] * 5,
    }
    (reading,) = study.buffers_are_sooner(runs_of(cells))
    assert reading.held is held


@pytest.mark.parametrize(("ends", "held"), [([85, 85.1, 85.2, 84.9, 85], True), ([79, 79.1, 79.2, 78.9, 79], False)])
def test_noise_is_compared_with_independent_noise_of_the_same_server(ends, held):
    cells = {
        (server, noise, 4.0): steady(*(ends if (server, noise) == (BUFFERS, "banded") else [80] * 5))
        for server in (ROUNDS, BUFFERS)
        for noise in ("independent", "banded")
    }
    readings = {r.choices["server"]: r.held for r in study.correlated_is_better("banded", runs_of(cells))}
    assert readings[BUFFERS] is held
    assert readings[ROUNDS] is False, "no lead is no lead of a point"


def test_all_methods_spend_the_same_epsilon_under_the_same_gate():
    plan, _ = plan_of(study.PAPER, True, scenarios_folder(None, study.PAPER))
    scenarios = [run.scenario for run in plan.runs]
    equal = [one.privacy for one in scenarios if one.privacy.epsilon is not None]
    assert {privacy.epsilon for privacy in equal} == {4.0}
    assert len({(p.participation.min_separation, p.participation.at_most, p.releases) for p in equal}) == 1
    assert {p.noise and p.noise.correlated for p in equal} == {None, "tree", "square_root"}
    assert len({one.availability for one in scenarios}) == 2, "at night, or always"
