"""What pyproject.toml cannot say: wheels hold the modules that run for every event compiled by mypyc.

They are the same sources, and what a run computes is the same either way. `pip install .` builds a wheel, and so it
compiles. An editable installation (`make setup`) is never compiled, so that what is edited is what runs. A wheel is
built from the sources alone where there is no C compiler or no mypy, and it says so: `simfl --version --verbose` has
the reason in one line. SIMFL_COMPILE=0 turns compilation off; with SIMFL_COMPILE=1, a wheel that cannot be compiled is
an error. `make compiled` builds a compiled wheel and compares.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build_py import build_py

HOT = (
    "simfl/algorithms/adpsgd.py",
    "simfl/algorithms/base.py",
    "simfl/algorithms/batches.py",
    "simfl/algorithms/decentralized_sgd.py",
    "simfl/algorithms/disclosure.py",
    "simfl/algorithms/fedasync.py",
    "simfl/algorithms/fedavg.py",
    "simfl/algorithms/fedbuff.py",
    "simfl/algorithms/gossip_learning.py",
    "simfl/algorithms/local_rounds.py",
    "simfl/algorithms/mixing.py",
    "simfl/algorithms/neighbor_rounds.py",
    "simfl/algorithms/pairing.py",
    "simfl/algorithms/server.py",
    "simfl/algorithms/service.py",
    "simfl/algorithms/staleness.py",
    "simfl/algorithms/steps.py",
    "simfl/algorithms/sync_sgd.py",
    "simfl/algorithms/times.py",
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


def reason_not_to() -> str:
    """Return why nothing is compiled; nothing if something is."""
    choice = os.environ.get("SIMFL_COMPILE", "")
    if "bdist_wheel" not in sys.argv:
        return "only wheels are compiled"
    if choice == "0":
        return "SIMFL_COMPILE=0"
    if choice == "1":
        return ""
    if importlib.util.find_spec("mypyc") is None:
        return "there is no mypy: pip install 'mypy>=2.4'"
    missing = compiler_missing()
    return f"there is no C compiler: {missing}" if missing else ""


def extensions(reason: str) -> list[Extension]:
    """Return what to compile: nothing if there is a reason."""
    if reason:
        if "bdist_wheel" in sys.argv:
            print(f"simfl: the wheel is not compiled, {reason}", file=sys.stderr)
        return []
    from mypyc.build import mypycify  # takes a second, and only a wheel needs it

    found = mypycify([*FLAGS, *HOT], opt_level="3", debug_level="0", group_name="simfl")
    for extension in found:  # a compiler that warns of something new is no reason to fail
        extension.extra_compile_args = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
        if os.name == "posix":  # calls within a module may be inlined: no other module replaces its functions
            extension.extra_compile_args.append("-fno-semantic-interposition")
    return found


class BuildPython(build_py):
    """Keeps beside the sources the scenarios (`simfl.shipped`), and what was compiled or why nothing was."""

    def run(self) -> None:
        """Copy the sources and the scenarios, and say of what the extensions are made."""
        super().run()
        if self.editable_mode:
            return
        unread = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree("scenarios", Path(self.build_lib, "simfl", "scenarios"), ignore=unread, dirs_exist_ok=True)
        compiled = HOT if self.distribution.ext_modules else ()
        sources = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in compiled}
        listing = {"sources": sources, "reason": REASON}
        Path(self.build_lib, "simfl", "compiled.json").write_text(json.dumps(listing, indent=1), encoding="utf-8")


if __name__ == "__main__":
    REASON = reason_not_to()
    setup(ext_modules=extensions(REASON), cmdclass={"build_py": BuildPython})
