"""The protocol of secure sums, from the scenario."""

from __future__ import annotations

import math
from typing import Any

from simfl.assembly.setup import Setup
from simfl.scenario.secure_sums import LightSecAggSum, SecAggPlusSum
from simfl.world.secure_sums import Bonawitz, LightSecAgg, SecAggPlus, SumProtocol, Work


def secure_sum_of(setup: Setup) -> SumProtocol | None:
    """Return the protocol by which the server sums updates; None if it sees them."""
    algorithm = setup.scenario.algorithm
    if (secure := algorithm.protocol) is None:
        return None
    threshold = secure.threshold_of(algorithm.members(setup.scenario.clients.count))
    common: dict[str, Any] = {
        "threshold": threshold,
        "size": setup.dimension if setup.personal is None else setup.personal.shared_size,
        "bits": secure.bits,
        "key_bytes": secure.key_bytes,
        "share_bytes": secure.share_bytes,
        "work": Work(secure.seconds_per_agreement, secure.mask_rate, secure.seconds_per_operation),
        "timeout_s": math.inf if secure.timeout is None else secure.timeout,
        "dropout": secure.dropout,
    }
    match secure:
        case SecAggPlusSum():
            return SecAggPlus(**common, near=secure.neighbors, neighbors_threshold=secure.needed)
        case LightSecAggSum():
            return LightSecAgg(**common, colluding=secure.most_colluding(threshold))
    return Bonawitz(**common)
