"""GASLoC: gossip as an outer optimizer; pairs average with momentum.

Cagnasso, Belilovsky, Oyallon 2026, "Unifying local communications and local updates for LLM pretraining",
https://arxiv.org/abs/2606.11081. The abstract could be read, and the equation in a catalogue of optimizers,
https://junaidaliop.github.io/zij/math/gasloc; the paper, its settings and its experiments could not. In round t,

    g_i <- the change of client i's model x_i by H local steps
    u_i <- x_i + eta g_i
    send u_i to the others of the group, and wait for theirs
    x_i <- u_i - alpha (u_i - mean_G(u)) + gamma (u_i - u_i of the round before)

eta is `outer_step`, alpha `consensus` and gamma `momentum`. The catalogue has a graph's Laplacian in place of the group
G; that of random pairs with weights of 1/2 is this one. Groups are those of `simfl.algorithms.noloco`: n = 2 clients by
default, drawn anew in each round. A message is one vector, NoLoCo's two. The paper's fixed graphs are not here.

If all x_i are equal, and all g_i are, this is DiLoCo, whose m <- gamma m + g, x <- x + eta (g + gamma m), is the same
recursion (a test). Otherwise the momentum is each client's own. With pairs of ten clients, gamma = 0.9 lets differences
of models grow, and up to 0.7 they shrink: random pairs alone, without gradients, were iterated to see this (a test).

Faults and privacy are those of `simfl.algorithms.noloco`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simfl.algorithms.disclosure import merged
from simfl.algorithms.noloco import NoLoCo
from simfl.tape import Model
from simfl.tape.recording import Round


class GASLoC(NoLoCo):
    """Rounds of local steps, and accelerated averages of a random group."""

    kind: ClassVar[str] = "gasloc"
    summary: ClassVar[str] = "GASLoC: DiLoCo without an all-reduce; random pairs average, with momentum"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "each client waits for the others of its group of the round"
    what_travels: ClassVar[str] = "models after local steps, to the others of the group"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(  # type: ignore[override]
        self, *, group: int, outer_step: float, momentum: float, consensus: float, steps: Sequence[int] | None = None
    ) -> None:
        """Take the options.

        Args:
            steps: H, mini-batches of a round at each client, [K]; one each by default.
        """
        super().set_up(group=group, outer_step=outer_step, momentum=momentum, consensus=consensus, steps=steps)
        #: u of the round before, of each client.
        self._before = list(self.model)

    def _message(self, me: int, change: Model | Round) -> tuple[Model, ...]:
        """Return u."""
        return (self.tape.combine((1.0, self.model[me]), (self.outer_step, change)),)

    def _step(self, me: int, round_num: int, mine: tuple[Model, ...]) -> None:
        """Average with the group, and go on along the last change of u."""
        group = self._heard(me, round_num, mine)
        own, share, combine = mine[0], self.consensus / len(group), self.tape.combine
        average = combine((-self.consensus + 1.0, own), *((share, model) for (model,) in group))
        merged(self.world.network, me, average)
        along = (self.momentum, own), (-self.momentum, self._before[me])
        self.model[me] = self.tape.settle(combine((1.0, average), *along))
        self._before[me] = own
