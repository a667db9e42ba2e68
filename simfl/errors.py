"""The exceptions of simfl.

Each message is one line that says where, what was expected, what was found and what to do.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path

#: The most characters of an error of a user's code in a message.
_LONGEST = 240
_PACKAGE = os.path.dirname(__file__)
#: The beginning of the file names of compiled modules in a traceback.
_COMPILED = "simfl/"


class SimflError(Exception):
    """Base class of all exceptions that simfl raises on purpose."""


class ScenarioError(SimflError):
    """A scenario, override or argument that cannot be run (exit code 2)."""


class ConditionError(ScenarioError):
    """A theorem's condition that is not met; the message names it (exit code 2)."""


class DataError(SimflError):
    """A data file that is missing, truncated or malformed (exit code 2)."""


class RunError(SimflError):
    """A valid run that failed (exit code 1)."""


def nearest(word: object, valid: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the closest valid word, or "".

    Words are compared without case.
    """
    words = {name.casefold(): name for name in reversed(list(valid))}  # the first of those that differ in case alone
    close = difflib.get_close_matches(str(word).casefold(), words, n=1, cutoff=0.6)
    return f"; did you mean '{words[close[0]]}'?" if close else ""


def missing(error: ModuleNotFoundError) -> str | None:
    """Return the line for a library of simfl that is not installed.

    None: the module is none of them.
    """
    from importlib.metadata import requires

    module = (error.name or "").partition(".")[0]
    name = {"sklearn": "scikit-learn", "yaml": "PyYAML"}.get(module, module.replace("_", "-"))
    required = {re.split(r"[^\w-]", line)[0].lower() for line in requires("simfl") or ()}
    return f"expected {name} to be installed, found nothing; pip install {name}" if name.lower() in required else None


def to_path(value: object, expected: str) -> Path:
    """Return a path, or raise a `ScenarioError` for a value that is not one.

    `expected` is the caller's argument in words, for the message, such as "the path of a scenario".
    """
    name = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if isinstance(name, str):
        return Path(name)
    shown = " ".join(repr(value).split())
    described = type(value).__name__ if value is None or len(shown) > 60 else f"{type(value).__name__} {shown}"
    raise ScenarioError(f"expected {expected}, found {described}")


def printable(text: str) -> str:
    """Return a text with a terminal's control characters escaped."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def damaged_archive() -> tuple[type[Exception], ...]:
    """Return the errors of NumPy and zipfile for damaged .npz files."""
    import tokenize
    import zipfile  # slow to import, and most commands need no archive
    import zlib

    return (
        *(OSError, EOFError, ValueError, KeyError, MemoryError, RuntimeError, NotImplementedError),
        *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, OverflowError, AttributeError),
    )


def raised(error: BaseException) -> str:
    """Return an error in one line, with its place in the user's code."""
    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{reason if len(reason) <= _LONGEST else f'{reason[:_LONGEST]}…'}{place_of(error)}"


def place_of(error: BaseException) -> str:
    """Return the place in the user's code where an error arose, or "".

    If a library that this code calls raised it, the place is that of the call.
    """
    import traceback

    if isinstance(error, SyntaxError):
        return f" in {error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith((_PACKAGE, _COMPILED))
    ]
    user_frames = [frame for frame in frames if not frame.filename.startswith(libraries())]
    if not frames and error.__cause__ is not None:  # a generator's StopIteration becomes a RuntimeError elsewhere
        return place_of(error.__cause__)
    return next((f" in {frame.filename}:{frame.lineno}" for frame in reversed(user_frames or frames)), "")


def libraries() -> tuple[str, ...]:
    """Return the folders of Python's modules and of installed packages."""
    import sysconfig

    return tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
