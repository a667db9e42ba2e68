"""The Byzantine attacks, by kind, including those of plugins."""

from __future__ import annotations

from collections.abc import Mapping

from simfl.catalogue import Items
from simfl.robust.base import AbstractAttack

ATTACKS: Mapping[str, type[AbstractAttack]] = Items(__name__, AbstractAttack, "attacks")  # type: ignore[type-abstract]
