"""AUDP and MAPA: private asynchronous learning (Li, Yang, Ren, Zhao)."""

from simfl.plugins import Plugin

_HERE = "simfl.papers.mapa"

PLUGIN = Plugin(
    summary="MAPA against AUDP, ASGD and CSGD",
    configs=(f"{_HERE}.config",),
    algorithms=(f"{_HERE}.audp", f"{_HERE}.mapa"),
    kinds=(f"{_HERE}.kind",),
    mechanisms=(f"{_HERE}.printed",),
    commands={"privacy mapa": f"{_HERE}.commands:command"},
    studies={"mapa": f"{_HERE}.study:PAPER"},
)
