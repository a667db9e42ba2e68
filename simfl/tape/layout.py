"""The columns of the tables of recorded operations.

An operation of any kind has a row of integers and a row of numbers. The integers are rows of the bank that it reads,
rows that it writes, and further integers. The numbers begin with the coefficients of the rows of its base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.each import Varied

#: Stands for no row, if an operation reads fewer rows than it can.
NO_ROW = -1

#: Further integers of an operation with a gradient. A round has its number of steps in the place where a gradient has
#: the first example of its part of a mini-batch. `COUNT` is the number of updates of a state that a round continues.
CLIENT, DRAW, FIRST, SIZE, COUNT = range(5)
STEPS = FIRST
#: Numbers of an operation with a gradient, after the coefficients of its base: the gradient's coefficient, the scale of
#: the noise, and from there on a clipping norm, or eta, beta, t and dt of a round
#: (then its mu and l2, if rounds have their own).
FACTOR, NOISE, STEP = range(3)
#: Further integers of an operation with a function: which of the tape's branches it takes, and the names of its random
#: draws. Branch `LINEAR` is the linear form, the others follow in the order in which they were first used.
BRANCH, MAP_CLIENT, MAP_DRAW = range(3)
LINEAR = 0


def padded_size(count: int) -> int:
    """Return the number of rows to which a call that pads fills up: a power of two."""
    return 1 << (count - 1).bit_length()


@dataclass(frozen=True)
class Branch:
    """A function of models, as programs are compiled for it; hashable.

    Attributes:
        function: see `simfl.tape.maps`.
        inputs: rows that it reads, padding included.
        outputs: rows that it writes.
        numbers: its scalars.
        pads: whether fewer rows than `inputs` may be present.
    """

    function: Callable[..., Any]
    inputs: int
    outputs: int
    numbers: int
    pads: bool


@dataclass(frozen=True)
class MapSize:
    """The largest numbers of rows and scalars of some branches."""

    reads: int = 0
    writes: int = 0
    numbers: int = 0

    @classmethod
    def of(cls, branches: Iterable[Branch]) -> MapSize:
        """Return the size that holds operations of all `branches`."""
        sizes = [(branch.inputs, branch.outputs, branch.numbers) for branch in branches]
        return cls(*map(max, zip(*sizes, strict=True))) if sizes else cls()


@dataclass(frozen=True)
class Layout:
    """The columns of one kind of operation.

    Args:
        reads: rows that it reads.
        writes: rows that it writes.
        further: integers that are not rows.
        numbers: floating-point numbers.
    """

    reads: int
    writes: int
    further: int
    numbers: int

    @property
    def integers(self) -> int:
        """Number of integers of an operation."""
        return self.reads + self.writes + self.further

    @property
    def read(self) -> slice:
        """The columns of rows that are read."""
        return slice(self.reads)

    @property
    def written(self) -> slice:
        """The columns of rows that are written."""
        return slice(self.reads, self.reads + self.writes)

    @property
    def rest(self) -> slice:
        """The columns of integers that are not rows."""
        return slice(self.reads + self.writes, None)


@dataclass(frozen=True)
class Layouts:
    """The columns of all kinds of operations of a problem.

    Args:
        reads: rows of a linear form, at most.
        extra: additional numbers of a gradient: 1 for a clipping norm, 4 for a round (6 with its own pull and penalty;
            1 more with a correction), otherwise 0.
        maps: the sizes of the functions of models.
        beside: whether these run beside gradients; otherwise they are serial.
        kept: rows of an optimizer's state that a round reads and writes.
    """

    reads: int
    extra: int = 0
    maps: MapSize = MapSize()
    beside: bool = False
    kept: int = 0

    @property
    def gradient(self) -> Layout:
        """Rows of the gradient's model, the base and the state; rows written.

        Then `CLIENT` to `SIZE`, and `COUNT` if rounds keep a state."""
        kept = self.kept
        return Layout(self.reads + 1 + kept, 1 + kept, 4 + (kept > 0), self.reads + STEP + self.extra)

    @property
    def combine(self) -> Layout:
        """The rows of a linear form; the row written."""
        return Layout(self.reads, 1, 0, self.reads)

    @property
    def serials(self) -> Layout:
        """Serial operations: linear forms and serial functions of models."""
        if self.beside or not self.maps.reads:
            return self.combine
        maps = self.maps
        return Layout(max(self.reads, maps.reads), maps.writes, 3, max(self.reads, maps.numbers))

    @property
    def mapped(self) -> Layout:
        """Functions of models beside gradients.

        Rows read and written; `BRANCH` to `MAP_DRAW`; scalars."""
        if not self.beside or not self.maps.reads:
            return Layout(0, 0, 0, 0)
        return Layout(self.maps.reads, self.maps.writes, 3, self.maps.numbers)


@dataclass
class Operations:
    """Recorded operations of one kind.

    Attributes:
        layout: the columns.
        ints: int32 [n, layout.integers].
        floats: float32 [n, layout.numbers].
        depths: int32 [n], from 1: one more than the highest depth of what an operation reads.
        varied: the entries of `floats` that differ between the settings of a group; None for none.
    """

    layout: Layout
    ints: NDArray[np.int32]
    floats: NDArray[np.float32]
    depths: NDArray[np.int32]
    varied: Varied | None = None

    def __len__(self) -> int:
        return len(self.depths)

    @property
    def read(self) -> NDArray[np.int32]:
        """The rows that are read, int32 [n, layout.reads]; `NO_ROW` for none."""
        return self.ints[:, self.layout.read]

    @property
    def written(self) -> NDArray[np.int32]:
        """The rows that are written, int32 [n, layout.writes]."""
        return self.ints[:, self.layout.written]

    @property
    def rest(self) -> NDArray[np.int32]:
        """The integers that are not rows, int32 [n, layout.further]."""
        return self.ints[:, self.layout.rest]
