"""Theoretical step sizes of SGD on one machine and with a server.

Agarwal and Duchi 2011, "Distributed delayed stochastic optimization", https://arxiv.org/abs/1104.5525, in the form of
Table 2 of Li, Yang, Ren and Zhao 2019, https://arxiv.org/abs/1912.07902:

    1/gamma_t = L (tau + 1)² + sqrt(t + 1) sigma / (R sqrt(b))        with a server; tau = 0 on one machine
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from simfl.assembly.kinds.base import BoundedKind, Kind
from simfl.assembly.setup import Setup
from simfl.scenario import algorithms as schema
from simfl.scenario.schedules import Schedule

P = TypeVar("P", bound=schema.WithPaperSteps)
S = TypeVar("S", bound=schema.ServedSgd)


@dataclass(frozen=True, slots=True)
class RadiusSteps(Schedule):
    """gamma_t of central and asynchronous SGD, t counting updates from 1.

    Args:
        smoothness: L > 0, Lipschitz constant of the gradient.
        delay: (tau + 1)², with tau the largest staleness.
        spread: sigma / (R sqrt(b)) >= 0: sigma² is the variance of an example's gradient, R the distance from the
            optimum that models stay within, b the batch size.
    """

    smoothness: float
    delay: float
    spread: float

    def __call__(self, updates: int, examples: int, epochs: float) -> float:
        """Return gamma_t."""
        return 1.0 / (self.smoothness * self.delay + math.sqrt(updates + 2.0) * self.spread)


class TheoryStepsKind(Kind[P]):
    """Base of kinds whose step sizes follow from theory if the scenario has none."""

    @property
    def staleness(self) -> int:
        """The largest staleness in the formulas, tau."""
        return 0

    def step_size(self, setup: Setup) -> Schedule:
        """Return the scenario's step sizes, or else those of the theory."""
        given = self.config.step_size
        return self.theory_steps(setup) if given is None else given

    def theory_steps(self, setup: Setup) -> Schedule:
        """Return the step sizes that follow from theory."""
        config = self.config
        assert isinstance(config, schema.WithinRadius)
        least = min(self.batch_sizes(setup.sizes.tolist()))
        spread = config.sampling_std / (config.radius * math.sqrt(least))
        return RadiusSteps(config.smoothness, (self.staleness + 1.0) ** 2, spread)


class CentralizedSgdKind(TheoryStepsKind[schema.CentralizedSgd]):
    """SGD on one machine."""

    sections = (schema.CentralizedSgd,)


class ServedSgdKind(TheoryStepsKind[S], BoundedKind[S]):
    """Base of the kinds with a server."""

    @property
    def staleness(self) -> int:
        """The largest staleness as the scenario says, or else the number of clients."""
        largest = self.config.largest_staleness
        return self.scenario.clients.count if largest is None else largest


class AsyncSgdKind(ServedSgdKind[schema.AsyncSgd]):
    """Asynchronous SGD with a server."""

    sections = (schema.AsyncSgd,)
