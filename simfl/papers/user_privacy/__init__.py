"""Privacy of users by a server's noise: rounds, buffers, correlated noise."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="privacy of users who are online at night: rounds, buffers, and noise correlated over releases",
    studies={"user_privacy": "simfl.papers.user_privacy.study:PAPER"},
)
