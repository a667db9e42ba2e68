"""The clients with the largest losses among some that are drawn.

Cho, Wang, Joshi 2022, "Towards understanding biased client selection in federated learning", AISTATS,
https://arxiv.org/abs/2010.01243:

    A <- d clients, drawn without replacement with chances by their numbers of examples
    the m clients of A with the largest losses take part

This is its variant rpow-d, which costs no messages: the loss of a client is the one that it reported with its last
update, and infinite before the first. In pi_pow-d, all clients of A compute their losses anew in each round.
The paper reports the mean over all local steps; here it is the mean over the first mini-batches of the round, at the
model that the client received (`Clients.losses`). With d = m losses have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.scenario.fields import Count, option
from simfl.selection.base import AbstractSelector, Clients, Reads


@dataclass(frozen=True)
class PowerOfChoice(AbstractSelector):
    """Draws d clients, and takes those with the largest reported losses."""

    kind: ClassVar[str] = "power_of_choice"
    summary: ClassVar[str] = "draws candidates, and takes those with the largest reported losses (rpow-d)"
    reads: ClassVar[Reads] = "losses"

    candidates: Count | None = option(
        None, "d, clients that are drawn, at least those of a round; null: twice as many as a round has"
    )

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw candidates and take those with the largest losses; ties are random."""
        count = max(size, 2 * size if self.candidates is None else self.candidates)
        drawn = clients.drawn(candidates, [clients.examples[k] for k in candidates], count)
        losses = {k: clients.losses.get(k, (math.inf,)) for k in drawn}
        return sorted(drawn, key=lambda k: -sum(losses[k]) / len(losses[k]))[:size]
