"""Asynchronous local SGD: an independent server in NumPy, the clock of the public notebook, and steps by speed."""

import math

import numpy as np
import pytest

from simfl.assembly.kinds import find_kind
from simfl.scenario import from_mapping
from simfl.world.availability import Outage
from tests.algorithms.test_diloco import STEP_S
from tests.algorithms.test_fedbuff import Watched, change
from tests.helpers import make_problem, make_world
from tests.helpers import run_without_numbers as run

#: Seconds at which the notebook recorded 800, 1,600, ... 8,000 local steps.
RECORDED_S = (209.00, 406.40, 603.80, 801.40, 999.00, 1207.80, 1404.20, 1600.60, 1800.20, 1998.60)


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"momentum_every": 1, "grace": 0.02},
        {"momentum_every": 4, "momentum_share": 0.1, "staleness_exponent": 0.5},
        {"momentum": 0.0, "momentum_every": 1, "server_step": 0.4},
    ],
    ids=["nesterov", "delayed", "plain"],
)
def test_the_model_equals_that_of_a_numpy_server(options):
    problem = make_problem(6, local=True)
    watched = Watched(problem, "async_local_sgd", updates=60, **options)
    step, beta, a = options.get("server_step", 0.7), options.get("momentum", 0.9), options.get("staleness_exponent", 0)
    every, c = options["momentum_every"], options.get("momentum_share", 0.0)
    w = watched.training.initial.astype(np.float64)
    m, total, version, read = np.zeros_like(w), np.zeros_like(w), 0, {}
    for event, client, *rest in watched.events:
        if event == "read":
            read[client] = version, w
        elif event == "train":
            read[client] = *read[client], change(problem, read[client][1], client, *rest)
        else:
            since, _, moved = read.pop(client)
            assert rest[1] == version - since
            g = -moved / (1 + version - since) ** a
            total, version = total + g, version + 1
            if version % every:
                w = w - step * (c * beta * m + g / every)
            else:
                m, total = beta * m + total / every, np.zeros_like(w)
                w = w - step * ((1 - c * every + c) * beta * m + g / every)
    assert version == 60
    np.testing.assert_allclose(watched.model, w, rtol=0, atol=2e-5)
    assert np.abs(w - watched.training.initial).max() > 0.05


def test_updates_arrive_at_the_recorded_times_of_the_notebook():
    """Workers that are done within 0.5 s of each other read the same model."""
    world = make_world(4, seconds_per_example=1 / 8, speeds=list(STEP_S))
    _, rows = run("async_local_sgd", world, updates=400, steps=[20] * 4, grace=0.5)
    assert [rows[40 * n - 1][0] for n in range(1, 11)] == pytest.approx(RECORDED_S, abs=1e-6)


def test_a_client_that_leaves_within_the_grace_ends_it():
    """Client 1 leaves 0.3 s after client 0 is done; client 2 would be done too late."""
    away = {1: [Outage(1.3, math.inf, crash=True)]}
    world = make_world(3, seconds_per_example=1 / 8, speeds=[1.0, 1.4, 1.6], outages=away)
    _, rows = run("async_local_sgd", world, until=5.0, grace=0.5)
    assert [row[0] for row in rows if row[1] == 0] == pytest.approx([1.0, 2.3, 3.3, 4.3])
    assert [row[0] for row in rows if row[1] == 2] == pytest.approx([1.6, 3.2, 4.9])


def test_slower_clients_make_fewer_steps():
    scenario = from_mapping(
        {
            "clients": {"count": 4, "speed": {"kind": "list", "values": list(STEP_S)}},
            "algorithm": {"kind": "async_local_sgd", "local_steps": 20, "steps": "by_speed"},
        }
    )
    assert find_kind(scenario).round_steps([100] * 4) == [20, 15, 7, 3]
