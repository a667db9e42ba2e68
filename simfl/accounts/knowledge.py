"""What each node saw: messages as linear forms of noisy gradients.

Theory of whole networks (Bellet et al. 2026, https://arxiv.org/abs/2510.17480; El Mrini, Cyffers, Bellet 2024,
https://arxiv.org/abs/2402.10001) writes everything that an observer v has received as

    view = A g + B xi,

with a row for every message, in the order of arrival. g holds the sums of clipped gradients of mini-batches, a column
of A for each; xi holds standard normals, a column of B for each noise. The entries depend on step sizes and on the
averages that took place, that is on the world and not on data. A tape records these forms, so a world that runs on a
`KnowledgeTape` yields them.

A function of models (`Tape.map`) is not a linear form. Its result is post-processing of what it reads, so an observer
of the result, or of a sum with it, is charged as if it saw each row that the function reads.

Everything else that depends on data is refused: decisions by values or losses of models, optimizers whose steps are
not linear forms, and states of optimizers that are kept between rounds. The change of a round of local steps is one
release, with a column like a mini-batch.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from simfl.accounts.exact import PRIME, Residues, residues
from simfl.errors import ScenarioError
from simfl.privacy.correlated import Correlation, Stream
from simfl.tape.recording import NOISE_DRAWS, Gradient, Model, Round, Row, Tape

#: Largest number of entries of the matrices in memory: two gigabytes.
MOST_ENTRIES = 2**28


def noise_matrix(
    correlation: Correlation, releases: Sequence[tuple[int, int]]
) -> tuple[csr_array, list[tuple[Stream, int, int]]]:
    """Return the matrix of noise [releases, normals] and the names of its columns.

    It is in units of each client's noise scale. Releases are (client, draw).
    """
    column: dict[tuple[Stream, int, int], int] = {}
    entries: list[tuple[float, int, int]] = []
    for row, (client, draw) in enumerate(releases):
        for stream, owner, number, coefficient in correlation.terms(client, draw):
            entries.append((coefficient, row, column.setdefault((stream, owner, number), len(column))))
    values, rows, columns = zip(*entries, strict=True) if entries else ((), (), ())
    return csr_array((values, (rows, columns)), shape=(len(releases), len(column))), list(column)


@dataclass(frozen=True)
class Batch:
    """A mini-batch's gradient, or a round's change: a column of A.

    Attributes:
        client: the client that promised it: node * tasks + task if several tasks are trained.
        draw: its number.
        begin: where it begins in the client's shuffled data: (draw of the nominal size, first example).
        examples: the number of examples in it.
        expected: the expected number of examples.
        norm: C, to which its gradients were clipped, if it has its own.
        read: the row of the model at which it was taken.
    """

    client: int
    draw: int
    begin: tuple[int, int]
    examples: int
    expected: int
    norm: float | None
    read: int


@dataclass(frozen=True)
class Sight:
    """A message seen by a node.

    Attributes:
        sent_s, came_s: virtual times of sending and arrival, seconds; infinite if it never arrived.
        source: the sender; -1 for a node's own sum of the messages of a round.
        target: the node that saw it.
        row: its content.
        sent, came: numbers of these two events in the order of all recorded events; -1 for a message that never came.
        is_message: whether the row is the message itself, rather than a row that a function in it read.
    """

    sent_s: float
    came_s: float
    source: int
    target: int
    row: int
    sent: int = 0
    came: int = -1
    is_message: bool = True


@dataclass(frozen=True)
class Read:
    """A model at which a node began to compute.

    Attributes:
        client: as in `Batch`.
        row: the model.
        read: the number of this event, as in `Sight`.
    """

    client: int
    row: int
    read: int


class Knowledge:
    """Rows and their observers; made by a `KnowledgeTape` and its `Listener`.

    Row r is sum_j coefficient_j row_j + gain * (gradient of a batch) + share * (a noise), of rows below r.

    Attributes:
        batches: columns of A.
        noises: the noise of releases, (client, draw); without a correlation these are the columns of B.
        correlation: how the noise of a release is made of normals, which are then the columns of B.
        messages: the messages, in the order of sending.
        merged: the models that nodes made from a round's messages, in order.
        reads: the models at which nodes began to compute, also if the result was lost later.
    """

    def __init__(self) -> None:
        self.correlation: Correlation | None = None
        self.batches: list[Batch] = []
        self.noises: list[tuple[int, int]] = []
        self.messages: list[Sight] = []
        self.merged: list[Sight] = []
        self.reads: list[Read] = []
        self._events = 0
        self._known: dict[tuple[int, int, int], Batch | None] = {}
        self._batch_of: dict[tuple[int, int, int], int] = {}
        self._noise_of: dict[tuple[int, int], int] = {}
        self._terms, self._coefs, self._ends = array("q"), array("d"), array("q")
        self._batch, self._gain = array("q"), array("d")
        self._noise, self._share = array("q"), array("d")
        #: The rows that a function read, by the row of its result; and the results that are parts of a row, by the row.
        self._inputs: dict[int, tuple[int, ...]] = {}
        self._results: dict[int, frozenset[int]] = {}
        #: Rows with which a node's reads were charged, by client.
        self._charged: dict[int, set[int]] = {}

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._ends)

    @property
    def has_functions(self) -> bool:
        """Whether a row is the result of a function of models."""
        return bool(self._inputs)

    @property
    def num_messages(self) -> int:
        """The number of messages."""
        return sum(sight.is_message for sight in self.messages)

    # -- recording ---------------------------------------------------------------------------

    def event(self) -> int:
        """Return the number of an event that happens now."""
        self._events += 1
        return self._events - 1

    def add(
        self,
        terms: Iterable[tuple[int, float]],
        batch: int = -1,
        gain: float = 0.0,
        noise: int = -1,
        share: float = 0.0,
    ) -> int:
        """Record a row and return its number."""
        begin = len(self._terms)
        for row, coef in terms:
            self._terms.append(row)
            self._coefs.append(coef)
        self._ends.append(len(self._terms))
        if self._results:
            results = frozenset().union(*(self._results.get(row, ()) for row in self._terms[begin:]))
            if results:
                self._results[len(self._ends) - 1] = results
        self._batch.append(batch)
        self._gain.append(gain)
        self._noise.append(noise)
        self._share.append(share)
        return len(self._ends) - 1

    def result(self, rows: Iterable[int]) -> int:
        """Record the result of a function of rows, and return its number.

        As a linear form, the result is 0."""
        number = self.add(())
        self._inputs[number], self._results[number] = tuple(rows), frozenset((number,))
        return number

    def charged(self, row: int, seen: Collection[int] = ()) -> list[int]:
        """Return the rows that an observer of `row` is charged with.

        They are the row itself and the rows that functions in it read.

        Args:
            row: as a linear form, without the results of functions.
            seen: further rows that the observer has been charged with.
        """
        if row not in self._results:
            return [row]
        charged, results, left = [row], set[int](), [row]
        while left:
            for result in self._results.get(left.pop(), ()):
                if result not in results:
                    results.add(result)
                    fresh = [read for read in self._inputs[result] if read not in seen]
                    charged += fresh
                    left += fresh
        return list(dict.fromkeys(charged))

    def promised(self, promise: Gradient, parts: Sequence[Gradient] = ()) -> None:
        """Note the mini-batch of a promise; the parts of a batch share one column."""
        batch = Batch(
            promise.client,
            promise.draw,
            promise.begin,
            promise.all_examples,
            promise.expected or promise.all_examples,
            promise.own_norm,
            promise.model.rows[0].number,
        )
        event, charged = self.event(), self._charged.setdefault(promise.client, set())
        rows = self.charged(batch.read, charged)
        charged.update(rows[1:])
        self.reads += [Read(promise.client, row, event) for row in rows]
        for number, part in enumerate(parts or (promise,)):
            self._known[part.client, part.draw, part.first_or_steps] = None if number else batch

    def batch(self, promise: Gradient) -> int:
        """Return the column of a promise's mini-batch, -1 for a further part."""
        key = promise.client, promise.draw, promise.first_or_steps
        batch = self._known[key]
        if batch is None:
            return -1
        column = self._batch_of.get(key)
        if column is None:
            column = self._batch_of[key] = len(self.batches)
            self.batches.append(batch)
        return column

    def noise(self, promise: Gradient) -> int:
        """Return the column of a promise's noise."""
        key = promise.client, promise.draw
        column = self._noise_of.get(key)
        if column is None:
            column = self._noise_of[key] = len(self.noises)
            self.noises.append(key)
        return column

    def row_of(self, content: Model | Gradient) -> int:
        """Return the row of a message's content."""
        if isinstance(content, Model):
            rows, coefs = content.rows, content.coefs
            if len(rows) == 1 and coefs[0] == 1.0:
                return rows[0].number
            return self.add((row.number, coef) for row, coef in zip(rows, coefs, strict=True))
        made = -1
        for part in content.pieces or (content,):
            noise = self.noise(part) if part.noise_scale else -1
            batch = self.batch(part)
            before = () if made < 0 else ((made, 1.0),)
            made = self.add(before, batch, float(batch >= 0), noise, part.noise_scale)
        return made

    # -- the matrices ------------------------------------------------------------------------

    def matrices(self, rows: Sequence[int], noises: bool = True) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A [len(rows), batches] and B [len(rows), noises]; B in unit normals.

        Args:
            rows: in any order.
            noises: whether to compute B; otherwise it has no columns.

        Raises:
            ScenarioError: they would not fit into memory.
        """
        columns, widest = len(self.batches), self.width(noises)
        width = columns + noises * len(self.noises)
        made = noise_matrix(self.correlation, self.noises)[0] if noises and self.correlation is not None else None
        if len(rows) * widest > MOST_ENTRIES:
            raise ScenarioError(
                f"privacy network: expected at most {MOST_ENTRIES:,} coefficients, found {len(rows):,} messages of "
                f"{widest:,}; stop earlier (--set stop.updates=N), or ask for fewer observers"
            )
        places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(row, []).append(place)
        result = np.zeros((len(rows), width))
        for row, values in self.walk(places, noises):
            result[places[row]] = values
        a, b = result[:, :columns], result[:, columns:]
        return a, b if made is None else (made.T @ b.T).T

    def residues(self, rows: Collection[int], noises: bool = True) -> tuple[list[int], Residues, Residues]:
        """Return the distinct rows in rising order, and A and B modulo `PRIME`."""
        wanted = sorted(set(rows))
        columns, result = len(self.batches), np.zeros((len(wanted), self.width(noises)), dtype=np.int64)
        width = columns + noises * len(self.noises)
        for place, (_, values) in enumerate(self.walk(wanted, noises, exact=True)):
            result[place, :width] = values
        a, b = result[:, :columns], result[:, columns:width]
        if noises and self.correlation is not None:
            made = noise_matrix(self.correlation, self.noises)[0]
            made.data = residues(made.data)  # each is a sum of few products, which int64 can hold
            b = (made.T @ b.T).T % PRIME
        return wanted, a, b

    def width(self, noises: bool) -> int:
        """Return the coefficients of a row of the matrices while they are made."""
        columns = len(self.batches)
        if not noises or self.correlation is None:
            return columns + noises * len(self.noises)
        return columns + max(map(int, noise_matrix(self.correlation, self.noises)[0].shape))

    def walk(
        self, rows: Collection[int], noises: bool = False, exact: bool = False
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield rows in rising order with their contents, f64 [batches (+ noises)].

        Only rows that a later row reads are kept in memory. With `exact`, values are int64 residues modulo `PRIME`.
        """
        columns, count = len(self.batches), max(rows, default=-1) + 1
        last, kept = self._last_reads(count), set(rows)
        coefs, gains, shares = (
            residues(np.array(one)).tolist() if exact else one for one in (self._coefs, self._gain, self._share)
        )
        alive: dict[int, NDArray[Any]] = {}
        begin = 0
        for row in range(count):
            end = self._ends[row]
            if last[row] > row or row in kept:
                values: NDArray[Any] = np.zeros(
                    columns + noises * len(self.noises), dtype=np.int64 if exact else np.float64
                )
                for at in range(begin, end):
                    values += coefs[at] * alive[self._terms[at]]
                if self._batch[row] >= 0:
                    values[self._batch[row]] += gains[row]
                if noises and self._noise[row] >= 0:
                    values[columns + self._noise[row]] += shares[row]
                if exact:
                    values %= PRIME
                if row in kept:
                    yield row, values
                if last[row] > row:
                    alive[row] = values
            for at in range(begin, end):
                if last[self._terms[at]] == row:
                    alive.pop(self._terms[at], None)
            begin = end

    def known_noise(self, nodes: Collection[int], tasks: int = 1) -> NDArray[np.bool_]:
        """Return which columns of B some nodes drew themselves and know; bool."""
        correlation = self.correlation
        if correlation is None:
            return np.array([client // tasks in nodes for client, _ in self.noises], dtype=bool)
        _, names = noise_matrix(correlation, self.noises)
        return np.array(
            [any(one in nodes for one in correlation.owners(stream, owner)) for stream, owner, _ in names], dtype=bool
        )

    def own_noise(self) -> NDArray[np.float64] | None:
        """Return each batch's noise std, [batches], if no two batches share noise.

        Then B follows from A. None if a batch has no noise, or shares its noise.
        """
        batch, noise = (np.frombuffer(one, dtype=np.int64) for one in (self._batch, self._noise))
        gain, share = (np.frombuffer(one, dtype=np.float64) for one in (self._gain, self._share))
        if self.correlation is not None or np.any((batch < 0) & (noise >= 0)):
            return None
        used = np.flatnonzero((batch >= 0) & (gain != 0.0))
        stds = np.full(len(self.batches), np.nan)
        whose = np.full(len(self.noises), -1)
        for one, other, std in zip(batch[used], noise[used], share[used] / gain[used], strict=True):
            if not math.isclose(stds[one], std, rel_tol=1e-9) and not np.isnan(stds[one]):
                return None
            if other >= 0 and whose[other] not in (-1, one):
                return None
            stds[one] = std
            if other >= 0:
                whose[other] = one
        result: NDArray[np.float64] = np.nan_to_num(stds)
        return result

    def _last_reads(self, count: int) -> NDArray[np.int64]:
        """Return the last row that reads each of the first rows, -1 if none does."""
        last = np.full(count, -1, dtype=np.int64)
        ends = np.frombuffer(self._ends, dtype=np.int64)[:count]
        begins = np.concatenate(([0], ends[:-1])) if count else ends
        terms = np.frombuffer(self._terms, dtype=np.int64)[: ends[-1] if count else 0]
        last[terms] = np.repeat(np.arange(count), ends - begins)  # the last assignment stays
        return last


class KnowledgeTape(Tape):
    """A tape without an executor: operations become rows of `knowledge`.

    Args:
        options: the options of `Tape`.
    """

    def __init__(self, executor: None = None, **options: Any) -> None:
        super().__init__(executor, **options)
        self.knowledge = Knowledge()

    def constant(self, values: object) -> Model:
        """Return a model that all nodes know."""
        del values
        return Model((self._row(self.knowledge.add(())),), (1.0,))

    def transform(self, *arguments: Any, **options: Any) -> Any:
        """Refuse: the result is not a linear form."""
        raise ScenarioError(
            "algorithm.optimizer: expected none, found one, whose steps are not linear forms of noisy gradients, so "
            "that the view of an observer cannot be computed; use plain SGD"
        )

    def values(self, *arguments: Any, **options: Any) -> Any:
        """Refuse: an action on values of models is an action on data."""
        raise ScenarioError(
            "algorithm.kind: expected an algorithm that does not look at values of models or losses, found one that "
            "decides by them: its messages depend on data"
        )

    probe = values

    def gradient(self, *arguments: Any, **options: Any) -> Gradient:
        """See `Tape.gradient`; notes the batch."""
        promise = super().gradient(*arguments, **options)
        self.knowledge.promised(promise)
        return promise

    def gradient_in_pieces(self, *arguments: Any, **options: Any) -> Gradient:
        """See `Tape.gradient_in_pieces`; notes the pieces as one batch."""
        promise = super().gradient_in_pieces(*arguments, **options)
        # Noise that has an operation of its own is not part of the data.
        parts = sorted(promise.pieces, key=lambda part: part.draw >= NOISE_DRAWS)
        self.knowledge.promised(promise, parts)
        return promise

    def train(self, *arguments: Any, **options: Any) -> Round:
        """See `Tape.train`; notes the round as a batch.

        Refuses corrections, and states of optimizers that are kept between rounds."""
        if self.state_rows:
            raise ScenarioError(
                "algorithm.optimizer.state.rounds: expected new, found 'keep': a round would read a state that is no "
                "linear form of noisy gradients, so that the view of an observer cannot be computed; use rounds: new"
            )
        if options.get("correction") is not None:
            raise ScenarioError(
                "algorithm.kind: expected rounds without control variates, found some, which are added to gradients "
                "inside of rounds, so that the view of an observer cannot be computed; use fedavg, or corrected_gossip"
            )
        promise = super().train(*arguments, **options)
        self.knowledge.promised(promise)
        return promise

    def flush(self) -> None:
        """Do nothing: there is no executor."""
        self._graveyard.clear()

    # -- recording ---------------------------------------------------------------------------

    def _row(self, number: int) -> Row:
        return Row(number, 0, self._graveyard)

    def _map(
        self,
        function: Callable[..., Any],
        rows: Sequence[Row | None],
        scalars: Sequence[float],
        outputs: int,
        client: int,
        draw: int,
        pads: bool,
    ) -> list[Row]:
        read = [row.number for row in rows if row is not None]
        return [self._row(self.knowledge.result(read)) for _ in range(outputs)]

    def _combine_rows(self, form: dict[Row, float]) -> Row:
        return self._row(self.knowledge.add((row.number, coef) for row, coef in form.items()))

    def _serial(self, items: list[tuple[Row, float]]) -> Row:
        return self._row(self.knowledge.add((row.number, coef) for row, coef in items))

    def _record(
        self,
        rows: tuple[Row, ...],
        coefs: tuple[float, ...],
        gradient: Gradient,
        coef: float,
        first: int,
        size: int,
        noise_scale: float,
    ) -> Row:
        known = self.knowledge
        # Examples that one operation cannot take are added by further ones, and counted in the batch of the first.
        batch = known.batch(gradient) if first == gradient.first_or_steps else -1
        noise = known.noise(gradient) if noise_scale else -1
        terms = zip((row.number for row in rows), coefs, strict=True)
        return self._row(known.add(terms, batch, coef if batch >= 0 else 0.0, noise, coef * noise_scale))


class Listener:
    """A network's witness (`simfl.world.links.Witness`) that keeps all contents.

    Args:
        knowledge: that of the tape.
        now: returns the virtual time in seconds.
    """

    def __init__(self, knowledge: Knowledge, now: Callable[[], float]) -> None:
        self._knowledge = knowledge
        self._now = now
        #: Rows that have reached a node, beside the messages themselves.
        self._charged: dict[int, set[int]] = {}

    def sent(
        self, source: int, target: int, content: Model | Gradient, deliver: Callable[[], None]
    ) -> Callable[[], None]:
        """Note a message that is sent, and its arrival."""
        known, messages = self._knowledge, self._knowledge.messages
        charged = self._charged.setdefault(target, set())
        rows, event = known.charged(known.row_of(content), charged), known.event()
        sent_s = self._now()
        sights = [Sight(sent_s, math.inf, source, target, row, event, -1, at == 0) for at, row in enumerate(rows)]
        first = len(messages)
        messages += sights

        def arrived() -> None:
            came_s, came = self._now(), known.event()
            messages[first : first + len(sights)] = [replace(sight, came_s=came_s, came=came) for sight in sights]
            charged.update(rows[1:])
            deliver()

        return arrived

    def beside(self, source: int, target: int, content: Model, deliver: Callable[[], None]) -> Callable[[], None]:
        """Note a further vector of a message."""
        return self.sent(source, target, content, deliver)

    def shown(self, source: int, target: int, content: Model | Gradient) -> None:
        """Note a message that arrives at the moment of sending."""
        self._knowledge.messages += self._at_once(source, target, content)

    def merged(self, node: int, content: Model) -> None:
        """Note a node's model at the end of a round."""
        self._knowledge.merged += self._at_once(-1, node, content)

    def _at_once(self, source: int, target: int, content: Model | Gradient) -> list[Sight]:
        known, now = self._knowledge, self._now()
        rows = known.charged(known.row_of(content))
        sent, came = known.event(), known.event()
        return [Sight(now, now, source, target, row, sent, came, at == 0) for at, row in enumerate(rows)]
