"""The journal: all values that the world learns from numbers, in order.

It is between the tape and the executor. The world is deterministic, and requests numbers only here. A world that is
replayed with the journal's answers therefore repeats itself, and nothing is computed. Every new kind of request for
numbers must pass through the journal.

The number of a dead row is reused, at a time that depends on the windows. The permanent name of a row is the operation
that wrote it: its kind, and the count of operations of that kind before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from simfl.each import DisagreementError
from simfl.errors import RunError
from simfl.tape.executor import Evaluation, Executor, Forms
from simfl.tape.layout import NO_ROW
from simfl.tape.recording import Decide, Window

T = TypeVar("T")


class ReplayError(RunError):
    """The replayed world differs from the checkpoint, so the checkpoint is useless."""


#: Kinds of operations that write rows: gradients, combinations, serial ones, constants, functions beside gradients.
KINDS = 5


@dataclass
class Record:
    """The recorded answers so far.

    Attributes:
        evaluations: in the order in which they were requested.
        answers: the answers to requests for values or decisions, in the same order.
        zeroed: gradients (or updates) that were not finite.
    """

    evaluations: list[Evaluation] = field(default_factory=list)
    answers: list[NDArray[Any]] = field(default_factory=list)
    zeroed: int = 0


class Names:
    """The permanent names of rows."""

    def __init__(self) -> None:
        #: Operations so far, by kind.
        self.counts = [0] * KINDS
        self._born = np.zeros(0, dtype=np.int64)  # row number -> the name of the row

    def of(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the permanent names of rows, int64, given their numbers."""
        return self._born[numbers]

    def note(self, window: Window) -> None:
        """Name the rows that the operations of a window write."""
        if window.rows > len(self._born):
            grown = np.full(max(window.rows, 2 * len(self._born)), -1, dtype=np.int64)
            grown[: len(self._born)] = self._born
            self._born = grown
        given = np.array([number for number, _ in window.constants], dtype=np.int32)
        gradients, combines, serials, mapped = (
            operations.written[operations.written != NO_ROW]
            for operations in (window.gradients, window.combines, window.serials, window.mapped)
        )
        for kind, numbers in enumerate((gradients, combines, serials, given, mapped)):
            self._born[numbers] = np.arange(self.counts[kind], self.counts[kind] + len(numbers)) * KINDS + kind
            self.counts[kind] += len(numbers)


class Journal:
    """Passes requests to an executor, or answers them from an earlier run's record.

    Args:
        executor: computes what is not replayed.
        keeps: whether to record requests; without the record nothing can be replayed, and no memory is used.
        names: those of the rows, which the settings of a group share; its own by default.
    """

    def __init__(self, executor: Executor, keeps: bool = False, names: Names | None = None) -> None:
        self._executor = executor
        self._keeps = keeps
        self._names = names or Names()
        self._past: Record | None = None
        self._evaluations: list[Future[Evaluation]] = []
        self._answers: list[NDArray[Any] | Future[NDArray[np.float32]]] = []
        self._zeroed = 0

    @property
    def counts(self) -> list[int]:
        """Operations so far, by kind."""
        return self._names.counts

    # -- requests ----------------------------------------------------------------------------

    def submit(self, window: Window) -> None:
        """Pass a window on, or drop it; note the rows born in it."""
        if self._keeps:
            self._names.note(window)
        if self._past is None:
            self._executor.submit(window)

    def fetch(self, rows: NDArray[np.int32], coefs: NDArray[np.float32]) -> NDArray[np.float32]:
        """See `Executor.fetch`."""
        return self._answer(lambda: self._executor.fetch(rows, coefs))

    def probe(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: NDArray[np.int32],
        draws: NDArray[np.int32],
        decide: Decide,
    ) -> NDArray[Any]:
        """See `Executor.probe`; the journal keeps the answer of `decide`, not its inputs."""
        return self._answer(lambda: self._executor.probe(rows, coefs, clients, draws, decide))

    def evaluate(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: bool | Forms = False,
        clipping_norm: float = float("inf"),
    ) -> Future[Evaluation]:
        """See `Executor.evaluate`."""
        past = None if self._past is None else self._past.evaluations
        return self._later(
            "evaluations", past, self._evaluations, lambda: self._executor.evaluate(rows, coefs, clients, clipping_norm)
        )

    def look(self, rows: NDArray[np.int32], places: NDArray[np.int64]) -> Future[NDArray[np.float32]]:
        """See `Executor.look`."""
        past = None if self._past is None else self._past.answers
        return self._later("answers", past, self._answers, lambda: self._executor.look(rows, places))

    def zeroed(self) -> int:
        """See `Executor.zeroed`; counted from the beginning of the run."""
        return self._zeroed + self._executor.zeroed()

    def _later(self, what: str, past: Sequence[T] | None, kept: list[Any], ask: Callable[[], Future[T]]) -> Future[T]:
        """Request what arrives later, or take it from the record."""
        if past is None:
            future = ask()
        else:
            future = Future()
            future.set_result(_next(what, past, len(kept)))
        if self._keeps:
            kept.append(future)
        return future

    def _answer(self, ask: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        answer = ask() if self._past is None else _next("answers", self._past.answers, len(self._answers))
        if self._keeps:
            self._answers.append(np.array(answer))
        return answer

    # -- replays -----------------------------------------------------------------------------

    @property
    def replaying(self) -> bool:
        """Whether nothing is computed, and requests are answered from a record."""
        return self._past is not None

    def record(self) -> Record:
        """Return all requests so far, after their answers."""
        zeroed = self.zeroed()  # waits for everything submitted before, so the lines below do not wait
        answers = [answer.result() if isinstance(answer, Future) else answer for answer in self._answers]
        return Record([future.result() for future in self._evaluations], answers, zeroed)

    def replay(self, past: Record) -> None:
        """Answer requests from a record from now on, and compute nothing."""
        assert self._keeps, "a replay needs the names of the rows that it writes"
        self._past = past

    def go_on(self) -> None:
        """End the replay, and compute from now on."""
        assert self._past is not None, "nothing was replayed"
        self._zeroed = self._past.zeroed
        self._past = None

    # -- rows --------------------------------------------------------------------------------

    def names(self, numbers: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the permanent names of rows, int64, given their numbers."""
        return self._names.of(numbers)

    def read(self, numbers: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return the values of rows, f32 [k, d]; waits for everything submitted before."""
        return self._executor.read(numbers)

    def write(self, numbers: NDArray[np.int32], values: NDArray[np.float32], rows: int) -> None:
        """Set rows to values, f32 [k, d]; `rows` is the total number of rows."""
        self._executor.write(numbers, values, rows)


def _next(what: str, recorded: Sequence[T], number: int) -> T:
    """Return what was recorded for a request of a replay."""
    if number >= len(recorded):
        raise ReplayError(f"expected {number} {what}, found more")
    return recorded[number]


class Together:
    """The executor of a tape that several settings share.

    Nothing that the world learns from numbers is the same for all of them, so it must not ask.

    Args:
        executor: computes the windows of all settings.
        journals: those of the settings, which replay together.
        names: those of the rows; None if no journal keeps its record.
    """

    def __init__(self, executor: Executor, journals: Sequence[Journal], names: Names | None) -> None:
        self._executor = executor
        self._journals = journals
        self._names = names

    def submit(self, window: Window) -> None:
        """Pass a window on, or drop it in a replay; note the rows born in it."""
        if self._names is not None:
            self._names.note(window)
        if not self._journals[0].replaying:
            self._executor.submit(window)

    def fetch(self, *forms: NDArray[Any]) -> NoReturn:
        """Refuse to show numbers to the world."""
        raise DisagreementError("the parameters of a model")

    def probe(self, *arguments: Any) -> NoReturn:
        """Refuse to decide by numbers."""
        raise DisagreementError("a decision by numbers")
