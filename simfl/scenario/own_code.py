"""Loads and calls a user's own code.

A scenario names it as `module:name`: the class of an algorithm, or a function that makes a model, data or an optimizer
and is called with the `options` beside the name. Loading runs the module with all rights of the user: whoever
validates or runs a scenario trusts its author and its folder. Reading results loads nothing (`nothing_loaded`).

An error of the code becomes one line with the user's file and line number (`in_one_line`). A run depends on the source
of the modules that it names, and of the user's modules that these import (`source_digests`). A module that changed
after its import is imported again.

An object from Python (`simfl.run(scenario, model=net)`) has no module to import later. The scenario of the run has
`object:NAME` in its place, and nothing can be loaded by such a name.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TypeVar, cast

from simfl.errors import ScenarioError, SimflError, libraries, nearest, place_of, raised

T = TypeVar("T", bound=type)  # a type of types: a base may be abstract

OBJECT = "object"
"""Takes the place of the module for objects from Python."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""The form of a name of own code: module, colon, name."""

_may_load = ContextVar("_may_load", default=True)
_PACKAGE = Path(__file__).parents[1]
_OTHERS = tuple({str(_PACKAGE), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))})
#: Digests of sources at the last import: of each module, and of all modules that a named module uses.
_imported: dict[str, str] = {}
_used: dict[str, dict[str, str]] = {}


def look_beside(paths: Iterable[Path]) -> None:
    """Let `kind: my_module:MyAlgorithm` find modules beside these files.

    Their folders are last on Python's path, so that no file hides an installed module.
    """
    for folder in dict.fromkeys(["", *(str(path.parent.absolute()) for path in paths)]):
        if folder not in sys.path:
            sys.path.append(folder)


def _places() -> str:
    """Return the folders that are searched for modules, in words."""
    folders = [path or "." for path in sys.path if not path.startswith(libraries()) and not path.endswith(".zip")]
    return ", ".join(dict.fromkeys(map(os.path.abspath, folders))) + " and what Python has installed"


def load(name: str, where: str) -> Any:
    """Import the object `module:name`.

    Args:
        name: with a colon.
        where: the key of the scenario that names it.

    Raises:
        ScenarioError: the object does not exist, its module cannot be imported, or loading is not allowed now.
    """
    module, _, attribute = name.partition(":")
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
        imported = _import(module)
    except (ImportError, AttributeError, ValueError) as error:
        searched = f"; looked for it in {_places()}" if isinstance(error, ModuleNotFoundError) else ""
        expected = f"expected module:name of an importable module{searched}"
        raise ScenarioError(f"{where}: cannot load {name!r} ({error}){place_of(error)}, {expected}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ScenarioError(
            f"{where}: cannot load {name!r}: importing the module {module!r} raised {raised(error)}; correct the module"
        ) from error
    try:
        return getattr(imported, attribute)
    except AttributeError as error:
        names = [word for word in vars(imported) if not word.startswith("_")]
        expected = f"expected module:name of an importable module{nearest(attribute, names)}"
        raise ScenarioError(f"{where}: cannot load {name!r} ({error}), {expected}") from None


def load_class(name: str, base: T, where: str) -> T:
    """Import the class `module:Class`, which must be derived from `base`."""
    loaded = load(name, where)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        home = base.__module__.rpartition(".")[0]
        raise ScenarioError(f"{where}: {name!r} is not a subclass of {home}.{base.__name__}")
    return cast(T, loaded)


def make(name: str, options: Mapping[str, Any], where: str) -> Any:
    """Import `module:name`, call it with the options, and return the result.

    Raises:
        ScenarioError: see `load`; it takes other options; or it raised an error.
    """
    loaded = load(name, where)
    if not callable(loaded):
        raise ScenarioError(f"{where}: {name!r} cannot be called, expected a function or a class")
    section = where.rpartition(".")[0]
    try:
        signature = inspect.signature(loaded)
    except (TypeError, ValueError):  # some built-in functions have no signature
        signature = None
    if signature is not None:
        try:
            signature.bind(**options)
        except TypeError as error:
            takes = list(signature.parameters)
            advice = nearest(next((option for option in options if option not in takes), ""), takes)
            given = f"found {', '.join(options) or 'none'} ({error}){advice}"
            raise ScenarioError(f"{section}.options: {name!r} takes {signature}, {given}") from None
    with in_one_line(where, repr(name)):
        return loaded(**options)


@contextlib.contextmanager
def in_one_line(where: str, what: str) -> Iterator[None]:
    """Report errors of a user's code in one line with its file and line number."""
    try:
        yield
    except (SimflError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ScenarioError(f"{where}: {what} raised {raised(error)}") from error


@contextlib.contextmanager
def nothing_loaded() -> Iterator[None]:
    """Reject loading of a user's code within a block."""
    before = _may_load.set(False)
    try:
        yield
    finally:
        _may_load.reset(before)


def named_object(value: object) -> str:
    """Return the name in a scenario of an object from Python."""
    return f"{OBJECT}:{re.sub(r'[^0-9a-zA-Z_]', '_', getattr(value, '__name__', type(value).__name__))}"


def modules_of(scenario: Any) -> list[str]:
    """Return the modules of own code in a resolved scenario; sorted."""
    return sorted(_named(scenario) - {OBJECT})


def has_objects(scenario: Any) -> bool:
    """Return whether a resolved scenario names objects from Python."""
    return OBJECT in _named(scenario)


def _named(scenario: Any) -> set[str]:
    match scenario:
        case list() | tuple():
            return set().union(*map(_named, scenario))
        case Mapping():
            names = [value for key in ("kind", "set", "module") if NAME.fullmatch(value := str(scenario.get(key)))]
            modules = {name.partition(":")[0] for name in names}
            return modules.union(*(_named(value) for key, value in scenario.items() if key != "options"))
    return set()


def source_of(module: str) -> Path | None:
    """Return a module's file without importing it; None if it has none."""
    path, spec = None, None
    for depth in range(module.count(".") + 1):
        spec = _spec(".".join(module.split(".")[: depth + 1]), path)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
    return Path(spec.origin).absolute() if spec is not None and spec.has_location and spec.origin else None


def _spec(module: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Ask every finder for a module, also those of editable installations."""
    for finder in sys.meta_path:
        with contextlib.suppress(ImportError, ValueError, AttributeError):
            if (spec := finder.find_spec(module, path)) is not None:
                return spec
    return None


def source_digests(scenario: Any) -> dict[str, str]:
    """Return the SHA-256 of the sources of own code; see `digests_of`."""
    return digests_of(modules_of(scenario))


def digests_of(modules: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the sources of modules and of their user imports.

    Nothing is imported: `import` statements are read in the sources, and followed unless they lead to simfl, Python's
    library or installed packages. A module of `modules` without a readable file has the digest ""; `is_known` is then
    False, since changes cannot be noticed.
    """
    importlib.invalidate_caches()
    digests: dict[str, str] = {}
    for module in modules:
        _follow(module, digests)
        digests.setdefault(module, "")
    return digests


def is_known(digests: Mapping[str, str]) -> bool:
    """Return whether the source of every module could be read."""
    return all(digests.values())


def _follow(module: str, digests: dict[str, str]) -> None:
    """Add the digests of a module and its imports, imports first."""
    if module in digests or (path := source_of(module)) is None:
        return
    try:
        source = path.read_bytes()
    except OSError:
        return
    digests[module] = ""  # modules may import each other
    installed: set[str] = set()
    for name in _imports(source, module, path) if path.suffix == ".py" else ():
        package = name.partition(".")[0]
        if name in digests or package in installed or (file := source_of(name)) is None:
            continue
        if str(file).startswith(_OTHERS):
            installed.add(package)
        else:
            _follow(name, digests)
    del digests[module]
    digests[module] = hashlib.sha256(source).hexdigest()


@functools.lru_cache(64)  # a run asks some 15 times, mostly of an algorithm's class
def _imports(source: bytes, module: str, path: Path) -> tuple[str, ...]:
    """Return the names of all modules that a source may import."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()  # its import reports the error
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    names = [package]
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names += [alias.name for alias in node.names]
            case ast.ImportFrom():
                parents = package.split(".")
                above = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
                whole = ".".join(filter(None, (above, node.module)))
                names += [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
    parts = [name.split(".") for name in names if name]
    return tuple(dict.fromkeys(".".join(part[:count]) for part in parts for count in range(1, len(part) + 1)))


def _import(module: str) -> Any:
    """Import a module, again if its file or a user module it imports changed."""
    digests = digests_of([module])
    if _used.get(module, digests) != digests or any(_imported.get(name, now) != now for name, now in digests.items()):
        for name in digests:  # imported modules first
            if name in sys.modules:
                importlib.reload(sys.modules[name])
    loaded = importlib.import_module(module)
    _used[module] = digests
    _imported.update(digests)
    return loaded
