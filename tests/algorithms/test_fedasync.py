"""FedAsync: its weights, its limits, an independent server in NumPy, and rough worlds."""

import numpy as np
import pytest

from simfl.algorithms.fedasync import staleness_weight
from simfl.algorithms.staleness import StalenessBound
from tests.algorithms.test_fedbuff import Watched, change
from tests.helpers import make_problem

WEIGHTS = {
    "constant": lambda u: 1.0,
    "polynomial": lambda u: 1 / np.sqrt(u + 1),
    "hinge": lambda u: 1.0 if u <= 4 else 1 / (10 * (u - 4) + 1),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_fall_from_one(kind):
    weight = staleness_weight(kind, 0.5, 10.0, 4)
    weights = [weight(u) for u in range(40)]
    assert weights == pytest.approx([WEIGHTS[kind](u) for u in range(40)], rel=1e-12)
    assert weights[0] == 1.0
    assert (np.diff(weights) <= 0).all()


def test_an_unknown_weighting_is_refused():
    with pytest.raises(ValueError, match="weighting: expected constant, polynomial or hinge, found 'linear'"):
        staleness_weight("linear", 0.5, 10.0, 4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weighting": "hinge", "mixing": 0.9, "free_staleness": 1, "slope": 2.0},
        {"weighting": "constant", "concurrency": 3},
        {"staleness": StalenessBound(3, "down_weight")},
        {"staleness": StalenessBound(3, "drop")},
        {"staleness": StalenessBound(5, "wait")},
    ],
    ids=["paper", "hinge", "concurrency", "down_weight", "drop", "wait"],
)
def test_the_model_equals_that_of_a_numpy_server(options):
    problem = make_problem(6, local=True, proximal=0.1)
    watched = Watched(problem, "fedasync", updates=60, **options)
    alpha, kind = options.get("mixing", 0.6), options.get("weighting", "polynomial")
    w, under_way, applied, dropped = watched.training.initial.astype(np.float64), {}, 0, 0
    for event, client, *rest in watched.events:
        if event == "read":
            under_way[client] = applied, w
        elif event == "train":
            read, start = under_way[client]
            under_way[client] = read, start + change(problem, start, client, *rest, 0.1)
        else:
            weight, staleness = rest
            read, model = under_way.pop(client)
            assert staleness == applied - read
            if weight == 0.0:
                dropped += 1
                continue
            if kind == "hinge":
                share = alpha * weight * (1.0 if staleness <= 1 else 1 / (2.0 * (staleness - 1) + 1))
            else:
                share = alpha * weight * WEIGHTS[kind](staleness)
            w, applied = (1 - share) * w + share * model, applied + 1
    assert applied == watched.algorithm.updates == 60
    assert sum(watched.algorithm.client_dropped) == dropped
    np.testing.assert_allclose(watched.model, w, rtol=0, atol=1e-5)
