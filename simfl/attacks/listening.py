"""An observer on the network, which keeps some of the messages.

It is a witness of the network (`simfl.world.links.Witness`): algorithms report the content of each message to it. It
keeps models of the tape, which are linear forms, and promises of gradients. Nothing is computed before the end of the
run, so the numbers of the run do not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.network import LINKS, hops_from
from simfl.tape import Gradient, Model, Tape
from simfl.tape.recording import Round

#: Number of values that are fetched together.
AT_A_TIME = 16

Observer = int | str
"""A node by its number, or `LINKS`."""


@dataclass(frozen=True)
class Heard:
    """One message that an observer keeps.

    Attributes:
        content: a model, a change of a model, a promised gradient or a promised change.
        before: the model that its receiver sent last, for comparison; None for the initial one.
        change: whether it is a change of a model rather than a model.
    """

    content: Model | Gradient
    before: Model | None
    change: bool

    @property
    def base(self) -> Model | None:
        """The model that it changes or is compared with; None for the initial one."""
        return self.content.model if isinstance(self.content, Gradient) else self.before


class Kept:
    """Up to `most` messages, evenly spaced, from the senders nearest to a client."""

    def __init__(self, most: int) -> None:
        self.rank = math.inf
        self._most, self._stride, self._came = most, 1, 0
        self._spaced: list[Heard] = []
        self._last: Heard | None = None

    def take(self, rank: float, heard: Heard) -> None:
        """Take a message of a sender at distance `rank`; drop those of farther senders."""
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


class Wiretap:
    """The witness: keeps some messages for each observer and each attacked client.

    `distances` is attacked client -> node -> distance on the graph, infinite for other nodes. The wiretap keeps at most
    `most` messages for each pair. Messages to nodes beyond the K = `clients` are changes, not models.
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
        """Hear a message on arrival, with the state of a promise when it was sent."""
        if target not in self.kept and LINKS not in self.kept:
            self._note(source, target, content)
            return deliver
        content = content.twin() if isinstance(content, Gradient) else content
        self._note(source, target, content)

        def arrive() -> None:
            self._hear(source, target, content)
            deliver()

        return arrive

    def beside(self, source: int, target: int, content: Model, deliver: Callable[[], None]) -> Callable[[], None]:
        """Ignore what is neither a model nor a change of one."""
        self._links.add((source, target))
        return deliver

    def shown(self, source: int, target: int, content: Model | Gradient) -> None:
        """Hear a message immediately."""
        self._note(source, target, content)
        if target in self.kept or LINKS in self.kept:
            self._hear(source, target, content.twin() if isinstance(content, Gradient) else content)

    def merged(self, node: int, content: Any) -> None:
        """Ignore sums: secret messages are not attacked here."""

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


class KeptValues:
    """The values of the kept messages after the run."""

    def __init__(self, tape: Tape, initial: NDArray[np.float32]) -> None:
        self._tape, self._initial = tape, initial
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._alive: list[Any] = []  # so that nothing else gets its id

    def read(self, heard: Sequence[Heard]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return models or directions [k, d], and the models that they start from, [k, d].

        A direction is added to a model: for a gradient it is a step against the gradient.
        """
        values = (value for one in heard for value in (one.content, one.base) if value is not None)
        new = list({id(value): value for value in values if id(value) not in self._rows}.values())
        models = [value if isinstance(value, Model) else self._as_model(value) for value in new]
        for at in range(0, len(new), AT_A_TIME):
            some = models[at : at + AT_A_TIME]
            rows = self._tape.values(some + some[-1:] * (AT_A_TIME - len(some)))
            self._rows |= {id(value): row for value, row in zip(new[at:], rows[: len(some)], strict=False)}
        self._alive += new
        contents = [self._rows[id(one.content)] for one in heard]
        bases = [self._initial if one.base is None else self._rows[id(one.base)] for one in heard]
        return np.stack(contents), np.stack(bases)

    def _as_model(self, value: Gradient) -> Model:
        return self._tape.combine((1.0 if isinstance(value, Round) else -1.0, value))
