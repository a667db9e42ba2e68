"""A user's own classes: where they are looked for, beside the scenario and where the command is given, and how.

Loading a class runs its module, with all that its author's program may do: who validates or runs somebody's scenario
trusts them and the folder. Results are data: whoever only looks at them loads nothing (`nothing_loaded`).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar, cast

from simfl.errors import ScenarioError

T = TypeVar("T", bound=type)  # a type of types: a base may be abstract

_may_load = ContextVar("_may_load", default=True)


def look_beside(paths: Iterable[Path]) -> None:
    """Let `kind: my_module:MyAlgorithm` find modules beside these files, and in the current folder.

    They come last on Python's path, so that no file hides an installed module.
    """
    for folder in dict.fromkeys(["", *(str(path.parent.absolute()) for path in paths)]):
        if folder not in sys.path:
            sys.path.append(folder)


def load_class(name: str, base: T, where: str) -> T:
    """Import the class that `module:Class` names.

    Args:
        name: with a colon.
        base: what it has to be derived from.
        where: the key of the scenario that names it.

    Raises:
        ScenarioError: there is no such class, its module cannot be imported, or nothing may be loaded now.
    """
    if not _may_load.get():
        raise ScenarioError(
            f"{where}: {name!r} is code beside the scenario, which is not run to look at results; give the scenario "
            "itself where you trust it"
        )
    module, _, wanted = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), wanted)
    except (ImportError, AttributeError, ValueError) as error:
        raise ScenarioError(
            f"{where}: cannot load {name!r} ({error}){_place_of(error)}, expected module:Class of an importable module"
        ) from error
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ScenarioError(
            f"{where}: cannot load {name!r}: importing the module {module!r} raised {reason}{_place_of(error)}; "
            "correct the module"
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        home = base.__module__.rpartition(".")[0]
        raise ScenarioError(f"{where}: {name!r} is not a subclass of {home}.{base.__name__}")
    return cast(T, found)


@contextlib.contextmanager
def nothing_loaded() -> Iterator[None]:
    """Refuse to load a user's class within a block."""
    before = _may_load.set(False)
    try:
        yield
    finally:
        _may_load.reset(before)


def _place_of(error: BaseException) -> str:
    """Return where in the user's module an error arose, nothing where it did not get that far."""
    if isinstance(error, SyntaxError):
        return f" in {error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" in {frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else ""
