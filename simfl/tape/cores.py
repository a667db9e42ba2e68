"""The cores of a CPU, which compute the steps of a window side by side.

A step has three parts: the rows that its lanes begin with are read, their totals are computed, and the bank gets what
they make of it. Most of the time goes into the second part, which needs no bank. So the totals of several steps are
computed at once, each by the same program of as many threads, as soon as the rows that they begin with exist. A core
only decides where a program runs, and no number depends on how many there are.

Each core is a CPU of its own for JAX (a client): the devices of one client share its threads, and a program divides
its sums among all of them.
"""

from __future__ import annotations

import functools
import heapq
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from simfl.tape.packing import Steps
from simfl.tape.recording import Window

#: Steps that are begun before the bank needs them, for each core: each has its rows in memory.
AHEAD = 2


def begun_at_once(cores: int) -> int:
    """Return the number of steps that are begun on some cores, and not yet written."""
    return AHEAD * cores + 1


@functools.cache
def _core(number: int) -> jax.Device:
    """Return the device of a core; number 0 is JAX's own.

    Each client has as many threads: the number of its devices, or `PJRT_NPROC` if that is more.
    """
    of_jax = jax.devices("cpu")
    if number == 0:
        return of_jax[0]
    from jaxlib import xla_client

    client: Any = xla_client.make_cpu_client(asynchronous=False, num_devices=len(of_jax))
    device: jax.Device = client.devices()[0]
    return device


def further_core(number: int) -> jax.Device | None:
    """Return the device of a core; None if JAX makes none.

    It has no public interface for this. Tables are equal.
    """
    try:
        return _core(number)
    except (ImportError, AttributeError, TypeError):
        return None


def moved(tree: Any, device: jax.Device) -> Any:
    """Return arrays of a CPU on another device of it, without a copy."""
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), device), tree)


class Cores:
    """Computes totals on some cores; one instance per executor.

    Args:
        count: the number of cores; one computes in the thread of the caller.
    """

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[jax.Device] = queue.SimpleQueue()
        for number in range(count):
            device = further_core(number)
            if device is None:
                count = number
                break
            self._free.put(device)
        self.count = count
        self._threads = ThreadPoolExecutor(count, "simfl-core") if count > 1 else None
        #: The arguments of programs on other cores, by core and setting.
        self._data: dict[tuple[jax.Device, int], Any] = {}

    def close(self) -> None:
        """End the threads, and let go of the data."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._data.clear()

    def begin(self, program: Callable[..., Any], data: Any, numbers: Sequence[Any], rows: Any) -> Any:
        """Begin to compute totals; call what is returned for (totals, count)."""
        if self._threads is None:
            made = program(np.int32(1), *numbers, data, *rows)
            return lambda: made
        future: Future[Any] = self._threads.submit(self._compute, program, data, numbers, rows)
        return future.result

    def _compute(self, program: Callable[..., Any], data: Any, numbers: Sequence[Any], rows: Any) -> Any:
        device = self._free.get()
        try:
            if device == _core(0):
                made = program(np.int32(1), *numbers, data, *rows)
            else:
                key = device, id(data)
                if key not in self._data:
                    self._data[key] = moved(data, device)
                made = program(np.int32(1), *numbers, self._data[key], *moved(rows, device))
                made = moved(made, _core(0))
            return jax.block_until_ready(made)
        finally:
            self._free.put(device)


def ready_after(window: Window, steps: Steps, spare: int, corrected: bool) -> NDArray[np.int64]:
    """Return for each step the step after which it can be begun, [s].

    Then the rows exist that its totals begin with. -1 stands for before all steps, -2 for a step without a gradient.
    `corrected`: rounds read a correction, too.
    """
    layout = window.gradients.layout
    begins = [0, *([1] if corrected else []), *range(layout.reads - (layout.writes - 1), layout.reads)]
    made = np.full(spare + 1, -1, dtype=np.int64)
    after = np.full(steps.count, -2, dtype=np.int64)
    lanes = [
        (each.ints, operations.layout.written)
        for each, operations in (
            (steps.gradients, window.gradients), (steps.combines, window.combines), (steps.mapped, window.mapped),
        )
        if len(each.ints)
    ]  # fmt: skip
    of_serials = steps.serials.ints[:, window.serials.layout.written]
    for step in range(steps.count):
        ints = steps.gradients.ints[step]
        used = ints[ints[:, layout.reads] != spare]
        if len(used):
            after[step] = made[used[:, begins]].max()
        for of_lanes, written in lanes:
            made[of_lanes[step, :, written]] = step
        made[of_serials[steps.serial_bounds[step] : steps.serial_bounds[step + 1]]] = step
        made[spare] = -1
    return after


def in_order(
    ready_after: NDArray[np.int64], begin: Callable[[int], Callable[[], Any]], ahead: int
) -> Iterator[tuple[int, Any]]:
    """Yield each step with what it computes, in order; later ones are begun before.

    Args:
        ready_after: the step after which the rows exist with which a step begins; -1 for before all, -2 if the step
            computes nothing, and None is yielded.
        begin: begins a step, and returns what waits for its result.
        ahead: steps that are begun at a time.
    """
    waiting: dict[int, list[int]] = {}
    for step, after in enumerate(ready_after.tolist()):
        if after > -2:
            waiting.setdefault(after, []).append(step)
    ready = waiting.pop(-1, [])  # a heap: the steps are in order
    begun: dict[int, Callable[[], Any]] = {}
    for step in range(len(ready_after)):
        while ready and (len(begun) < ahead or (ready[0] == step)):
            first = heapq.heappop(ready)
            begun[first] = begin(first)
        yield step, begun.pop(step)() if step in begun else None
        for later in waiting.pop(step, ()):
            heapq.heappush(ready, later)
