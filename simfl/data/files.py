"""Finding and reading data files, with one-line messages that say what to do."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from simfl import shipped
from simfl.data.base import MEMORY_LIMIT_BYTES
from simfl.errors import DataError

COMPRESSED: dict[str, Callable[[Path], IO[bytes]]] = {
    ".gz": gzip.open,  # type: ignore[dict-item]
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""Openers by suffix."""

_RATIO, _SMALL_BYTES = 200, 2**26

BROKEN_STREAM = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Errors of gzip, bz2 and lzma for a file that is cut off or has another format."""


def plain_name(path: Path) -> str:
    """Return a file's name without .gz, .bz2 or .xz."""
    return path.stem if path.suffix in COMPRESSED else path.name


def open_decompressed(path: Path, packed_as: str | None = None) -> IO[bytes]:
    """Open a file, decompressed according to its suffix or to `packed_as`."""
    opener = COMPRESSED.get(path.suffix if packed_as is None else packed_as)
    return opener(path) if opener else path.open("rb")


def is_endless(path: Path) -> bool:
    """Return whether a path is a device or a pipe, which may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def most_bytes(path: Path) -> int:
    """Return the largest accepted content, against decompression bombs."""
    return min(MEMORY_LIMIT_BYTES, max(_SMALL_BYTES, _RATIO * path.stat().st_size))


def read_content(path: Path, how_to_replace: str) -> bytes:
    """Read a whole file, decompressed; `how_to_replace` ends each message."""
    if is_endless(path):
        raise DataError(f"{path}: expected a file, found a device or a pipe; {how_to_replace}")
    try:
        most = most_bytes(path)
        with open_decompressed(path) as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise DataError(f"{path}: expected at most {most:,} bytes in it, found more; {how_to_replace}")
        return content
    except IsADirectoryError:
        raise DataError(f"{path}: expected a file, found a folder; {how_to_replace}") from None
    except EOFError:
        raise DataError(f"{path}: the {path.suffix} file is cut off; {how_to_replace}") from None
    except BROKEN_STREAM as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}: cannot be read ({error.strerror}); {how_to_replace}") from None
        raise DataError(f"{path}: not a {path.suffix} file, or damaged ({error}); {how_to_replace}") from None


def first_file(candidates: Sequence[Path]) -> Path | None:
    """Return the first candidate that exists, as named or with .bz2, .gz or .xz."""
    for candidate in candidates:
        for suffix in ("", ".bz2", ".gz", ".xz"):
            path = candidate.with_name(candidate.name + suffix)
            if path.is_file():
                return path
    return None


def candidates(path: str | Path, root: Path | None, *folders: str) -> list[Path]:
    """Return the places where a file may be, best first.

    A bare name (`a9a`) is searched in the `folders` of `root`, the folder of data sets, first; a path with a folder in
    it (`./mine/a9a`) is taken as written first.
    """
    relative = shipped.path_of(Path(path).expanduser())
    if relative.is_absolute():
        return [relative]
    below = [] if root is None else [*(root / folder / relative for folder in folders), root / relative]
    return [*below, relative] if len(relative.parts) == 1 else [relative, *below]


def folder_of(kind: str, path: str | Path | None, root: Path | None) -> Path:
    """Return the folder (or archive) of a set; a `path` of None is `root`/`kind`."""
    if path is None and root is None:
        raise DataError(
            f"data.set: {kind} needs the folder of data sets, and none is named; set SIMFL_DATA to it and run "
            f"`simfl data fetch {kind}`"
        )
    places = candidates(path, root, kind) if path is not None else [Path(root or "", kind)]
    return next((place for place in places if place.exists()), places[0])


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object (`object_pairs_hook`); ValueError for a key given twice."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} twice in one object")
    return content
