"""What made the tables of a study: command, version, commits, code and machine."""

from __future__ import annotations

import ast
import functools
import hashlib
import math
import os
import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from simfl import plugins
from simfl.comparison.sweeps import Sweep
from simfl.records.folder import RunFolder
from simfl.version import __version__

ABOUT_FIELDS = ("command", "simfl", "commit", "code", "processor", "cores", "runs", "minutes")
_PACKAGE = Path(__file__).parents[1]

#: The rooms that every run goes through, and the modules that judge it.
ROOMS = ("algorithms", "assembly", "compression", "data", "models", "privacy", "robust", "runs", "scenario",
         "studies", "tape", "world")  # fmt: skip
MODULES = ("comparison/comparing.py", "comparison/intervals.py", "records/costs.py", "streams.py",
           "reproduction/evidence.py")  # fmt: skip


def about_of(command: str, name: str, swept: Sweep) -> dict[str, str]:
    """Return what made the tables of the study `name`, by `ABOUT_FIELDS`.

    `minutes` are those of all runs one after the other, `code` is `code_of` the study, and `commit` says of what its
    runs were made.
    """
    minutes = math.fsum(run.wall_s for run in swept.finished) / 60
    finished = f"{len(swept.finished)} of {len(swept.runs)}"
    cores = str(os.cpu_count() or "")
    values = (command, __version__, commits(swept), code_of(name), processor(), cores, finished, f"{minutes:.0f}")
    return dict(zip(ABOUT_FIELDS, values, strict=True))


def commits(swept: Sweep) -> str:
    """Return the commit of a sweep's runs, or each with its number of runs.

    It is "" for runs of a simfl that does not lie in a clone. With "changed", files differed from the commit.
    """
    manifests = [RunFolder(swept.folder / run.folder).read_manifest() for run in swept.finished]
    counts = Counter(str(manifest.extra.get("commit", "")) for manifest in manifests)
    if len(counts) <= 1:
        return "".join(counts)
    return "; ".join(f"{commit or 'unknown'} ({count} runs)" for commit, count in counts.most_common())


def code_of(name: str, package: Path = _PACKAGE) -> str:
    """Return a digest of the code that a study goes through.

    It covers `ROOMS` and `MODULES`, the study's folder, the papers and other rooms that this imports, and the study's
    scenarios. Comments, docstrings and blank lines do not count. A study whose stored digest differs is older than its
    code.
    """
    name = plugins.names("studies").get(name, name)  # a folder may have several studies
    own = _with_imported_papers(name, package)
    imported = {module[1] for path in own for module in _imports_of(path)} & {"accounts", "attacks"}
    paths = [*own, *(package / module for module in MODULES)]
    for room in sorted({*ROOMS, *imported}):
        paths += sorted((package / room).rglob("*.py"))
    whole = hashlib.sha256()
    for path in filter(Path.exists, paths):
        whole.update(f"{path.relative_to(package).as_posix()}\n{_statements(path)}\n".encode())
    for path in sorted((package.parent / "scenarios" / name).rglob("*.yaml")):
        whole.update(path.name.encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def _with_imported_papers(name: str, package: Path) -> list[Path]:
    """Return the modules of a paper and of all papers that these import."""
    papers, waiting = {name: list[Path]()}, [name]
    while waiting:
        paper = waiting.pop()
        place = package / "papers" / paper
        papers[paper] = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
        for path in filter(Path.exists, papers[paper]):
            new = {module[2] for module in _imports_of(path) if module[1:2] == ["papers"] and len(module) > 2}
            for other in sorted(new - papers.keys()):
                papers[other] = []
                waiting.append(other)
    paths = [path for paper in sorted(papers, key=lambda other: (other != name, other)) for path in papers[paper]]
    return [path for path in paths if path.exists()]


def _imports_of(path: Path) -> Iterator[list[str]]:
    """Yield the names of simfl's modules that a module imports from, split at dots."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simfl."):
            names = str(node.module).split(".")
            yield from ([*names, alias.name] if names == ["simfl", "papers"] else names for alias in node.names)


@functools.cache
def _statements(path: Path) -> str:
    """Return a module's lines without lines of comments, docstrings and blank lines."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        body = node.body if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else []
        for statement in body:
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                for number in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                    lines[number - 1] = ""
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as far as the system tells it."""
    try:
        lines = info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()
