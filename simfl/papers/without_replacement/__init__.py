"""Decentralized private SGD without replacement (Jin, He, Dai)."""

from simfl.plugins import Plugin

_HERE = "simfl.papers.without_replacement"

PLUGIN = Plugin(
    summary="decentralized SGD without replacement: fully collaborative, deep-Q, random walk",
    configs=(f"{_HERE}.config",),
    algorithms=(f"{_HERE}.deep_q_sgd", f"{_HERE}.random_walk_sgd", f"{_HERE}.without_replacement_sgd"),
    kinds=(f"{_HERE}.kind",),
    commands={"privacy without-replacement": f"{_HERE}.commands:command"},
    studies={"without_replacement": f"{_HERE}.study:PAPER"},
)
