"""Catalogues: the definitions in a folder's files, and those of plugins."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TypeVar

from simfl import plugins

T = TypeVar("T")


def classes_in(package: str, base: type[T], catalogue: plugins.Catalogue) -> Iterator[type[T]]:
    """Yield the subclasses of `base` in a package's modules, then in plugins'.

    The modules of the package come in alphabetical order. Call it when both are imported, never at the top of a
    module: a module of a plugin imports from the package.
    """
    folder = importlib.import_module(package).__path__
    for name in sorted(module.name for module in pkgutil.iter_modules(folder)):
        yield from classes_of(importlib.import_module(f"{package}.{name}"), base)
    yield from attached(base, catalogue)


def attached(base: type[T], catalogue: plugins.Catalogue) -> Iterator[type[T]]:
    """Yield the subclasses of `base` in the modules that plugins add to a catalogue."""
    for module in plugins.modules(catalogue):
        yield from classes_of(module, base)


def classes_of(module: ModuleType, base: type[T]) -> Iterator[type[T]]:
    """Yield the subclasses of `base` that a module defines."""
    for one in vars(module).values():
        if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__:
            yield one


class Catalogue(Mapping[str, T]):
    """A mapping that calls `read` for its items on first use."""

    def __init__(self, read: Callable[[], Mapping[str, T]]) -> None:
        self._read = read

    @functools.cached_property
    def _items(self) -> Mapping[str, T]:
        return self._read()

    def __getitem__(self, name: str) -> T:
        """Return an item by its name."""
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)


class Items(Catalogue[type[T]]):
    """The subclasses of a base by their `kind`; see `classes_in`.

    One item is imported alone, from the module of the package that has its name. All are imported where that is not
    enough.
    """

    def __init__(self, package: str, base: type[T], catalogue: plugins.Catalogue) -> None:
        super().__init__(self._all)
        self._package, self._base, self._catalogue = package, base, catalogue

    def _all(self) -> Mapping[str, type[T]]:
        classes = classes_in(self._package, self._base, self._catalogue)
        return {vars(one)["kind"]: one for one in classes if "kind" in vars(one)}

    def __getitem__(self, name: str) -> type[T]:
        """Return an item by its name."""
        path = f"{self._package}.{name}"
        if name.isidentifier() and importlib.util.find_spec(path) is not None:
            for one in classes_of(importlib.import_module(path), self._base):
                if vars(one).get("kind") == name:
                    return one
        return super().__getitem__(name)
