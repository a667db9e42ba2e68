"""How fast the simulator is, as ratios of rates measured in one run."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="updates per second, against the limits of the bare kernels",
    commands={"bench": "simfl.bench.command:bench"},
)
