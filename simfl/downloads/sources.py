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


def _fashion(name: str, sha256: str) -> RemoteFile:
    address = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"
    return RemoteFile(f"fashion_mnist/{name}.gz", (f"{address}/{name}.gz",), sha256=sha256)


def _svhn(name: str, sha256: str) -> RemoteFile:
    # The server has no https; the checksum says whether a file is the published one.
    return RemoteFile(f"svhn/{name}", (f"http://ufldl.stanford.edu/housenumbers/{name}",), sha256=sha256)


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
        Source(
            "cifar100",
            "color images of 100 classes, 32x32, 50,000 + 10,000, binary version (169 MB)",
            (
                RemoteFile(
                    "cifar100/cifar-100-binary.tar.gz",
                    ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
                    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                ),
            ),
        ),
        Source(
            "fashion_mnist",
            "clothes, 28x28, 60,000 + 10,000 (31 MB, MIT license)",
            (
                _fashion("train-images-idx3-ubyte", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
                _fashion("train-labels-idx1-ubyte", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
                _fashion("t10k-images-idx3-ubyte", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
                _fashion("t10k-labels-idx1-ubyte", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
            ),
        ),
        Source(
            "emnist",
            "handwritten characters, 28x28, six splits of up to 814,255 (536 MB)",
            (
                RemoteFile(
                    "emnist/gzip.zip",
                    ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
                    sha256="fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
                    most_bytes=2**30,
                ),
            ),
        ),
        Source(
            "svhn",
            "house numbers, 32x32, 73,257 + 26,032 (246 MB, for non-commercial use)",
            (
                _svhn("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
                _svhn("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
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
