"""Runs or a sweep as one page that can be read anywhere: nothing in it is loaded from elsewhere."""

from simfl.reports.page import write_report

__all__ = ["write_report"]
