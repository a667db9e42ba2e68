"""Check claims against the account of a run, and account for a whole network."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="claims against accounts, and what the nodes of a network learn",
    commands={
        "privacy check": "simfl.accounts.check_command:command",
        "privacy network": "simfl.accounts.network_command:command",
    },
)
