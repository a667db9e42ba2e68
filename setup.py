"""What pyproject.toml cannot say: wheels hold the modules that run for every event compiled by mypyc.

They are the same sources, and what a run computes is the same either way. An editable installation is never compiled,
so that what is edited is what runs; neither is a wheel that is built where there is no C compiler. `make compiled`
builds one and compares. The environment variable SIMFL_COMPILED says "never", or "always" to fail instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_py import build_py

HOT = (
    "simfl/tape/recording.py",
    "simfl/world/compute.py",
    "simfl/world/links.py",
)
#: mypy looks at nothing else, so that what is compiled does not depend on which libraries are installed.
FLAGS = ("--config-file=", "--follow-imports=skip", "--ignore-missing-imports", "--disable-error-code=var-annotated")


def compiler_missing() -> str:
    """Return why no C extension can be compiled here; nothing if one can."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nPyMODINIT_FUNC PyInit_probe(void) { return NULL; }\n")
        command = Distribution({"ext_modules": [Extension("probe", [str(source)])]}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = folder, folder
        try:
            command.ensure_finalized()
            command.run()
        except Exception as error:
            return str(error)
    return ""


def extensions() -> list[Extension]:
    """Return what to compile: nothing but where a wheel is built, and can be."""
    choice = os.environ.get("SIMFL_COMPILED", "")
    if "bdist_wheel" not in sys.argv or choice == "never":
        return []
    missing = compiler_missing()
    if missing and choice != "always":
        print(f"simfl: the wheel is not compiled, there is no C compiler: {missing}", file=sys.stderr)
        return []
    from mypyc.build import mypycify  # takes a second, and only a wheel needs it

    found = mypycify([*FLAGS, *HOT], opt_level="3", debug_level="0", group_name="simfl")
    for extension in found:  # a compiler that warns of something new is no reason to fail
        extension.extra_compile_args = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
    return found


class BuildPython(build_py):
    """Keeps beside the sources which of them were compiled, and what they were: `simfl.compiled` reads it."""

    def run(self) -> None:
        """Copy the sources, and say of what the extensions are made."""
        super().run()
        if self.distribution.ext_modules:
            sources = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in HOT}
            Path(self.build_lib, "simfl", "compiled.json").write_text(json.dumps(sources, indent=1))


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_py": BuildPython})
