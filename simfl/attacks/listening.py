"""Observers on the network that keep some of the messages.

It is a witness of the network (`simfl.world.links.Witness`): algorithms tell it what is in a message. What it keeps are
models of the tape, which are linear forms, and promises of gradients; nothing is computed before the run is over, so
that the run's own numbers are what they are without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from simfl.accounts.network import LINKS
from simfl.tape import Gradient, Model, Tape
from simfl.tape.recording import Round

#: Values that are fetched together.
AT_A_TIME = 16

Observer = int | str
"""A node by its number, or `LINKS`."""


@dataclass(frozen=True)
class Heard:
    """One message that an observer keeps.

    Attributes:
        content: a model; a change of one; a promised gradient, or a promised change.
        before: the model that its receiver last sent itself, None for the initial one: what it could compare with.
        change: whether it is to be added to a model, and is none itself.
    """

    content: Model | Gradient
    before: Model | None
    change: bool

    @property
    def base(self) -> Model | None:
        """The model that a message is compared with; None for the initial one."""
        return self.content.model if isinstance(self.content, Gradient) else self.before


class Kept:
    """Up to `most` messages, evenly spaced, from the senders nearest to a client.

    Args:
        most: at the end; in between up to twice as many.
    """

    def __init__(self, most: int) -> None:
        self.rank = math.inf
        self._most, self._stride, self._came = most, 1, 0
        self._spaced: list[Heard] = []
        self._last: Heard | None = None

    def take(self, rank: float, heard: Heard) -> None:
        """Add a message; those of more distant senders are dropped."""
        if rank > self.rank:
            return
        if rank < self.rank:
            self.rank, self._stride, self._came = rank, 1, 0
            self._spaced.clear()
        if self._came % self._stride == 0:
            self._spaced.append(heard)
            if len(self._spaced) > 2 * self._most:
                del self._spaced[1::2]
                self._stride *= 2
        self._came += 1
        self._last = heard

    @property
    def messages(self) -> Sequence[Heard]:
        """The kept messages, always with the last one."""
        kept = [*self._spaced]
        if self._last is not None and (not kept or kept[-1] is not self._last):
            kept.append(self._last)
        places = np.unique(np.linspace(len(kept) - 1, 0, min(self._most, len(kept))).astype(int)) if kept else ()
        return [kept[place] for place in places]


class Listener:
    """The witness: keeps messages for each observer and attacked client.

    Args:
        observers: who listens.
        distances: of each client that is attacked: node -> how far from it on the graph; infinite for other nodes.
        most: messages that are kept of each pair, at most.
        clients: K; what they send to other nodes are changes, and no models.
    """

    def __init__(
        self, observers: Sequence[Observer], distances: Mapping[int, Mapping[int, float]], most: int, clients: int
    ) -> None:
        self._distances, self._clients = distances, clients
        self.kept: dict[Observer, dict[int, Kept]] = {
            observer: {client: Kept(most) for client in distances if client != observer} for observer in observers
        }
        self._own: dict[int, Model] = {}
        self._links: set[tuple[int, int]] = set()

    def hops(self, clients: Sequence[int]) -> Mapping[int, Mapping[int, float]]:
        """Return the hops of each node from some clients over used links."""
        return hops_from(clients, self._links)

    def sent(
        self, source: int, target: int, content: Model | Gradient, deliver: Callable[[], None]
    ) -> Callable[[], None]:
        """Keep the message on arrival; of a promise, its state now."""
        if target not in self.kept and LINKS not in self.kept:
            self._note(source, target, content)
            return deliver
        content = content.twin() if isinstance(content, Gradient) else content
        self._note(source, target, content)

        def arrive() -> None:
            self._hear(source, target, content)
            deliver()

        return arrive

    def shown(self, source: int, target: int, content: Model | Gradient) -> None:
        """The same at once."""
        self._note(source, target, content)
        if target in self.kept or LINKS in self.kept:
            self._hear(source, target, content.twin() if isinstance(content, Gradient) else content)

    def merged(self, node: int, content: Any) -> None:
        """Ignore: secure sums are not attacked."""

    def _is_change(self, target: int, content: Model | Gradient) -> bool:
        return isinstance(content, Gradient) or target >= self._clients

    def _note(self, source: int, target: int, content: Model | Gradient) -> None:
        self._links.add((source, target))
        if isinstance(content, Model) and not self._is_change(target, content):
            self._own[source] = content

    def _hear(self, source: int, target: int, content: Model | Gradient) -> None:
        heard = Heard(content, self._own.get(target), self._is_change(target, content))
        for observer in (target, LINKS):
            for client, kept in self.kept.get(observer, {}).items():
                kept.take(self._distances[client].get(source, math.inf), heard)


def hops_from(clients: Sequence[int], links: Iterable[tuple[int, int]]) -> dict[int, dict[int, float]]:
    """Return client -> node -> hops over links in either direction; inf for none."""
    ends = np.array(sorted(links), dtype=np.int64).reshape(-1, 2)
    nodes = 1 + max(int(ends.max(initial=0)), *clients)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes)).tocsr()
    hops = dijkstra(graph, directed=False, unweighted=True, indices=list(clients))
    return {client: dict(enumerate(row.tolist())) for client, row in zip(clients, hops, strict=True)}


class Values:
    """The values of the kept messages after the run.

    Args:
        tape: of the run.
        initial: the initial model of all clients, f32 [d].
    """

    def __init__(self, tape: Tape, initial: NDArray[np.float32]) -> None:
        self._tape, self._initial = tape, initial
        self._found: dict[int, NDArray[np.float32]] = {}
        self._alive: list[Any] = []  # so that nothing else gets its id

    def read(self, heard: Sequence[Heard]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return models or directions [k, d], and the models to compare with, [k, d].

        A direction is what is added to a model: a gradient stands for a step against it.
        """
        asked: dict[int, tuple[Any, Model]] = {}
        for one in heard:
            for value in (one.content, one.base):
                if value is not None and id(value) not in self._found and id(value) not in asked:
                    asked[id(value)] = value, self._as_model(value)
        self._fetch(asked)
        contents = [self._found[id(one.content)] for one in heard]
        bases = [self._initial if one.base is None else self._found[id(one.base)] for one in heard]
        return np.stack(contents), np.stack(bases)

    def _as_model(self, value: Model | Gradient) -> Model:
        if isinstance(value, Model):
            return value
        return self._tape.combine((1.0 if isinstance(value, Round) else -1.0, value))

    def _fetch(self, asked: Mapping[int, tuple[Any, Model]]) -> None:
        entries = list(asked.items())
        for at in range(0, len(entries), AT_A_TIME):
            some = entries[at : at + AT_A_TIME]
            models = [model for _, (_, model) in some]
            rows = self._tape.values(models + models[-1:] * (AT_A_TIME - len(models)))
            for (key, (value, _)), row in zip(some, rows, strict=False):
                self._found[key] = row
                self._alive.append(value)
