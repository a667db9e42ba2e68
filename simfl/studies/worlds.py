"""Which scenarios have one world: they differ in arithmetic alone.

When something happens almost never depends on numbers. Runs that differ in nothing but step sizes, noise, clipping
norms, constants of optimizers, the initial model or the seed of learning have one sequence of events, which a sweep
plays once (`simfl.studies.together`). Options of algorithms, optimizers and compression say so in their classes
(`simfl.scenario.fields.Arithmetic`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from simfl.scenario.fields import ARITHMETIC
from simfl.scenario.own_code import has_objects, modules_of
from simfl.scenario.scenario import Scenario

#: Further values that no world depends on, by section. What is not listed or marked keeps runs apart.
FURTHER = {
    "algorithm": ("step_size",),
    "privacy": (
        "noise_multiplier", "noise_std", "clipping_norm", "epsilon", "epsilon_per_release", "delta", "pair_multiplier",
    ),
}  # fmt: skip


def world_key(scenario: Scenario) -> str | None:
    """Return the digest of what may reach the world; None if numbers may.

    Scenarios with equal keys probably have one world. What is derived from them, such as the releases that a budget
    allows, is compared before they are played together (`simfl.studies.setups`).
    """
    content, stop = scenario.resolved(), scenario.stop
    by_numbers = stop.accuracy is not None or stop.suboptimality is not None or stop.metric is not None
    hostile = scenario.aggregation is not None or scenario.attackers is not None
    if by_numbers or hostile or has_objects(content) or modules_of(content):
        return None
    del content["learning_seed"], content["init"]
    for section, names in FURTHER.items():
        for name in names if isinstance(content[section], dict) else ():
            content[section].pop(name, None)
    _hide(scenario, content)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _hide(section: BaseModel, content: dict[str, Any]) -> None:
    """Replace numbers that reach models alone; whether they are 0 stays."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if ARITHMETIC in field.metadata and name in content:
            content[name] = bool(value)
        elif isinstance(value, BaseModel) and isinstance(content.get(name), dict):
            _hide(value, content[name])
