"""What Theorem B.4 claims for the noise and the rounds of each client."""

from __future__ import annotations

import math

from simfl.accounts.check import check_gaussian
from simfl.errors import ConditionError
from simfl.papers.proactive_dp.theorems import claimed_epsilon
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.records.claims import Claimed
from simfl.scenario.privacy import MechanismConfig


def claimed(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Theorem B.4 for each client's own rounds."""
    check_gaussian(privacy, ledger)
    source = "Proactive DP, Theorem B.4"
    rows: dict[int, list[tuple[int, int]]] = {}
    noise: dict[int, set[float]] = {}
    for client, size, _, level, count in ledger.kinds(releases):
        rows.setdefault(client, []).append((size, count))
        noise.setdefault(client, set()).add(level)
    found: dict[tuple[int, float, tuple[tuple[int, int], ...]], Claimed] = {}
    result = []
    for client, n in enumerate(ledger.sizes.tolist()):
        schedule = tuple(rows.get(client, ()))
        level = min(noise.get(client, {ledger.levels[client]}))
        key = n, level, schedule
        if key not in found:
            epsilon, objection = 0.0, ""
            if schedule:
                try:
                    epsilon = claimed_epsilon(schedule, n, sigma=level, delta=ledger.delta)
                except ConditionError as error:
                    epsilon, objection = math.nan, str(error)
            found[key] = Claimed(epsilon, ledger.delta, "add_or_remove", source, objection)
        result.append(found[key])
    return result
