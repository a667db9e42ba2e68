"""`simfl privacy`: the papers' calculators and the accountants on the command line.

One file per command, with a function `command`. To add one, write the file and add its name below, in the order in
which the help should list it; `_` becomes `-`. The modules import nothing heavy at their top.
"""

from __future__ import annotations

import importlib

import typer

from simfl.cli.privacy.shared import one_line_errors

_COMMANDS: tuple[str, ...] = (
    "account",
    "calibrate",
    "check",
    "audit",
    "adp2sgd",
    "without_replacement",
    "proactive_dp",
    "utility_graph",
    "plan",
    "async_fl",
    "mapa",
)

app = typer.Typer(
    help="Calculators: what the papers claim, what an accountant certifies, and how much noise that takes.",
    no_args_is_help=True,
)

for _module in _COMMANDS:
    _name = _module.replace("_", "-")
    app.command(_name)(one_line_errors(_name, importlib.import_module(f"{__name__}.{_module}").command))
