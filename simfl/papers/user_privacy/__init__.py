"""Privacy of users by the noise of a server: rounds, buffers, and noise that is correlated over releases."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="privacy of users who are online at night: rounds, buffers, and noise correlated over releases",
    studies={"user_privacy": "simfl.papers.user_privacy.study:PAPER"},
)
