import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from simfl.data import load_dataset
from simfl.errors import DataError, ScenarioError
from simfl.streams import Streams

TEXT = b"-1 1:0.5 3:2\n+1 2:-1\n-1\n+1 4:1e-3\n-1 1:1\n"
DENSE = [[0.5, 0, 2, 0], [0, -1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1e-3], [1, 0, 0, 0]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "libsvm").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_a_bare_name_finds_the_set_and_its_test_file(root: Path, streams: Streams, suffix: str, pack) -> None:
    (root / "libsvm" / f"mine{suffix}").write_bytes(pack(TEXT))
    (root / "libsvm" / f"mine.t{suffix}").write_bytes(pack(b"1 6:3\n-1 1:1\n"))
    data = load_dataset("libsvm", root=root, streams=streams, path="mine")
    assert data.name == "mine"
    np.testing.assert_allclose(data.train_x, np.pad(DENSE, ((0, 0), (0, 2))), rtol=1e-6)  # as wide as the test file
    np.testing.assert_array_equal(data.train_y, [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(data.test_y, [1, 0])
    assert data.test_x[0, 5] == 3.0
    assert data.num_classes == 2


def test_without_a_test_file_it_is_split(root: Path, streams: Streams) -> None:
    (root / "libsvm" / "mine").write_bytes(TEXT)
    data = load_dataset("libsvm", root=root, streams=streams, path="mine", test_fraction=0.4)
    assert (data.train_x.shape, data.test_x.shape) == ((3, 4), (2, 4))
    everything = np.concatenate([data.train_x, data.test_x])
    assert sorted(map(tuple, everything)) == sorted(map(tuple, np.float32(DENSE)))


def test_paths_are_read_and_features_padded(tmp_path: Path, streams: Streams) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(TEXT)
    data = load_dataset(
        "libsvm", root=None, streams=streams, path=tmp_path / "one", test_path=str(tmp_path / "two"), features=7
    )
    assert (data.train_x.shape, data.test_x.shape) == ((5, 7), (5, 7))
    with pytest.raises(ScenarioError, match=r"^data\.features: .*found features up to 4, found 3"):
        load_dataset("libsvm", root=None, streams=streams, path=tmp_path / "one", features=3)


def test_indices_may_start_at_zero(tmp_path: Path, streams: Streams) -> None:
    (tmp_path / "train").write_bytes(b"0 1:1\n1 2:1\n0 1:2\n")
    (tmp_path / "test").write_bytes(b"0 0:5\n1 2:1\n")
    paths = {"path": tmp_path / "train", "test_path": tmp_path / "test"}
    data = load_dataset("libsvm", root=None, streams=streams, **paths)
    np.testing.assert_array_equal(data.train_x, [[0, 1, 0], [0, 0, 1], [0, 2, 0]])
    np.testing.assert_array_equal(data.test_x, [[5, 0, 0], [0, 0, 1]])


def test_regression_keeps_the_targets(tmp_path: Path, streams: Streams) -> None:
    (tmp_path / "file").write_bytes(b"0.5 1:1\n1.25 2:1\n-3 1:2\n2 1:1\n")
    data = load_dataset("libsvm", root=None, streams=streams, path=tmp_path / "file", regression=True)
    assert data.num_classes == 0
    assert data.train_y.dtype == np.float32
    assert sorted([*data.train_y, *data.test_y]) == [-3.0, 0.5, 1.25, 2.0]


@pytest.mark.parametrize(("content", "message"), [
    (b"", "found no examples"),
    (b"1 1:2\n1 1:3\n1 2:2\n", "at least two classes, found the single label 1"),
    (b"# c\n\n0 1:2\n1 a:2\n0 1:2\n", ":4: not in LIBSVM format `label index:value ...`"),
    (b"1 3:2 2:1\n", ":1: not in LIBSVM format"),
    (b"1 2:2 2:1\n", "not in LIBSVM format"),
    (b"1 -2:2\n", "not in LIBSVM format"),
    (b"1 1:1\r\n1 1:2 3", ":2: not in LIBSVM format"),
    (b"yes 1:2\n", "not in LIBSVM format"),
    (b"<html><body>404</body></html>\n", "not in LIBSVM format"),
    (bytes(range(128, 256)), "not in LIBSVM format"),
    (b"1,2 1:1\n", "not in LIBSVM format"),
    (b"0 1:1 2:1 3:1\n\n# c\n1\n1 1:nan\n", ":5: features must be finite"),
    (b"0 1:1\n1 1:1e60\n", ":2: features must be finite"),
    (b"0 1:1\n0.5 1:1\n", "labels must be whole numbers"),
    (b"0 1:1\n1 2000000000:1\n0 1:2\n1 1:1\n", "need 30 GiB as a dense array, the limit is 16 GiB"),
    (b"0 1:1\n1 99999999999999999999:1\n", "not in LIBSVM format"),
])  # fmt: skip
def test_malformed_files_are_refused(tmp_path: Path, streams: Streams, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset("libsvm", root=None, streams=streams, path=path)
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "content", "message"), [
    ("file.bz2", bz2.compress(TEXT)[:-10], "the .bz2 file is cut off"),
    ("file.bz2", TEXT, "not a .bz2 file, or damaged"),
    ("file.gz", TEXT, "not a .gz file, or damaged"),
    ("file.xz", lzma.compress(TEXT)[:-10], "the .xz file is cut off"),
    ("file.xz", TEXT, "not a .xz file, or damaged"),
])  # fmt: skip
def test_bad_archives_are_refused(tmp_path: Path, streams: Streams, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset("libsvm", root=None, streams=streams, path=tmp_path / name)


def test_missing_files_say_how_to_fetch_them(root: Path, streams: Streams) -> None:
    with pytest.raises(DataError) as caught:
        load_dataset("libsvm", root=root, streams=streams, path="a9a")
    assert str(caught.value) == (
        f"data.path: {root / 'libsvm' / 'a9a'}: no such file, nor with .bz2, .gz or .xz; run `simfl data fetch a9a`"
    )
    with pytest.raises(DataError, match=r"SIMFL_DATA names no folder of data sets\); put the file there"):
        load_dataset("libsvm", root=None, streams=streams, path="mine")
    (root / "libsvm" / "mine").write_bytes(TEXT)
    with pytest.raises(DataError, match=r"^data\.test_path: .*other: no such file"):
        load_dataset("libsvm", root=root, streams=streams, path="mine", test_path="other")


@pytest.mark.slow(but=["phishing-train2-1681-2"])
@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [("a9a", (32561, 123), 16281, 2), ("usps", (7291, 256), 2007, 10), ("phishing", (6723, 68), 1681, 2)],
)
def test_real_sets_have_their_published_shapes(
    real_root: Path, streams: Streams, name: str, train: tuple[int, int], test: int, classes: int
) -> None:
    data = load_dataset("libsvm", root=real_root, streams=streams, path=name)
    assert (data.train_x.shape, len(data.test_y), data.num_classes) == (train, test, classes)
