"""MindFlayer SGD: times of steps equal an event loop by hand, models a NumPy loop, heavy tails cost less time."""

import numpy as np
import pytest

from simfl.errors import RunError
from tests.algorithms.test_async_sgd import Script
from tests.algorithms.test_ringmaster import SPEEDS, K
from tests.helpers import batch_gradient, lognormal, make_problem, make_world, run_without_numbers


def heavy():
    """Return a world whose times of computation are log-normal with mean 1 and median 1/23 of the usual time."""
    return make_world(K, speeds=SPEEDS, jitter=lognormal(2.5), seed=7)


class Trials(Script):
    """Replays the steps from the gradients that were in time."""

    def _prepare(self, algorithm):
        super()._prepare(algorithm)
        self.steps, self.given_up, step, lost = [], 0, algorithm.step, algorithm.batches.lost

        def stepped():
            batch = [(client, promise.draw, size) for client, size, _, promise in algorithm._batch]
            self.steps.append((batch, len(algorithm._waiting)))
            step()

        def dropped(promise):
            self.given_up += 1
            return lost(promise)

        algorithm.step, algorithm.batches.lost = stepped, dropped

    def replay(self, completed):
        problem, x = self.problem, self.training.initial.astype(np.float64)
        for batch, clients in self.steps:
            divisor = len(batch) if completed is None else completed * 3 * clients
            total = sum(batch_gradient(problem, x, *entry) / problem.batches.size for entry in batch)
            x = x - 0.5 * (total + len(batch) * problem.model.l2 * x) / divisor
        return x


@pytest.mark.parametrize("completed", [None, pytest.param(0.7, marks=pytest.mark.slow)])
def test_models_equal_the_papers_server(completed):
    problem = make_problem(6, sampling="poisson", clipping_norm=0.7, l2=0.05)
    script = Trials("mindflayer", problem, updates=200, trials=3, trial_factor=1.0, completed=completed)
    assert script.given_up > 20
    script.check(script.replay(completed))


def test_the_mini_batch_of_a_trial_that_was_given_up_is_the_next_one():
    algorithm, rows = run_without_numbers("mindflayer", heavy(), until=1.0, trials=4, trial_factor=0.1)
    sent = [algorithm.client_updates[k] + algorithm.client_dropped[k] for k in range(K)]
    assert len(rows) > 50
    waiting = [sum(entry[0] == k for entry in algorithm._batch) for k in range(K)]
    for k in range(K):
        assert algorithm.batches.draws[k] - sent[k] - waiting[k] in (0, 1), "one may be under way"
        assert algorithm.tape.releases.total(k) == sent[k] + waiting[k]


def test_trials_that_nobody_completes_end_in_one_line():
    with pytest.raises(RunError, match=r"^algorithm\.trial_factor: no client completed a trial in 10000 steps; raise"):
        run_without_numbers("mindflayer", make_world(2), trial_factor=0.5)
