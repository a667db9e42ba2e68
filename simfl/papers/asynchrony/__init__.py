"""Asynchrony: algorithms of three families in four worlds, tuned by one rule."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="asynchrony: time to accuracy of 35 algorithms in four worlds, tuned by one rule",
    studies={"asynchrony": "simfl.papers.asynchrony.study:PAPER"},
)
