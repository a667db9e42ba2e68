"""Papers' studies: sweeps, readings of claims, verdicts, and the page."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="papers' studies: runs, verdicts on claims, and numbers beside the papers'",
    commands={"reproduce": "simfl.reproduction.reproduce_command:reproduce"},
)
