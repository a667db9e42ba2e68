"""Problems given as matrices: archives with A and b, or x and y, of each client.

    quadratic          A [n, d, d], b [n, d]: 1/2 w^T A_i w - b_i^T w; `client` [n], without which each is a client's
    linear, logistic   x [K, m, p], y [K, m]: m examples of each client; or x [n, p], y [n] and `client` [n]

All become float32. `simfl.data.synthetic` finds their optima.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import FloatArray, check_features
from simfl.data.npz import read_arrays
from simfl.errors import DataError, nearest

#: The largest relative difference of A_ij and A_ji that is taken for rounding.
_ASYMMETRY = 1e-6


def read_forms(path: str | Path, root: Path | None) -> tuple[Path, FloatArray, FloatArray, npt.NDArray[Any]]:
    """Return the file, A [n, d, d], b [n, d], and the owners [n]."""
    file, arrays = _read(path, root, ("A", "b"))
    matrices, vectors = arrays["A"], arrays["b"]
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or vectors.shape != matrices.shape[:2]:
        raise DataError(
            f"{file}: expected A of shape [n, d, d] and b of shape [n, d], found {matrices.shape} and {vectors.shape}"
        )
    turned = matrices.swapaxes(1, 2)
    apart = np.abs(matrices - turned).max(axis=(1, 2)) > _ASYMMETRY * np.abs(matrices).max(axis=(1, 2))
    if apart.any():
        raise DataError(
            f"{file}: A: expected symmetric matrices, found A[{int(np.argmax(apart))}] that is not; use (A + A^T) / 2"
        )
    means = ((matrices + turned) / 2).astype(np.float32)
    return file, means, vectors, _owners(file, arrays, len(matrices), np.arange(len(matrices)))


def read_rows(path: str | Path, root: Path | None) -> tuple[Path, FloatArray, FloatArray, npt.NDArray[Any]]:
    """Return the file, x [n, p], y [n], and the owners [n]."""
    file, arrays = _read(path, root, ("x", "y"))
    x, y = arrays["x"], arrays["y"]
    if x.ndim not in (2, 3) or y.shape != x.shape[:-1]:
        raise DataError(
            f"{file}: expected x of shape [clients, examples, features] and y of shape [clients, examples], or [n, "
            f"features] and [n], found {x.shape} and {y.shape}"
        )
    usual = None
    if x.ndim == 3:
        usual = np.repeat(np.arange(len(x)), x.shape[1])
        x, y = x.reshape(-1, x.shape[2]), y.reshape(-1)
    return file, x, y, _owners(file, arrays, len(x), usual)


def binary(file: Path, y: FloatArray) -> npt.NDArray[np.int32]:
    """Return labels 0 and 1, from those or from -1 and 1."""
    values = set(np.unique(y).tolist())
    if not (values <= {0.0, 1.0} or values <= {-1.0, 1.0}):
        some = ", ".join(f"{value:g}" for value in sorted(values)[:4])
        raise DataError(f"{file}: y: expected labels 0 and 1, or -1 and 1, of a logistic problem, found {some}")
    return (y > 0).astype(np.int32)


def _read(path: str | Path, root: Path | None, keys: tuple[str, str]) -> tuple[Path, dict[str, FloatArray]]:
    """Return the file and its arrays, with those of `keys` as float32."""
    file, arrays = read_arrays(path, root, "data.path", (*keys, "client"), " and ".join(keys))
    for key in keys:
        if key not in arrays:
            raise DataError(f"{file}: missing key {key}; found {', '.join(arrays)}{nearest(key, arrays)}")
        if arrays[key].dtype.kind not in "biuf":
            raise DataError(f"{file}: {key}: expected numbers, found {arrays[key].dtype}")
        arrays[key] = arrays[key].astype(np.float32)
        check_features(f"{file}: {key}", arrays[key])
    return file, arrays


def _owners(file: Path, arrays: dict[str, Any], count: int, usual: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """Return the owner of each of `count` examples."""
    owners: npt.NDArray[Any] | None = arrays.get("client", usual)
    if owners is None:
        raise DataError(
            f"{file}: missing key client, the client of each of {count} examples; add it, or give x of shape "
            "[clients, examples, features]"
        )
    if owners.shape != (count,):
        raise DataError(f"{file}: client: expected a value for each of {count} examples, found shape {owners.shape}")
    return owners
