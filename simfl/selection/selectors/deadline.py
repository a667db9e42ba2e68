"""Clients that should be done in time.

As in Nishio, Yonetani 2019, "Client selection for federated learning with heterogeneous resources in mobile edge",
https://arxiv.org/abs/1804.08333 (FedCS), the server estimates the time of each client's round, and leaves out those
that would be late. FedCS takes as many as it can, whose uploads follow each other; here the number is given, and
clients in time have equal chances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from simfl.scenario.fields import PositiveSeconds
from simfl.selection.base import AbstractSelector, Clients


@dataclass(frozen=True)
class Deadline(AbstractSelector):
    """Draws clients whose expected time is at most `within`, or takes the fastest."""

    kind: ClassVar[str] = "deadline"
    summary: ClassVar[str] = "draws clients whose rounds should end within a time (FedCS)"

    within: PositiveSeconds = field(metadata={"description": "largest expected time of a client's round"})

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw clients that should be in time."""
        times = {k: clients.seconds(k) for k in candidates}
        in_time = [k for k in candidates if times[k] <= self.within]
        in_time = in_time or [min(candidates, key=lambda k: (times[k], k))]
        return clients.drawn(in_time, [1.0] * len(in_time), size)
