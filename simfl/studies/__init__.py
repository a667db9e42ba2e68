"""Studies: many runs planned together, local or on a cluster, resumable."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simfl.plugins import Plugin

if TYPE_CHECKING:
    from simfl.studies.running import Report, sweep

__all__ = ["PLUGIN", "Report", "sweep"]

PLUGIN = Plugin(
    summary="sweeps: the runs of a study on processes or a cluster",
    commands={"sweep": "simfl.studies.sweep_command:sweep"},
)


def __getattr__(name: str) -> Any:
    """Import on first use: the command line reads all plugins."""
    if name not in ("Report", "sweep"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("simfl.studies.running"), name)
