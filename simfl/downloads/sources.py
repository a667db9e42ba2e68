"""Addresses and checksums of the public data sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file to download to `path` in the folder of data sets.

    `content_sha256` is the checksum of the decompressed content, which also fits mirrors that compress anew.
    `most_bytes` is the size above which a transfer is aborted.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str | None = None
    content_sha256: str | None = None
    most_bytes: int = 2**28


@dataclass(frozen=True)
class Source:
    """A data set that can be downloaded; `name` is the argument of `simfl data fetch`."""

    name: str
    summary: str
    files: tuple[RemoteFile, ...]


def _mnist(name: str, content_sha256: str) -> RemoteFile:
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
    return RemoteFile(
        f"mnist/{name}.gz", tuple(f"{mirror}/{name}.gz" for mirror in mirrors), content_sha256=content_sha256
    )


def _libsvm(name: str, summary: str, *files: tuple[str, str]) -> Source:
    """Return a set of the LIBSVM page; `files` are (path on it, local name)."""
    page = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
    return Source(name, summary, tuple(RemoteFile(f"libsvm/{local}", (f"{page}/{path}",)) for path, local in files))


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "mnist",
            "handwritten digits, 28x28, 60,000 + 10,000 (11 MB)",
            # Checksums of the IDX files themselves, which every copy of MNIST shares.
            (
                _mnist("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
                _mnist("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
                _mnist("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
                _mnist("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
            ),
        ),
        Source(
            "cifar10",
            "color images of 10 classes, 32x32, 50,000 + 10,000, binary version (170 MB)",
            (
                RemoteFile(
                    "cifar10/cifar-10-binary.tar.gz",
                    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
                    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
            ),
        ),
        _libsvm(
            "a9a",
            "census incomes, 123 binary features, 32,561 + 16,281",
            ("binary/a9a", "a9a"),
            ("binary/a9a.t", "a9a.t"),
        ),
        _libsvm(
            "w8a", "web pages, 300 binary features, 49,749 + 14,951", ("binary/w8a", "w8a"), ("binary/w8a.t", "w8a.t")
        ),
        _libsvm("phishing", "phishing sites, 68 features, 11,055", ("binary/phishing", "phishing")),
        _libsvm(
            "ijcnn1",
            "engine misfires, 22 features, 49,990 + 91,701",
            ("binary/ijcnn1.bz2", "ijcnn1.bz2"),
            ("binary/ijcnn1.t.bz2", "ijcnn1.t.bz2"),
        ),
        _libsvm(
            "covtype.binary",
            "forest cover, 54 features scaled to [0, 1], 581,012",
            ("binary/covtype.libsvm.binary.scale.bz2", "covtype.binary.bz2"),
        ),
        _libsvm(
            "usps",
            "handwritten digits, 16x16, 7,291 + 2,007",
            ("multiclass/usps.bz2", "usps.bz2"),
            ("multiclass/usps.t.bz2", "usps.t.bz2"),
        ),
    )
}
"""Data sets by their name for `simfl data fetch`."""
