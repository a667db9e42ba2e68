"""The claim of Theorem B.4 for the noise and the rounds of each client."""

from __future__ import annotations

import functools
import math

from simfl.accounts.check import check_gaussian
from simfl.comparison.claims import Claimed
from simfl.errors import ConditionError
from simfl.papers.proactive_dp.theorems import claimed_epsilon
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.scenario.privacy import MechanismConfig


def claimed(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Return Theorem B.4's claim for each client's rounds, at the least noise."""
    check_gaussian(privacy, ledger)
    rows: dict[int, list[tuple[int, int]]] = {}
    noise: dict[int, set[float]] = {}
    for client, size, _, level, count in ledger.kinds(releases):
        rows.setdefault(client, []).append((size, count))
        noise.setdefault(client, set()).add(level)

    @functools.cache  # clients with equal data and rounds have one claim
    def claim(n: int, level: float, schedule: tuple[tuple[int, int], ...]) -> Claimed:
        epsilon, objection = 0.0, ""
        if schedule:
            try:
                epsilon = claimed_epsilon(schedule, n, sigma=level, delta=ledger.delta)
            except ConditionError as error:
                epsilon, objection = math.nan, str(error)
        return Claimed(epsilon, ledger.delta, "add_or_remove", "Proactive DP, Theorem B.4", objection)

    return [
        claim(n, min(noise.get(client, {ledger.levels[client]})), tuple(rows.get(client, ())))
        for client, n in enumerate(ledger.sizes.tolist())
    ]
