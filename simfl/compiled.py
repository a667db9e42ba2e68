"""Whether the modules that run for every event are compiled and current.

Wheels contain them compiled by mypyc (`setup.py`), beside their sources. Python imports the compiled module, so an edit
of its source would silently have no effect. `compiled.json` has digests of the sources that were compiled.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from simfl.errors import SimflError

#: Types of integers and floats that algorithms pass to compiled modules. mypyc does not see this definition, so a
#: compiled module also accepts NumPy's numbers, as it does uncompiled; for a plain `int` it would reject them.
Integer = int
Number = float

_PACKAGE = Path(__file__).parent


def as_call(value: Any) -> tuple[type, tuple[Any, ...]]:
    """Return the class and the fields of a frozen dataclass, as its `__reduce__`.

    `copy` and `pickle` would make an object without fields and then set them. That is an error if the class is frozen
    and compiled.
    """
    return type(value), tuple(getattr(value, field.name) for field in dataclasses.fields(value))


@functools.cache
def is_compiled() -> bool:
    """Return whether imported modules of simfl are compiled.

    Raises:
        SimflError: the source of a compiled module has changed.
    """
    return check_compiled(
        {
            name: Path(file)
            for name, module in list(sys.modules.items())
            if name.startswith("simfl.") and (file := getattr(module, "__file__", None))
        },
        _PACKAGE,
    )


def why_not() -> str:
    """Return in a few words why modules are not compiled."""
    return str(_listing(_PACKAGE).get("reason") or "an editable installation is not: pip install . compiles")


def _listing(package: Path) -> dict[str, Any]:
    """Return what was compiled, and why not, as `setup.py` wrote it into a wheel."""
    path = package / "compiled.json"
    listing: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return listing


def check_compiled(modules: dict[str, Path], package: Path) -> bool:
    """Return whether modules are compiled; reject them if their sources changed.

    `modules` maps names to files; `package` is the folder of simfl, with `compiled.json`.
    """
    files = {name: file for name, file in modules.items() if file.name.endswith(tuple(EXTENSION_SUFFIXES))}
    if not files:
        return False
    sources = _listing(package).get("sources", {})
    for name, file in sorted(files.items()):
        source = package.joinpath(*name.split(".")[1:]).with_suffix(".py")
        key = f"{package.name}/{source.relative_to(package).as_posix()}"
        if not source.exists() or hashlib.sha256(source.read_bytes()).hexdigest() != sources.get(key):
            raise SimflError(
                f"{file}: expected {source.name} to be what was compiled, found it changed since: the old one would "
                "run; delete the compiled file, or build and install the wheel anew (make compiled)"
            )
    return True
