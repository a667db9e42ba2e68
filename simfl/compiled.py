"""Whether the modules that run for every event are compiled and current.

Wheels hold them compiled by mypyc (`setup.py`), beside their sources; Python imports the compiled one of the two, so
that an edited source would do nothing without a word. `compiled.json` says what was compiled.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from simfl.errors import SimflError

#: An int and a float, of what algorithms hand over. A module that is compiled knows nothing of this one, and so takes
#: whatever counts as a number there, NumPy's too, as it does uncompiled; of an `int` of its own it takes no other.
Integer = int
Number = float

_PACKAGE = Path(__file__).parent


@functools.cache
def is_compiled() -> bool:
    """Return whether modules of simfl that are in use are compiled.

    Raises:
        SimflError: one of them is not what its source says.
    """
    return check_compiled(
        {
            name: Path(file)
            for name, module in list(sys.modules.items())
            if name.startswith("simfl.") and (file := getattr(module, "__file__", None))
        },
        _PACKAGE,
    )


def check_compiled(modules: dict[str, Path], package: Path) -> bool:
    """Return whether modules are compiled; reject them if their sources changed.

    Args:
        modules: files of modules, by name.
        package: the folder of simfl, with `compiled.json`.
    """
    files = {name: file for name, file in modules.items() if file.name.endswith(tuple(EXTENSION_SUFFIXES))}
    if not files:
        return False
    told = package / "compiled.json"
    sources = json.loads(told.read_text(encoding="utf-8")) if told.exists() else {}
    for name, file in sorted(files.items()):
        source = package.joinpath(*name.split(".")[1:]).with_suffix(".py")
        key = f"{package.name}/{source.relative_to(package).as_posix()}"
        if not source.exists() or hashlib.sha256(source.read_bytes()).hexdigest() != sources.get(key):
            raise SimflError(
                f"{file}: expected {source.name} to be what was compiled, found it changed since: the old one would "
                "run; delete the compiled file, or build and install the wheel anew (make compiled)"
            )
    return True
