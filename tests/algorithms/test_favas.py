"""FAVAS: models and times equal an event loop in NumPy; progress is one step on average, whatever the speed."""

import itertools

import numpy as np
import pytest

import simfl
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_fedavg import change
from tests.helpers import Lab, constant, make_problem, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

SPEEDS = [1.0, 1.3, 2.1, 0.5, 3.3, 9.7]
STEPS = [4, 3, 4, 5, 2, 2]
PERIOD = 0.0211
ETA = 0.3


class Watched:
    """A run that notes which clients the server asks in each round."""

    def __init__(self, problem, world, updates, **options):
        self.cohorts = []
        with Lab(problem) as lab:
            self.training = lab.training(step_size=ETA)
            self.algorithm, self.rows = run_algorithm(
                "favas", world, lab.tape, self.training, updates=updates, prepare=self._watch, steps=STEPS, **options
            )
            self.model = lab.tape.values(self.algorithm.models())[0].astype(np.float64)

    def _watch(self, algorithm):
        interrupt = algorithm.interrupt

        def interrupted(client):
            if not algorithm.answers and (not self.cohorts or algorithm.round_num == len(self.cohorts)):
                self.cohorts.append([])
            self.cohorts[algorithm.round_num].append(client)
            return interrupt(client)

        algorithm.interrupt = interrupted


@pytest.mark.parametrize("divisor", ["expected", "actual"])
@pytest.mark.parametrize("latency", [0.0, 1.7e-3], ids=["free", "latency"])
def test_models_and_times_equal_an_event_loop_by_hand(divisor, latency):
    problem = make_problem(6, local=True)
    world = make_world(6, speeds=SPEEDS, links=LinkModel(latency=constant(latency)) if latency else None)
    watched = Watched(problem, world, 80, fraction=0.5, period=PERIOD, divisor=divisor)
    w = watched.training.initial.astype(np.float64)
    base, began, read, draws = [w] * 6, [0.0] * 6, [0] * 6, [0] * 6
    history, rows, now = [[] for _ in range(6)], [], 0.0
    for number, cohort in enumerate(watched.cohorts):
        asked_s = now + PERIOD + latency
        now = asked_s + latency
        answers, made = [], []
        for k in cohort:
            steps = min(STEPS[k], int((asked_s - began[k]) / (8e-3 * SPEEDS[k])))
            history[k].append(steps)
            alpha = np.mean(history[k]) if divisor == "expected" else np.mean(np.sign(history[k])) * steps
            answers.append(base[k] + (change(problem, base[k], k, draws[k], steps) / alpha if steps else 0.0))
            draws[k] += steps
            made += [(now, k, number, number - read[k], 8 * steps)] if steps else []
        w = (w + sum(answers)) / (len(answers) + 1)
        rows += made
        for k in cohort:
            base[k], began[k], read[k] = w, now + latency, number + 1
    assert len(watched.cohorts) > 30
    assert {len(cohort) for cohort in watched.cohorts} == {3}
    np.testing.assert_allclose([(*row[:2], *row[3:6]) for row in watched.rows], rows)
    assert {0, 1, 2} < set(itertools.chain(*history)), "answers with all numbers of steps"
    assert np.abs(w - watched.training.initial).max() > 0.1, "the run went somewhere"
    np.testing.assert_allclose(watched.model, w, rtol=0, atol=1e-5)


def test_a_client_that_has_all_its_steps_waits_and_one_that_has_none_releases_nothing():
    algorithm, rows = run(
        "favas", make_world(4, speeds=[1, 1, 1, 90]), until=2.05, period=0.1, fraction=1.0, steps=[3] * 4
    )
    assert {row[5] for row in rows if row[1] < 3} == {24}
    assert algorithm.times.waited_s(0) == pytest.approx(2.05 - 3 * 8e-3 * 20, rel=0.02)
    assert algorithm.client_updates[3] == 0
    assert algorithm.tape.releases.counts == [*algorithm.client_updates[:3], 0]
    assert algorithm.history[3][0] == 20


def test_the_server_asks_clients_that_are_present_and_ends_when_all_have_left():
    outages = {0: [Outage(0.5, 1.0, crash=True)], 1: [Outage(0.7, np.inf, crash=True)]}
    world = make_world(3, outages=outages)
    _, rows = run("favas", world, until=3.0, period=0.02, fraction=1.0)
    times = {k: np.array([row[0] for row in rows if row[1] == k]) for k in range(3)}
    assert not ((times[0] > 0.52) & (times[0] < 1.0)).any()
    assert times[0].max() > 2.9
    assert times[1].max() < 0.75
    gone = {k: [Outage(0.5 + k / 10, np.inf, crash=True)] for k in range(3)}
    world = make_world(3, outages=gone)
    run("favas", world, period=0.02, fraction=1.0)
    assert world.clock.now < 1.0


def test_a_period_shorter_than_every_mini_batch_ends_the_run_and_says_so(without_numbers, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.algorithms.favas.MOST_IDLE", 50)
    algorithm = {"kind": "favas", "period": "1 ms", "fraction": 1.0, "batch_size": 8}
    world = {"clients": {"count": 4, "seconds_per_batch": "10 ms"}, "stop": {"updates": 5}}
    run = simfl.run({"name": "idle", "data": "digits", **world, "algorithm": algorithm}, out=tmp_path, progress=False)
    assert run.manifest.updates == 0
    assert "algorithm.period is shorter than a mini-batch" in run.manifest.reason
