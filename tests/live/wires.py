"""Processes of a live run as threads: queues instead of MPI, and a clock that does not depend on the machine's load."""

import heapq
import queue
import threading
from concurrent.futures import Future

import numpy as np

from simfl.assembly.assemble import assemble
from simfl.assembly.world import build_world
from simfl.live.coordinator import Coordinator, Server
from simfl.live.transport import SlowWire, Transport
from simfl.live.workers import UNSIMULATED, WORKERS
from simfl.scenario import from_mapping

#: Polling interval of a thread, in seconds of the clock.
POLL_S = 1e-4


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


class SharedClock:
    """Time passes while all threads sleep. One thread runs at a time: the one whose sleep ends first.

    If sleeps end at the same moment, the thread that fell asleep first continues. So the order of events does not
    depend on how busy the machine is.
    """

    def __init__(self, count):
        self._now, self._turn, self._asleep = 0.0, count, []
        self._lock, self._all = threading.Lock(), threading.Barrier(count)

    def monotonic(self):
        return self._now

    def start(self, rank):
        """Wait until all threads have started; they begin in the order of their ranks."""
        woken = self._fall_asleep(0.0, rank)
        if self._all.wait(300) == 0:
            self.leave()
        assert woken.wait(300), "a process did not start"

    def sleep(self, seconds):
        self._turn += 1
        woken = self._fall_asleep(seconds, self._turn)
        self.leave()
        assert woken.wait(300), "a process never ends"

    def leave(self):
        """Let the next thread continue."""
        with self._lock:
            if self._asleep:
                self._now, _, woken = heapq.heappop(self._asleep)
                woken.set()

    def _fall_asleep(self, seconds, turn):
        woken = threading.Event()
        with self._lock:
            heapq.heappush(self._asleep, (self._now + seconds, turn, woken))
        return woken


class AtOnce:
    """Replaces the thread that computes gradients: it takes no time of the clock."""

    def submit(self, task):
        done = Future()
        done.set_result(task())
        return done

    def shutdown(self):
        pass


def transports(count, link=None):
    queues, clock = [queue.SimpleQueue() for _ in range(count)], SharedClock(count)
    wires = [QueueWire(rank, queues) for rank in range(count)]
    if link is not None:
        wires = [SlowWire(wire, *link, UNSIMULATED, clock) for wire in wires]
    return [Transport(wire, poll_s=POLL_S, clock=clock, busy_poll_s=POLL_S) for wire in wires]


def side_by_side(calls, clock):
    """Run functions in threads; return their results, or raise the first error."""
    results, errors = [None] * len(calls), []

    def run(index):
        try:
            clock.start(index)
            results[index] = calls[index]()
        except BaseException as error:
            errors.append(error)
        finally:
            clock.leave()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a process never ends"
    if errors:
        raise errors[0]
    return results


class Nothing:
    """Arithmetic with constant gradients: the client's number plus one in all coordinates."""

    def __init__(self, client):
        self.client = client

    def gradient(self, params, draw, size):
        return np.full_like(params, self.client + 1.0)

    def change(self, params, draw, steps, step_size):
        return np.full_like(params, -step_size * steps * (self.client + 1.0))


def run_live(link=None, **changes):
    """Run a scenario in threads, with `link` over emulated links; return setup, workers and coordinator."""
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
    ends = transports(count + 1, link)
    begin = 0.05
    workers = [
        WORKERS[kind](k, build_world(setup), setup.training, Nothing(k), ends[k], begin, **setup.options)
        for k in range(count)
    ]
    for worker in workers:
        worker._thread.shutdown()
        worker._thread = AtOnce()
    arguments = setup.scenario, setup.training, ends[count], begin, count if kind == "sync_sgd" else 1
    coordinator = Server(*arguments, options=setup.options) if kind == "fedasync" else Coordinator(*arguments)

    def whole(one, end, *kept):
        one.run()
        end.end(*kept)

    calls = [lambda one=one, end=end: whole(one, end) for one, end in zip(workers, ends[:-1], strict=True)]
    side_by_side([*calls, lambda: whole(coordinator, ends[-1])], ends[-1].clock)
    return setup, workers, coordinator
