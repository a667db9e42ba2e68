"""CSGD: SGD on one machine with all the data, a baseline.

    repeat: x <- x - gamma_t * gradient of a mini-batch at x

There are no messages and no delays. Client 0 has the data; a scenario with more clients is refused.

Faults. A crash loses the current mini-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class CentralizedSGD(Algorithm):
    """One machine, one model."""

    kind: ClassVar[str] = "centralized_sgd"
    summary: ClassVar[str] = "CSGD: SGD on one machine with all the data; no messages, no delay"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "nothing: there are no messages"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self) -> None:
        """Take no options."""
        if self.num_clients != 1:
            raise ValueError(f"centralized_sgd: expected 1 client, found {self.num_clients}")
        self.model = self.tape.constant(self.training.initial)

    def start(self) -> None:
        """Start the machine."""
        self.clock.start(self.iterations(), 0)

    def models(self) -> Sequence[Model]:
        """Return the one model."""
        return [self.model]

    def iterations(self) -> Process:
        """Compute a gradient and take a step, repeatedly; retry after a crash."""
        yield self.world.joined(0)
        while True:
            gradient = self.batches.gradient(self.model, 0)
            outcome = yield self.compute(0)
            if outcome is Outcome.GONE:
                return
            if outcome is Outcome.CRASHED:
                self.batches.lost(gradient)
                continue
            size, step_size = gradient.size, self.step_size()
            self.model = self.descent.step(0, self.model, gradient, step_size)
            self.updated(0, 0, size, step_size)
