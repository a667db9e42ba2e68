"""Models as files."""

import os
import zipfile

import numpy as np
import pytest

from simfl.errors import DataError, RunError
from simfl.records.models import digest_parts, read_models, write_models

PARTS = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.float32([1.5, -2])}


def test_parts_are_read_in_the_order_they_were_written(tmp_path):
    digest = write_models(tmp_path / "model.npz", PARTS)
    parts_read = read_models(tmp_path / "model.npz")
    assert list(parts_read) == ["weights", "bias"]
    for name, part in PARTS.items():
        np.testing.assert_array_equal(parts_read[name], part, strict=True)
    assert digest == digest_parts(parts_read)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]
    # Any NumPy archive will do: users write them, too.
    np.savez(tmp_path / "other.npz", weights=PARTS["weights"].astype(float), bias=[1.5, -2])
    assert digest_parts(read_models(tmp_path / "other.npz")) == digest


def test_equal_models_give_equal_files(tmp_path, monkeypatch):
    for name in ("one", "two"):
        write_models(tmp_path / name, PARTS)
        monkeypatch.setattr("time.time", lambda: 2e9)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_digest_covers_names_shapes_and_values():
    turned = {"weights": PARTS["weights"].reshape(3, 2), "bias": PARTS["bias"]}
    renamed = {"weight": PARTS["weights"], "bias": PARTS["bias"]}
    changed = {"weights": PARTS["weights"], "bias": np.nextafter(PARTS["bias"], 9)}
    assert len({digest_parts(parts) for parts in (PARTS, turned, renamed, changed)}) == 4


def test_an_incomplete_file_leaves_the_previous_one(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    digest = write_models(path, PARTS)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space"):
        write_models(path, {"weights": np.zeros((2, 3), np.float32)})
    assert digest_parts(read_models(path)) == digest
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.npz"]


@pytest.mark.parametrize(("write", "message"), [
    (lambda path: None, "found nothing there"),
    (lambda path: path.mkdir(), "found a folder"),
    (os.mkfifo, "found a device or a pipe"),
    (lambda path: path.write_bytes(b""), "not a zip file"),
    (lambda path: path.write_bytes(b"no archive"), "not a zip file"),
    (lambda path: np.save(path.open("wb"), np.zeros(3)), "not a zip file"),
    (lambda path: np.savez(path.open("wb"), w=np.array(["a"])), "w: expected numbers, found <U1"),
    (lambda path: np.savez(path.open("wb"), w=np.array([None])), "allow_pickle=False"),
    (lambda path: zipfile.ZipFile(path, "w").writestr("w.npy", b"\x93NUMPY\x01\x00\x05\x00{'a(\n"), "expected an"),
    (lambda path: zipfile.ZipFile(path, "w").writestr("readme.txt", "hello"), "magic"),
])  # fmt: skip
def test_a_file_that_is_not_a_model_is_one_line(write, message, tmp_path):
    path = tmp_path / "model.npz"
    write(path)
    with pytest.raises(DataError, match=message) as refused:
        read_models(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_a_file_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    write_models(tmp_path / "model.npz", PARTS)
    monkeypatch.setattr("simfl.records.models.LARGEST_BYTES", 100)
    with pytest.raises(DataError, match="found one that says it holds more than 100 bytes"):
        read_models(tmp_path / "model.npz")
    monkeypatch.undo()
    np.savez_compressed(tmp_path / "bomb.npz", weights=np.zeros(2**25, np.float32))
    with pytest.raises(DataError, match="found one that says it holds more than 67,108,864 bytes"):
        read_models(tmp_path / "bomb.npz")
