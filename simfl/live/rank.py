"""The program of one MPI process: `python -m simfl.live.rank JOBS.json`.

Jobs are runs and measurements, one after the other: a run is that of the first K + 1 processes, its clients and its
coordinator. Those that have no part in a job sleep.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from simfl.build.assembly import assemble
from simfl.build.setup import Setup
from simfl.build.world import build_world
from simfl.errors import SimflError
from simfl.live import links
from simfl.live.coordinator import Coordinator, Mark, Server
from simfl.live.measuring import measure_gradients
from simfl.live.mpi import MpiWire, clock_offset_s, polite_barrier
from simfl.live.recording import Looked, Outcome, write
from simfl.live.signs import BEGUN, DONE, STOP, end_with_parent
from simfl.live.support import left_out
from simfl.live.transport import POLL_S, SlowWire, Transport, wake_on_time
from simfl.live.workers import STATISTICS, UNSIMULATED, WORKERS, Mode
from simfl.scenario import from_mapping, loads
from simfl.tape.executor import choose_device
from simfl.tape.single import SingleClient

#: From when all are ready until the run begins.
LEAD_S = 0.2


def main(path: Path) -> None:
    """Do all jobs of a file, and write their results beside it."""

    def interrupted() -> bool:
        path.with_suffix(BEGUN).touch()  # who asks counts the updates of a run
        return path.with_suffix(STOP).exists()

    threading.Thread(target=end_with_parent, args=(path,), daemon=True).start()
    results = take_part(json.loads(path.read_text(encoding="utf-8")), interrupted)
    if results is not None:
        path.with_suffix(DONE).write_text(json.dumps(results), encoding="utf-8")


def take_part(jobs: Sequence[dict[str, Any]], interrupted: Callable[[], bool] = lambda: False) -> list[Any] | None:
    """Take part in jobs with all MPI processes; process 0 returns the results.

    What fails in one process ends them all.
    """
    wake_on_time()
    world = MPI.COMM_WORLD
    try:
        results = [_job(world, job, interrupted) for job in jobs]
        polite_barrier(world)
    except BaseException as error:
        if not isinstance(error, SimflError):
            traceback.print_exc()
        print(f"simfl live: process {world.Get_rank()}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        world.Abort(1)
        raise
    return results if world.Get_rank() == 0 else None


def _job(world: Any, job: dict[str, Any], interrupted: Callable[[], bool]) -> Any:
    """Do one job if this process takes part; process 0 returns the result."""
    polite_barrier(world)
    needed = int(job["processes"])
    taking_part = world.Get_rank() < needed
    comm = world.Split(0 if taking_part else 1, world.Get_rank())
    result: Any = None
    if taking_part:
        if job["kind"] in ("links", "shift"):
            measure = links.measure if job["kind"] == "links" else links.shift
            result = measure(Transport(MpiWire(comm)), job["sizes"], int(job["rounds"]))
        elif job["kind"] == "gradients":
            result = dataclasses.asdict(measure_gradients(assemble(loads(job["scenario"])), choose_device("cpu")).pace)
        else:
            result = run(comm, job, interrupted)
    comm.Free()
    return result


def run(comm: Any, job: dict[str, Any], interrupted: Callable[[], bool]) -> str | None:
    """Take part in a run; process 0 returns the folder that was written.

    A job with the key `link`, seconds of latency and bytes per second, emulates such links (`docs/check_reality.py`).
    """
    started = time.monotonic()
    rank, mode = comm.Get_rank(), job["compute"]
    setup = assemble(loads(job["scenario"]))
    count = setup.scenario.clients.count
    offset_s = clock_offset_s(comm)
    transport = Transport(MpiWire(comm))
    if job.get("link"):
        latency_s, bytes_per_s = job["link"]
        transport = Transport(SlowWire(MpiWire(comm), latency_s, bytes_per_s, UNSIMULATED), busy_poll_s=POLL_S)
    worker, coordinator = None, None
    options, together = setup.options, count if setup.scenario.algorithm.kind == "sync_sgd" else 1
    # All is set up before the moment of the beginning is agreed on: setting up takes longer than the lead.
    if rank < count:
        arithmetic = SingleClient(setup.problem, rank, choose_device("cpu"))
        world = build_world(_unit(setup) if mode == "real" else setup)
        _warm(arithmetic, setup)
        kind = WORKERS[setup.scenario.algorithm.kind]
        worker = kind(rank, world, setup.training, arithmetic, transport, math.inf, _mode(mode), **options)
    else:
        arguments = (setup.scenario, setup.training, transport, math.inf, together, interrupted)
        served = setup.scenario.algorithm.kind == "fedasync"
        coordinator = Server(*arguments, options=options) if served else Coordinator(*arguments)
    polite_barrier(comm)
    begin = comm.bcast(time.monotonic() + LEAD_S if rank == 0 else None, root=0) - offset_s
    if worker is not None:
        worker.begin = begin
        worker.run()
        transport.end()
    elif coordinator is not None:
        coordinator.begin = begin
        coordinator.run()
        transport.end(STATISTICS)
    polite_barrier(comm)
    own = worker.statistics() if worker is not None else (0.0,) * 5
    statistics = comm.gather(own, root=count)
    folder = None
    hosts = comm.gather(platform.node(), root=count)
    if worker is not None:
        if not isinstance(coordinator, Server) and setup.scenario.algorithm.kind != "fedasync":
            for vector in worker.snapshots:
                comm.Send(vector, dest=count)
    else:
        assert coordinator is not None
        rows = coordinator.final
        time_s = rows[-1].time_s if rows and coordinator.reason != "time" else coordinator.now
        time_s = min(time_s, setup.scenario.stop.time or time_s)
        marks = [*coordinator.marks, Mark(time_s, len(rows))]
        looked = _looked(comm, setup, coordinator, marks)
        about = {"compute": mode, "processes": count + 1, "hosts": sorted(set(hosts)), "poll_s": transport.poll_s}
        outcome = Outcome(
            rows,
            looked,
            np.array(statistics[:count], dtype=float),
            (transport.sent_bytes, transport.messages),
            coordinator.status,
            coordinator.reason,
            time_s,
            time.monotonic() - started,
            about,
        )
        folder = str(write(setup, outcome, Path(job["out"]), left_out(setup)))
    return str(_from(comm, folder, count))


def _looked(comm: Any, setup: Setup, coordinator: Coordinator, marks: list[Mark]) -> list[Looked]:
    """Gather the clients' models by mark; the last mark replaces equal ones."""
    count, size = setup.scenario.clients.count, setup.training.initial.size
    snapshots = []
    if isinstance(coordinator, Server):
        snapshots = [Looked(mark, model, 0.0) for mark, model in zip(marks, coordinator.snapshots, strict=True)]
    else:
        per_client = np.empty((count, len(marks), size), np.float32)
        # The initial model is that of the first mark: it has no snapshot.
        per_client[:, 0] = setup.training.initial
        for client in range(count):
            for number in range(1, len(marks)):
                comm.Recv(per_client[client, number], source=client)
        for number, mark in enumerate(marks):
            models = per_client[:, number]
            mean = models.mean(axis=0)
            snapshots.append(Looked(mark, mean, float(np.sqrt(((models - mean) ** 2).sum(axis=1).mean()))))
    return [
        one
        for one, after in zip(snapshots, [*snapshots[1:], None], strict=True)
        if after is None or after.mark != one.mark
    ]


def _from(comm: Any, value: Any, root: int) -> Any:
    """Broadcast without spinning while the root is busy."""
    polite_barrier(comm)
    return comm.bcast(value, root=root)


def _warm(arithmetic: SingleClient, setup: Setup) -> None:
    """Compile the programs of the run."""
    initial = setup.training.initial
    if setup.problem.rounds is not None:
        arithmetic.change(initial, 0, 1, 0.0)
    else:
        arithmetic.gradient(initial, 0, setup.training.batch_size)


def _unit(setup: Setup) -> Setup:
    """Return a setup of one second per example, which gives slowness factors."""
    content = setup.scenario.resolved()
    content["clients"] = {name: content["clients"][name] for name in ("count", "speed")} | {"seconds_per_example": 1.0}
    unit = copy.copy(setup)
    unit.scenario = from_mapping(content)
    vars(unit).pop("devices", None)
    return unit


def _mode(name: str) -> Mode:
    return "real" if name == "real" else "slept"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
