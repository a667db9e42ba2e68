"""NumPy archives with `x_train, y_train[, x_test, y_test]`, or `x, y`.

`x_validation, y_validation` are the examples of `data.validation: own`.
Another array [n] may name the owner of each training example (`data.partition: {kind: by_column, column: user}`), and
one with `_test` after its name those of test examples.
Integers of up to 32 bits are stored as such, all else as float32; `scale` or `normalize` changes what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, Loader, Stored, assembled, check_features, narrowed, scaling_by
from simfl.data.files import candidates, first_file
from simfl.errors import DataError, damaged_archive, nearest
from simfl.streams import Streams

_KEYS = ("x", "y", "x_train", "y_train", "x_test", "y_test", "x_validation", "y_validation")


def load_npz(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path,
    test_path: str | Path | None = None,
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
    scale: float | None = None,
    own_validation: bool = False,
) -> Dataset:
    """Load an .npz archive.

    Images [n, height, width] are stored flat, with their `image_shape`; [n, height, width, channels] stay as they are.
    The test part is in the archive, or in `test_path` as `x_test, y_test` or `x, y`. `scale` is the factor of integer
    features, such as 1/255; None: 1. `own_validation` takes the validation part, too. See `Loader` for the others.
    """
    keys = _KEYS if group is None else (*_KEYS, group, f"{group}_test")
    file, arrays = read_arrays(path, root, "data.path", keys)
    train_keys = ("x_train", "y_train") if "x_train" in arrays or "y_train" in arrays else ("x", "y")
    x, y = _pair(file, arrays, *train_keys)
    groups = test_groups = None
    if group is not None:
        if group not in arrays:
            raise DataError(f"{file}: missing key {group}, data.partition.column; add an array of {len(x)} values")
        groups = _owners(file, arrays, group, len(x))
    test, test_file, named = None, file, f"{group}_test"
    if test_path is not None:
        test_file, test_arrays = read_arrays(test_path, root, "data.test_path", keys)
        named = named if named in test_arrays else str(group)
        test_keys = ("x_test", "y_test") if "x_test" in test_arrays else ("x", "y")
        test = _pair(test_file, test_arrays, *test_keys)
    elif "x_test" in arrays or "y_test" in arrays:
        test, test_arrays = _pair(file, arrays, "x_test", "y_test"), arrays
    if test is not None and named in test_arrays:
        test_groups = _owners(test_file, test_arrays, named, len(test[0]))
    if test is not None and test[0].shape[1:] != x.shape[1:]:
        raise DataError(f"{test_file}: test examples have shape {test[0].shape[1:]}, training ones {x.shape[1:]}")
    aside = 0
    if own_validation:
        part = _pair(file, arrays, "x_validation", "y_validation") if "x_validation" in arrays else None
        if part is None or test is None or part[0].shape[1:] != x.shape[1:]:
            expected = f"x_test and y_test, and x_validation and y_validation with examples of shape {x.shape[1:]}"
            raise DataError(f"{file}: expected {expected}, for data.validation: own, found {', '.join(arrays)}")
        aside = len(part[0])
        test = np.concatenate([test[0], part[0]]), np.concatenate([test[1], part[1]])
        test_groups = None if test_groups is None else np.resize(test_groups, len(test[0]))  # only those of tests stay
    return assembled(
        file.stem,
        file,
        _flat(x),
        y,
        None if test is None else (_flat(test[0]), test[1]),
        streams,
        regression=regression,
        test_fraction=test_fraction,
        groups=groups,
        test_groups=test_groups,
        image_shape=x.shape[1:] if x.ndim >= 3 else None,
        scaling=scaling_by(file, x, scale),
        files=tuple(dict.fromkeys((file, test_file))),
        own_validation=aside,
    )


def _owners(file: Path, arrays: dict[str, npt.NDArray[Any]], group: str, n: int) -> npt.NDArray[Any]:
    groups = arrays[group]
    if groups.shape != (n,):
        raise DataError(f"{file}: {group}: expected a value for each of {n} examples, found {groups.shape}")
    if groups.dtype.kind not in "biufUS":
        raise DataError(f"{file}: {group}: expected numbers or words, found {groups.dtype}; name each owner")
    if groups.dtype.kind == "f" and not np.isfinite(groups).all():
        row = int(np.argmin(np.isfinite(groups)))
        raise DataError(f"{file}: {group}: example {row}: expected an owner, found {groups[row]}; name it")
    return groups


def read_examples(path: str | Path, root: Path | None) -> tuple[Path, Stored, npt.NDArray[Any]]:
    """Return a file, and its features and raw labels: x_test, y_test or x, y."""
    file, arrays = read_arrays(path, root, "data")
    keys = ("x_test", "y_test") if "x_test" in arrays or "y_test" in arrays else ("x", "y")
    x, y = _pair(file, arrays, *keys)
    return file, x, y


def read_arrays(
    path: str | Path,
    root: Path | None,
    key: str,
    keys: tuple[str, ...] = _KEYS,
    expected: str = "x_train and y_train, or x and y",
) -> tuple[Path, dict[str, npt.NDArray[Any]]]:
    """Return an archive's file and its arrays of some names.

    Pickled objects, which can run code, are refused. `key` is the field of the scenario, `expected` says in messages
    what the archive needs.
    """
    places = candidates(path, root, "npz")
    file = first_file(places) or first_file([place.with_name(place.name + ".npz") for place in places])
    if file is None:
        raise DataError(
            f"{key}: {places[0]}: no such file; put an .npz archive with {expected.partition(',')[0]} there"
        )
    try:
        # Opened here: given a name, NumPy leaves a damaged archive open.
        with file.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError(f"{file}: expected an .npz archive, found a single array; write it with numpy.savez")
            if sum(member.file_size for member in archive.zip.infolist()) > MEMORY_LIMIT_BYTES:
                raise ValueError(f"larger than {MEMORY_LIMIT_BYTES >> 30} GiB")
            arrays = {name: archive[name] for name in archive.files if name in keys}
            if any(not isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("a member is not an array")
            names = ", ".join(archive.files) or "none"
    except damaged_archive() as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{file}: not an .npz archive of numbers, or damaged ({reason}); write it again") from None
    if not arrays:
        raise DataError(f"{file}: expected the keys {expected}; found {names}")
    return file, arrays


def _pair(file: Path, arrays: dict[str, npt.NDArray[Any]], x_key: str, y_key: str) -> tuple[Stored, npt.NDArray[Any]]:
    for key in (x_key, y_key):
        if key not in arrays:
            raise DataError(f"{file}: missing key {key}; found {', '.join(arrays)}{nearest(key, arrays)}")
        if arrays[key].dtype.kind not in "biuf":
            raise DataError(f"{file}: {key}: expected numbers, found {arrays[key].dtype}")
    x, y = arrays[x_key], arrays[y_key]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"{file}: {y_key}: expected one label per example, [n], found shape {y.shape}")
    if not 2 <= x.ndim <= 4:
        raise DataError(f"{file}: {x_key}: expected shape [n, features] or images [n, h, w(, c)], found {x.shape}")
    if len(x) != len(y):
        raise DataError(f"{file}: found {len(x)} examples in {x_key} and {len(y)} labels in {y_key}")
    x = narrowed(x)
    check_features(f"{file}: {x_key}", x)
    return x, y


def _flat(x: Stored) -> Stored:
    """Flatten gray images, as MNIST's are; leave vectors and color images as they are."""
    return x.reshape(len(x), -1) if x.ndim == 3 else x


LOADER = Loader("npz", "any NumPy archive with x_train, y_train[, x_test, y_test] or x, y, named by path", load_npz)
