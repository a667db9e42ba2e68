"""Clients of one tier of speeds.

Chai et al. 2020, "TiFL: a tier-based federated learning system", https://arxiv.org/abs/2001.09249, with its static
policy "uniform": all tiers have the same chance. Its adaptive policy reads the accuracy of each tier, which is not
here. The paper measures the clients' times, and splits the range of times; here the times are expected ones, and tiers
have equally many clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from simfl.scenario.fields import Count, option
from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class Tiers(AbstractSelector):
    """Draws a tier, then clients of it with equal chances.

    A tier may have fewer clients than are wanted. Tiers are made once, before the first round, of all clients. A tier
    without a candidate is not drawn.
    """

    kind: ClassVar[str] = "tiers"
    summary: ClassVar[str] = "draws clients of one tier of equally fast clients (TiFL)"

    tiers: Count = option(5, "number of tiers, each of equally many clients by their expected times")

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw a tier and its clients."""
        tier_of = clients.memory
        if not tier_of:
            count = len(clients.last)
            order = sorted(range(count), key=lambda k: (clients.seconds(k), k))
            tier_of.update({k: place * self.tiers // count for place, k in enumerate(order)})
        present = sorted({tier_of[k] for k in candidates})
        tier = present[int(clients.draw() * len(present))]
        members = [k for k in candidates if tier_of[k] == tier]
        return clients.drawn(members, [1.0] * len(members), size)

    def begin(self) -> dict[int, int]:
        """Return the tier of each client: not made."""
        return {}
