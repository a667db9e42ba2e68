"""FedAvg and FedProx: rounds written out in NumPy, their limits, and worlds in which clients crash and leave."""

import math

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.world import ServerModel
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import ROUGH_LINKS
from tests.helpers import (
    Lab,
    NullExecutor,
    batch_gradient,
    constant,
    lognormal,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
)

pytestmark = pytest.mark.usefixtures("without_numbers")

K = 6
ETA = 0.3
STEPS = [1, 2, 3, 4, 5, 6]


def run(kind, world, *, updates=None, until=None, training=None, **options):
    """Run an algorithm without arithmetic."""
    training = training or make_training([64] * world.num_clients)
    tape = Tape(NullExecutor(), window=1000, max_batch=8, local=True)
    return run_algorithm(kind, world, tape, training, updates=updates, until=until, **options)


def change(problem, start, client, draw, steps, proximal=0.0, correction=0.0):
    """Return w_H - w_0 of one round, f64."""
    w = start.copy()
    for h in range(steps):
        gradient = batch_gradient(problem, w, client, draw + h, problem.batches.size) / problem.batches.size
        w = w - ETA * (gradient + proximal * (w - start) + correction)
    return w - start


def numbers(kind, problem, world, updates, prepare=None, **options):
    with Lab(problem) as lab:
        training = lab.training(step_size=ETA)
        algorithm, rows = run_algorithm(kind, world, lab.tape, training, updates=updates, prepare=prepare, **options)
        return lab.tape.values(algorithm.models())[0], training.initial.astype(np.float64), algorithm, rows


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("fedavg", {}),
        ("fedavg", {"fraction": 0.5, "server_step": 0.7, "weighting": "uniform"}),
        ("fedavg", {"deadline": 0.05}),
        ("fedprox", {"deadline": 0.05}),
    ],
    ids=["all", "some", "deadline", "fedprox"],
)
def test_rounds_equal_those_written_out_in_numpy(kind, options):
    proximal = 0.2 if kind == "fedprox" else 0.0
    sizes = [40, 60, 80, 50, 70, 60]
    problem = make_problem(K, sizes=sizes, local=True, proximal=proximal)
    world = make_world(K, speeds=[1.0, 1.0, 2.0, 0.5, 1.0, 3.0], jitter=lognormal(0.4), links=ROUGH_LINKS, seed=3)
    draws = {}

    def watch(algorithm):
        train = algorithm.batches.train

        def trained(model, client, steps, step, correction):
            promised = train(model, client, steps, step, correction)
            draws.setdefault(client, []).append((algorithm.round_num, promised.draw, steps))
            return promised

        algorithm.batches.train = trained

    final, w, algorithm, rows = numbers(kind, problem, world, 60, watch, steps=STEPS, **options)
    rounds = [[row for row in rows if row[3] == r] for r in range(algorithm.round_num)]
    weights = sizes if options.get("weighting", "data") == "data" else [1] * K
    for r, members in enumerate(rounds):
        start, total = w.copy(), sum(weights[row[1]] for row in members)
        for row in members:
            client = row[1]
            (draw, steps) = next((d, s) for at, d, s in draws[client] if at == r)
            assert row[5] == 8 * steps
            assert steps == STEPS[client] or kind == "fedprox"
            share = options.get("server_step", 1.0) * weights[client] / total
            w = w + share * change(problem, start, client, draw, steps, proximal)
    assert np.abs(final - algorithm.training.initial).max() > 0.1, "the run went somewhere"
    np.testing.assert_allclose(final, w, rtol=0, atol=1e-5)
    assert all(row[4] == 0 for row in rows)
    assert {len(members) for members in rounds} == {3} if "fraction" in options else True
    assert sum(algorithm.client_dropped) > 0 if "deadline" in options else sum(algorithm.client_dropped) == 0


def test_a_round_takes_at_most_as_long_as_its_deadline():
    speeds, links = [1.0, 1.0, 1.0, 10.0], LinkModel(latency=constant(0.01))
    algorithm, rows = run("fedavg", make_world(4, speeds=speeds, links=links), updates=30, deadline=0.04)
    ends = np.unique([row[0] for row in rows])
    assert np.diff(ends, prepend=0.0).max() == pytest.approx(0.04)
    assert np.diff(ends, prepend=0.0)[1] == pytest.approx(0.028), "who is still at the last round is not chosen"
    assert algorithm.client_updates == [10, 10, 10, 0]
    assert algorithm.client_dropped[3] >= 2


@pytest.mark.parametrize("kind", ["fedprox", "fednova"])
@pytest.mark.parametrize("latency_s", [0.0, 0.3])
def test_partial_work_arrives_by_the_deadline(kind, latency_s):
    """A step takes 0.1 s times the speed; a round lasts 1 s, less one way in the first round, and both ways later."""
    speeds = [1.0, 1.5, 2.0, 4.0]
    links = LinkModel(latency=constant(latency_s))
    world = make_world(4, seconds_per_example=0.1 / 8, speeds=speeds, links=links)
    algorithm, rows = run(kind, world, until=20.5, deadline=1.0, steps=[10] * 4)
    assert algorithm.client_updates == [20] * 4
    assert algorithm.client_dropped == [0] * 4
    assert [row[0] for row in rows[::4]] == pytest.approx(np.arange(1.0, 21.0))
    for row in rows:
        left_s = 1.0 - latency_s * (1 if row[3] == 0 else 2)
        assert row[5] == 8 * min(10, math.floor(left_s / (0.1 * speeds[row[1]]) + 1e-6))


@pytest.mark.parametrize(
    ("server", "bandwidth"),
    [
        (ServerModel(), 80.0),
        (ServerModel(downlink=160.0), None),
        (ServerModel(seconds_per_update=0.05), None),
        (ServerModel(downlink=160.0, seconds_per_update=0.15), None),
    ],
)
def test_partial_work_leaves_time_for_the_bytes_and_for_the_updates_of_others(server, bandwidth):
    """A model has 16 bytes; updates of four clients may come at once."""
    links = LinkModel(latency=constant(0.01), bandwidth=bandwidth)
    world = make_world(4, seconds_per_example=0.1 / 8, speeds=[1.0, 1.1, 1.3, 1.7], links=links)
    world.server = server
    algorithm, rows = run("fedprox", world, until=20.5, deadline=1.0, steps=[10] * 4)
    assert algorithm.client_updates == [algorithm.round_num] * 4
    assert algorithm.round_num >= 20
    assert max(row[5] for row in rows) < 80


def test_an_update_that_is_late_by_rounding_is_in_time():
    """Client 1 needs 0.1 + 0.7 + 0.1 s after the first round, which floating point does not always add up to 0.9 s."""
    links = LinkModel(latency=constant(0.1))
    world = make_world(3, seconds_per_example=0.7 / 8, speeds=[0.5, 1.0, 90.0], links=links)
    algorithm, rows = run("fedavg", world, until=60.0, deadline=0.9)
    assert algorithm.client_updates == [66, 66, 0]
    assert [row[0] for row in rows[::2]] == pytest.approx(0.9 * np.arange(1, 67))


def test_budgets_end_a_run():
    training = make_training([64] * 4)
    object.__setattr__(training, "allowances", [3, 5, 3, 3])
    algorithm, _ = run("fedavg", make_world(4), training=training)
    assert algorithm.releases.counts == algorithm.client_updates == [3, 5, 3, 3]
    assert algorithm.round_num == 5
    assert sorted(algorithm.budgets.spent_s) == [0, 1, 2, 3]
