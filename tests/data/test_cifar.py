import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from simfl.data import load_dataset
from simfl.errors import DataError
from simfl.streams import Streams


def batch(n: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 10, (n, 1), dtype=np.uint8)
    return np.concatenate([labels, generator.integers(0, 256, (n, 3072), dtype=np.uint8)], axis=1)


BATCHES = {"data_batch_1.bin": batch(5, 1), "data_batch_2.bin": batch(4, 2), "test_batch.bin": batch(3, 3)}


def archive(contents: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def write_archive(root: Path, contents: dict[str, bytes], name: str = "cifar-10-binary.tar.gz") -> Path:
    path = root / "cifar10" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(archive(contents))
    return path


def as_bytes() -> dict[str, bytes]:
    return {name: records.tobytes() for name, records in BATCHES.items()}


def test_archive_and_folder_give_equal_sets(tmp_path: Path, streams: Streams) -> None:
    path = write_archive(tmp_path, {"readme.html": b"hello", **as_bytes()})
    data = load_dataset("cifar10", root=tmp_path, streams=streams)
    assert data.train_x.shape == (9, 32, 32, 3)
    assert data.test_x.shape == (3, 32, 32, 3)
    assert data.train_x.dtype == np.uint8
    floats = data.floats().train_x
    np.testing.assert_allclose(floats.mean((0, 1, 2), dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(floats.std((0, 1, 2), dtype=np.float64), 1, atol=1e-6)

    folder = tmp_path / "unpacked"
    folder.mkdir()
    for name, content in as_bytes().items():
        (folder / name).write_bytes(content)
    for other in (path, folder):
        again = load_dataset("cifar10", root=None, streams=streams, path=other)
        np.testing.assert_array_equal(again.train_x, data.train_x)
        np.testing.assert_array_equal(again.test_y, BATCHES["test_batch.bin"][:, 0])


def test_pixels_are_placed_as_the_format_says(tmp_path: Path, streams: Streams) -> None:
    write_archive(tmp_path, as_bytes())
    data = load_dataset("cifar10", root=tmp_path, streams=streams).floats()
    training = np.concatenate([BATCHES["data_batch_1.bin"], BATCHES["data_batch_2.bin"]])
    red, green = training[:, 1:1025] / 255.0, training[:, 1025:2049] / 255.0
    expected = (training[6, 1 + 1024 + 3 * 32 + 5] / 255.0 - green.mean()) / green.std()
    assert data.train_x[6, 3, 5, 1] == pytest.approx(expected, abs=1e-5)
    tested = BATCHES["test_batch.bin"]
    expected = (tested[2, 1 + 31 * 32] / 255.0 - red.mean()) / red.std()  # by the training part's statistics
    assert data.test_x[2, 31, 0, 0] == pytest.approx(expected, abs=1e-5)


def test_batch_ten_is_read_after_batch_two(tmp_path: Path, streams: Streams) -> None:
    write_archive(tmp_path, {**as_bytes(), "data_batch_10.bin": batch(2, 10).tobytes()})
    data = load_dataset("cifar10", root=tmp_path, streams=streams)
    np.testing.assert_array_equal(data.train_y[-2:], batch(2, 10)[:, 0])


def test_one_of_two_archives_must_be_named(tmp_path: Path, streams: Streams) -> None:
    write_archive(tmp_path, as_bytes(), "a.tar.gz")
    write_archive(tmp_path, as_bytes(), "b.tar.gz")
    with pytest.raises(DataError, match=r"found 2 archives \(a.tar.gz, b.tar.gz\); name one in data.path"):
        load_dataset("cifar10", root=tmp_path, streams=streams)
    assert len(load_dataset("cifar10", root=tmp_path, streams=streams, path="a.tar.gz").train_y) == 9


@pytest.mark.parametrize(("content", "message"), [
    (archive(as_bytes())[:-3000], "cut off, or not a tar archive"),
    (b"no archive", "cut off, or not a tar archive"),
    (b"", "cut off, or not a tar archive"),
    (archive({"data_batch_1.bin": b"x" * 3073}), "expected labels 0 to 9, found 120"),
    (archive({**as_bytes(), "data_batch_1.bin": b"\0" * 4000}), "records of 3073 bytes, found 4000 bytes"),
    (archive({**as_bytes(), "test_batch.bin": b""}), "records of 3073 bytes, found 0 bytes"),
    (archive({"test_batch.bin": bytes(3073)}), "expected data_batch_1.bin .* found test_batch.bin;"),
    (archive({"data_batch_1": b"pickle"}), "binary version of CIFAR-10.*found none of them; .*fetch cifar10"),
])  # fmt: skip
def test_damaged_archives_are_refused(tmp_path: Path, streams: Streams, content: bytes, message: str) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "some.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset("cifar10", root=tmp_path, streams=streams)
    assert "\n" not in str(caught.value)
    assert "some.tar.gz" in str(caught.value)


def test_a_missing_set_says_how_to_fetch_it(tmp_path: Path, streams: Streams) -> None:
    with pytest.raises(DataError, match=r"no CIFAR-10 there; put .* or run `simfl data fetch cifar10`$"):
        load_dataset("cifar10", root=tmp_path, streams=streams)


def test_a_real_batch_of_cifar10_is_read(real_root: Path, streams: Streams) -> None:
    data = load_dataset("cifar10", root=real_root, streams=streams)
    assert data.train_x.shape[1:] == (32, 32, 3)
    assert len(data.train_y) >= 10000
    assert data.train_y[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, car: as on the set's page


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path, streams: Streams) -> None:
    generator = np.random.default_rng(4)
    records = {name: generator.integers(0, 256, (n, 3074), dtype=np.uint8) for name, n in (("train", 6), ("test", 3))}
    for one in records.values():
        one[:, 0], one[:, 1] = np.arange(len(one)), 90 + np.arange(len(one))
    packed = archive({f"{name}.bin": one.tobytes() for name, one in records.items()})
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "cifar-100-binary.tar.gz").write_bytes(packed)
    fine, coarse = (
        load_dataset("cifar100", root=tmp_path, streams=streams, labels=labels) for labels in ("fine", "coarse")
    )
    assert (fine.num_classes, fine.train_y.tolist()) == (100, [90, 91, 92, 93, 94, 95])
    assert (coarse.num_classes, coarse.test_y.tolist()) == (20, [0, 1, 2])
    np.testing.assert_array_equal(fine.test_x[1, :, :, 2], records["test"][1, 2 + 2048 :].reshape(32, 32))
    np.testing.assert_allclose(fine.floats().train_x.mean((0, 1, 2), dtype=np.float64), 0, atol=1e-6)
    records["train"][0, 0] = 20
    (tmp_path / "train.bin").write_bytes(records["train"].tobytes())
    (tmp_path / "test.bin").write_bytes(records["test"].tobytes())
    with pytest.raises(DataError, match=r"expected labels 0 to 19, found 20; .*fetch cifar100`"):
        load_dataset("cifar100", root=None, streams=streams, path=tmp_path)
