"""Ringleader ASGD equals the paper's algorithm: times by an event loop, models in NumPy, ages in its table."""

import numpy as np

from simfl.tape import Tape
from simfl.world.availability import Outage
from tests.algorithms.test_async_sgd import Script
from tests.algorithms.test_ringmaster import BATCH_S
from tests.helpers import NullExecutor, batch_gradient, make_algorithm, make_problem, make_training, make_world


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
