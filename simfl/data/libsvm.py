"""LIBSVM (svmlight) text files: `label index:value ...`, read by scikit-learn.

Chang, Lin, LIBSVM, 2011; sets at https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/.
"""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import MEMORY_LIMIT_BYTES, Dataset, Loader, assembled
from simfl.data.files import candidates, first_file, plain_name, read_content
from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams

FETCHABLE = ("a9a", "covtype.binary", "ijcnn1", "phishing", "usps", "w8a")
"""Sets of `simfl data fetch`, for the message about a missing file."""
_MALFORMED = (ValueError, IndexError, OverflowError, MemoryError, UnicodeDecodeError)
"""Errors of scikit-learn for files in another format."""


def load_libsvm(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path,
    test_path: str | Path | None = None,
    test_fraction: float = 0.2,
    features: int | None = None,
    regression: bool = False,
) -> Dataset:
    """Load a LIBSVM file as dense float32.

    A bare name such as `a9a` also means a9a.bz2, a9a.gz and a9a.xz in `root/libsvm`; its test part is `a9a.t` beside
    it, if any. `features` is the number of features to pad to; None: the largest index of both files. See `Loader` for
    the other options.
    """
    train_file = _find(path, root, "data.path")
    test_file = None if test_path is None else _find(test_path, root, "data.test_path")
    if test_file is None and len(Path(path).parts) == 1:
        test_file = first_file([train_file.with_name(plain_name(train_file) + ".t")])
    files = [train_file] if test_file is None else [train_file, test_file]
    (x, y), *rest = _read(files, features)
    options: dict[str, Any] = {"regression": regression, "test_fraction": test_fraction, "files": tuple(files)}
    return assembled(plain_name(train_file), train_file, x, y, rest[0] if rest else None, streams, **options)


def _find(path: str | Path, root: Path | None, key: str) -> Path:
    places = candidates(path, root, "libsvm")
    file = first_file(places)
    if file is not None:
        return file
    name = plain_name(Path(path)).removesuffix(".t")
    advice = f"run `simfl data fetch {name}`" if name in FETCHABLE else "put the file there"
    folder = "" if root is not None or Path(path).is_absolute() else " (SIMFL_DATA names no folder of data sets)"
    raise DataError(f"{key}: {places[0]}: no such file, nor with .bz2, .gz or .xz{folder}; {advice}")


def _read(files: list[Path], features: int | None) -> list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]]:
    """Read files with common features, as wide as the widest of them."""
    from sklearn.datasets import load_svmlight_file

    sparse = []
    starts_at_zero = False
    for file in files:
        content = read_content(file, "replace the file")
        try:
            # Always from index 0: an unused column 0 is cut off below, for all files alike.
            x, y = load_svmlight_file(io.BytesIO(content), dtype=np.float64, zero_based=True)
        except _MALFORMED as error:
            reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise DataError(
                f"{file}:{_bad_line(content)}: not in LIBSVM format `label index:value ...` ({reason}); fix the line"
            ) from None
        if x.shape[0] == 0:
            raise DataError(f"{file}: found no examples; expected lines `label index:value ...`")
        with np.errstate(over="ignore"):  # beyond float32 becomes infinite, which is refused
            finite = np.isfinite(x.data.astype(np.float32))
        if not finite.all():
            row = int(np.searchsorted(x.indptr, np.argmin(finite), side="right")) - 1
            raise DataError(f"{file}:{_line_of(content, row)}: features must be finite, found NaN or infinity; fix it")
        starts_at_zero |= bool(x.nnz and x.indices.min() == 0)
        sparse.append((x, y))
    first = 0 if starts_at_zero else 1
    width = max(1, *(x.shape[1] - first for x, _ in sparse))
    if features is not None and features < width:
        raise ScenarioError(f"data.features: {files[0]}: found features up to {width}, found {features}; leave it out")
    width = width if features is None else features
    dense = []
    for file, (x, y) in zip(files, sparse, strict=True):
        size = math.prod((x.shape[0], width, 4))
        if size > MEMORY_LIMIT_BYTES:
            raise DataError(
                f"{file}: {x.shape[0]} examples of {width} features need {size / 2**30:.0f} GiB as a dense array, "
                f"the limit is {MEMORY_LIMIT_BYTES / 2**30:.0f} GiB; use fewer features"
            )
        out = np.zeros((x.shape[0], width), np.float32)
        x = x.tocoo()
        out[x.row, x.col - first] = x.data
        dense.append((out, y))
    return dense


def _bad_line(content: bytes) -> int:
    """Return the first line that scikit-learn cannot read, by halving."""
    from sklearn.datasets import load_svmlight_file

    lines = content.splitlines()
    begin, end = 0, len(lines)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            load_svmlight_file(io.BytesIO(b"\n".join(lines[begin:middle])), dtype=np.float64, zero_based=True)
            begin = middle
        except _MALFORMED:
            end = middle
    return end


def _line_of(content: bytes, row: int) -> int:
    """Return the line of an example; blank lines and comments are none."""
    lines = (number for number, line in enumerate(content.splitlines(), 1) if line.partition(b"#")[0].strip())
    return next(itertools.islice(lines, row, None))


LOADER = Loader("libsvm", "any LIBSVM file, plain, .bz2, .gz or .xz, named by path; bare names in libsvm/", load_libsvm)
