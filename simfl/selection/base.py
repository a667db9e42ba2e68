"""The base class of selectors, and what a server knows of its clients.

A selector is a frozen dataclass. It has no state: what it remembers in a run is in `Clients.memory`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

#: What a selector reads: times, also numbers of examples, or also losses that clients report.
Reads = Literal["world", "sizes", "losses"]


@dataclass
class Clients:
    """What a server knows of its clients when it chooses some of them.

    Attributes:
        draw: returns the next random number in [0, 1).
        seconds: returns how long a round of a client should take: the model's way down, its local steps at the speed
            of its device, without jitter and slowdowns, and its update's way up, on an idle network.
        last: the number of the last choice in which each client was, [K]; 0 for none.
        examples: the number of examples of each client, [K]; 0 for a selector that reads the world alone.
        trained: how many of them a round uses, [K]; likewise.
        losses: by client, the losses that it reported with its last update: the mean of each of the first mini-batches
            of its round at the model that it received, at most `simfl.algorithms.choosing.MOST_LOSSES`.
        number: of the present choice, from 1.
        memory: what the selector remembers.
    """

    draw: Callable[[], float]
    seconds: Callable[[int], float]
    last: list[int]
    examples: Sequence[int]
    trained: Sequence[int]
    losses: Mapping[int, Sequence[float]] = field(default_factory=dict)
    number: int = 0
    memory: Any = None

    def drawn(self, candidates: Sequence[int], weights: Sequence[float], size: int) -> list[int]:
        """Draw clients one after the other, with chances by weight among those left."""
        rest, left, cohort = list(candidates), list(weights), list[int]()
        while rest and len(cohort) < size:
            total = sum(left)
            if not total > 0.0:
                left, total = [1.0] * len(rest), float(len(rest))
            mark, place = self.draw() * total, 0
            while place < len(rest) - 1 and mark >= left[place]:
                mark -= left[place]
                place += 1
            cohort.append(rest.pop(place))
            del left[place]
        return cohort


@dataclass(frozen=True)
class AbstractSelector(ABC):
    """Chooses which of the clients that could take part do so."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    #: What it may read of `Clients`; accounts of privacy depend on it.
    reads: ClassVar[Reads] = "world"

    @abstractmethod
    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Return at least one and at most `size` of the candidates, which are not empty."""

    def begin(self) -> Any:
        """Return what it remembers at the beginning of a run."""
        return None
