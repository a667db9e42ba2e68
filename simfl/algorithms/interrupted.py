"""The base of servers that interrupt the rounds of their clients: FAVAS.

A client trains from the server's newest model until the server asks for what it has. It has the steps that fit into the
time so far, in proportion to the time of the whole round; what is left of a step is lost. After a whole round it waits.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from simfl.algorithms.local_rounds import LocalRounds


@dataclass
class Progress:
    """A client's training from a model.

    Attributes:
        client: the client.
        content: the model and its version.
        began_s: when the training began or, after a whole round, ended.
        seconds: time of the whole round.
        came: the event of the next model, if the client waits for it.
    """

    client: int
    content: Any
    began_s: float = 0.0
    seconds: float = math.inf
    came: simpy.Event | None = None


class InterruptedRounds(LocalRounds):
    """Base of algorithms whose server calls `interrupt`."""

    def set_up(self, **options: Any) -> None:
        """Take the options of `LocalRounds`; no client trains."""
        super().set_up(**options)
        #: The training of each client that can be interrupted.
        self.progress: dict[int, Progress] = {}
        self._begun = self.clock.event()

    def gradient_at(self, me: int, content: Any) -> Progress:  # type: ignore[override]
        """Begin at the model in the server's message; nothing is promised yet."""
        self.progress[me] = Progress(me, content)
        self._note()
        return self.progress[me]

    def compute_for(self, client: int, seconds: float) -> simpy.Event:
        """Let the client compute, and note since when."""
        self.progress[client].began_s, self.progress[client].seconds = self.clock.now, seconds
        return super().compute_for(client, seconds)

    def push(self, me: int, progress: Progress, read: int) -> simpy.Event:  # type: ignore[override]
        """Wait for the server, after a whole round."""
        progress.came, progress.began_s = self.clock.event(), self.clock.now
        return progress.came

    def lose(self, progress: Progress) -> None:
        """Forget the steps of a client that crashed or left."""
        if self.progress.get(progress.client) is progress:
            del self.progress[progress.client]

    def _note(self) -> None:
        if not self._begun.triggered:
            self._begun.succeed()

    def _met_s(self) -> dict[int, float]:
        """Return when each client that has not left can be reached; inf for never."""
        processes = enumerate(self.processes)
        return {k: self.world.meets_s(k, (k, self.server)) for k, process in processes if process.is_alive}

    def ready(self) -> list[int]:
        """Return the clients that can be interrupted now."""
        return [k for k, when in self._met_s().items() if when == self.clock.now and k in self.progress]

    def trains(self) -> Generator[simpy.Event, Any, bool]:
        """Wait until a client can be interrupted; false if none ever will be."""
        while not self.ready():
            met_s = [when for when in self._met_s().values() if not math.isinf(when)]
            if not met_s:
                return False
            self._begun = self.clock.event()
            if (back_s := min(met_s)) > self.clock.now:
                self.clock.call_at(back_s, self._note)
            yield self._begun
        return True

    def interrupt(self, client: int) -> tuple[Any, int, simpy.Event]:
        """Stop a client's training.

        Returns:
            The content that it began with, the number of steps that it has made, and an event to succeed with the
            content to go on from.
        """
        progress, most = self.progress.pop(client), self.steps[client]
        if progress.came is not None:
            self.exchanges.waited(client, progress.began_s)
            return progress.content, most, progress.came
        spent_s, came = self.times.present_s(client, progress.began_s, self.clock.now), self.clock.event()
        self.times.stopped(client)
        self.clock.cancel(self.processes[client].target)
        self.processes[client].interrupt(came)
        return progress.content, min(most, int(most * spent_s / progress.seconds + 1e-9)), came
