"""Convergence theorems of the papers, beside measured curves."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="bounds of the papers' convergence theorems, beside curves on problems of known constants",
    studies={"theorems": "simfl.papers.theorems.study:PAPER"},
)
