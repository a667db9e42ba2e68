"""Rennala and m-synchronous SGD: times of steps in closed form, models in NumPy, bounds of time."""

import numpy as np
import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_async_sgd import Script
from tests.algorithms.test_ringmaster import BATCH_S, SPEEDS, K
from tests.helpers import (
    NullExecutor,
    batch_gradient,
    constant,
    lognormal,
    make_algorithm,
    make_problem,
    make_training,
    make_world,
    run_without_numbers,
)

TAU = BATCH_S * np.array(SPEEDS)


def times_of_steps(kind, size, late, steps=60, **world):
    """Return the times of steps of the server, f64 [steps], with the algorithm."""
    option = {"rennala": "gradients_per_step", "m_sync_sgd": "wait_for"}[kind]
    world = make_world(K, speeds=SPEEDS, **world)
    algorithm, rows = run_without_numbers(kind, world, updates=steps * size, late=late, **{option: size})
    assert [row[3] for row in rows] == [number for number in range(steps) for _ in range(size)]
    assert {row[4] for row in rows} == {0}
    times = np.array([row[0] for row in rows]).reshape(steps, size)
    assert (times == times[:, :1]).all()
    return times[:, 0], algorithm


@pytest.mark.parametrize("size", [1, 4, 9])
def test_steps_of_rennala_that_stops_last_until_all_clients_together_have_s_gradients(size):
    """All clients begin each step together: it lasts min {t: sum_i floor(t / tau_i) >= S}."""
    multiples = np.sort(np.concatenate([tau * np.arange(1, size + 1) for tau in TAU]))
    times, algorithm = times_of_steps("rennala", size, "stop")
    np.testing.assert_allclose(times, multiples[size - 1] * np.arange(1, 61), rtol=1e-12)
    assert algorithm.client_dropped == [0] * K


def test_steps_of_rennala_that_drops_equal_an_event_loop_and_the_papers_bound():
    size = 4
    done, read, version, batch, steps, dropped = TAU.copy(), [0] * K, 0, 0, [], [0] * K
    while len(steps) < 60:
        client = int(np.argmin(done))
        now = done[client]
        if read[client] == version:
            batch += 1
        else:
            dropped[client] += 1
        if batch == size:
            batch, version = 0, version + 1
            steps.append(now)
        done[client], read[client] = now + TAU[client], version
    times, algorithm = times_of_steps("rennala", size, "drop")
    np.testing.assert_allclose(times, steps, rtol=1e-12)
    assert algorithm.client_dropped == dropped
    bound = min(2 * (size + m) / np.sum(1 / TAU[:m]) for m in range(1, K + 1))
    assert max(np.diff([0.0, *times])) <= bound


@pytest.mark.parametrize("late", ["drop", "stop"])
def test_a_step_of_m_synchronous_sgd_lasts_as_long_as_the_m_th_fastest_client(late):
    for size in (1, 3, 5):
        times, algorithm = times_of_steps("m_sync_sgd", size, late)
        np.testing.assert_allclose(times, TAU[size - 1] * np.arange(1, 61), rtol=1e-12)
        assert algorithm.client_updates == [60] * size + [0] * (K - size), "one gradient a step"
        assert algorithm.times.computed_s(0) == pytest.approx(60 * TAU[0]), "it waits for the slower ones"


def test_links_add_two_latencies_to_each_step_of_m_synchronous_sgd():
    times, algorithm = times_of_steps("m_sync_sgd", 3, "drop", links=LinkModel(latency=constant(1e-3)))
    np.testing.assert_allclose(times, (TAU[2] + 1e-3) + (TAU[2] + 2e-3) * np.arange(60), rtol=1e-12)
    spent = algorithm.times.computed_s(0) + algorithm.times.communicated_s(0) + algorithm.times.waited_s(0)
    assert spent == pytest.approx(algorithm.clock.now)


class Steps(Script):
    """Replays a server that sums gradients at one model before it steps."""

    def _prepare(self, algorithm):
        super()._prepare(algorithm)
        push = algorithm.push

        def pushed(client, gradient, read):
            self.events.append(("pushed", client, read, gradient.draw, gradient.size))
            return push(client, gradient, read)

        algorithm.push = pushed

    def replay(self, size):
        problem, pushed = self.problem, [[] for _ in range(6)]
        x, version, total, taken = self.training.initial.astype(np.float64), 0, 0.0, 0
        for event, client, *rest in self.events:
            if event == "pushed":
                pushed[client].append(rest)
            elif event == "applied":
                while pushed[client][0][0] < version:
                    pushed[client].pop(0)  # too late
                _, draw, examples = pushed[client].pop(0)
                mean = batch_gradient(problem, x, client, draw, examples) / problem.batches.size
                total, taken = total + mean + problem.model.l2 * x, taken + 1
                if taken % size == 0:
                    x, total, version = x - 0.5 / size * total, 0.0, version + 1
        return x


@pytest.mark.parametrize(
    ("kind", "option", "late"),
    [
        ("rennala", "gradients_per_step", "drop"),
        pytest.param("rennala", "gradients_per_step", "stop", marks=pytest.mark.slow),
        ("m_sync_sgd", "wait_for", "stop"),
        pytest.param("m_sync_sgd", "wait_for", "drop", marks=pytest.mark.slow),
    ],
)
def test_models_equal_the_papers_server(kind, option, late):
    script = Steps(kind, make_problem(6, sampling="poisson", clipping_norm=0.7, l2=0.05), late=late, **{option: 4})
    assert sum(event[0] == "computed" for event in script.events) > 126, "some gradients were discarded or stopped"
    assert {row[6] for row in script.rows} == {0.5}
    script.check(script.replay(4))


@pytest.mark.slow
def test_a_server_optimizer_takes_the_mean_of_the_batch(tmp_path):
    base = {
        "data": {"set": "quadratic", "samples": 64, "dimension": 5},
        "model": "quadratic",
        "clients": {"count": 4},
        "stop": {"updates": 80},
        "evaluate": {"every": {"updates": 80}, "metrics": ["distance"]},
    }
    options = {"batch_size": 16, "sampling": "shuffle", "step_size": 0.1, "server_optimizer": "momentum"}
    distances = [
        simfl.run({**base, "algorithm": {"kind": kind, **options}}, out=tmp_path).metrics["distance"].iloc[-1]
        for kind in ("rennala", "m_sync_sgd")
    ]
    fedavg = {"kind": "fedavg", "batch_size": 16, "step_size": 1.0, "local_steps": 1, "server_step": 0.1}
    fedavg["server_optimizer"] = "momentum"
    distances.append(simfl.run({**base, "algorithm": fedavg}, out=tmp_path).metrics["distance"].iloc[-1])
    np.testing.assert_allclose(distances, distances[0], rtol=1e-4)


def counted(kind, *, until=1.0, allowances=None, **options):
    """Return an algorithm of two clients with noise, its tally of releases, and its rows."""
    training = make_training([40] * 2, noise_std=2.0, sampling="shuffle")
    object.__setattr__(training, "allowances", allowances)
    tape, rows = Tape(NullExecutor(), max_batch=8), []
    world = make_world(2, speeds=[1.0, 7.3])
    algorithm = make_algorithm(kind, world, tape, training, rows.append, **options)
    algorithm.start()
    algorithm.clock.run(until)
    return algorithm, tape.releases, rows


def test_discarded_gradients_are_releases_and_stopped_computations_are_not():
    dropping, releases, _ = counted("rennala", gradients_per_step=2)
    assert dropping.client_updates[1] == 0
    assert releases.total(1) == dropping.client_dropped[1] > 10
    for kind, option in (("rennala", {"gradients_per_step": 2}), ("m_sync_sgd", {"wait_for": 1})):
        stopping, releases, rows = counted(kind, late="stop", **option)
        assert (stopping.client_dropped, releases.total(1)) == ([0, 0], 0)
        assert stopping._draws[1] == 1, "a stopped computation's mini-batch is the next one"
        assert releases.total(0) - len(rows) in (0, 1), "one may be in the batch"
        assert releases.refusal is None


def test_the_others_step_without_a_client_that_has_spent_its_budget():
    algorithm, releases, rows = counted("m_sync_sgd", allowances=[5, 1])
    assert (releases.total(0), releases.total(1)) == (5, 1)
    assert [row[1] for row in rows] == [0, 1, 0, 0, 0, 0]
    assert set(algorithm.budgets.spent_s) == {0, 1}


def test_m_synchronous_sgd_goes_on_among_faults():
    outages = {0: [Outage(0.1, 0.2)], 1: [Outage(0.02, 0.3), Outage(0.5, 0.55, crash=True)], 2: [Outage(0.4, np.inf)]}
    for late in ("drop", "stop"):
        world = make_world(4, jitter=lognormal(0.5), links=LinkModel(latency=constant(2e-3)), outages=outages)
        algorithm, rows = run_without_numbers("m_sync_sgd", world, until=1.0, wait_for=3, late=late)
        for k in (0, 1, 3):
            assert sum(row[1] == k and row[0] > 0.6 for row in rows) > 5
            parts = algorithm.times.computed_s(k) + algorithm.times.communicated_s(k) + algorithm.times.waited_s(k)
            assert parts + world.availability.offline_s(k, 1.0) == pytest.approx(1.0)


def test_a_step_of_more_clients_than_there_are_is_refused():
    scenario = {
        "data": "digits",
        "clients": {"count": 2},
        "algorithm": {"kind": "m_sync_sgd", "wait_for": 3},
        "stop": {"updates": 2},
    }
    with pytest.raises(ScenarioError) as caught:
        simfl.load(scenario)
    line = "algorithm.wait_for: expected at most clients.count, which is 2, found 3; lower it or add clients"
    assert line in str(caught.value)
