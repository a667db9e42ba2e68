"""MPI: sends without blocking, waits without spinning, offsets of clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray


class MpiWire:
    """The wire of `simfl.live.transport` between the processes of a communicator."""

    def __init__(self, comm: Any) -> None:
        self._comm, self._status = comm, MPI.Status()
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

    def send(self, buffer: NDArray[np.uint8], target: int, kind: int) -> Callable[[], bool]:
        """Start to send; return a function that says whether the buffer has left."""
        test: Callable[[], bool] = self._comm.Isend([buffer, MPI.BYTE], target, kind).Test
        return test

    def receive(self) -> tuple[int, int, NDArray[np.uint8]] | None:
        """Return the source, kind and bytes of the next message; None without one."""
        if not self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, self._status):
            return None
        source, kind = self._status.Get_source(), self._status.Get_tag()
        buffer = np.empty(self._status.Get_count(MPI.BYTE), np.uint8)
        self._comm.Recv([buffer, MPI.BYTE], source, kind)
        return source, kind, buffer


def polite_barrier(comm: Any) -> None:
    """Wait for all processes of a communicator without spinning."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(2e-3)


def clock_offset_s(comm: Any, rounds: int = 20) -> float:
    """Return the offset of `time.monotonic` from rank 0's (Cristian's algorithm).

    All processes of the communicator call it together. An offset within the error, half a round trip, counts as 0.
    """
    rank, offset = comm.Get_rank(), 0.0
    for other in range(1, comm.Get_size()):
        if rank == 0:
            for _ in range(rounds):
                comm.recv(source=other, tag=0)
                comm.send(time.monotonic(), dest=other, tag=0)
        elif rank == other:
            best = np.inf
            for _ in range(rounds):
                begin = time.monotonic()
                comm.send(None, dest=0, tag=0)
                server_s = comm.recv(source=0, tag=0)
                trip = time.monotonic() - begin
                if trip < best:
                    best, offset = trip, server_s - (begin + trip / 2)
            offset = offset if abs(offset) > best / 2 else 0.0
        polite_barrier(comm)
    return offset
