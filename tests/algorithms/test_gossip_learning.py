"""Gossip learning: merges by age, timers, a NumPy replay of the recorded events, and rough worlds."""

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    batch_gradient,
    exponential,
    lognormal,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
)
from tests.helpers import run_without_numbers as run

pytestmark = pytest.mark.usefixtures("without_numbers")

K, STEP = 6, 0.4
LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)


class Script:
    """Records in order what is sent, delivered, read and applied."""

    def __init__(self, problem, *, updates, step=STEP, models=None, **options):
        self.events, self.problem = [], problem
        world = make_world(K, jitter=lognormal(0.5), links=LINKS, seed=3)
        send, numbers = world.network.send, iter(range(10**9))

        def spy(source, target, size, deliver, refused=None, content=None):
            number = next(numbers)
            self.events.append(("send", source, number))
            send(source, target, size, lambda: (self.events.append(("deliver", target, number)), deliver()), refused)

        world.network.send = spy
        with Lab(problem) as lab:
            self.training = lab.training(step_size=step)
            self.algorithm, self.rows = run_algorithm(
                "gossip_learning", world, lab.tape, self.training, updates=updates, models=models,
                prepare=self._prepare, **options,
            )  # fmt: skip
            self.models = lab.tape.values(self.algorithm.models())

    def _prepare(self, algorithm):
        gradient, on_update = algorithm.batches.gradient, algorithm.on_update

        def read(model, client):
            promised = gradient(model, client)
            self.events.append(("read", client, promised.draw, promised.size))
            return promised

        algorithm.batches.gradient = read
        algorithm.on_update = lambda row: (self.events.append(("update", row[1])), on_update(row))

    def replay(self, merge, start, step=STEP):
        w, age, sent, reads = [m.copy() for m in start], [0] * K, {}, {}
        for event, client, *rest in self.events:
            if event == "send":
                sent[rest[0]] = w[client].copy(), age[client]
            elif event == "deliver":
                other, t = sent.pop(rest[0])
                if merge == "none":
                    w[client], age[client] = other, t
                    continue
                a = 0.5 if merge == "average" or t + age[client] == 0 else t / (t + age[client])
                w[client], age[client] = (1 - a) * w[client] + a * other, max(t, age[client])
            elif event == "read":
                reads[client] = batch_gradient(self.problem, w[client], client, *rest) / self.problem.batches.size
            else:
                w[client], age[client] = w[client] - step * reads.pop(client), age[client] + 1
        return np.array(w), age


@pytest.mark.parametrize("merge", ["age", "average", "none"])
def test_models_equal_those_of_a_numpy_loop(merge):
    script = Script(make_problem(K), updates=150, merge=merge, period_s=6e-3)
    start = [script.training.initial.astype(np.float64)] * K
    models, ages = script.replay(merge, start)
    assert np.abs(models - start).max() > 0.1
    np.testing.assert_allclose(script.models, models, rtol=0, atol=1e-5)
    assert script.algorithm.age == ages
    if merge != "none":
        assert sum(ages) > 150, "a merged model is as old as the older one"


def test_a_client_whose_neighbors_have_left_stops():
    gone = {k: [Outage(0.5, float("inf"), crash=True)] for k in (1, 2, 3)}
    algorithm, rows = run("gossip_learning", make_world(4, topology="complete", outages=gone))
    assert 0.4 < rows[-1][0] < 0.6
    assert algorithm.world.clock.now < 0.7


def test_a_client_with_a_spent_budget_takes_no_further_part():
    training = make_training([64] * 4)
    object.__setattr__(training, "allowances", [7, 5, 7, 7])
    algorithm, rows = run("gossip_learning", make_world(4), training=training)
    assert max(algorithm.client_updates) == 7
    assert algorithm.client_updates[1] <= 5
    assert len(rows) == sum(algorithm.client_updates)
