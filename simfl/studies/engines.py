"""Engines of sweeps: this process, local processes, or a Dask cluster.

An engine computes `jobs` units at a time: runs that may be played together. `run` takes tasks and yields (task,
outcome) as they end, in any order.
`stop`, which signal handlers call, starts no more runs and ends the current ones: `run` then yields only tasks that had
started. Results do not depend on the engine.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from simfl.errors import RunError, ScenarioError
from simfl.studies.tasks import IMPORTS, RunOutcome, RunTask, run_elsewhere, run_unit, start_worker, units_of
from simfl.studies.workers import Workers
from simfl.threads import one_thread

Finished = Iterator[tuple[RunTask, RunOutcome]]


class Serial:
    """One run after the other, in this process."""

    jobs = 1

    def __init__(self) -> None:
        self._stopped = False

    def run(self, tasks: Sequence[RunTask]) -> Finished:
        """Run the tasks in their order."""
        from simfl.assembly.data import shared_data

        with shared_data(), one_thread():
            for unit in units_of(tasks, self.jobs):
                if self._stopped:
                    return
                for task, outcome in zip(unit, run_unit(unit), strict=True):
                    self._stopped = self._stopped or outcome.status == "interrupted"  # the run itself takes Ctrl-C
                    yield task, outcome

    def stop(self, number: int = signal.SIGINT) -> None:
        """Start no more runs."""
        self._stopped = True


#: A process is replaced after this many runs: every shape that it compiled stays in its memory.
RUNS_PER_PROCESS = 100


class Local:
    """Processes on this machine, `jobs` of them.

    A process that is killed, perhaps without enough memory, loses only its own run; runs that were played together are
    then run alone. A process serves many runs, so that compiled programs are reused.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        # The signal that asks for an end, which the processes watch.
        self._stop = multiprocessing.get_context("spawn").RawValue("i", 0)
        self._stopped = False

    def run(self, tasks: Sequence[RunTask]) -> Finished:
        """Run the tasks in their order."""
        pending = deque(units_of(tasks, self.jobs))
        workers = Workers(start_worker, (self._stop, min(self.jobs, len(pending))), IMPORTS)
        idle = workers.start(min(self.jobs, len(pending)))
        running: dict[Connection, tuple[RunTask, ...]] = {}
        served: Counter[Connection] = Counter()
        try:
            while pending or running:
                while pending and idle and not self._stopped:
                    unit, worker = pending.popleft(), idle.pop()
                    workers.send(worker, run_unit, unit)
                    running[worker] = unit
                if not running:
                    return
                for worker in workers.ready(running):
                    unit = running.pop(worker)
                    try:
                        outcomes = worker.recv()
                    except (EOFError, OSError):
                        outcomes = [RunOutcome("failed", "its process died, perhaps out of memory: try fewer --jobs")]
                        if len(unit) > 1:  # alone, each needs less memory, and only one of them dies
                            pending.extend((task,) for task in unit)
                            outcomes = []
                        served[worker] = RUNS_PER_PROCESS
                    served[worker] += len(unit)
                    if served[worker] < RUNS_PER_PROCESS:
                        idle.append(worker)
                    else:
                        workers.dismiss(worker)
                        idle += workers.start(1) if pending and not self._stopped else ()
                    for task, outcome in zip(unit, outcomes, strict=False):
                        if outcome.status != "missing":
                            yield task, outcome
        finally:
            self.stop()  # in case the caller stopped reading early
            workers.end()

    def stop(self, number: int = signal.SIGINT) -> None:
        """Start no more runs, and end the current ones before their next event."""
        self._stopped = True
        self._stop.value = self._stop.value or number  # no lock: the code that a signal interrupted might hold it


class Cluster:
    """An existing Dask cluster; files come back over the network.

    `address` is that of its scheduler, such as tcp://10.0.0.1:8786. Raises a `ScenarioError` if dask is not installed,
    the scheduler does not answer, or the workers have other versions.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            expected = "expected the library dask.distributed, found none"
            raise ScenarioError(f"--cluster: {expected}; pip install 'simfl[cluster]'") from None
        try:
            self._client: Any = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            problem = " ".join(str(error).split()) or type(error).__name__
            expected = f"expected the address of a dask scheduler, such as tcp://host:8786, found {address!r}"
            raise ScenarioError(f"--cluster: {expected}: {problem}; start one, or leave --cluster out") from error
        self._stopped = False
        self._address = address
        self._check()
        self.jobs = max(1, len(self._client.scheduler_info(n_workers=-1)["workers"]))

    def _check(self) -> None:
        from simfl.records.folder import versions

        here = versions()
        for worker, theirs in self._client.run(versions).items():
            for name in ("simfl", "jax", "jaxlib", "numpy"):
                if theirs[name] != here[name]:
                    expected = f"expected {name} {here[name]} on every worker, found {theirs[name]} on {worker}"
                    raise ScenarioError(f"--cluster: {expected}; install the same versions")

    def run(self, tasks: Sequence[RunTask]) -> Finished:
        """Run the tasks in any order; a task whose worker is lost runs again."""
        from distributed import wait as wait_for

        units = units_of(tasks, self.jobs)
        futures = {self._client.submit(run_elsewhere, unit, pure=False): unit for unit in units}
        try:
            while futures and not self._stopped:
                try:
                    with self._client.as_current():
                        done = wait_for(list(futures), timeout=0.5, return_when="FIRST_COMPLETED").done
                except TimeoutError:  # often enough to notice a call of `stop`
                    continue
                except Exception as error:  # dask raises several kinds when the connection is lost
                    raise self._lost(sum(map(len, futures.values())), error) from error
                for future in done:
                    if future.cancelled():
                        raise self._lost(sum(map(len, futures.values())), None)
                    unit = futures.pop(future)
                    for task, outcome in zip(unit, self._outcomes(unit, future), strict=True):
                        yield task, self._written(task, outcome)
        finally:
            self._let_go(list(futures))

    def _let_go(self, futures: list[Any]) -> None:
        logger = logging.getLogger("distributed.client")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            for end in (lambda: self._client.cancel(futures), self._client.close):
                with contextlib.suppress(Exception):
                    end()
        finally:
            logger.setLevel(level)

    def _lost(self, left: int, error: Exception | None) -> RunError:
        runs = "1 run is" if left == 1 else f"{left} runs are"
        reason = "" if error is None else f" ({type(error).__name__})"
        return RunError(
            f"--cluster: lost the connection to the scheduler at {self._address}{reason}; {runs} missing, all others "
            "are kept; start a scheduler and workers, and give the same command again"
        )

    def _outcomes(self, unit: Sequence[RunTask], future: Any) -> list[RunOutcome]:
        try:
            outcomes: list[RunOutcome] = future.result()
        except Exception as error:
            reason = f"the cluster lost it: {type(error).__name__}: {' '.join(str(error).split())}"
            return [RunOutcome("failed", reason)] * len(unit)
        return outcomes

    def _written(self, task: RunTask, outcome: RunOutcome) -> RunOutcome:
        if not outcome.files:
            return outcome
        try:
            task.folder.mkdir(parents=True, exist_ok=True)
            # The manifest comes last: a folder with a manifest is complete.
            for name in sorted(outcome.files, key=lambda name: name == "manifest.json"):
                (task.folder / name).write_bytes(outcome.files[name])
        except OSError as error:
            raise RunError(f"{task.folder}: cannot write the results: {error.strerror}") from error
        return outcome

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop waiting, and drop the current runs."""
        self._stopped = True


Engine = Serial | Local | Cluster


def choose_engine(jobs: int, cluster: str | None) -> Engine:
    """Return the engine for a number of runs at a time."""
    return Cluster(cluster) if cluster is not None else Local(jobs) if jobs > 1 else Serial()
