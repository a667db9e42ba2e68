"""Scenarios: the YAML schema, loading, overrides, and schedules of step sizes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simfl.scenario.loading import from_mapping, load, loads
    from simfl.scenario.overrides import apply_overrides
    from simfl.scenario.scenario import Scenario, kinds
    from simfl.scenario.schedules import Schedule

__all__ = ["Scenario", "Schedule", "apply_overrides", "from_mapping", "kinds", "load", "loads"]

_HOMES = {
    "Scenario": "scenario",
    "Schedule": "schedules",
    "apply_overrides": "overrides",
    "from_mapping": "loading",
    "kinds": "scenario",
    "load": "loading",
    "loads": "loading",
}


def __getattr__(name: str) -> Any:
    """Import on first use: plugins import this package before the schema is complete."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
