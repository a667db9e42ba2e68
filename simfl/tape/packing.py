"""From a window of recorded operations to steps of fixed width and rows of the bank.

Operations of one level are independent of each other. They are cut into steps: one step runs up
to `width` gradients and up to `combines` linear combinations side by side, gathers what they read
and then scatters what they wrote. Levels come from data dependence alone; places in the bank are
given out afterwards, step by step and last-in first-out, so that the working set stays small and
a row that dies in a step makes room for one that is born in it (the gather comes first).

Serial operations take no lanes: those of a level run one after the other, in the order of recording, behind its last
step. Transformations that are not serial have as many lanes as gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.tape.recording import Window, rows_of


@dataclass
class Steps:
    """A packed window: one entry per step and lane; unused lanes read and write the spare row.

    Attributes:
        gradient_ints: int32 [s, width, reads + 6]: place of the gradient's model, places of the base,
            place written, client, draw, first, size.
        gradient_floats: float32 [s, width, reads + 2]: coefficients of the base, of the gradient, noise_scale.
        combine_ints: int32 [s, combines, reads + 1]: places read, place written.
        combine_floats: float32 [s, combines, reads].
        serial_ints: int32 [m, ...], places of what a `Window` has, in the order in which they run.
        serial_floats: float32 [m, ...].
        serial_bounds: int32 [s + 1]: the serial operations behind step i are bounds[i] to bounds[i + 1] - 1.
        transform_ints: int32 [s, width, ...], likewise; [0, width, 0] where there are none of these.
        transform_floats: float32 [s, width, ...].
    """

    gradient_ints: NDArray[np.int32]
    gradient_floats: NDArray[np.float32]
    combine_ints: NDArray[np.int32]
    combine_floats: NDArray[np.float32]
    serial_ints: NDArray[np.int32]
    serial_floats: NDArray[np.float32]
    serial_bounds: NDArray[np.int32]
    transform_ints: NDArray[np.int32]
    transform_floats: NDArray[np.float32]

    @property
    def count(self) -> int:
        """Number of steps."""
        return len(self.gradient_ints)


class Bank:
    """Which place of the bank holds which row; places are given out last-in first-out.

    Args:
        capacity: number of places, without the spare one behind them.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
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
            capacity += max(64, capacity // 2)
        self.free = list(range(capacity - 1, self.capacity - 1, -1)) + self.free
        self.capacity = capacity

    def take(self, rows: Sequence[int]) -> None:
        """Give places to rows that come from outside."""
        if len(self.free) < len(rows):
            self.grow(len(rows))
        for number in rows:
            self.place[number] = self.free.pop()

    def places(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Places of rows, also of those that died in the window packed last; -1 (no row) is the spare place."""
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
        window: operations with levels counted from 1.
        bank: grown when the rows alive at once exceed its capacity.
        width: gradients per step, W >= 1.
        combines: linear combinations per step, C >= 1.
    """
    reads = window.combine_floats.shape[1]
    bank.hold(window.rows)
    g_levels, c_levels, s_levels = window.gradient_levels, window.combine_levels, window.serial_levels
    t_levels = window.transform_levels
    levels = 1 + int(max(each.max(initial=0) for each in (g_levels, c_levels, s_levels, t_levels)))
    g_count = np.bincount(g_levels, minlength=levels)
    c_count = np.bincount(c_levels, minlength=levels)
    per_level = np.maximum(-(-g_count // width), -(-c_count // combines))
    if len(t_levels):
        per_level = np.maximum(per_level, -(-np.bincount(t_levels, minlength=levels) // width))
    np.maximum.at(per_level, s_levels, 1)
    first = np.concatenate(([0], np.cumsum(per_level)))
    total = int(first[-1])

    g_index, c_index = _index_within(g_levels, levels), _index_within(c_levels, levels)
    g_step, g_lane = first[g_levels] + g_index // width, g_index % width
    c_step, c_lane = first[c_levels] + c_index // combines, c_index % combines
    s_step = first[s_levels] + per_level[s_levels] - 1

    g_rows, c_rows = window.gradient_ints[:, : reads + 1], window.combine_ints[:, :reads]
    g_out, c_out = window.gradient_ints[:, reads + 1], window.combine_ints[:, reads]

    # The step after which each dead row is not needed any more; a result nobody reads dies at once.
    last = np.full(len(bank.place) + 1, -1, dtype=np.int64)  # the entry behind the end takes the -1s
    np.maximum.at(last, g_rows.ravel(), np.repeat(g_step, reads + 1))
    np.maximum.at(last, c_rows.ravel(), np.repeat(c_step, reads))
    last[g_out] = np.maximum(last[g_out], g_step)
    last[c_out] = np.maximum(last[c_out], c_step)
    # A place that serial operations still read must not be given away in their step: it is held for as long as that
    # of a row born there.
    held = np.full(len(bank.place) + 1, -1, dtype=np.int64)
    held[g_out] = g_step
    held[c_out] = c_step
    outs, steps = np.concatenate((g_out, c_out)), np.concatenate((g_step, c_step))
    if len(t_levels):
        t_index = _index_within(t_levels, levels)
        t_step, t_lane = first[t_levels] + t_index // width, t_index % width
        t_rows, t_out = rows_of(window.transform_ints, window.transform_writes)
        np.maximum.at(last, t_rows.ravel(), np.repeat(t_step, t_rows.shape[1]))
        written, when = t_out.ravel(), np.repeat(t_step, t_out.shape[1])
        last[written] = np.maximum(last[written], when)
        held[written] = when
        outs, steps = np.concatenate((outs, written)), np.concatenate((steps, when))
    if len(s_levels):
        s_rows, s_out = rows_of(window.serial_ints, window.serial_writes)
        read, written = s_rows.ravel(), s_out.ravel()
        when = np.repeat(s_step, s_out.shape[1])
        np.maximum.at(last, read, np.repeat(s_step, s_rows.shape[1]))
        last[written] = np.maximum(last[written], when)
        held[written] = when
        np.maximum.at(held, read, np.repeat(s_step, s_rows.shape[1]))
        outs, steps = np.concatenate((outs, written)), np.concatenate((steps, when))

    _assign_places(window, bank, outs, steps, last, held, total)

    spare = bank.spare
    g_ints = np.zeros((total, width, reads + 6), dtype=np.int32)
    g_ints[:, :, : reads + 2] = spare
    g_floats = np.zeros((total, width, window.gradient_floats.shape[1]), dtype=np.float32)
    c_ints = np.full((total, combines, reads + 1), spare, dtype=np.int32)
    c_floats = np.zeros((total, combines, reads), dtype=np.float32)
    placed = window.gradient_ints.copy()
    placed[:, : reads + 2] = bank.places(placed[:, : reads + 2])
    g_ints[g_step, g_lane] = placed
    g_floats[g_step, g_lane] = window.gradient_floats
    c_ints[c_step, c_lane] = bank.places(window.combine_ints)
    c_floats[c_step, c_lane] = window.combine_floats
    order = np.argsort(s_step, kind="stable")
    s_ints = _placed(window.serial_ints[order], bank, window.serial_writes[1])
    bounds = np.searchsorted(s_step[order], np.arange(total + 1)).astype(np.int32)
    filled = total if window.transform_ints.shape[1] else 0
    t_ints = np.full((filled, width, window.transform_ints.shape[1]), spare, dtype=np.int32)
    t_floats = np.zeros((filled, width, window.transform_floats.shape[1]), dtype=np.float32)
    if len(t_levels):
        t_ints[t_step, t_lane] = _placed(window.transform_ints, bank, window.transform_writes[1])
        t_floats[t_step, t_lane] = window.transform_floats
    return Steps(g_ints, g_floats, c_ints, c_floats, s_ints, window.serial_floats[order], bounds, t_ints, t_floats)


def _placed(ints: NDArray[np.int32], bank: Bank, more: int) -> NDArray[np.int32]:
    """Return operations with places for rows; the last `more` numbers of each are none."""
    end = ints.shape[1] - more
    return np.concatenate((bank.places(ints[:, :end]), ints[:, end:]), axis=1) if len(ints) else ints


def _assign_places(
    window: Window,
    bank: Bank,
    outs: NDArray[np.int32],
    steps: NDArray[np.int64],
    last: NDArray[np.int64],
    held: NDArray[np.int64],
    total: int,
) -> None:
    """Give a place to every row born in the window and take back those of the dead, step by step."""
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
