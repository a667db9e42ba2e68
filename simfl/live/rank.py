"""The program of one MPI process: `python -m simfl.live.rank JOBS.json`.

Jobs are runs and measurements, one after the other. The first K + 1 processes take part in a run: its K clients and its
coordinator. Processes without a part in a job sleep.
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

from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.assembly.world import build_world
from simfl.errors import SimflError
from simfl.live.coordinator import Coordinator, Mark, Server
from simfl.live.measuring import measure_gradients, measure_links, measure_shifts
from simfl.live.mpi import MpiWire, clock_offset_s, polite_barrier
from simfl.live.recording import Outcome, Snapshot, write
from simfl.live.signs import BEGUN, DONE, STOP, end_with_parent
from simfl.live.single import SingleClient
from simfl.live.support import left_out
from simfl.live.transport import POLL_S, SlowWire, Transport, wake_on_time
from simfl.live.workers import STATISTICS, UNSIMULATED, WORKERS, Worker
from simfl.scenario import from_mapping, loads
from simfl.tape.executor import choose_device

#: Time from the moment when all processes are ready to the beginning of the run.
LEAD_S = 0.2


def main(path: Path) -> None:
    """Run all jobs of a file, and write their results beside it."""

    def interrupted() -> bool:
        path.with_suffix(BEGUN).touch()  # called by the coordinator, so a run has begun
        return path.with_suffix(STOP).exists()

    threading.Thread(target=end_with_parent, args=(path,), daemon=True).start()
    results = take_part(json.loads(path.read_text(encoding="utf-8")), interrupted)
    if results is not None:
        path.with_suffix(DONE).write_text(json.dumps(results), encoding="utf-8")


def take_part(jobs: Sequence[dict[str, Any]], interrupted: Callable[[], bool] = lambda: False) -> list[Any] | None:
    """Take part in jobs with all MPI processes; process 0 returns the results.

    An error in one process ends them all.
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
    """Run one job if this process takes part; process 0 returns the result."""
    polite_barrier(world)
    taking_part = world.Get_rank() < int(job["processes"])
    comm = world.Split(0 if taking_part else 1, world.Get_rank())
    result: Any = None
    if taking_part:
        if job["kind"] in ("links", "shift"):
            measure = measure_links if job["kind"] == "links" else measure_shifts
            result = measure(Transport(MpiWire(comm)), job["sizes"], int(job["rounds"]))
        elif job["kind"] == "gradients":
            result = dataclasses.asdict(measure_gradients(assemble(loads(job["scenario"])), choose_device("cpu")).pace)
        else:
            result = run(comm, job, interrupted)
    comm.Free()
    return result


def run(comm: Any, job: dict[str, Any], interrupted: Callable[[], bool]) -> str:
    """Take part in a run; return the folder that was written.

    A job with the key `link`, seconds of latency and bytes per second, emulates such links (`docs/check_reality.py`).
    """
    started = time.monotonic()
    rank = comm.Get_rank()
    setup = assemble(loads(job["scenario"]))
    count, kind = setup.scenario.clients.count, setup.scenario.algorithm.kind
    offset_s = clock_offset_s(comm)
    transport = Transport(MpiWire(comm))
    if job.get("link"):
        latency_s, bytes_per_s = job["link"]
        transport = Transport(SlowWire(MpiWire(comm), latency_s, bytes_per_s, UNSIMULATED), busy_poll_s=POLL_S)
    # Setting up takes longer than the lead, so everything is set up before the beginning is agreed on.
    part: Worker | Coordinator
    if rank < count:
        arithmetic = SingleClient(setup.problem, rank, choose_device("cpu"))
        world = build_world(_unit(setup) if job["compute"] == "real" else setup)
        _warm(arithmetic, setup)
        part = WORKERS[kind](
            rank, world, setup.training, arithmetic, transport, math.inf, job["compute"], **setup.options
        )
    else:
        together = count if kind == "sync_sgd" else 1
        arguments = (setup.scenario, setup.training, transport, math.inf, together, interrupted)
        part = Server(*arguments, options=setup.options) if kind == "fedasync" else Coordinator(*arguments)
    polite_barrier(comm)
    part.begin = comm.bcast(time.monotonic() + LEAD_S if rank == 0 else None, root=0) - offset_s
    part.run()
    transport.end(*(() if isinstance(part, Worker) else (STATISTICS,)))
    polite_barrier(comm)
    statistics = comm.gather(part.statistics() if isinstance(part, Worker) else None, root=count)
    hosts = comm.gather(platform.node(), root=count)
    folder = None
    if isinstance(part, Coordinator):
        rows = part.final
        time_s = rows[-1].time_s if rows and part.reason != "time" else part.now
        time_s = min(time_s, setup.scenario.stop.time or time_s)
        about = {"compute": job["compute"], "processes": count + 1, "hosts": sorted(set(hosts))}
        outcome = Outcome(
            rows,
            _snapshots(comm, setup, part, [*part.marks, Mark(time_s, len(rows))]),
            np.array(statistics[:count], dtype=float),
            (transport.sent_bytes, transport.messages),
            part.status,
            part.reason,
            time_s,
            time.monotonic() - started,
            {**about, "poll_s": transport.poll_s},
        )
        folder = str(write(setup, outcome, Path(job["out"]), left_out(setup)))
    elif kind != "fedasync":
        for vector in part.snapshots:
            comm.Send(vector, dest=count)
    polite_barrier(comm)  # the broadcast would spin while the coordinator writes
    return str(comm.bcast(folder, root=count))


def _snapshots(comm: Any, setup: Setup, coordinator: Coordinator, marks: list[Mark]) -> list[Snapshot]:
    """Gather the clients' models by mark; of equal marks only the last one counts."""
    count, initial = setup.scenario.clients.count, setup.training.initial
    if isinstance(coordinator, Server):
        snapshots = [Snapshot(mark, model, 0.0) for mark, model in zip(marks, coordinator.snapshots, strict=True)]
    else:
        per_client = np.empty((count, len(marks), initial.size), np.float32)
        per_client[:, 0] = initial  # no client sends the model of the first mark
        for client in range(count):
            for number in range(1, len(marks)):
                comm.Recv(per_client[client, number], source=client)
        snapshots = []
        for number, mark in enumerate(marks):
            models = per_client[:, number]
            mean = models.mean(axis=0)
            snapshots.append(Snapshot(mark, mean, float(np.sqrt(((models - mean) ** 2).sum(axis=1).mean()))))
    return list({snapshot.mark: snapshot for snapshot in snapshots}.values())


def _warm(arithmetic: SingleClient, setup: Setup) -> None:
    """Compile the programs of the run."""
    initial = setup.training.initial
    if setup.problem.rounds is not None:
        arithmetic.change(initial, 0, 1, 0.0)
    else:
        arithmetic.gradient(initial, 0, setup.training.batch_size)


def _unit(setup: Setup) -> Setup:
    """Return a setup whose compute times are slowness factors: 1 s per example."""
    content = setup.scenario.resolved()
    content["clients"] = {name: content["clients"][name] for name in ("count", "speed")} | {"seconds_per_example": 1.0}
    unit = copy.copy(setup)
    unit.scenario = from_mapping(content)
    vars(unit).pop("devices", None)
    return unit


if __name__ == "__main__":
    main(Path(sys.argv[1]))
