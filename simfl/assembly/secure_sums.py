"""The protocol of secure sums, from the scenario."""

from __future__ import annotations

import math
from typing import Any

from simfl.assembly.setup import Setup
from simfl.scenario.algorithms import LocalRoundsConfig
from simfl.scenario.secure_sums import LightSecAggSum, SecAggPlusSum, most_colluding, needed_of, threshold_of
from simfl.world.secure_sums import Bonawitz, LightSecAgg, SecAggPlus, SumProtocol, Work


def secure_sum_of(setup: Setup) -> SumProtocol | None:
    """Return the protocol by which the server sums updates; None if it sees them."""
    algorithm = setup.scenario.algorithm
    if not isinstance(algorithm, LocalRoundsConfig) or algorithm.secure_sum is None:
        return None
    secure = algorithm.secure_sum
    threshold = threshold_of(secure, algorithm.members(setup.scenario.clients.count))
    common: dict[str, Any] = {
        "threshold": threshold,
        "size": setup.dimension,
        "bits": secure.bits,
        "key_bytes": secure.key_bytes,
        "share_bytes": secure.share_bytes,
        "work": Work(secure.seconds_per_agreement, secure.mask_rate, secure.seconds_per_operation),
        "timeout_s": math.inf if secure.timeout is None else secure.timeout,
        "dropout": secure.dropout,
    }
    if isinstance(secure, SecAggPlusSum):
        return SecAggPlus(**common, near=secure.neighbors, neighbors_threshold=needed_of(secure))
    if isinstance(secure, LightSecAggSum):
        return LightSecAgg(**common, colluding=most_colluding(secure, threshold))
    return Bonawitz(**common)
