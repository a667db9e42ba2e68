"""CIFAR-10, binary version: records of a label byte and 3,072 color bytes.

Krizhevsky, Learning multiple layers of features from tiny images, 2009; https://www.cs.toronto.edu/~kriz/cifar.html.
Subsets in the same format (fewer batches, fewer images) are read as well.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Loader, Scaling
from simfl.data.files import BROKEN_STREAM, folder_of, most_bytes, read_content
from simfl.errors import DataError
from simfl.streams import Streams

RECORD_BYTES = 1 + 3 * 32 * 32
_BATCH = re.compile(r"(data_batch_\d+|test_batch)\.bin")
_REPLACE = "fetch it again with `simfl data fetch cifar10`"


def load_cifar10(root: Path | None, streams: Streams, *, path: str | Path | None = None) -> Dataset:
    """Load CIFAR-10 as bytes [n, 32, 32, 3], to be standardized by color.

    The archive (.tar.gz) or the unpacked .bin files are in `root/cifar10`, or at `path`.
    """
    source, batches = _read_batches(folder_of("cifar10", path, root))
    records = {name: _records(f"{source}: {name}", content) for name, content in batches.items()}
    # By number, so that data_batch_10 comes after data_batch_2.
    numbered = sorted(records, key=lambda name: int("".join(filter(str.isdigit, name)) or 0))
    training = [records[name] for name in numbered if name != "test_batch.bin"]
    if not training or "test_batch.bin" not in records:
        raise DataError(
            f"{source}: expected data_batch_1.bin ... and test_batch.bin (the binary version of CIFAR-10), found "
            f"{', '.join(sorted(records)) or 'none of them'}; {_REPLACE}"
        )
    files = (source,) if source.is_file() else tuple(source / name for name in batches)
    train, test = np.concatenate(training), records["test_batch.bin"]
    return Dataset(
        "cifar10",
        _images(train),
        train[:, 0].astype(np.int32),
        _images(test),
        test[:, 0].astype(np.int32),
        num_classes=10,
        image_shape=(32, 32, 3),
        scaling=_standardization(train),
        files=() if path is None else files,
    )


def _read_batches(place: Path) -> tuple[Path, dict[str, bytes]]:
    """Return the folder or archive that was read, and its batch files by name."""
    if place.is_dir():
        for folder in (place, place / "cifar-10-batches-bin"):
            files = [file for file in sorted(folder.glob("*.bin")) if _BATCH.fullmatch(file.name)]
            if files:
                return folder, {file.name: read_content(file, _REPLACE) for file in files}
        archives = sorted(place.glob("*.tar.gz"))
        named = [archive for archive in archives if archive.name == "cifar-10-binary.tar.gz"]
        if len(archives) > 1 and not named:
            names = ", ".join(archive.name for archive in archives)
            raise DataError(f"{place}: found {len(archives)} archives ({names}); name one in data.path")
        if archives:
            place = (named or archives)[0]
    if not place.is_file():
        raise DataError(
            f"{place}: no CIFAR-10 there; put cifar-10-binary.tar.gz or its .bin files into that folder, "
            f"or run `simfl data fetch cifar10`"
        )
    return place, _read_archive(place)


def _read_archive(path: Path) -> dict[str, bytes]:
    """Return the batch files of an archive, without unpacking it to disk."""
    batches: dict[str, bytes] = {}
    try:
        most, size = most_bytes(path), 0
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                size += member.size
                if size > most:
                    raise DataError(f"{path}: expected at most {most:,} bytes in it, found more; {_REPLACE}")
                name = PurePosixPath(member.name).name
                if member.isfile() and _BATCH.fullmatch(name):
                    stream = archive.extractfile(member)
                    assert stream is not None  # only None for a member that is not a regular file
                    batches[name] = stream.read()
    except (tarfile.TarError, ValueError, *BROKEN_STREAM) as error:
        reason = str(error).splitlines()[0] if str(error) else "it ends early"
        raise DataError(f"{path}: cut off, or not a tar archive ({reason}); {_REPLACE}") from None
    return batches


def _records(where: str, content: bytes) -> npt.NDArray[np.uint8]:
    """Return the records of a batch, uint8 [n, 3073]."""
    if not content or len(content) % RECORD_BYTES:
        raise DataError(
            f"{where}: expected records of {RECORD_BYTES} bytes, found {len(content)} bytes, not a multiple of it; "
            f"{_REPLACE}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_BYTES)
    if records[:, 0].max() > 9:
        raise DataError(f"{where}: expected labels 0 to 9, found {records[:, 0].max()}; {_REPLACE}")
    return records


def _standardization(records: npt.NDArray[np.uint8]) -> Scaling:
    """Return the scaling by mean and deviation of each color, from exact counts."""
    colors = np.split(records[:, 1:], 3, axis=1)
    counts = np.array([np.bincount(pixels.ravel(), minlength=256) for pixels in colors], np.float64)
    share = counts / counts.sum(axis=1, keepdims=True)
    values = np.arange(256) / 255.0
    mean = share @ values
    deviation = np.sqrt(share @ values**2 - mean**2)
    deviation = np.where(deviation > 1e-6, deviation, 1.0)
    return Scaling(np.float32(255), mean.astype(np.float32), deviation.astype(np.float32))


def _images(records: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


LOADER = Loader("cifar10", "color images, 32x32, 10 classes; the binary archive in cifar10/", load_cifar10)
