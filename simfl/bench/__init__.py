"""How fast the simulator is here, and that results do not depend on how it runs."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="updates per second, against the limits of the bare kernels; equal results however a scenario is run",
    commands={"bench": "simfl.bench.command:bench", "verify": "simfl.bench.verify_command:verify"},
)
