"""The compressors, by kind, including those of plugins."""

from __future__ import annotations

from collections.abc import Mapping

from simfl.catalogue import Items
from simfl.compression.base import AbstractCompressor

COMPRESSORS: Mapping[str, type[AbstractCompressor]] = Items(__name__, AbstractCompressor, "compressors")  # type: ignore[type-abstract]
