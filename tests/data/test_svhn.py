"""House numbers: MATLAB files that the test writes."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from simfl.data import load_dataset
from simfl.errors import DataError
from simfl.streams import Streams

X = np.random.default_rng(2).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
Y = (1 + np.arange(12)[:, None] % 10).astype(np.uint8)


def write(folder: Path, part: str, x: np.ndarray = X, y: np.ndarray = Y) -> None:
    folder.mkdir(exist_ok=True)
    savemat(folder / f"{part}_32x32.mat", {"X": x, "y": y})


def test_the_digit_ten_is_zero_and_images_are_upright(tmp_path: Path, streams: Streams) -> None:
    write(tmp_path / "svhn", "train")
    write(tmp_path / "svhn", "test", X[..., :3], Y[:3])
    data = load_dataset("svhn", root=tmp_path, streams=streams)
    np.testing.assert_array_equal(data.train_x[7], X[..., 7])
    assert (data.train_y.tolist(), data.test_y.tolist()) == ([1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2], [1, 2, 3])
    assert (data.train_x.dtype, data.image_shape, data.num_classes) == (np.uint8, (32, 32, 3), 10)
    np.testing.assert_allclose(data.floats().train_x.std((0, 1, 2), dtype=np.float64), 1, atol=1e-6)


@pytest.mark.parametrize(("x", "y", "message"), [
    (X[:8], Y, r"expected X, uint8 \[32, 32, 3, n\], and y \[n\], found uint8 \[8, 32, 3, 12\] and \[12\]"),
    (X, Y[:4], r"found uint8 \[32, 32, 3, 12\] and \[4\]"), (X, Y - 1, "expected labels 1 to 10, found 0 to 9"),
])  # fmt: skip
def test_other_files_are_one_line(x: np.ndarray, y: np.ndarray, message: str, tmp_path: Path, streams: Streams) -> None:
    write(tmp_path, "train", x, y)
    with pytest.raises(DataError, match=message):
        load_dataset("svhn", root=None, streams=streams, path=tmp_path)
    (tmp_path / "train_32x32.mat").write_bytes(b"none")
    with pytest.raises(DataError, match="not a file of SVHN, or damaged"):
        load_dataset("svhn", root=None, streams=streams, path=tmp_path)
    with pytest.raises(DataError, match=r"no such file; put it there, or run `simfl data fetch svhn`"):
        load_dataset("svhn", root=tmp_path / "empty", streams=streams)
