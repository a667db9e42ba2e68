"""Proactive DP: plan DP-SGD from a utility graph (van Dijk et al.)."""

from simfl.plugins import Plugin

_HERE = "simfl.papers.proactive_dp"

PLUGIN = Plugin(
    summary="Proactive DP: asynchronous DP-SGD planned from a utility graph",
    commands={
        "privacy proactive-dp": f"{_HERE}.commands:command",
        "privacy utility-graph": f"{_HERE}.utility_graph_command:command",
        "privacy plan": f"{_HERE}.plan_command:command",
    },
    claims={"proactive_dp": f"{_HERE}.claims:claimed"},
    studies={"proactive_dp": f"{_HERE}.study:PAPER"},
)
