"""CIFAR-10 and CIFAR-100, binary: records of labels and 3,072 color bytes.

Krizhevsky, Learning multiple layers of features from tiny images, 2009; https://www.cs.toronto.edu/~kriz/cifar.html.
Subsets in the same format (fewer batches, fewer images) are read as well.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Loader, Scaling
from simfl.data.files import BROKEN_STREAM, folder_of, most_bytes, read_content
from simfl.errors import DataError
from simfl.streams import Streams

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Format:
    """The files of a set; `labels`: numbers of classes, each a byte of a record."""

    kind: str
    title: str
    archive: str
    training: str
    test: str
    files: str
    labels: tuple[int, ...]

    @property
    def replace(self) -> str:
        return f"fetch it again with `simfl data fetch {self.kind}`"


_TEN = _Format(
    "cifar10", "CIFAR-10", "cifar-10-binary.tar.gz", r"data_batch_\d+\.bin", "test_batch.bin",
    "data_batch_1.bin ... and test_batch.bin", (10,),
)  # fmt: skip
_HUNDRED = _Format(
    "cifar100", "CIFAR-100", "cifar-100-binary.tar.gz", r"train\.bin", "test.bin", "train.bin and test.bin", (20, 100)
)


def load_cifar10(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load CIFAR-10 as bytes [n, 32, 32, 3], to be standardized by color.

    The archive (.tar.gz) or the unpacked .bin files are in `root/cifar10`, or at `path`.
    """
    return _loaded(_TEN, 0, path, root)


def load_cifar100(
    root: Path | None, streams: Streams, *, path: str | Path | None = None, labels: str = "fine"
) -> Dataset:
    """Load CIFAR-100 as `load_cifar10`, with its 100 fine or its 20 coarse labels."""
    return _loaded(_HUNDRED, int(labels == "fine"), path, root)


def _loaded(kind: _Format, label: int, path: str | Path | None, root: Path | None) -> Dataset:
    source, batches = _read_batches(kind, folder_of(kind.kind, path, root))
    records = {name: _records(kind, f"{source}: {name}", content) for name, content in batches.items()}
    # By number, so that data_batch_10 comes after data_batch_2.
    numbered = sorted(records, key=lambda name: int("".join(filter(str.isdigit, name)) or 0))
    training = [records[name] for name in numbered if name != kind.test]
    if not training or kind.test not in records:
        raise DataError(
            f"{source}: expected {kind.files} (the binary version of {kind.title}), found "
            f"{', '.join(sorted(records)) or 'none of them'}; {kind.replace}"
        )
    files = (source,) if source.is_file() else tuple(source / name for name in batches)
    train, test, skipped = np.concatenate(training), records[kind.test], len(kind.labels)
    return of_planes(
        kind.kind,
        (train[:, skipped:], train[:, label]),
        (test[:, skipped:], test[:, label]),
        kind.labels[label],
        () if path is None else files,
    )


def of_planes(
    name: str, train: tuple[Any, Any], test: tuple[Any, Any], num_classes: int, files: tuple[Path, ...]
) -> Dataset:
    """Return color images as bytes [n, 32, 32, 3], to be standardized by color.

    Both parts are red, green and blue planes, uint8 [n, 3072], and labels [n].
    """
    return Dataset(
        name,
        _images(train[0]),
        train[1].astype(np.int32),
        _images(test[0]),
        test[1].astype(np.int32),
        num_classes=num_classes,
        image_shape=(32, 32, 3),
        scaling=_standardization(train[0]),
        files=files,
    )


def _read_batches(kind: _Format, place: Path) -> tuple[Path, dict[str, bytes]]:
    """Return the folder or archive that was read, and its batch files by name."""
    if place.is_dir():
        for folder in (place, place / "cifar-10-batches-bin", place / "cifar-100-binary"):
            files = [file for file in sorted(folder.glob("*.bin")) if _is_batch(kind, file.name)]
            if files:
                return folder, {file.name: read_content(file, kind.replace) for file in files}
        archives = sorted(place.glob("*.tar.gz"))
        named = [archive for archive in archives if archive.name == kind.archive]
        if len(archives) > 1 and not named:
            names = ", ".join(archive.name for archive in archives)
            raise DataError(f"{place}: found {len(archives)} archives ({names}); name one in data.path")
        if archives:
            place = (named or archives)[0]
    if not place.is_file():
        raise DataError(
            f"{place}: no {kind.title} there; put {kind.archive} or its .bin files into that folder, "
            f"or run `simfl data fetch {kind.kind}`"
        )
    return place, _read_archive(kind, place)


def _is_batch(kind: _Format, name: str) -> bool:
    return name == kind.test or re.fullmatch(kind.training, name) is not None


def _read_archive(kind: _Format, path: Path) -> dict[str, bytes]:
    """Return the batch files of an archive, without unpacking it to disk."""
    batches: dict[str, bytes] = {}
    try:
        most, size = most_bytes(path), 0
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                size += member.size
                if size > most:
                    raise DataError(f"{path}: expected at most {most:,} bytes in it, found more; {kind.replace}")
                name = PurePosixPath(member.name).name
                if member.isfile() and _is_batch(kind, name):
                    stream = archive.extractfile(member)
                    assert stream is not None  # only None for a member that is not a regular file
                    batches[name] = stream.read()
    except (tarfile.TarError, ValueError, *BROKEN_STREAM) as error:
        reason = str(error).splitlines()[0] if str(error) else "it ends early"
        raise DataError(f"{path}: cut off, or not a tar archive ({reason}); {kind.replace}") from None
    return batches


def _records(kind: _Format, where: str, content: bytes) -> npt.NDArray[np.uint8]:
    """Return the records of a batch, uint8 [n, labels + 3072]."""
    width = len(kind.labels) + PIXELS
    if not content or len(content) % width:
        raise DataError(
            f"{where}: expected records of {width} bytes, found {len(content)} bytes, not a multiple of it; "
            f"{kind.replace}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, width)
    for column, count in enumerate(kind.labels):
        if (most := records[:, column].max()) >= count:
            raise DataError(f"{where}: expected labels 0 to {count - 1}, found {most}; {kind.replace}")
    return records


def _standardization(planes: npt.NDArray[np.uint8]) -> Scaling:
    """Return the scaling by mean and deviation of each color, from exact counts."""
    colors = np.split(planes, 3, axis=1)
    counts = np.array([np.bincount(pixels.ravel(), minlength=256) for pixels in colors], np.float64)
    share = counts / counts.sum(axis=1, keepdims=True)
    values = np.arange(256) / 255.0
    mean = share @ values
    deviation = np.sqrt(share @ values**2 - mean**2)
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    return Scaling(np.float32(255), mean.astype(np.float32), deviation.astype(np.float32))


def _images(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


LOADERS = (
    Loader("cifar10", "color images, 32x32, 10 classes; the binary archive in cifar10/", load_cifar10),
    Loader("cifar100", "color images, 32x32, 100 or 20 classes; the binary archive in cifar100/", load_cifar100),
)
