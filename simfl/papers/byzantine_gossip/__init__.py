"""Gossip among hostile clients: He, Karimireddy, Jaggi 2022."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="gossip among hostile clients: self-centered clipping against other robust rules",
    studies={"byzantine_gossip": "simfl.papers.byzantine_gossip.study:PAPER"},
)
