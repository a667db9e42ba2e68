"""How updates reach a server: openly, or so that it sees their sum alone.

`Gathering` is the open way: each update is a message, and the server sees it. The other ways are in
`simfl.algorithms.secure_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import simpy

from simfl.algorithms.admission import Admission, Owner
from simfl.algorithms.budgets import Budgets
from simfl.algorithms.service import Service
from simfl.algorithms.sums import Sum
from simfl.algorithms.times import Exchanges, Times
from simfl.compiled import Number
from simfl.tape import Gradient, Model
from simfl.tape.recording import Round
from simfl.world import World
from simfl.world.engine import Clock


class Server(Owner, Protocol):
    """What a gathering needs of `simfl.algorithms.server.ServerAlgorithm`."""

    world: World
    clock: Clock
    sum: Sum
    admission: Admission
    times: Times
    budgets: Budgets
    service: Service
    exchanges: Exchanges

    def compute_for(self, client: int, seconds: float) -> simpy.Event:
        """Let the client compute for `seconds`."""

    def to_client(
        self,
        client: int,
        receive: Callable[[], None],
        size: int | None = None,
        refused: Callable[[], None] | None = None,
    ) -> None:
        """Send `size` bytes to a client."""

    def to_server(
        self, client: int, receive: Callable[[], None], size: int | None = None, content: Model | Gradient | None = None
    ) -> None:
        """Send an update; `receive` is called when the server has processed it."""


@dataclass
class Update:
    """A client's update as it reaches the server.

    Attributes:
        client: the sender.
        model: the model that it was trained from.
        change: the promised change of that model, or what compression leaves of it.
        examples: of all its steps.
        step_size: the step size of the local steps.
        came: succeeds when the client receives the next model.
        number: counts all updates that were sent.
        weight: the factor from the staleness bound; 0 if the update is dropped.
        staleness: steps of the server between the read and the arrival.
        taken_s: virtual time of the arrival, seconds.
    """

    client: int
    model: Model
    change: Model | Round
    examples: int
    step_size: Number
    came: simpy.Event
    number: int
    weight: Number = 1.0
    staleness: int = 0
    taken_s: Number = 0.0


class Gathering:
    """Messages that the server sees.

    Args:
        server: has the messages.
    """

    #: The least number of updates of a sum.
    least: int = 1
    #: Whether the server sees a sum as soon as its updates came, or none if none came.
    is_open: bool = True
    #: Whether a sum is being made.
    busy: bool = False
    #: Is called when a client begins and ends to compute for a sum; may be replaced before the run.
    on_busy: Callable[[int, bool], None] = staticmethod(lambda client, busy: None)

    def __init__(self, server: Server) -> None:
        self._server = server

    def hopeless(self, clients: Iterable[int]) -> bool:
        """Whether too few of the clients can be in the next sum, whenever it is."""
        return False

    @property
    def ended(self) -> str:
        """Why there will be no further sum; empty if there may be one."""
        return ""

    def work_s(self, client: int) -> float:
        """Return how long a client computes for a sum before it sends its update, seconds."""
        return 0.0

    def bytes_up(self, size: int) -> int:
        """Return the bytes of a client's first message, for an update of `size` bytes."""
        return size

    def spent_s(self, client: int, seconds: float) -> float | None:
        """Return how much of the last `seconds` was not counted before; None if all was."""
        return seconds

    def send(
        self, client: int, update: int, receive: Callable[[], None], size: int | None, content: Model | Gradient
    ) -> None:
        """Send an update; `receive` is called when the server has processed it.

        Args:
            client: the sender.
            update: its number.
            receive: takes it.
            size: bytes; None for those of a message with one vector.
            content: the update.
        """
        self._server.to_server(client, receive, size, content)

    def forget(self, update: int) -> None:
        """Forget an update that will be in no sum."""

    def members(self, updates: Mapping[int, Any]) -> Generator[simpy.Event, Any, list[int]]:
        """Wait for the sum of clients' updates; return who is in it.

        None is in a sum that is aborted.
        """
        yield from ()  # a process without an event
        return list(updates)

    def gather(self, updates: Sequence[Update], release: Callable[[], None], aborted: Callable[[], None]) -> None:
        """Call `release` when the sum of the updates is known, or `aborted`."""
        release()

    def owed(self) -> Callable[[], None] | None:
        """Return what counts a sum that is being made and that the server may learn."""
        return None
