"""The command line, put together from its commands.

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted, 143 ended by SIGTERM.

Commands import heavy modules when they are called, so that `simfl --help` answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import gc
import io
import os
import re
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer import Option

from simfl import plugins
from simfl.cli.list import list_
from simfl.cli.new import new
from simfl.cli.resume import resume
from simfl.cli.run import run
from simfl.cli.schema import schema
from simfl.cli.shared import BAD_INPUT, INTERRUPTED, RUN_FAILED, Command, Group, help_of, say
from simfl.cli.validate import validate
from simfl.errors import DataError, RunError, ScenarioError, missing, nearest
from simfl.runs import FEW_COLLECTIONS
from simfl.version import __version__

app = typer.Typer(
    name="simfl",
    cls=Group,
    help="Simulate asynchronous, decentralized and federated learning with differential privacy, in virtual time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _function in (run, resume, validate, list_, new, schema):
    app.command(_function.__name__.rstrip("_"), cls=Command, help=help_of(_function))(_function)


#: The first commands in help, also if a plugin brings them.
FIRST = ("run", "resume", "validate", "list", "new", "schema", "evaluate", "plot", "sweep", "compare")

#: Commands of earlier versions -> what to use.
REMOVED = {"replay": "simfl sweep, which plays runs that differ in arithmetic alone together"}

#: What the system says if a disk is full, or broken.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@functools.cache
def command() -> Any:
    """Return the command line with the commands, and groups of them, that plugins add."""
    for words in plugins.names("commands"):
        if " " not in words:
            added = plugins.load("commands", words)
            if isinstance(added, typer.Typer):
                app.add_typer(added, name=words)
            else:
                app.command(words, cls=Command, help=help_of(added))(added)
    app.registered_commands.sort(key=lambda entry: [*FIRST, entry.name].index(entry.name))
    return typer.main.get_command(app)


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    gc.set_threshold(*FEW_COLLECTIONS)
    atexit.register(gc.freeze)  # at its end the interpreter would look for cycles in all modules, for 0.2 s
    code: object = 0
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack the characters of tables and formulas
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = command()(prog_name="simfl", standalone_mode=False)
        sys.stdout.flush()
    except (ScenarioError, DataError, RunError) as error:
        say(str(error))
        sys.exit(RUN_FAILED if isinstance(error, RunError) else BAD_INPUT)
    except Exception as error:
        if type(error).__name__ == "Abort":  # Ctrl-C outside a run
            say("interrupted")
            sys.exit(INTERRUPTED)
        if isinstance(error, OSError) and error.filename is None and error.errno in FULL:  # files have their own lines
            say(f"standard output: cannot write: {os.strerror(error.errno)}")
            _close_output()
            sys.exit(RUN_FAILED)
        if (line := missing(error) if isinstance(error, ModuleNotFoundError) else _usage(error)) is None:
            raise
        say(line)
        sys.exit(BAD_INPUT)
    sys.exit(code if isinstance(code, int) else 0)


def _close_output() -> None:
    """Write no more to standard output.

    The interpreter would try again at its end.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: Exception) -> str | None:
    """Return the message for a wrong command line, None for other errors.

    Typer has a private copy of Click's exceptions, so they are recognized by their methods.
    """
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(message())
    text = str(message()).replace("Value error, ", "").rstrip(".")
    gone = re.match(r"No such command '(\w+)'", text)
    if gone and gone[1] in REMOVED:
        return f"simfl {gone[1]}: expected a command, found one that was removed; use {REMOVED[gone[1]]}"
    match = re.search(r"'([^']*)' is not one of (.*)", text)
    guess = nearest(match[1], re.findall(r"'([^']*)'", match[2])) if match else ""
    command = getattr(getattr(error, "ctx", None), "command_path", "simfl")
    return f"{command}: {text}{guess or f'; see {command} --help'}"


@app.callback(invoke_without_command=True)
def _simfl(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
    verbose: Annotated[bool, Option("--verbose", help="With --version: also libraries and devices.")] = False,
) -> None:
    if version:
        print("\n".join(versions() if verbose else [f"simfl {__version__}"]))
        raise typer.Exit
    if verbose or context.invoked_subcommand is None:
        raise typer.BadParameter("expected --version --verbose, or a command")


def versions() -> list[str]:
    """Return the versions, the device, and whether modules are compiled."""
    import importlib
    import platform
    from importlib.metadata import version

    from simfl.compiled import is_compiled, why_not
    from simfl.tape.executor import choose_device

    importlib.import_module("simfl.runs.runner")  # imports the modules that wheels contain compiled
    libraries = ("jax", "jaxlib", "numpy", "simpy", "networkx", "pandas", "pydantic", "dp-accounting", "optax")
    device = choose_device(None)
    return [
        f"simfl {__version__}, {'compiled' if is_compiled() else f'not compiled ({why_not()})'}",
        f"Python {platform.python_version()}, {platform.platform()}",
        *(f"{name} {version(name)}" for name in libraries),
        f"device: {device.platform} ({device.device_kind})",
        f"attached: {', '.join(plugins.plugins())}",
    ]
