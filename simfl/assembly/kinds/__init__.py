"""The kinds of algorithms, one file for each family.

A `Kind` in a file of this folder serves the sections in its `sections`, and those that are derived from them and have
no `Kind` of their own. The base class serves all others.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from simfl.algorithms import ALGORITHMS, Algorithm
from simfl.assembly.kinds.base import Kind, check_options, completed, options_of
from simfl.catalogue import classes_in
from simfl.errors import ScenarioError, nearest
from simfl.scenario import Scenario
from simfl.scenario.own_code import load_class


@functools.cache
def _kinds() -> Mapping[type, type[Kind[Any]]]:
    return {section: kind for kind in classes_in(__name__, Kind, "kinds") for section in kind.sections}


def find_kind(scenario: Scenario) -> Kind[Any]:
    """Return the `Kind` of a scenario's algorithm."""
    kinds = _kinds()
    return next((kinds[section] for section in type(scenario.algorithm).__mro__ if section in kinds), Kind)(scenario)


def find_algorithm(kind: str) -> type[Algorithm]:
    """Return an algorithm's class by name, or by `module:Class`."""
    if kind in ALGORITHMS:
        return ALGORITHMS[kind]
    if ":" not in kind:
        raise ScenarioError(
            f"algorithm.kind: found {kind!r}, expected one of {', '.join(ALGORITHMS)}{nearest(kind, ALGORITHMS)}"
        )
    return completed(load_class(kind, Algorithm, "algorithm.kind"))


__all__ = ["Kind", "check_options", "completed", "find_algorithm", "find_kind", "options_of"]
