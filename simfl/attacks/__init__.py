"""Attack runs: canaries, membership inference, gradient inversion."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="attacks on runs, which bound privacy from below",
    commands={
        "privacy audit": "simfl.attacks.audit_command:command",
        "privacy attack": "simfl.attacks.attack_command:command",
    },
)
