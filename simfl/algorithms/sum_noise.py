"""Noise on a server's sums of users' updates; `simfl.privacy.cohorts` accounts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from simfl.each import filled
from simfl.privacy.adaptive import AdaptiveNorm, adapted_sum
from simfl.privacy.cohorts import AbstractGrid, CohortPlan
from simfl.privacy.strategies import Strategy
from simfl.tape import Gradient, Model, Tape
from simfl.tape.layout import padded_size

Updates = Sequence[tuple[float, Gradient]]


class SumNoise:
    """Independent noise, of the server or in parts of users.

    Args:
        tape: draws it.
        plan: has its scale.
    """

    #: The clipping norm of the next release in every entry, if it follows from data.
    norm: Model | None = None

    def __init__(self, tape: Tape, plan: CohortPlan) -> None:
        self._tape, self._plan = tape, plan

    def added(self, model: Model, updates: Updates) -> list[tuple[float, Model | Gradient]]:
        """Return the terms of a sum of updates and its noise: one release.

        Weights of at most 1 move the sum by at most C. `model` is any model. More parts than planned do not count.
        """
        plan = self._plan
        return self._tape.noised(model, updates, plan.scale_of(len(updates)), plan.noise_scale)

    def std(self, members: int) -> float:
        """Return the deviation of the newest release's noise, a sum of `members` updates."""
        return self._plan.scale_of(members)


class CorrelatedNoise(SumNoise):
    """Noise that is correlated over releases."""

    def __init__(self, tape: Tape, plan: CohortPlan, strategy: Strategy) -> None:
        super().__init__(tape, plan)
        assert plan.releases is not None, "the account is for a number of releases"
        self._noises, self._stds = self._correlated(strategy), strategy.deviations(plan.releases)
        #: Noise is drawn at this model.
        self._model, self._made = Model((), ()), 0

    def _correlated(self, strategy: Strategy) -> Iterator[Model]:
        """Yield the noise of each release."""
        tape, scale = self._tape, self._plan.noise_scale
        return strategy.noises(lambda: tape.noise(self._model, scale), lambda *terms: tape.settle(tape.combine(*terms)))

    def added(self, model: Model, updates: Updates) -> list[tuple[float, Model | Gradient]]:
        """Return the terms of a sum of updates and its noise."""
        self._model, self._made, noises = model, self._made + 1, self._noises
        return self._tape.noised(model, updates, self._plan.noise_scale, correlated=lambda: next(noises))

    def std(self, members: int) -> float:
        """Return the deviation of the newest release's noise."""
        return self._plan.noise_scale * self._stds[self._made - 1]


class AdaptiveNoise(SumNoise):
    """Noise on sums of updates whose clipping norm follows their lengths."""

    def __init__(self, tape: Tape, plan: CohortPlan, rule: AdaptiveNorm, size: int) -> None:
        super().__init__(tape, plan)
        self._rule, self.norm = rule, tape.constant(filled(size, rule.start))

    def added(self, model: Model, updates: Updates) -> list[tuple[float, Model | Gradient]]:
        """Return the noisy sum of updates, clipped to the norm; set the next norm."""
        tape, plan, rule = self._tape, self._plan, self._rule
        assert self.norm is not None
        *_, (_, noise) = tape.noised(model, updates, rule.noise_on_sum(plan.noise_scale), plan.noise_scale)
        drawn = [noise, tape.noise(model, rule.count_noise), *(update for _, update in updates)]
        rows = [self.norm, *(tape.combine((1.0, promise)) for promise in drawn)]
        numbers = rule.numbers([weight for weight, _ in updates], padded_size(len(rows)))
        total, self.norm = tape.map(adapted_sum, rows, scalars=numbers, outputs=2, pads=True)
        return [(1.0, total)]

    def std(self, members: int) -> float:
        """Return NaN: it follows from a clipping norm that the world does not know."""
        return math.nan


class GridNoise(SumNoise):
    """Discrete noise of users, who round their updates to a grid."""

    def __init__(self, tape: Tape, plan: CohortPlan, grid: AbstractGrid) -> None:
        super().__init__(tape, plan)
        self._grid = grid

    def added(self, model: Model, updates: Updates) -> list[tuple[float, Model | Gradient]]:
        """Return the sum of what users send, each with its part of the noise."""
        assert all(weight == 1.0 for weight, _ in updates), "all parts of the noise count in full"
        plan, tape, grid = self._plan, self._tape, self._grid
        plan.scale_of(len(updates))
        if tape.releases is not None:
            tape.releases.count_sum(updates, plan.noise_scale)
        sent = [tape.map(grid.part(), [tape.combine((1.0, update))], client=update.client)[0] for _, update in updates]
        return [(1.0, tape.map(grid.whole(), sent, pads=True)[0])]


def noise_of(tape: Tape, plan: CohortPlan, size: int) -> SumNoise:
    """Return the noise of a plan, on models of `size` parameters."""
    if plan.grid is not None:
        return GridNoise(tape, plan, plan.grid)
    if plan.adaptive is not None:
        return AdaptiveNoise(tape, plan, plan.adaptive, size)
    return SumNoise(tape, plan) if plan.strategy is None else CorrelatedNoise(tape, plan, plan.strategy)
