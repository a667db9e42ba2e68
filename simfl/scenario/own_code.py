"""A user's own classes: where they are looked for, beside the scenario and where the command is given, and how."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar, cast

from simfl.errors import ScenarioError

T = TypeVar("T", bound=type)  # a type of types: a base may be abstract


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
        ScenarioError: there is no such class. What else the module raises is its author's matter.
    """
    module, _, wanted = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), wanted)
    except (ImportError, AttributeError) as error:
        raise ScenarioError(
            f"{where}: cannot load {name!r} ({error}), expected module:Class of an importable module"
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        home = base.__module__.rpartition(".")[0]
        raise ScenarioError(f"{where}: {name!r} is not a subclass of {home}.{base.__name__}")
    return cast(T, found)
