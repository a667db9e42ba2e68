"""Options, exit codes and output that commands share."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from simfl.cli.completion import complete_override
from simfl.errors import ScenarioError, printable

RUN_FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
DEVICES = ("cpu", "gpu")
STANDARD_OUTPUT = "-"
_ROOM_FOR_BOXES = 80


def _check_device(device: str | None) -> str | None:
    if device not in (None, *DEVICES):
        raise ScenarioError(f"--device: expected cpu or gpu, found {device!r}")
    return device


Scenarios = Annotated[list[Path], Argument(metavar="SCENARIO", help="Scenario files (YAML).")]
OneScenario = Annotated[Path, Argument(metavar="SCENARIO", help="A scenario file (YAML).")]
OneRun = Annotated[Path, Argument(metavar="RUN", help="The folder of a run.")]
ScenarioOrRun = Annotated[Path, Argument(metavar="SCENARIO|RUN", help="A scenario file, or the folder of a run.")]


def overrides_option(text: str) -> Any:
    """Return the option `--set`."""
    return Option("--set", metavar="KEY.PATH=VALUE", help=text, autocompletion=complete_override)


Overrides = Annotated[list[str] | None, overrides_option("Change a field, such as --set seed=3; may be repeated.")]
Seed = Annotated[int | None, Option("--seed", help="Another seed; short for --set seed=N.")]
Device = Annotated[
    str | None,
    Option("--device", metavar="cpu|gpu", callback=_check_device, help="Where to compute; JAX chooses by default."),
]
Results = Annotated[Path, Option("--out", help="Folder of all results.")]
CheckpointEvery = Annotated[
    str,
    Option(
        "--checkpoint-every",
        metavar="TIME",
        help="Host time between checkpoints, from which a killed run continues; never: none.",
    ),
]
Json = Annotated[
    Path | None,
    Option("--json", metavar="FILE|-", help="Also write JSON to a file; with -, only JSON to standard output."),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print nothing until the end.")]


def changes_of(overrides: Sequence[str] | None, seed: int | None) -> list[str]:
    """Return the changes by `--set` and `--seed`, as `load` takes them."""
    return [*(overrides or ()), *(() if seed is None else (f"seed={seed}",))]


class _PlainFlags:
    """Omits the type of flags from the help, since they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_bool_flag", False):
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help; in a narrow terminal, boxes would cut the names of options."""
        if shutil.get_terminal_size().columns < _ROOM_FOR_BOXES:
            self.rich_markup_mode = None
        super().format_help(ctx, formatter)


class Group(_PlainFlags, TyperGroup):
    """A group of commands."""


def help_of(command: Callable[..., object]) -> str:
    """Return a command's docstring as help, with paragraphs unwrapped."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def say(text: str) -> None:
    """Write lines to stderr, unwrapped and with control characters escaped."""
    sys.stderr.write(printable(text.rstrip("\n")) + "\n")
    sys.stderr.flush()


def write_text(path: Path, text: str, mode: str = "w", parents: bool = False) -> None:
    """Write a file, or to standard output if its name is "-".

    With mode "x" an existing file is a `ScenarioError`; `parents` makes the folders above the file.
    """
    if aside(path):
        sys.stdout.write(text)
        return
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ScenarioError(f"{path}: the file exists; choose another name, or --force to replace it") from None
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the file: {error.strerror}") from error


def to_json(value: Any) -> Any:
    """Return a value for JSON: "inf" and "-inf", null for NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if hasattr(value, "to_dict"):  # a frame of pandas, likewise
        return to_json(value.to_dict("records"))
    if hasattr(value, "tolist"):  # an array or a scalar of NumPy, which need not be imported for this
        return to_json(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def aside(path: Path | None) -> bool:
    """Return whether a result goes to standard output, which it must have alone."""
    return path is not None and str(path) == STANDARD_OUTPUT


def write_json(path: Path | None, value: Any) -> None:
    """Write a result for `--json`: to a file, to standard output, or not at all."""
    if path is None:
        return
    write_text(path, json.dumps(to_json(value), indent=2, ensure_ascii=False) + "\n", parents=True)
