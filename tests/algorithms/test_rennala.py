"""Rennala and m-synchronous SGD: times of steps in closed form, models in NumPy, bounds of time."""

import numpy as np
import pytest

import simfl
from tests.algorithms.test_async_sgd import Script
from tests.algorithms.test_ringmaster import counted
from tests.helpers import batch_gradient, make_problem


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


def test_the_others_step_without_a_client_that_has_spent_its_budget():
    algorithm, releases, rows = counted("m_sync_sgd", allowances=[5, 1])
    assert (releases.total(0), releases.total(1)) == (5, 1)
    assert [row[1] for row in rows] == [0, 1, 0, 0, 0, 0]
    assert set(algorithm.budgets.spent_s) == {0, 1}
