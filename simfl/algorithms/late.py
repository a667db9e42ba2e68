"""The base of Ringmaster and Rennala SGD: gradients of delay R or more are late.

The delay of a gradient is the number of steps of the server since the read of its model. With `late: drop` a client
computes a late gradient to its end; the server discards it on arrival and answers with its model. With `late: stop` the
server sends its model to a client as soon as the client's delay is R. The client then stops its computation and starts
a new one at that model. A stop takes the time of a message. A client that has already sent its gradient ignores it.

For privacy, a discarded gradient was sent: it is a release. A stopped computation was never sent and is not a release.
If the data is shuffled, its mini-batch is the client's next one.
"""

from __future__ import annotations

from typing import Any

from simfl.algorithms.async_sgd import AsyncSGD
from simfl.algorithms.staleness import Apply, StalenessBound, Turns
from simfl.tape import Gradient


class LateGradients(AsyncSGD):
    """Base of servers that discard late gradients, or stop their computations."""

    def set_up(self, *, threshold: int, late: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(delays="world", delay_limit=None)
        self.threshold = threshold
        self.turns = Turns(StalenessBound(threshold - 1, "drop"), self.version_after, lambda: self.clock.stopped)
        self.stops = late == "stop"
        self._at_once = self._at_once and not self.stops
        #: The version at which each client computes its gradient.
        self._computing_at = [0] * self.num_clients

    def gradient_at(self, me: int, content: Any) -> Gradient:
        """Promise the client's next gradient, and note the version of its model."""
        self._computing_at[me] = content[1]
        return super().gradient_at(me, content)

    def arrive(self, client: int, read: int, apply: Apply) -> None:
        """Apply or discard a gradient, then stop computations that have become late."""
        super().arrive(client, read, apply)
        if self.stops:
            self._stop_late()

    def read(self, client: int) -> int:
        """Note a read, as the newest one: `reading` stays in the order of versions."""
        self.turns.reading.pop(client, None)
        return super().read(client)

    def _stop_late(self) -> None:
        """Send the model to each client whose gradient can only be late."""
        reading = self.turns.reading
        while reading:
            client = next(iter(reading))
            if self.version - reading[client] < self.threshold:
                return
            self._stop(client)

    def _stop(self, client: int) -> None:
        self.read(client)
        content = self.content(client)
        model, refused = self.channel.down(client, content[0], lambda: self.miss(client))
        given = model, *content[1:]

        def received() -> None:
            computing = self.times.busy_until[client] > self.clock.now
            if computing and content[1] - self._computing_at[client] >= self.threshold:
                self.times.stopped(client)
                self.clock.cancel(self.processes[client].target)
                self.processes[client].interrupt(self.clock.event().succeed(given))

        self.to_client(client, received, None, refused, model)
