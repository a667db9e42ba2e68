"""PrivSGP-VR: an independent loop with times, its optimum, fixed mini-batches on the device, and its account."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.tape.draws import batch_positions
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    NumpyExecutor,
    constant,
    exponential,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
    softmax_gradient,
)

D, STEP, LATENCY_S, BANDWIDTH, COUNT, B = 3, 0.2, 0.004, 3e4, 5, 4
SPEEDS, SIZES = [1.0, 1.37, 2.11, 0.53, 3.17], [12, 10, 4, 9, 16]
STD = 0.05


def pulls():
    return [np.random.default_rng(7 + k).normal(size=(n, D)) for k, n in enumerate(SIZES)]


def noise_of(client, draw):
    return np.random.default_rng((client, draw)).normal(size=D)


def run(world, batch_size=B, std=0.0, **more):
    """Run with losses |x - a|^2 / 2 of each example a, in float64."""
    examples = pulls()

    def gradient(params, k, draw, first, size):
        begin = (draw * min(batch_size, SIZES[k]) + first) % SIZES[k]
        assert begin + size <= SIZES[k], "a mini-batch lies within the data"
        return sum((params - a for a in examples[k][begin : begin + size]), np.zeros(D))

    tape = Tape(NumpyExecutor(D, gradient, noise_of), window=50, max_batch=batch_size)
    training = make_training(SIZES, d=D, batch_size=batch_size, step_size=STEP, noise_std=std)
    algorithm, rows = run_algorithm("privsgp_vr", world, tape, training, **more)
    return algorithm, rows, tape.values(algorithm.models())


@pytest.mark.parametrize(("batch_size", "std"), [(1, STD), (B, STD), (B, 0.0)])
def test_models_and_times_equal_those_of_a_loop(batch_size, std):
    """The loop knows which mini-batches are drawn, and nothing of simfl's events. The last ones may be smaller."""
    rounds, links = 40, LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    world = make_world(COUNT, speeds=SPEEDS, links=links)
    examples, x, w = pulls(), np.zeros((COUNT, D)), np.ones(COUNT)
    tables = [np.zeros((-(-n // batch_size), D)) for n in SIZES]
    free, times, models = np.zeros(COUNT), np.zeros((rounds, COUNT)), []
    for number in range(rounds):
        z = x / w[:, None]
        for k, n in enumerate(SIZES):
            size, table = min(batch_size, n), tables[k]
            m = int(world.streams.generator("table", k, number).integers(len(table)))
            new = sum(z[k] - a for a in examples[k][m * size : (m + 1) * size])
            v = len(table) / n * (new - table[m] + std * noise_of(k, number)) + table.sum(0) / n
            table[m] = new
            x[k] = x[k] - STEP * v
        done = free + 1e-3 * np.minimum(batch_size, SIZES) * SPEEDS
        times[number] = done
        hop = [1, 2, 4][number % 3]
        sources = [(k - hop) % COUNT for k in range(COUNT)]
        x, w = (x + x[sources]) / 2, (w + w[sources]) / 2
        free = np.maximum(done, done[sources] + LATENCY_S + 4 * D / BANDWIDTH)
        models.append(x / w[:, None])
    _, rows, _ = run(world, batch_size, std, updates=COUNT * (rounds - 5))
    for row in rows:
        assert row[0] == pytest.approx(times[row[3], row[1]], abs=1e-12)
    seen = {}

    def prepare(algorithm):
        gradient = algorithm._gradient_at

        def watched(me):
            seen[algorithm._client_round[me], me] = algorithm.debiased(me)
            return gradient(me)

        algorithm._gradient_at = watched

    algorithm, _, _ = run(make_world(COUNT, speeds=SPEEDS), batch_size, std, updates=COUNT * rounds, prepare=prepare)
    for number in range(rounds - 1):
        found = algorithm.tape.values([seen[number + 1, k] for k in range(COUNT)])
        np.testing.assert_allclose(found, models[number], atol=1e-6)


def test_a_constant_step_reaches_the_optimum_which_gradients_of_mini_batches_do_not():
    """Each client counts equally; SGP stays at a distance, with the same step."""
    best = np.mean([examples.mean(axis=0) for examples in pulls()], axis=0)
    distances = {}
    for kind in ("privsgp_vr", "sgp"):
        examples = pulls()
        tape = Tape(
            NumpyExecutor(
                D, lambda params, k, draw, first, size, a=examples: params - a[k][(draw + first) % SIZES[k]]
            )
        )  # fmt: skip
        training = make_training(SIZES, d=D, batch_size=1, step_size=0.05)
        algorithm, _ = run_algorithm(kind, make_world(COUNT), tape, training, updates=COUNT * 800)
        distances[kind] = np.linalg.norm(tape.values(algorithm.models()).mean(axis=0) - best)
    assert distances["privsgp_vr"] < 1e-3 < 1e-2 < distances["sgp"]


def test_mini_batches_are_the_same_parts_of_the_data_on_the_device():
    """A float64 loop of the textbook's gradients over the examples that the device's one order gives."""
    problem = make_problem(4, batch_size=8, sampling="same_order", sizes=[37, 40, 24, 11])
    with Lab(problem) as lab:
        training, world = lab.training(step_size=0.3), make_world(4)
        algorithm, _ = run_algorithm("privsgp_vr", world, lab.tape, training, updates=4 * 12 - 3)
        models = lab.tape.values(algorithm.models())
    x, w, data = np.array([training.initial] * 4, np.float64), np.ones(4), problem.data
    tables = [{} for _ in range(4)]
    for number in range(12):
        z = x / w[:, None]
        for k, n in enumerate(data.sizes.tolist()):
            if number == 11 and k:
                continue  # the run ends at the first client's update
            rows = -(-n // 8)
            m = int(world.streams.generator("table", k, number).integers(rows))
            places = batch_positions(
                "same_order", problem.keys.data, np.int32(k), np.int32(0), np.int32(8 * m), 8, min(8, n - 8 * m),
                np.int32(n),
            )  # fmt: skip
            chosen = data.indices[data.offsets[k] + np.asarray(places)]
            new = softmax_gradient(z[k], data.train_x[chosen], data.train_y[chosen])
            old = tables[k].get(m, 0.0)
            x[k] -= 0.3 * (rows / n * (new - old) + sum(tables[k].values()) / n)
            tables[k][m] = new
        if number < 11:
            hop = [1, 2][number % 2]
            sources = [(k - hop) % 4 for k in range(4)]
            x, w = (x + x[sources]) / 2, (w + w[sources]) / 2
    assert np.abs(models - training.initial).max() > 0.05
    np.testing.assert_allclose(algorithm.weight[1:], w[1:])
    np.testing.assert_allclose(models[1:], (x / w[:, None])[1:], atol=1e-5)


def test_faults_are_those_of_sgp():
    rough = LinkModel(latency=exponential(2e-3), loss=0.2, resend_timeout_s=0.02)
    outages = {1: [Outage(0.1, np.inf, crash=True)], 2: [Outage(0.2, np.inf)], 3: [Outage(0.0, 0.3)]}
    times = [
        run_without_numbers(kind, make_world(6, links=rough, outages=outages), until=2.0)[1]
        for kind in ("privsgp_vr", "sgp")
    ]
    assert [row[:2] for row in times[0]] == [row[:2] for row in times[1]]
    assert {row[1] for row in times[0] if row[0] > 1.0} == {0, 3, 4, 5}
