"""Scenarios: the YAML schema, loading, overrides, and schedules of step sizes."""

from simfl.scenario.loading import from_mapping, load, loads
from simfl.scenario.overrides import apply_overrides
from simfl.scenario.scenario import Scenario, kinds
from simfl.scenario.schedules import Schedule
from simfl.scenario.template import template

__all__ = ["Scenario", "Schedule", "apply_overrides", "from_mapping", "kinds", "load", "loads", "template"]
