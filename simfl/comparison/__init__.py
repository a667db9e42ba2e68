"""Comparisons of runs: groups over seeds, intervals, what a target costs."""

from simfl.plugins import Plugin

PLUGIN = Plugin(summary="comparisons of runs by group: intervals over seeds, and the cost of a target")
