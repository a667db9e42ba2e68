"""The columns of the tables of recorded operations.

An operation of any kind has a row of integers and a row of numbers. The integers are rows of the bank that it reads,
rows that it writes, and further integers. The numbers begin with the coefficients of the rows of its base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

#: Stands for a row where an operation reads fewer than it can.
NO_ROW = -1

#: Further integers of an operation with a gradient. A round has its number of steps where a gradient has the first
#: example of its part of a mini-batch.
CLIENT, DRAW, FIRST, SIZE = range(4)
STEPS = FIRST
#: Numbers of an operation with a gradient, after the coefficients of its base: the gradient's coefficient, the scale of
#: the noise, and from there on a clipping norm, or eta, beta, t and dt of a round.
FACTOR, NOISE, STEP = range(3)


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
        extra: numbers of a gradient's own: 1 for a clipping norm, 4 for a round, else 0.
        states: rows of state of a transformation; None without transformations.
        serial: whether transformations are serial.
    """

    reads: int
    extra: int = 0
    states: int | None = None
    serial: bool = False

    @property
    def gradient(self) -> Layout:
        """Rows of the gradient's model and the base; row written; `CLIENT` to `SIZE`."""
        return Layout(self.reads + 1, 1, 4, self.reads + STEP + self.extra)

    @property
    def combine(self) -> Layout:
        """The rows of a linear form; the row written."""
        return Layout(self.reads, 1, 0, self.reads)

    @property
    def transform(self) -> Layout:
        """Rows of gradient, base and state; model and state written; updates so far.

        The numbers are the coefficients of the base and the step size.
        """
        if self.states is None:
            return Layout(0, 0, 0, 0)
        return Layout(1 + self.reads + self.states, 1 + self.states, 1, self.reads + 1)

    @property
    def serials(self) -> Layout:
        """Serial operations: transformations or linear forms."""
        return self.transform if self.serial else self.combine

    @property
    def beside(self) -> Layout:
        """Transformations that run beside gradients."""
        return Layout(0, 0, 0, 0) if self.serial else self.transform


@dataclass
class Operations:
    """Recorded operations of one kind.

    Attributes:
        layout: the columns.
        ints: int32 [n, layout.integers].
        floats: float32 [n, layout.numbers].
        levels: int32 [n], from 1: one more than the highest level of what an operation reads.
    """

    layout: Layout
    ints: NDArray[np.int32]
    floats: NDArray[np.float32]
    levels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.levels)

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
