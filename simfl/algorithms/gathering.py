"""How the updates of a sum reach a server: openly, or by a protocol that shows it their sum alone.

`Gathering` is the open way: each update is a message, and the server sees it. The other ways are in
`simfl.algorithms.secure_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import simpy

from simfl.tape import Gradient, Model

if TYPE_CHECKING:
    from simfl.algorithms.local_rounds import Update
    from simfl.algorithms.server import ServerAlgorithm


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
    #: Whether the server may still learn a sum that is being made when the run ends.
    owes: bool = False
    #: Is called when a client begins and ends to compute for a sum; may be replaced before the run.
    on_busy: Callable[[int, bool], None] = staticmethod(lambda client, busy: None)

    def __init__(self, server: ServerAlgorithm) -> None:
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
        """Return how much of the last `seconds` of communication was not counted before; None: all of it was."""
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
        """Wait for the sum of clients' updates; return who is in it, none if it is aborted."""
        yield from ()  # a process without an event
        return list(updates)

    def gather(self, updates: Sequence[Update], release: Callable[[], None], aborted: Callable[[], None]) -> None:
        """Call `release` when the sum of the updates is known, or `aborted`."""
        release()

    def close(self) -> None:
        """Count a sum that is being made when the run ends, and that the server may still learn."""
