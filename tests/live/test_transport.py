"""Emulated links against the links of the simulated world, in threads and without MPI."""

import pytest

from simfl.bench.limits import Nothing, run_world
from simfl.tape import Tape
from tests.live.wires import POLL_S, run_live

#: A model of 2.6 kB takes 13 ms over such a link, twice as long as its gradient, plus 20 ms of latency.
LATENCY_S, BYTES_PER_S = 20e-3, 200e3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync_sgd", "decentralized_sgd", "adpsgd", "fedasync"])
def test_a_run_over_emulated_links_takes_the_time_of_simulated_links(kind):
    setup, _, coordinator = run_live(
        link=(LATENCY_S, BYTES_PER_S),
        links={"latency": LATENCY_S, "bandwidth": f"{BYTES_PER_S / 1e6} MB/s"},
        algorithm={"kind": kind, "batch_size": 32, "step_size": 0.5},
        topology={"kind": "complete"},
    )
    rows = coordinator.final
    predicted = run_world(setup, Tape(Nothing(), **setup.problem.recorded), 40)[2].clock.now
    assert predicted > 2 * 40 / 4 * 32 * 2e-4, "links take most of the time"
    # In a round a process polls for messages a few times, and receives each a little late.
    late_s = 10 * POLL_S * len(rows) / 4
    # The delay of a poll may decide whether two requests of AD-PSGD cross, which are then one exchange.
    early_s = 0.05 * predicted if kind == "adpsgd" else 0.0
    assert predicted - early_s <= rows[-1].time_s <= predicted + late_s
