"""Ringmaster ASGD equals the paper's algorithms: times by an event loop by hand, models in NumPy, bounds of time."""

import numpy as np
import pytest

from simfl.tape import Tape
from simfl.world.availability import Outage
from tests.algorithms.test_async_sgd import Script
from tests.helpers import NullExecutor, make_algorithm, make_problem, make_training, make_world, run_without_numbers

K, BATCH_S = 5, 8e-3
SPEEDS = [1.0, 1.7, 3.3, 11.3, 40.1]


@pytest.mark.parametrize("late", ["drop", "stop"])
def test_ringmaster_equals_the_papers_server(late):
    problem = make_problem(6, sampling="poisson", clipping_norm=0.7)
    script = Script("ringmaster", problem, threshold=4, late=late)
    assert max(row[4] for row in script.rows) == 3
    computed = sum(event[0] == "computed" for event in script.events)
    assert computed > 120 + 6, "some gradients were discarded or stopped"
    assert (sum(script.algorithm.client_dropped) > 0) or late == "stop"
    script.check(script.replay())


def counted(kind, speeds=(1.0, 7.3), *, allowances=None, **options):
    """Return an algorithm of two clients with noise, its tally of releases, and its rows, after 1 s."""
    training = make_training([40] * 2, noise_std=2.0, sampling="shuffle")
    object.__setattr__(training, "allowances", allowances)
    tape, rows = Tape(NullExecutor(), max_batch=8), []
    algorithm = make_algorithm(kind, make_world(2, speeds=list(speeds)), tape, training, rows.append, **options)
    algorithm.start()
    algorithm.clock.run(1.0)
    assert tape.releases.refusal is None
    return algorithm, tape.releases, rows


@pytest.mark.parametrize(
    ("kind", "options"), [("ringmaster", {"threshold": 2}), ("rennala", {"gradients_per_step": 2})]
)
def test_discarded_gradients_are_releases(kind, options):
    algorithm, releases, _ = counted(kind, **options)
    assert algorithm.client_updates[1] == 0
    assert releases.total(1) == algorithm.client_dropped[1] == int(1.0 / (7.3 * BATCH_S))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("ringmaster", {"threshold": 2}), ("rennala", {"gradients_per_step": 2}), ("m_sync_sgd", {"wait_for": 1})],
)
def test_stopped_computations_are_no_releases(kind, options):
    algorithm, releases, rows = counted(kind, late="stop", **options)
    assert (algorithm.client_dropped, releases.total(1), algorithm.client_updates[1]) == ([0, 0], 0, 0)
    assert algorithm.batches.draws[1] == 1, "a stopped computation's mini-batch is the next one"
    assert releases.total(0) - len(rows) in (0, 1), "one may be in the batch"
    assert len(rows) > 100


def test_stopped_computations_hold_neither_the_end_of_a_run_nor_memory():
    """Client 1 would need 8 million seconds; it is stopped at each update of client 0, and leaves at 2 s."""
    for until in (0.9, None):
        world = make_world(2, speeds=[1.0, 1e9], outages={k: [Outage(1.0 + k, np.inf, crash=True)] for k in range(2)})
        _, rows = run_without_numbers("ringmaster", world, until=until, threshold=1, late="stop")
        assert len(rows) > 110
        assert world.clock.pending < 10
    assert world.clock.now == 2.0
