"""The selectors of clients, by kind, with those of plugins."""

from __future__ import annotations

from collections.abc import Mapping

from simfl.catalogue import Items
from simfl.selection.base import AbstractSelector

SELECTORS: Mapping[str, type[AbstractSelector]] = Items(__name__, AbstractSelector, "selectors")  # type: ignore[type-abstract]
