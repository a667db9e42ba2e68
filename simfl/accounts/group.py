"""`simfl privacy`: the papers' calculators and the accountants, which plugins add.

Each command is a function `command` in its own file. Their modules import nothing heavy at their top, and options of a
theorem (`shared.OptionsOf`) are read when the command is called.
"""

from __future__ import annotations

import functools
from typing import Any

import typer
from typer.core import TyperCommand

from simfl import plugins
from simfl.accounts.shared import one_line_errors, with_options
from simfl.cli.shared import Command, Group, help_of

#: The beginning of this group's commands in `Plugin.commands`.
_GROUP = "privacy "


class _Commands(Group):
    """Lists the commands by their docstrings, and makes a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [words.removeprefix(_GROUP) for words in plugins.names("commands") if words.startswith(_GROUP)]

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return Command(cmd_name, help=help_of(_function(cmd_name)))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        return name, _made(name), rest


@functools.cache
def _made(name: str) -> Any:
    alone = typer.Typer(add_completion=False)
    function = one_line_errors(name, with_options(_function(name)))
    alone.command(name, cls=Command, help=help_of(_function(name)))(function)
    return typer.main.get_command(alone)


def _function(name: str) -> Any:
    return plugins.load("commands", _GROUP + name)


app = typer.Typer(
    cls=_Commands,
    help="Calculators: the papers' claims, certified epsilons, and the noise that a guarantee needs.",
    no_args_is_help=True,
)
