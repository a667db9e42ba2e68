"""Catalogues that are folders: what a folder's files define is listed nowhere else."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def classes_in(package: str, base: type[T]) -> Iterator[type[T]]:
    """Yield the classes below `base` that the modules of a package define, module by module in alphabetical order.

    The package may ask while it is itself being imported: its modules import its siblings, never the package.
    """
    folder = importlib.import_module(package).__path__
    for name in sorted(module.name for module in pkgutil.iter_modules(folder)):
        module = importlib.import_module(f"{package}.{name}")
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__:
                yield one


def items_in(package: str, base: type[T]) -> dict[str, type[T]]:
    """Return the classes below `base` in a package that give themselves a name, `kind`, by it."""
    return {vars(one)["kind"]: one for one in classes_in(package, base) if "kind" in vars(one)}
