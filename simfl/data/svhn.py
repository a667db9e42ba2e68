"""Street View House Numbers, cropped digits: train_32x32.mat and test_32x32.mat.

Netzer, Wang, Coates, Bissacco, Wu and Ng 2011, http://ufldl.stanford.edu/housenumbers/.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simfl.data.base import Dataset, Loader
from simfl.data.cifar import of_planes
from simfl.data.files import folder_of, is_endless
from simfl.errors import DataError
from simfl.streams import Streams

_REPLACE = "fetch it again with `simfl data fetch svhn`"


def load_svhn(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load SVHN as bytes [n, 32, 32, 3], to be standardized by color.

    The two files are in `root/svhn`, or in the folder `path`. Class k is the digit k; the files write 10 for 0.
    """
    files = [folder_of("svhn", path, root) / f"{part}_32x32.mat" for part in ("train", "test")]
    train, test = map(_read, files)
    return of_planes("svhn", train, test, 10, () if path is None else tuple(files))


def _read(file: Path) -> tuple[Any, Any]:
    """Return planes of colors, uint8 [n, 3072], and digits [n]."""
    from scipy.io import loadmat

    if not file.is_file() or is_endless(file):
        raise DataError(f"{file}: no such file; put it there, or run `simfl data fetch svhn`")
    try:
        content = loadmat(file, variable_names=("X", "y"))
        x, y = content["X"], content["y"].ravel()
    except Exception as error:  # whatever a damaged file raises in SciPy
        raise DataError(f"{file}: not a file of SVHN, or damaged ({error}); {_REPLACE}") from None
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3) or len(y) != x.shape[3] or not len(y):
        raise DataError(
            f"{file}: expected X, uint8 [32, 32, 3, n], and y [n], found {x.dtype} {list(x.shape)} and "
            f"{list(y.shape)}; {_REPLACE}"
        )
    if y.dtype.kind not in "iu" or y.min() < 1 or y.max() > 10:
        raise DataError(f"{file}: expected labels 1 to 10, found {y.min()} to {y.max()}; {_REPLACE}")
    return x.transpose(3, 2, 0, 1).reshape(len(y), -1), y % 10


LOADER = Loader("svhn", "house numbers, 32x32, 73,257 + 26,032 of 10 classes; two .mat files in svhn/", load_svhn)
