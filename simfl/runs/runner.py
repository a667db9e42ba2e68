"""Run a scenario, from the first event to the last table.

`prepare` finds all errors before anything runs, `run` runs, and `resume` continues a killed run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simfl.assembly.assemble import assemble, prepare
from simfl.assembly.memory import refuse_too_large
from simfl.assembly.setup import Own, Setup
from simfl.callbacks import Callback, Callbacks
from simfl.errors import DataError, ScenarioError, SimflError, to_path
from simfl.records import Progress, Run, RunFolder, read
from simfl.records.results import FINISHED
from simfl.records.watching import watching
from simfl.runs import CHECKPOINT_EVERY
from simfl.runs.checkpoint import Checkpoint, CheckpointManager, fingerprint
from simfl.runs.checkpoint import read as read_checkpoint
from simfl.runs.context import Context, Session
from simfl.runs.endings import why_over
from simfl.runs.evaluations import Evaluations, Schedule
from simfl.runs.intervals import FILE, parse_interval
from simfl.runs.manifests import sources_of_run
from simfl.runs.recorder import Recorder
from simfl.runs.reporting import Interruption, Reporter
from simfl.scenario import Scenario, from_mapping
from simfl.scenario.own_code import look_beside
from simfl.tape import Tape
from simfl.tape.executor import check_devices, choose_device
from simfl.tape.journal import Names
from simfl.tape.tuning import tuned_interpreter
from simfl.threads import one_thread

__all__ = ["Simulation", "prepare", "resume", "run"]


def run(
    scenario: Scenario | Setup | Mapping[str, Any] | str | Path,
    *,
    model: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    run_id: str | None = None,
    device: str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: str | float | None = CHECKPOINT_EVERY,
) -> Run:
    """Run a scenario and return its tables.

    Args:
        scenario: a scenario, its path, a mapping with its content, or what `prepare` returned.
        model, data: your own objects in place of the scenario's model and data set. Give them again to resume or verify
            the run, unless a module makes them.
        out: folder of all results, "results" by default; the run writes to `<out>/<name>/<run>/`.
        run_id: name of the run's own folder; the next free number by default.
        device: "cpu" or "gpu"; JAX's default otherwise.
        progress: True shows progress in a notebook or on a terminal, None only in a notebook, False not at all. A
            function is called with reports.
        callbacks: called at the start of the run, at every evaluation, and at the end; see `simfl.callbacks`.
        checkpoint_every: host time between the checkpoints that `resume` uses: "5 min", seconds, or "never".

    Raises:
        ScenarioError, DataError: bad input, or a run that memory cannot hold, before anything runs.
        RunError: the run failed; its measurements until then are in its folder.
    """
    every_s = parse_interval(checkpoint_every)
    root = to_path("results" if out is None else out, "out: a folder")
    accelerator = choose_device(device)
    if isinstance(scenario, Setup) and Own(model, data):
        raise ScenarioError("run: model and data: expected none with what prepare returned; give them to prepare")
    setup = scenario if isinstance(scenario, Setup) else prepare(scenario, device, model=model, data=data)
    if accelerator.platform == "cpu":
        refuse_too_large(setup)
    # The algorithm may reject its options: find out before there is a folder.
    with watching(setup.scenario.name, progress) as watch:
        simulation = Simulation(setup, accelerator, watch, every_s=every_s, callbacks=callbacks)
        try:
            return simulation.run(RunFolder.create(root, setup.scenario.name, run_id))
        finally:
            simulation.release()


def resume(
    folder: str | Path,
    *,
    scenario: Scenario | None = None,
    model: Any = None,
    data: Any = None,
    device: str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: str | float | None = CHECKPOINT_EVERY,
) -> Run:
    """Resume a killed or interrupted run from its checkpoint, with equal tables.

    The world is replayed up to the checkpoint, without arithmetic. This needs what `run` needs: the data, and the
    user's own modules, which it imports.

    The scenario must be the run's, and is by default that of the folder. The device must be the run's, and so it is by
    default. `model` and `data` are those that `run` was given from Python; the other arguments are as for `run`.

    Raises:
        DataError: nothing can be resumed with this version, device and data; one line says why.
        RunError: the run failed.
    """
    every_s = parse_interval(checkpoint_every)
    # A run killed early in a resume has no manifest.
    path = to_path(folder, "the folder of a run")
    begun = (path / FILE).exists() and not RunFolder(path).manifest_path.exists()
    earlier = Run(path) if begun else read(path)
    if not begun and earlier.status in FINISHED:
        raise DataError(f"{folder}: expected a run that was killed or interrupted, found one that is {earlier.status}")
    since = read_checkpoint(earlier.folder / FILE)
    accelerator = choose_device(device or since.print["device"].split()[0])
    look_beside(Path(folder) / "module" for folder in since.beside)
    checked = scenario or from_mapping(earlier.scenario, str(RunFolder(earlier.folder).scenario_path))
    check_devices(accelerator, checked.execution.devices)
    setup = assemble(checked, own=Own(model, data))
    with watching(setup.scenario.name, progress) as watch:
        simulation = Simulation(setup, accelerator, watch, every_s=every_s, since=since, callbacks=callbacks)
        try:
            since.check(fingerprint(setup, accelerator, simulation.session.division))
            return simulation.run(RunFolder(earlier.folder))
        finally:
            simulation.release()


class Simulation(Context):
    """One run. Evaluations, records and reports are delegated.

    `run` goes through its parts: `enter`, `begin`, the events, `finish`, `settle` and `leave`. A group of runs
    (`simfl.studies.together`) does so for each. `every_s` is the host time between checkpoints, None for none; `since`
    the checkpoint to continue from. The other arguments are those of `Context` and `run`.
    """

    def __init__(
        self,
        setup: Setup,
        device: Any,
        progress: Callable[[Progress], None] | None = None,
        tape: Callable[..., Tape] = Tape,
        every_s: float | None = None,
        since: Checkpoint | None = None,
        callbacks: Sequence[Callback] = (),
        shared: tuple[Session, int, Names] | None = None,
    ) -> None:
        self._callbacks = Callbacks(callbacks, self.warn)
        super().__init__(setup, device, tape, every_s is not None, None if since is None else since.record, shared)
        self._progress = progress
        self._checkpoints = every_s, since
        self._sources = sources_of_run(setup)
        self._interruption = Interruption(self.world.clock)

    @one_thread()
    def run(self, folder: RunFolder, ends_after: int | None = None) -> Run:
        """Run to the end, or for `ends_after` events; write everything into `folder`.

        Even if the run fails, all measurements that fit on the disk are written, and the manifest has the reason.
        """
        self.enter(folder, ends_after)
        with folder.held() as make_room, self._interruption.handled():
            failure = self._simulate()
            self._interruption.closing = True
            failure = self.leave(make_room, failure)
        finished = Run(folder.path, self.setup.own.given)
        self._callbacks.ended(finished)
        if failure is not None:
            raise failure
        return finished

    def enter(self, folder: RunFolder, ends_after: int | None = None) -> None:
        """Take a folder; nothing is written yet."""
        every_s, since = self._checkpoints
        self.folder = folder
        self.checkpoints = CheckpointManager(self, folder.path, every_s, since, ends_after)
        self.recorder = Recorder(self, folder, self._sources, self.checkpoints.resumed)
        self.reporter = Reporter(self, self.recorder, self._progress)

        def report(row: dict[str, float]) -> None:
            self._callbacks.evaluated(row)
            self.reporter.evaluated(row)

        self.evaluations = Evaluations(self, self.recorder, report, [] if since is None else since.walls)

    def begin(self) -> None:
        """Open the tables, and start to count host time."""
        since = self.checkpoints.since
        self.recorder.open()
        self._callbacks.started(self.setup.scenario.resolved(), self.folder.path)
        self.start_watch(0.0 if since is None else since.wall_s)
        if since is None:
            self.checkpoints.remove()  # a checkpoint of another run

    def finish(self) -> None:
        """Evaluate the last models and write them, after the last event."""
        self._conclude()
        self._count_owed()
        if self.status != "diverged" and not self.journal.replaying:
            self.evaluations.take()
        self.evaluations.collect(wait=True)
        if not self.journal.replaying:
            self.recorder.write_models()

    def _count_owed(self) -> None:
        """Count a release that messages under way may still show."""
        if (count := self.algorithm.budgets.owed()) is not None:
            count()

    def settle(self, failure: SimflError | None = None) -> SimflError | None:
        """Write what is known at the end; return the first error."""
        try:
            self._count_owed()
            self.evaluations.collect(wait=False)
            self.recorder.write_clients()
        except BaseException as error:
            failure = failure or self.fail(error)
        return failure

    def leave(self, make_room: Callable[[], None], failure: SimflError | None) -> SimflError | None:
        """Complete the folder; return the first error."""
        make_room()
        refused = self.recorder.close()
        failure = failure or refused
        if self.status in FINISHED and failure is None:
            self.checkpoints.remove()
        return failure

    def _simulate(self) -> SimflError | None:
        failure: SimflError | None = None
        try:
            self.begin()
            self.recorder.listen()
            with tuned_interpreter(clients=self.world.num_clients):
                schedule = Schedule(self, self.evaluations)
                self.reporter.begin(schedule)
                schedule.begin()
                self.checkpoints.run(self.setup.scenario.stop.time)
                self.finish()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self.world.clock.interrupted:
                self.status, self.reason = "interrupted", "interrupted a second time"
            else:  # a Ctrl-C without a signal was raised by the user's own code
                failure = self.fail(error)
        self._interruption.closing = self.reporter.closing = True
        return self.settle(failure)

    def _conclude(self) -> None:
        """Set the status at the end, and warn if messages queued for most of the run."""
        clock, network, stop = self.world.clock, self.world.network, self.setup.scenario.stop
        if clock.interrupted:
            self.status, self.reason = "interrupted", self._interruption.reason
        elif self.status == "running" and stop.time is not None and clock.now >= stop.time:
            is_idle = clock.pending <= (self.setup.scenario.evaluate.every.time is not None)
            why = f"; nothing was left to happen before it: {why_over(self.algorithm)}" if is_idle else ""
            self.status, self.reason = "done", f"time{why}"
        elif self.status == "running":
            self.status, self.reason = "done", f"nothing left to happen: {why_over(self.algorithm)}"
        backlog_s = network.carrier.backlog_s()
        if backlog_s > 0.2 * clock.now and network.in_flight > 20 * self.world.num_clients:
            self.warnings.append(
                f"links: saturated at the end: {network.in_flight} messages are in flight, and the busiest link has "
                f"{backlog_s:.3g} s of them to send after a run of {clock.now:.3g} s; send less often, or widen the "
                "links"
            )
