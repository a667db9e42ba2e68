"""The base of servers that may apply updates in turn, 0, 1, ..., K - 1, 0, ...

The server holds back updates that arrive out of turn. Clients that have left permanently, or have not joined, are
skipped.
"""

from __future__ import annotations

from simfl.algorithms.server import AsyncServerAlgorithm
from simfl.algorithms.staleness import Apply


class InTurn(AsyncServerAlgorithm):
    """Base of servers that apply updates as they arrive, or in turn."""

    def take_turns(self, cyclic: bool) -> None:
        """Say whether updates are applied in turn; called once, by `set_up`."""
        self.cyclic = cyclic
        self._turn = 0
        self._taking_part: set[int] = set()
        self._out_of_turn: dict[int, tuple[int, Apply]] = {}

    def enter(self, me: int) -> None:
        """Give the client a turn under cyclic delays."""
        self._taking_part.add(me)

    def leave(self, me: int) -> None:
        """Skip the client's turns from now on."""
        self._taking_part.discard(me)
        self.service.when_up(self._take_turns)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply an update, at the client's turn if delays are cyclic."""
        if not self.cyclic:
            super().arrive(client, read, apply)
            return
        since = self.clock.now

        def in_turn(weight: float, staleness: int) -> None:
            self.exchanges.waited(client, since)
            apply(weight, staleness)

        self._out_of_turn[client] = read, in_turn
        self._take_turns()

    def _take_turns(self) -> None:
        """Apply held updates while it is their senders' turn."""
        while self._out_of_turn and not self.clock.stopped:
            while self._turn not in self._out_of_turn:
                if self._turn in self._taking_part:
                    return
                self._turn = (self._turn + 1) % self.num_clients
            read, apply = self._out_of_turn.pop(self._turn)
            super().arrive(self._turn, read, apply)
            self._turn = (self._turn + 1) % self.num_clients
