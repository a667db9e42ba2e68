"""The privacy of whole networks: what nodes learn about each other."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="privacy of whole networks: who learns how much about whom",
    studies={"network_privacy": "simfl.papers.network_privacy.study:PAPER"},
)
