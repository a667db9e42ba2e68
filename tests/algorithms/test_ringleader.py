"""Ringleader ASGD equals the paper's algorithm: times by an event loop, models in NumPy, ages in its table."""

from pathlib import Path

import numpy as np
import pytest

import simfl
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_async_sgd import Script
from tests.algorithms.test_ringmaster import BATCH_S, SPEEDS, K
from tests.helpers import (
    NullExecutor,
    batch_gradient,
    constant,
    make_algorithm,
    make_problem,
    make_training,
    make_world,
    run_without_numbers,
)

SCENARIO = Path(__file__).parents[2] / "scenarios/late/ringleader.yaml"


def by_hand(gradients, batch=1.0):
    """Return (time, client, steps before it, staleness) of each gradient, and the ages in the table at each step."""
    seconds = [BATCH_S * speed for speed in SPEEDS]
    done, read, steps, rows, ages = list(seconds), [0] * K, 0, [], []

    def arrives():
        client = int(np.argmin(done))
        rows.append((done[client], client, steps, steps - read[client]))
        done[client] += seconds[client]
        return client

    table = dict.fromkeys(range(K), 0)
    while len(rows) < gradients:
        while min(table.values()) == 0 or K / sum(1 / b for b in table.values()) < batch:  # phase 1
            last = arrives()
            table[last] += 1
        left, later, client = set(range(K)), dict.fromkeys(range(K), 0), last
        while True:  # phase 2
            ages.append(max(steps - one for one in read))
            steps += 1
            left.discard(client)
            read[client] = steps
            while left and (client := arrives()) not in left:
                later[client] += 1
            if not left:
                break
        table = later
    return rows[:gradients], ages


@pytest.mark.parametrize("batch", [1.0, 3.0])
def test_times_of_gradients_equal_those_by_hand(batch):
    algorithm, rows = run_without_numbers("ringleader", make_world(K, speeds=SPEEDS), updates=400, harmonic_batch=batch)
    expected, ages = by_hand(400, batch)
    assert [(row[1], row[3], row[4]) for row in rows] == [row[1:] for row in expected]
    np.testing.assert_allclose([row[0] for row in rows], [row[0] for row in expected], rtol=1e-12)
    assert K - 1 < max(ages) <= 2 * K - 2, "the paper's bound"
    for k in range(K):
        assert algorithm.times.computed_s(k) == pytest.approx(algorithm.clock.now), "clients always compute"


class Rounds(Script):
    """Replays the paper's server: sums and counts of two tables."""

    def replay(self):
        problem, count = self.problem, 6
        x = self.training.initial.astype(np.float64)
        sent, under_way = {}, {}
        sums, counts, stepped = np.zeros((2, count, len(x))), np.zeros((2, count)), set()
        for event, client, *rest in self.events:
            if event == "sent":
                sent[client] = x.copy()
            elif event == "computed":
                under_way[client] = (sent[client], *rest)
            else:
                read, draw, size = under_way.pop(client)
                later = int(client in stepped)
                gradient = batch_gradient(problem, read, client, draw, size) / problem.batches.size
                sums[later, client] += gradient + problem.model.l2 * read
                counts[later, client] += 1
                if later or not (stepped or counts[0].all()):
                    continue
                x = x - 0.5 * (sums[0] / counts[0][:, None]).mean(axis=0)
                stepped.add(client)
                if len(stepped) == count:
                    sums[0], counts[0], stepped = sums[1], counts[1], set()
                    sums[1], counts[1] = 0.0, 0.0
        return x


def test_models_equal_the_papers_server():
    script = Rounds("ringleader", make_problem(6, sampling="poisson", clipping_norm=0.7, l2=0.05))
    assert {row[6] for row in script.rows} == {0.5}
    assert script.algorithm.round_num > 24, "several rounds"
    script.check(script.replay())


@pytest.mark.slow
def test_ringleader_reaches_the_optimum_of_unlike_data_where_asynchronous_sgd_stalls(tmp_path):
    """Asynchronous SGD follows the fast clients, at any step."""
    scenario = simfl.load(SCENARIO)
    result = simfl.run(scenario, out=tmp_path)
    assert result.manifest.reason == "suboptimality"
    for step in (0.0125, 0.05, 0.2):
        stalled = simfl.run(
            scenario.replace(algorithm={"kind": "async_sgd", "step_size": step, "batch_size": 10}), out=tmp_path
        )
        assert stalled.manifest.time_s == 20.0
        assert stalled.metrics["suboptimality"].min() > 1e-4


def test_go_on_is_a_message_without_size_and_only_steps_send_the_model():
    links = LinkModel(latency=constant(1e-3))
    algorithm, rows = run_without_numbers("ringleader", make_world(2, speeds=[1.0, 3.0], links=links), until=0.0285)
    assert [(row[1], row[3], row[4]) for row in rows] == [(0, 0, 0), (0, 0, 0), (1, 0, 0)]
    np.testing.assert_allclose([row[0] for row in rows], [0.009, 0.019, 0.025])
    assert algorithm.world.network.traffic[2].sent_bytes == algorithm.training.model_bytes, "one model"


def test_the_others_go_on_without_a_client_that_left_or_has_spent_its_budget():
    training = make_training([40] * 3, noise_std=2.0)
    object.__setattr__(training, "allowances", [1000, 1000, 3])
    tape, rows = Tape(NullExecutor(), max_batch=8), []
    world = make_world(3, speeds=[1.0, 1.3, 1.7], outages={1: [Outage(0.5, np.inf)]})
    algorithm = make_algorithm("ringleader", world, tape, training, rows.append)
    algorithm.start()
    algorithm.clock.run(1.0)
    assert [sum(row[1] == k for row in rows) for k in range(3)] == [124, int(0.5 / (1.3 * BATCH_S)), 3]
    assert set(algorithm.budgets.spent_s) == {2}
    assert set(algorithm.table) <= {0}
    # Alone, client 0 steps at each gradient.
    assert [row[3] for row in rows if row[0] > 0.6] == list(range(rows[-1][3] - 49, rows[-1][3] + 1))
    assert tape.releases.refusal is None


def test_a_staleness_bound_is_refused():
    with pytest.raises(simfl.ScenarioError, match=r"remove it: gradients in its table are at most 2 clients\.count"):
        simfl.load(SCENARIO).replace(algorithm__staleness_bound={"bound": 3, "policy": "drop"})
