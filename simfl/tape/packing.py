"""Packing: from recorded operations to steps of fixed width.

Operations of one depth are independent of each other. They are cut into steps: one step runs up
to `width` gradients and up to `combines` linear combinations side by side, gathers what they read
and then scatters what they wrote. Levels come from data dependence alone; places in the bank are
given out afterwards, step by step and last-in first-out, so that the working set stays small and
a row that dies in a step makes room for one that is born in it (the gather comes first).

Serial operations take no lanes: those of a depth run one after the other, in the order of recording, after its last
step. Functions of models that are not serial have as many lanes as gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.each import Varied
from simfl.tape.layout import NO_ROW, Operations
from simfl.tape.recording import Window

#: Numbers of a model from which on rows are not kept in reserve: 64 of them would take 128 MB.
LARGE = 2**19


@dataclass
class Lanes:
    """Operations of one kind, as int32 and float32 tables in their `Layout`.

    Parallel operations have a step and a lane as first axes; serial ones are in the order in which they run. `varied`
    are the entries of `floats` that differ between the settings of a group; None for none.
    """

    ints: NDArray[np.int32]
    floats: NDArray[np.float32]
    varied: Varied | None = None

    def floats_of(self, setting: int) -> NDArray[np.float32]:
        """Return the numbers of one setting."""
        return self.floats if self.varied is None else self.varied.into(self.floats, setting)


@dataclass
class Steps:
    """A packed window; unused lanes read and write the spare row.

    Attributes:
        gradients: [s, width, ...].
        combines: [s, combines, ...].
        mapped: functions of models, [s, width, ...]; [0, width, 0] where they are serial.
        serials: [m, ...], in the order in which they run.
        serial_bounds: int32 [s + 1]: the serial operations after step i are bounds[i] to bounds[i + 1] - 1.
    """

    gradients: Lanes
    combines: Lanes
    mapped: Lanes
    serials: Lanes
    serial_bounds: NDArray[np.int32]

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.gradients.ints)


class Bank:
    """Which place of the bank holds which row; places are given out last-in first-out.

    Args:
        capacity: number of places, without the spare one after them.
        part: it grows by one part of so many, and by at least 128 / `part` places.
    """

    def __init__(self, capacity: int, part: int = 2) -> None:
        self.capacity, self._part = capacity, part
        self.free = list(range(capacity - 1, -1, -1))
        self.place = np.full(capacity, -1, dtype=np.int32)  # row number -> place

    @property
    def spare(self) -> int:
        """The place that padding reads and writes."""
        return self.capacity

    def hold(self, rows: int) -> None:
        """Make room in the table for row numbers below `rows`."""
        if rows > len(self.place):
            grown = np.full(max(rows, 2 * len(self.place)), -1, dtype=np.int32)
            grown[: len(self.place)] = self.place
            self.place = grown

    def grow(self, need: int) -> None:
        """Add places until at least `need` are free."""
        capacity = self.capacity
        while capacity - self.capacity + len(self.free) < need:
            capacity += max(128 // self._part, capacity // self._part)
        self.free = list(range(capacity - 1, self.capacity - 1, -1)) + self.free
        self.capacity = capacity

    def take(self, rows: Sequence[int]) -> None:
        """Give places to rows whose values are given, such as constants."""
        if len(self.free) < len(rows):
            self.grow(len(rows))
        for number in rows:
            self.place[number] = self.free.pop()

    def places(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the places of rows; -1 (no row) becomes the spare place."""
        return np.where(rows >= 0, self.place[rows], np.int32(self.spare)).astype(np.int32)


def _index_within(keys: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """For each entry its position among the equal keys before it (keys in 0..count-1)."""
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=count))[:-1]))
    index = np.empty(len(keys), dtype=np.int64)
    index[order] = np.arange(len(keys)) - starts[keys[order]]
    return index


def pack(window: Window, bank: Bank, width: int, combines: int) -> Steps:
    """Level, cut and place a window; updates `bank` to the state after it.

    Args:
        window: operations with depths counted from 1.
        bank: grown when the rows alive at once exceed its capacity.
        width: gradients per step, W >= 1.
        combines: linear combinations per step, C >= 1.
    """
    bank.hold(window.rows)
    side_by_side = (window.gradients, width), (window.combines, combines), (window.mapped, width)
    serials = window.serials
    depths = 1 + max(int(each.depths.max(initial=0)) for each in (serials, *(each for each, _ in side_by_side)))
    per_depth = np.zeros(depths, dtype=np.int64)
    for operations, lanes in side_by_side:
        np.maximum(per_depth, -(-np.bincount(operations.depths, minlength=depths) // lanes), out=per_depth)
    np.maximum.at(per_depth, serials.depths, 1)
    first = np.concatenate(([0], np.cumsum(per_depth)))
    total = int(first[-1])
    places = [_steps_and_lanes(operations.depths, first, lanes, depths) for operations, lanes in side_by_side]
    serial_step = first[serials.depths] + per_depth[serials.depths] - 1

    # The step after which each dead row is not needed any more; a result that is not read dies at once.
    last = np.full(len(bank.place) + 1, -1, dtype=np.int64)  # the entry after the end takes `NO_ROW`
    # A place that serial operations still read must not be given away in their step: it is held for as long as that
    # of a row born there.
    held = np.full(len(bank.place) + 1, -1, dtype=np.int64)
    born, when = [], []
    kinds = [(operations, step) for (operations, _), (step, _) in zip(side_by_side, places, strict=True)]
    for operations, step in (*kinds, (serials, serial_step)):
        layout, written = operations.layout, operations.written.ravel()
        np.maximum.at(last, operations.read.ravel(), np.repeat(step, layout.reads))
        steps = np.repeat(step, layout.writes)
        steps, written = steps[written != NO_ROW], written[written != NO_ROW]
        last[written] = np.maximum(last[written], steps)
        held[written] = steps
        born.append(written)
        when.append(steps)
    np.maximum.at(held, serials.read.ravel(), np.repeat(serial_step, serials.layout.reads))
    _assign_places(window, bank, np.concatenate(born), np.concatenate(when), last, held, total)

    filled = []
    for (operations, lanes), (step, lane) in zip(side_by_side, places, strict=True):
        layout = operations.layout
        count = total if layout.integers else 0
        ints = np.zeros((count, lanes, layout.integers), dtype=np.int32)
        ints[:, :, : layout.rest.start] = bank.spare
        floats = np.zeros((count, lanes, layout.numbers), dtype=np.float32)
        if len(operations):
            ints[step, lane] = _placed(operations, bank)
            floats[step, lane] = operations.floats
        filled.append(Lanes(ints, floats, _moved(operations, step * lanes + lane)))
    order = np.argsort(serial_step, kind="stable")
    bounds = np.searchsorted(serial_step[order], np.arange(total + 1)).astype(np.int32)
    gradients, combined, mapped = filled
    serial = Lanes(_placed(serials, bank)[order], serials.floats[order], _moved(serials, np.argsort(order)))
    return Steps(gradients, combined, mapped, serial, bounds)


def _steps_and_lanes(
    depths: NDArray[np.int32], first: NDArray[np.int64], lanes: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the step and lane of each operation."""
    index = _index_within(depths, count)
    return first[depths] + index // lanes, index % lanes


def _moved(operations: Operations, rows: NDArray[np.int64]) -> Varied | None:
    """Return what differs between settings, given the new row of each operation."""
    if operations.varied is None:
        return None
    numbers = operations.layout.numbers
    row, column = np.divmod(operations.varied.places, numbers)
    return operations.varied.moved(rows[row] * numbers + column)


def _placed(operations: Operations, bank: Bank) -> NDArray[np.int32]:
    """Return the integers of operations with places for rows."""
    end = operations.layout.rest.start
    return np.concatenate((bank.places(operations.ints[:, :end]), operations.rest), axis=1)


def _assign_places(
    window: Window,
    bank: Bank,
    outs: NDArray[np.int32],
    steps: NDArray[np.int64],
    last: NDArray[np.int64],
    held: NDArray[np.int64],
    total: int,
) -> None:
    """Give places to the rows born in the window, and free those of dead rows."""
    bank.take([number for number, _ in window.constants])
    dead = np.array(window.dead, dtype=np.int64)
    # A row's place is free again in the step of its last reader (gather first, scatter after it),
    # but one that is born and dies in the same step holds it until the step is over.
    release = last[dead]
    release = np.where((held[dead] == release) & (release >= 0), release + 1, np.maximum(release, 0))
    order = np.argsort(release, kind="stable")
    dead_sorted, release_sorted = dead[order], release[order]
    dead_bounds = np.searchsorted(release_sorted, np.arange(total + 2)).tolist()
    out_order = np.argsort(steps, kind="stable")
    out_sorted = outs[out_order]
    out_bounds = np.searchsorted(steps[out_order], np.arange(total + 1)).tolist()

    place, free = bank.place, bank.free
    for step in range(total):
        lo, hi = dead_bounds[step], dead_bounds[step + 1]
        if hi > lo:
            free.extend(place[dead_sorted[lo:hi]].tolist())
        lo, hi = out_bounds[step], out_bounds[step + 1]
        need = hi - lo
        if need > len(free):
            bank.grow(need)
            free = bank.free
        place[out_sorted[lo:hi]] = free[len(free) - need :]
        del free[len(free) - need :]
    lo = dead_bounds[total]
    free.extend(place[dead_sorted[lo:]].tolist())
