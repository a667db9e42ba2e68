"""The robust aggregation rules, by kind, with those of plugins."""

from __future__ import annotations

from collections.abc import Mapping

from simfl.catalogue import Items
from simfl.robust.base import AbstractRule

RULES: Mapping[str, type[AbstractRule]] = Items(__name__, AbstractRule, "rules")  # type: ignore[type-abstract]
