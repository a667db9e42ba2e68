"""Models as files: NumPy archives of named parameter parts, with a digest.

`model.npz` of a run's folder is the evaluated model, the mean or the server's; `client_models.npz`
(`record.client_models`) holds those of all clients, each part with a first axis [K]. Files are written next to their
place and moved when complete. Members carry no date, so that equal models give equal files.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.errors import DataError, RunError, damaged_archive
from simfl.records.writer import cannot_write, replacing

Parts = Mapping[str, NDArray[Any]]
"""Name of a part -> its values."""

LARGEST_BYTES, SMALL_BYTES, RATIO = 16 * 2**30, 2**26, 200
"""Limits of a file's content, absolute and by the file's size, so that memory cannot run out."""


def write_models(path: Path, parts: Parts) -> str:
    """Write parts atomically and return their digest; RunError if it fails."""
    try:
        with replacing(path) as partial, zipfile.ZipFile(partial, "w", allowZip64=True) as archive:
            for name, part in parts.items():
                # Without a date, a member is from 1980.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(part), allow_pickle=False)
    except OSError as error:
        raise RunError(f"{path}: {cannot_write('the model', path, error)}") from error
    return digest_parts(parts)


def read_models(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read the parts back in order; DataError if it is not an archive of real arrays."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("a folder" if path.is_dir() else "a device or a pipe")  # which may never end
        most = min(LARGEST_BYTES, max(SMALL_BYTES, RATIO * path.stat().st_size))
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > most:
                raise ValueError(f"one that says it holds more than {most:,} bytes")
            parts = {}
            for member in members:
                with archive.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    parts[name] = np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except FileNotFoundError:
        raise DataError(f"{path}: expected a model (.npz), found nothing there") from None
    except damaged_archive() as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: expected an .npz archive of a model's parts, found {reason}") from None
    for name, part in parts.items():
        if part.dtype.kind not in "fiu":
            raise DataError(f"{path}: {name}: expected numbers, found {part.dtype}")
    return {name: part.astype(np.float32, copy=False) for name, part in parts.items()}


def digest_parts(parts: Parts) -> str:
    """Return the SHA-256 of names, shapes and values (float32, by rows), in hex."""
    digest = hashlib.sha256()
    for name, part in parts.items():
        digest.update(f"{name}:{list(part.shape)};".encode())
        digest.update(np.ascontiguousarray(part, dtype="<f4").data)
    return digest.hexdigest()
