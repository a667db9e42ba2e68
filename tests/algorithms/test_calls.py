"""The cost of the world alone, in calls of Python functions: they do not depend on the machine."""

import dataclasses
import gc
import sys
from pathlib import Path

import pytest

import simfl
from simfl.world.link_values import LinkModel
from tests.helpers import constant, make_training, make_world, run_without_numbers

CLIENTS, UPDATES = 8, 80
PACKAGE = str(Path(simfl.__file__).parent)
#: Calls for each update when algorithms themselves added the noise, compressed the messages and took the rules.
BEFORE = {
    ("adpsgd", "messages"): 46.1, ("adpsgd", "atomic"): 27.61, ("fedbuff", ""): 97.5, ("gossip_learning", ""): 53.73,
    ("decentralized_sgd", ""): 69.1, ("fedavg", ""): 92.4, ("sgp", ""): 78.1,
}  # fmt: skip


def calls(kind, updates, **options):
    """Return the number of calls in a run of a number of updates."""
    training = dataclasses.replace(make_training([64] * CLIENTS), step_size=0.1)
    world = make_world(CLIENTS, links=LinkModel(latency=constant(1e-3), bandwidth=1e7))
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    watched, algorithm = sys.getprofile(), {"updates": updates, "training": training, **options}
    gc.disable()  # objects of other tests have methods that are called when they are freed
    try:
        run_without_numbers(kind, world, prepare=lambda _: sys.setprofile(note), **algorithm)
    finally:
        sys.setprofile(watched)
        gc.enable()
    return count


@pytest.mark.parametrize(("kind", "exchange"), BEFORE)
def test_features_beside_an_algorithm_cost_an_update_few_calls(kind, exchange):
    options = {"exchange": exchange} if exchange else {}
    begun = calls(kind, UPDATES, **options)
    each = (calls(kind, 2 * UPDATES, **options) - begun) / UPDATES
    assert each <= 1.03 * BEFORE[kind, exchange]
