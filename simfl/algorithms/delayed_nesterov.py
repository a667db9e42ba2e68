"""Delayed Nesterov momentum: a server's steps on changes that arrive one by one.

Liu et al. 2024, https://arxiv.org/abs/2401.09135, Algorithm 3. With change number t = 1, 2, ... and its weight s:

    g = -s D,   S <- S + g
    if N divides t:   m <- beta m + S / N,   S <- 0,   x <- x - lr ((1 - c N + c) beta m + g / N)
    else:             x <- x - lr (c beta m + g / N)

N = 1 is Nesterov's momentum on each change. With N > 1 the momentum moves once in N changes, and c spreads it over the
changes in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from simfl.tape import Model, Tape
from simfl.tape.recording import Round


class DelayedNesterov:
    """The steps of one server, and its momentum.

    Args:
        step: lr.
        momentum: beta in [0, 1).
        every: N.
        share: c in [0, 1 / N].
    """

    def __init__(self, tape: Tape, step: float, momentum: float, every: int, share: float = 0.0) -> None:
        self.step, self.momentum, self.every, self.share = step, momentum, every, share
        self._tape, self._steps = tape, 0
        self._velocity = self._sum = Model((), ())

    def share_of(self, weight: float) -> float:
        """Return the factor of a change in the model, without momentum."""
        return self.step * weight / self.every

    def known(self, model: Model) -> Sequence[tuple[float, Model]]:
        """Return what a result without momentum has beside its change."""
        return () if self.momentum else ((1.0, model),)

    def __call__(self, model: Model, change: Model | Round, weight: float = 1.0) -> Model:
        """Return the model after the step of one change."""
        tape, share = self._tape, self.share
        self._steps += 1
        change, own = tape.combine((1.0, change)), self.share_of(weight)
        if not self.momentum:
            return tape.apply((1.0, model), (own, change))
        self._sum = tape.apply((1.0, self._sum), (-weight / self.every, change))
        if self._steps % self.every == 0:
            self._velocity = tape.apply((self.momentum, self._velocity), (1.0, self._sum))
            self._sum = Model((), ())
            share = 1.0 - self.share * self.every + self.share
        moved = ((-self.step * share * self.momentum, self._velocity),) if share else ()
        return tape.apply((1.0, model), (own, change), *moved)
