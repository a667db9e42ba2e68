"""A server's cache: the latest update of every client, and their sum."""

from __future__ import annotations

from simfl.tape import Model, Tape


class Cache:
    """The latest update of each client that has sent one.

    The sum is kept up to date, and computed anew after every as many updates as there are clients, so that rounding
    errors do not add up.
    """

    def __init__(self, tape: Tape, num_clients: int) -> None:
        self._tape = tape
        self._num_clients = num_clients
        self._changes = 0
        self.latest: dict[int, Model] = {}
        #: The sum of the cached updates.
        self.total = Model((), ())

    def put(self, client: int, update: Model) -> None:
        """Replace the client's update, a model of one row."""
        before = self.latest.get(client, Model((), ()))
        self.latest[client] = update
        self._changes += 1
        if self._changes % self._num_clients:
            terms = [(1.0, self.total), (1.0, update), (-1.0, before)]
        else:
            terms = [(1.0, one) for one in self.latest.values()]
        self.total = self._tape.settle(self._tape.apply(*terms))
