"""Tables and folders of runs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simfl.records.costs import common_accuracy, summaries, time_to_accuracy
    from simfl.records.folder import Manifest, RunFolder
    from simfl.records.models import read_models, write_models
    from simfl.records.progress import Progress
    from simfl.records.results import Run, read
    from simfl.records.tables import ACTIVITIES, GRADIENTS, MESSAGES, METRICS, SCHEMAS, UPDATES
    from simfl.records.writer import TableWriter

_HOMES = {
    "costs": ("common_accuracy", "summaries", "time_to_accuracy"),
    "folder": ("Manifest", "RunFolder"),
    "models": ("read_models", "write_models"),
    "progress": ("Progress",),
    "results": ("Run", "read"),
    "tables": ("ACTIVITIES", "GRADIENTS", "MESSAGES", "METRICS", "SCHEMAS", "UPDATES"),
    "writer": ("TableWriter",),
}

__all__ = [
    "ACTIVITIES",
    "GRADIENTS",
    "MESSAGES",
    "METRICS",
    "SCHEMAS",
    "UPDATES",
    "Manifest",
    "Progress",
    "Run",
    "RunFolder",
    "TableWriter",
    "common_accuracy",
    "read",
    "read_models",
    "summaries",
    "time_to_accuracy",
    "write_models",
]


def __getattr__(name: str) -> Any:
    """Import on first use: number formats need neither pyarrow nor pandas."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
