"""The scenarios that come with simfl, so that an installed package needs no clone."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent


def scenarios() -> Path:
    """Return the folder of simfl's scenarios: the wheel's, or the clone's."""
    packed = _PACKAGE / "scenarios"  # setup.py puts it into wheels
    return packed if packed.is_dir() else _PACKAGE.parent / "scenarios"


def names_beside(path: Path) -> list[str]:
    """Return names such as `demo/adpsgd` of the scenarios in the folder of a path."""
    named = len(path.parts) > 1 and not path.is_absolute() and ".." not in path.parts
    beside = sorted((scenarios() / path.parent).glob("*.yaml")) if named else []
    return [(path.parent / file.stem).as_posix() for file in beside]


def path_of(path: Path, short: bool = False) -> Path:
    """Return the path of a file, which may be one that comes with simfl.

    Where no file is at the path, `scenarios/demo/adpsgd.yaml` is that file of simfl. With `short`, `demo/adpsgd.yaml`
    and `demo/adpsgd` are the same one.
    """
    below = path.parts[1:] if path.parts[:1] == ("scenarios",) else path.parts if short else ()
    if below and not path.is_absolute() and ".." not in below and not os.path.lexists(path):
        own = scenarios().joinpath(*below)
        for candidate in (own, own.with_name(f"{own.name}.yaml")):
            if os.path.isfile(candidate):
                return candidate
    return path
