"""Reports: runs or a sweep as one self-contained page."""

from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="runs as pages: reports, a player, traces",
    commands={
        "play": "simfl.reports.play_command:play",
        "watch": "simfl.reports.watch_command:watch",
        "trace": "simfl.reports.trace_command:trace",
        "report": "simfl.reports.report_command:report",
    },
)
