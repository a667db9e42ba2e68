"""A(DP)²SGD: private asynchronous decentralized parallel SGD (Xu, Zhang, Wang)."""

from simfl.plugins import Plugin

_HERE = "simfl.papers.adp2sgd"

PLUGIN = Plugin(
    summary="A(DP)²SGD against SYNC and AD-PSGD, with slow learners",
    commands={"privacy adp2sgd": f"{_HERE}.commands:command"},
    claims={"adp2sgd": f"{_HERE}.claims:claimed"},
    studies={"adp2sgd": f"{_HERE}.study:PAPER", "adp2sgd_cifar": f"{_HERE}.cifar:PAPER"},
)
