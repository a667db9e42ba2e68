"""Tables, folders and comparisons of runs."""

from typing import TYPE_CHECKING, Any

from simfl.records.comparison import common_accuracy, folders_of, summaries, time_to_accuracy
from simfl.records.folder import Manifest, RunFolder
from simfl.records.models import read_models, write_models
from simfl.records.progress import Progress
from simfl.records.results import Run, read
from simfl.records.tables import ACTIVITIES, GRADIENTS, MESSAGES, METRICS, SCHEMAS, UPDATES
from simfl.records.writer import TableWriter

if TYPE_CHECKING:
    from simfl.records.readable import compare

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
    "compare",
    "folders_of",
    "read",
    "read_models",
    "summaries",
    "time_to_accuracy",
    "write_models",
]


def __getattr__(name: str) -> Any:
    """Import `compare` on first use: it needs pandas, which a run does not."""
    if name != "compare":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from simfl.records.readable import compare

    return compare
