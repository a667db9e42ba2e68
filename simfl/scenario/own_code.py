"""A user's own code: where it is looked for, beside the scenario and where the command is given, and how it is called.

A scenario names it as `module:name`: an algorithm's class, or what makes a model, data or an optimiser when it is
called with the `options` that stand beside the name. Loading runs the module, with all that its author's program may
do: who validates or runs somebody's scenario trusts them and the folder. Results are data: whoever only looks at them
loads nothing (`nothing_loaded`).

Whatever the code raises becomes one line with the user's own file and line number (`in_one_line`). A run depends on the
source of the modules that it names (`source_digests`); one that was changed since it was imported is imported anew.

What is given from Python (`simfl.run(scenario, model=net)`) has no module that could be found again. It stands in the
scenario of the run as `object:NAME`, and nothing can be loaded by such a name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar, cast

from simfl.errors import ScenarioError, SimflError, libraries, nearest, place_of, raised

T = TypeVar("T", bound=type)  # a type of types: a base may be abstract

OBJECT = "object"
"""Stands for the module of what has none: it was given from Python."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""How own code is named: module, colon, name."""

_may_load = ContextVar("_may_load", default=True)
#: Digests of the sources that modules were imported from.
_imported: dict[str, str] = {}


def look_beside(paths: Iterable[Path]) -> None:
    """Let `kind: my_module:MyAlgorithm` find modules beside these files, and in the current folder.

    They come last on Python's path, so that no file hides an installed module.
    """
    for folder in dict.fromkeys(["", *(str(path.parent.absolute()) for path in paths)]):
        if folder not in sys.path:
            sys.path.append(folder)


def _places() -> str:
    """Return in words where modules are looked for: folders of one's own, and what is installed."""
    own = [folder or "." for folder in sys.path if not folder.startswith(libraries()) and not folder.endswith(".zip")]
    return ", ".join(dict.fromkeys(os.path.abspath(folder) for folder in own)) + " and what Python has installed"


def load(name: str, where: str) -> Any:
    """Import what `module:name` names.

    Args:
        name: with a colon.
        where: the key of the scenario that names it.

    Raises:
        ScenarioError: there is no such thing, its module cannot be imported, or nothing may be loaded now.
    """
    module, _, wanted = name.partition(":")
    if module == OBJECT:
        section = where.partition(".")[0]
        raise ScenarioError(
            f"{where}: {name!r} is an object that was given from Python; give it again as "
            f"{section}=... of simfl.run, resume or read; or name a module that makes it: my_module:make"
        )
    if not _may_load.get():
        raise ScenarioError(
            f"{where}: {name!r} is code beside the scenario, which is not run to look at results; give the scenario "
            "itself where you trust it"
        )
    try:
        found = _import(module)
    except (ImportError, AttributeError, ValueError) as error:
        looked = f"; looked for it in {_places()}" if isinstance(error, ModuleNotFoundError) else ""
        raise ScenarioError(
            f"{where}: cannot load {name!r} ({error}){place_of(error)}, expected module:name of an importable module"
            f"{looked}"
        ) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ScenarioError(
            f"{where}: cannot load {name!r}: importing the module {module!r} raised {raised(error)}; correct the module"
        ) from error
    try:
        return getattr(found, wanted)
    except AttributeError as error:
        has = [one for one in vars(found) if not one.startswith("_")]
        raise ScenarioError(
            f"{where}: cannot load {name!r} ({error}), expected module:name of an importable module"
            f"{nearest(wanted, has)}"
        ) from None


def load_class(name: str, base: T, where: str) -> T:
    """Import the class that `module:Class` names; as `load`, and it has to be derived from `base`."""
    found = load(name, where)
    if not (isinstance(found, type) and issubclass(found, base)):
        home = base.__module__.rpartition(".")[0]
        raise ScenarioError(f"{where}: {name!r} is not a subclass of {home}.{base.__name__}")
    return cast(T, found)


def make(name: str, options: Mapping[str, Any], where: str) -> Any:
    """Import what `module:name` names, call it with the options as keywords, and return what comes back.

    Raises:
        ScenarioError: as of `load`; it takes other options; or it raised.
    """
    found = load(name, where)
    if not callable(found):
        raise ScenarioError(f"{where}: {name!r} cannot be called, expected a function or a class")
    section = where.rpartition(".")[0]
    try:
        taken = inspect.signature(found)
    except (TypeError, ValueError):  # some built-in ones have none
        taken = None
    if taken is not None:
        try:
            taken.bind(**options)
        except TypeError as error:
            takes = list(taken.parameters)
            unknown = next((one for one in options if one not in takes), "")
            raise ScenarioError(
                f"{section}.options: {name!r} takes {taken}, found {', '.join(options) or 'none'} ({error})"
                f"{nearest(unknown, takes)}"
            ) from None
    with in_one_line(where, repr(name)):
        return found(**options)


@contextlib.contextmanager
def in_one_line(where: str, what: str) -> Iterator[None]:
    """Turn whatever a user's code raises within a block into one line, with their file and line number."""
    try:
        yield
    except (SimflError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ScenarioError(f"{where}: {what} raised {raised(error)}") from error


@contextlib.contextmanager
def nothing_loaded() -> Iterator[None]:
    """Refuse to load a user's code within a block."""
    before = _may_load.set(False)
    try:
        yield
    finally:
        _may_load.reset(before)


def named_object(value: object) -> str:
    """Return how an object that was given from Python stands in a scenario."""
    return f"{OBJECT}:{re.sub(r'[^0-9a-zA-Z_]', '_', getattr(value, '__name__', type(value).__name__))}"


def modules_of(scenario: Any) -> list[str]:
    """Return the modules of own code that a resolved scenario, plain values, names; sorted."""
    if isinstance(scenario, Mapping):
        own = {
            value.partition(":")[0]
            for key, value in scenario.items()
            if key in ("kind", "set") and isinstance(value, str) and NAME.fullmatch(value)
        }
        found = own.union(*(modules_of(value) for key, value in scenario.items() if key != "options"))
    else:
        found = set().union(*map(modules_of, scenario)) if isinstance(scenario, list | tuple) else set()
    return sorted(found - {OBJECT})


def source_of(module: str) -> Path | None:
    """Return the file of a module without importing it; None where there is none, or it is not Python."""
    path, found = None, None
    for depth in range(module.count(".") + 1):
        try:
            found = PathFinder.find_spec(".".join(module.split(".")[: depth + 1]), path)
        except (ImportError, ValueError):
            return None
        if found is None:
            return None
        path = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
    return Path(found.origin).absolute() if found is not None and found.has_location and found.origin else None


def source_digests(scenario: Any) -> dict[str, str]:
    """Return the SHA-256 of the source of each module of own code that a resolved scenario names, where it is there.

    What these modules import in their turn is not among it.
    """
    return digests_of(modules_of(scenario))


def digests_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the source of each of these modules whose file is there."""
    return {module: digest for module in modules if (digest := _source_digest(module))}


def _source_digest(module: str) -> str:
    """Return the SHA-256 of a module's file, "" where it cannot be read."""
    path = source_of(module)
    try:
        return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _import(module: str) -> Any:
    """Import a module; anew, if its file is another than it was."""
    importlib.invalidate_caches()
    digest = _source_digest(module)
    loaded = sys.modules.get(module)
    if loaded is not None and _imported.get(module, digest) != digest:
        loaded = importlib.reload(loaded)
    else:
        loaded = importlib.import_module(module)
    _imported[module] = digest
    return loaded
