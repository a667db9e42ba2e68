"""A sweep on a full disk: continued after room was made, it ends as if the disk had never been full."""

import contextlib
import errno
import functools
import os
import tempfile
import warnings

import pyarrow as pa
import pytest

from simfl.errors import RunError, ScenarioError
from simfl.runs.evaluations import Evaluations
from simfl.studies import sweep
from simfl.studies.together import Group

pytestmark = pytest.mark.usefixtures("without_numbers")

STUDY = {
    "name": "full",
    "base": {
        "data": {"set": "digits"},
        "clients": {"count": 4, "seconds_per_example": "1 ms"},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "stop": {"updates": 24},
        "evaluate": {"every": {"updates": 6}},
        "record": {"messages": True},
    },
    "grid": {"algorithm.kind": ["decentralized_sgd", "adpsgd"]},
}
#: What writes beside streams of rows: moves of complete files, locks with reserved space, folders.
SITES = ("replace", "write", "mkdir")


class Disk:
    """Counts writes; number `full_from` fails, and all later ones if that `lasts`, while the disk is full."""

    def __init__(self, monkeypatch, full_from, lasts):
        self.count, self.full_from, self.lasts, self.is_full = 0, full_from, lasts, True
        for name in SITES:
            monkeypatch.setattr(os, name, self.limited(getattr(os, name)))
        new_stream = pa.ipc.new_stream

        def stream(*arguments, **options):
            writer = new_stream(*arguments, **options)

            class Limited:
                write_table = staticmethod(self.limited(writer.write_table))

            return Limited

        monkeypatch.setattr(pa.ipc, "new_stream", stream)

    def limited(self, write):
        def limited(*arguments, **options):
            self.count += 1
            if self.is_full and (self.count == self.full_from or (self.lasts and self.count > self.full_from)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(*arguments, **options)

        return limited


def checkpoints_at_evaluations(monkeypatch):
    """Let a checkpoint be due, and rows be flushed, at every evaluation, in the middle of its event."""
    for kind in (Evaluations, Group):

        def taken(self, take=kind.take):
            if isinstance(self, Group):
                self._want()
            else:
                self._context.world.clock.paused = True
            take(self)

        monkeypatch.setattr(kind, "take", taken)
    monkeypatch.setattr("simfl.runs.recorder.FLUSH_S", 0.0)
    monkeypatch.setattr("simfl.runs.recorder.FLUSH_SHARE", 0.0)


def outcomes(swept):
    """Return status and digests of each run, without those of the made-up losses."""
    kept = ("clients", "messages", "updates")
    return {
        run.label: (run.status, run.reason, [swept.open(run).manifest.tables.get(name) for name in kept])
        for run in swept.runs
    }


def attempt(out):
    return sweep(STUDY, out=out, jobs=1, keep_compiled=False, checkpoint_every=1e6, progress=False)


@functools.cache
def whole():
    """Return the outcomes on a disk that is never full."""
    with tempfile.TemporaryDirectory() as folder:
        return outcomes(attempt(folder))


@pytest.mark.slow(every=12)
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.parametrize("full_from", range(1, 60, 5))
def test_a_sweep_that_met_a_full_disk_ends_as_if_it_had_not(full_from, lasts, tmp_path, monkeypatch):
    expected = whole()
    checkpoints_at_evaluations(monkeypatch)
    disk = Disk(monkeypatch, full_from, lasts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(RunError, ScenarioError):
            assert all(run.reason for run in attempt(tmp_path / "full").failed)
        disk.is_full = False
        assert outcomes(attempt(tmp_path / "full")) == expected
    assert disk.count > full_from
