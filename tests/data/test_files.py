"""Files that are bombs, devices or pipes: each is refused at once."""

import bz2
import gzip
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simfl.data.cifar import load_cifar10
from simfl.data.files import is_endless, read_content
from simfl.data.idx import read_idx
from simfl.data.npz import load_npz
from simfl.errors import DataError, ScenarioError
from simfl.scenario import load
from simfl.streams import Streams
from simfl.world.topology import build_topology

ZEROS = bytes(2**24)


@pytest.fixture(autouse=True)
def quickly():
    begun = time.process_time()
    yield
    assert time.process_time() - begun < 20, "a bomb is not unpacked"


@pytest.mark.parametrize("pack", [gzip, bz2])
def test_a_decompression_bomb_is_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.data.files._SMALL_BYTES", 2**20)
    path = tmp_path / f"bomb.{'gz' if pack is gzip else 'bz2'}"
    with pack.open(path, "wb") as file:
        for _ in range(4):
            file.write(ZEROS)
    with pytest.raises(DataError, match=r"bomb\.\w+: expected at most [\d,]+ bytes in it, found more; replace it"):
        read_content(path, "replace it")


def test_well_compressed_content_is_accepted(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(ZEROS))
    assert read_content(path, "replace it") == ZEROS


def test_an_archive_that_is_a_bomb_is_refused(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("data_batch_1.bin")
        member.size = len(ZEROS)
        archive.addfile(member, io.BytesIO(ZEROS))
        member = tarfile.TarInfo("elsewhere")
        member.size = 2**50  # as a forged header says
        archive.fileobj.write(member.tobuf())
    with pytest.raises(DataError, match=r"expected at most .* bytes in it, found more"):
        load_cifar10(None, Streams(0), path=path)


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,", b"(" * 200, b"{'a': 1}\n"]
)
def test_arrays_with_a_broken_header_are_refused(header, tmp_path):
    path = tmp_path / "set.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(DataError, match=r"set\.npz: not an \.npz archive of numbers, or damaged") as caught:
        load_npz(None, Streams(0), path=path)
    assert "\n" not in str(caught.value)


def test_an_array_larger_than_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.data.npz.MEMORY_LIMIT_BYTES", 10_000)
    np.savez_compressed(tmp_path / "set.npz", x=np.zeros((1000, 100)), y=np.zeros(1000))
    with pytest.raises(DataError, match="larger than 0 GiB"):
        load_npz(None, Streams(0), path=tmp_path / "set.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_pipes_and_devices_are_not_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    zero = Path("/dev/zero")
    assert is_endless(pipe)
    assert is_endless(zero)
    assert not is_endless(tmp_path)
    assert not is_endless(tmp_path / "nothing")
    for path in (pipe, zero):
        with pytest.raises(DataError, match="found a device or a pipe"):
            read_idx(path)
        with pytest.raises(ScenarioError, match="expected a scenario file, found a device or a pipe; name a file"):
            load(path)
        for kind in ("graphml", "gml", "pajek", "edge_list", "adjacency_list"):
            with pytest.raises(DataError, match=r"topology\.path: expected a file, found a device or a pipe"):
                build_topology(kind, 4, None, path=path)
