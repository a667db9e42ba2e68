"""Calculators of accounts; claims against the account of a run; whole networks."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="claims against accounts, and what the nodes of a network learn",
    commands={
        "privacy": "simfl.accounts.group:app",
        "privacy account": "simfl.accounts.account_command:command",
        "privacy calibrate": "simfl.accounts.calibrate_command:command",
        "privacy strategies": "simfl.accounts.strategies_command:command",
        "privacy check": "simfl.accounts.check_command:command",
        "privacy network": "simfl.accounts.network_command:command",
        "privacy walk": "simfl.accounts.walk_command:command",
    },
)
