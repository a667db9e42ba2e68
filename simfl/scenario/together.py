"""Which scenarios have one world: they differ in arithmetic alone.

When something happens almost never depends on numbers. Runs that differ in nothing but step sizes, noise, clipping
norms or the seed of learning have one sequence of events, which a sweep plays once (`simfl.runs.together`).
"""

from __future__ import annotations

import hashlib
import json

from simfl.scenario.own_code import has_objects, modules_of
from simfl.scenario.scenario import Scenario

#: Values that no world depends on, by section. What is not listed here keeps runs apart.
ARITHMETIC = {
    "algorithm": ("step_size",),
    "privacy": ("noise_multiplier", "clipping_norm", "epsilon", "epsilon_per_release", "delta"),
}


def world_key(scenario: Scenario) -> str | None:
    """Return the digest of what may reach the world; None if numbers may.

    Scenarios with equal keys probably have one world. What is derived from them, such as the releases that a budget
    allows, is compared before they are played together (`simfl.build.together`).
    """
    content, stop = scenario.resolved(), scenario.stop
    by_numbers = stop.accuracy is not None or stop.suboptimality is not None or stop.metric is not None
    hostile = scenario.aggregation is not None or scenario.attackers is not None
    if by_numbers or hostile or has_objects(content) or modules_of(content):
        return None
    del content["learning_seed"]
    for section, names in ARITHMETIC.items():
        for name in names if isinstance(content[section], dict) else ():
            content[section].pop(name, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
