"""Processes of a live run as threads of one: queues in the place of MPI."""

import queue
import threading
import time

import numpy as np

from simfl.live.coordinator import Coordinator, Server
from simfl.live.transport import Transport
from simfl.live.workers import WORKERS
from simfl.scenario import from_mapping
from simfl.simulation.assembly import assemble
from simfl.simulation.world import build_world


class QueueWire:
    """One of several ends that share their queues."""

    def __init__(self, rank, queues):
        self.rank, self.size, self._queues = rank, len(queues), queues

    def send(self, buffer, target, kind):
        self._queues[target].put((self.rank, kind, buffer.copy()))
        return lambda: True

    def receive(self):
        try:
            return self._queues[self.rank].get_nowait()
        except queue.Empty:
            return None


def transports(count):
    queues = [queue.SimpleQueue() for _ in range(count)]
    return [Transport(QueueWire(rank, queues), poll_s=1e-4) for rank in range(count)]


def side_by_side(calls):
    """Run functions in threads, and return what they return; what one raises is raised."""
    found, failed = [None] * len(calls), []

    def run(index):
        try:
            found[index] = calls[index]()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a process waits for ever"
    if failed:
        raise failed[0]
    return found


class Nothing:
    """Arithmetic whose gradients are known: the client's number plus one, everywhere."""

    def __init__(self, client):
        self.client = client

    def gradient(self, params, draw, size):
        return np.full_like(params, self.client + 1.0)

    def change(self, params, draw, steps, step_size):
        return np.full_like(params, -step_size * steps * (self.client + 1.0))


def run_live(begin_in=0.05, **changes):
    """Run a scenario in threads; returns its setup, workers and coordinator."""
    mapping = {
        "name": "live",
        "seed": 1,
        "data": {"set": "digits"},
        "model": {"kind": "softmax"},
        "clients": {"count": 4, "seconds_per_example": 2e-4},
        "links": {"latency": 0.0, "bandwidth": None},
        "algorithm": {"kind": "sync_sgd", "batch_size": 32, "step_size": 0.5},
        "stop": {"updates": 40},
        "evaluate": {"every": {"updates": 20}},
        **changes,
    }
    setup = assemble(from_mapping(mapping))
    count, kind = setup.scenario.clients.count, setup.scenario.algorithm.kind
    ends = transports(count + 1)
    begin = time.monotonic() + begin_in
    workers = [
        WORKERS[kind](k, build_world(setup), setup.training, Nothing(k), ends[k], begin, **setup.options)
        for k in range(count)
    ]
    arguments = setup.scenario, setup.training, ends[count], begin, count if kind == "sync_sgd" else 1
    coordinator = Server(*arguments, options=setup.options) if kind == "fedasync" else Coordinator(*arguments)

    def whole(one, end, *kept):
        one.run()
        end.end(*kept)

    calls = [lambda one=one, end=end: whole(one, end) for one, end in zip(workers, ends[:-1], strict=True)]
    side_by_side([*calls, lambda: whole(coordinator, ends[-1])])
    return setup, workers, coordinator
