"""Asynchronous federated learning with growing sample sizes (van Dijk et al.)."""

from simfl.plugins import Plugin

_HERE = "simfl.papers.async_fl"

PLUGIN = Plugin(
    summary="asynchronous FL with growing sample sizes",
    configs=(f"{_HERE}.config",),
    algorithms=(f"{_HERE}.algorithm",),
    kinds=(f"{_HERE}.kind",),
    commands={"privacy async-fl": f"{_HERE}.commands:command", "privacy sizes": f"{_HERE}.sizes_command:command"},
    studies={"async_fl": f"{_HERE}.study:PAPER"},
)
