"""Reports: runs or a sweep as one self-contained page."""

from simfl.reports.page import write_report

__all__ = ["write_report"]
