"""Studies: many runs planned together, local or on a cluster, resumable."""

from simfl.studies.running import Report, sweep

__all__ = ["Report", "sweep"]
