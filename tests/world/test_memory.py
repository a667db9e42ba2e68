"""The memory of a client that computes: worlds whose clients do not fit into the cache are slow."""

import gc
import tracemalloc

import pytest

from simfl.algorithms.adpsgd import ADPSGD
from simfl.tape import Tape
from tests.helpers import NullExecutor, lognormal, make_training, make_world, recorded


def taken(clients):
    """Return the bytes per client after three updates each, with the client's part of the graph."""
    tracemalloc.start()
    try:
        world = make_world(clients, jitter=lognormal(0.3))
        tape = Tape(NullExecutor(), **recorded("adpsgd"))
        training = make_training([8] * clients, batch_size=8)
        algorithm = ADPSGD(world, tape, training, exchange="atomic", pairing="auto")
        algorithm.marks.call, algorithm.marks.next = lambda: world.clock.stop() or 2**62, 3 * clients
        algorithm.start()
        world.clock.run()
        tape.flush()
        gc.collect()
        assert algorithm.updates == 3 * clients
        return tracemalloc.get_traced_memory()[0] / clients
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("clients", "most"), [(2_000, 1_500), pytest.param(10_000, 1_350, marks=pytest.mark.slow)])
def test_a_client_takes_little_memory(clients, most):
    taken(16)  # imports
    assert taken(clients) < most
