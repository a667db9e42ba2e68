"""Run a scenario: world, tape, executor and records joined, from the first event to the last table.

`prepare` finds everything that is wrong before anything runs; `run` runs; `resume` goes on with a run that was killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from simfl import signals
from simfl.build.assembly import algorithm_in_one_line, assemble, build_algorithm
from simfl.build.data import sources_of
from simfl.build.own import opened
from simfl.build.privacy import annotated, noise_of
from simfl.build.setup import Own, Setup
from simfl.build.world import build_world
from simfl.callbacks import Audience, Callback
from simfl.compiled import is_compiled
from simfl.errors import DataError, RunError, ScenarioError, SimflError, raised, to_path
from simfl.models.own import OwnModel
from simfl.privacy.releases import Releases, Tally
from simfl.records import Manifest, Progress, Run, RunFolder, TableWriter, read
from simfl.records.folder import combine_digests, digest_of_file, digest_text
from simfl.records.models import write_models
from simfl.records.sweeps import FINISHED
from simfl.records.tables import DEVICE, MOST_EDGES, further_metrics
from simfl.records.watching import watching
from simfl.records.writer import Amend
from simfl.runs import CHECKPOINT_EVERY
from simfl.runs.checkpoint import FILE, Checkpoint, Keeper, fingerprint, parse_interval
from simfl.runs.checkpoint import read as read_checkpoint
from simfl.runs.endings import NEVER, ended_by, last_update, why_over
from simfl.runs.memory import give_back
from simfl.runs.timeline import Timeline
from simfl.scenario import Scenario, from_mapping
from simfl.scenario.checks import MOST_EVALUATIONS
from simfl.scenario.control import Stop
from simfl.scenario.fields import world_files
from simfl.scenario.own_code import look_beside, source_digests
from simfl.tape import Executor, Tape
from simfl.tape.executor import Evaluation, automatic_width, choose_device, choose_devices, tuned_interpreter
from simfl.tape.journal import Journal
from simfl.world.engine import Process

#: Host seconds after which rows are handed to the system, or a share of those that the run has taken if that is more:
#: so much of a run is lost with its process at most, and small pieces do not add up.
FLUSH_S = 1.0
FLUSH_SHARE = 0.001
#: A second signal within so many host seconds belongs to the first: a key that bounced, or a whole group was told.
SAME_SIGNAL_S = 1.0


def prepare(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    device: str | None = None,
    *,
    model: Any = None,
    data: Any = None,
) -> Setup:
    """Check everything about a scenario, data files included, and return what a run needs.

    Args:
        scenario, device, model, data: as of `run`.

    Raises:
        ScenarioError, DataError: with one line that says what to change.
    """
    is_compiled()  # or not what the sources say
    chosen = choose_device(device)
    own = Own(model, data)
    asked = opened(scenario, own)
    choose_devices(chosen, asked.execution.devices)
    return assemble(asked, own=own)


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
        scenario: a scenario, the path of one, a mapping of what would stand in it, or what `prepare` returned.
        model, data: objects of your own that take the place of the scenario's model, and of its data set. Whoever
            resumes or verifies the run has to give them again: a module that makes them need not be given.
        out: folder of all results, "results" by default; the run writes to `<out>/<name>/<run>/`.
        run_id: name of the run's own folder; the next free number by default.
        device: "cpu" or "gpu"; JAX's default otherwise.
        progress: True shows how far the run is, in a notebook or on a terminal; None only in a notebook, False not at
            all. What can be called is called now and then with a report.
        callbacks: told when the run begins, of every evaluation, and when it is over; see `simfl.callbacks`.
        checkpoint_every: host time between checkpoints, from which `resume` goes on: "5 min", seconds, or "never".

    Raises:
        ScenarioError, DataError: bad input, before anything runs.
        RunError: the run failed; what was measured until then is in its folder.
    """
    every_s = parse_interval(checkpoint_every)
    root = to_path("results" if out is None else out, "out: a folder")
    chosen = choose_device(device)
    if isinstance(scenario, Setup) and Own(model, data):
        raise ScenarioError("run: model and data: expected none beside what prepare returned; give them to prepare")
    setup = scenario if isinstance(scenario, Setup) else prepare(scenario, device, model=model, data=data)
    # The algorithm may refuse its options: find out before there is a folder.
    with watching(setup.scenario.name, progress) as watch:
        simulation = Simulation(setup, chosen, watch, every_s=every_s, callbacks=callbacks)
        try:
            folder = RunFolder.create(root, setup.scenario.name, run_id)
            return simulation.run(folder)
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
    """Go on with a run that was killed or interrupted, from its checkpoint; its tables are those of one that was not.

    Its world is played again up to the checkpoint, without arithmetic. It needs what `run` would need: the data, and
    the user's own modules, which it imports.

    Args:
        folder: of the run.
        scenario: what it has to be a run of; by default that of the folder.
        model, data: what it was given from Python.
        device: what it has to have been computed on; by default what it was.
        progress, callbacks, checkpoint_every: as of `run`.

    Raises:
        DataError: there is nothing to resume, or not with this version, device or data; one line says why.
        RunError: the run failed.
    """
    every_s = parse_interval(checkpoint_every)
    # Who was killed when it had just begun to be resumed has no manifest.
    path = to_path(folder, "the folder of a run")
    begun = (path / FILE).exists() and not RunFolder(path).manifest_path.exists()
    found = Run(path) if begun else read(path)
    if not begun and found.status in FINISHED:
        raise DataError(f"{folder}: expected a run that was killed or interrupted, found one that is {found.status}")
    since = read_checkpoint(found.folder / FILE)
    chosen = choose_device(device or since.print["device"].split()[0])
    look_beside(Path(folder) / "module" for folder in since.beside)
    asked = scenario or from_mapping(found.scenario, str(RunFolder(found.folder).scenario_path))
    choose_devices(chosen, asked.execution.devices)
    setup = assemble(asked, own=Own(model, data))
    with watching(setup.scenario.name, progress) as watch:
        simulation = Simulation(setup, chosen, watch, every_s=every_s, since=since, callbacks=callbacks)
        try:
            since.check(fingerprint(setup, chosen, simulation.width))
            return simulation.run(RunFolder(found.folder))
        finally:
            simulation.release()


class Simulation:
    """One run under way.

    Args:
        setup: what to run.
        device: where to compute.
        progress: told how far the run is.
        tape: the class of the tape, or what builds one: a privacy audit listens to it.
        every_s: host seconds between checkpoints; None for none.
        since: the checkpoint to go on from.
        callbacks: told what happens.
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
    ) -> None:
        self.audience = Audience(callbacks, self._warn)
        self.setup = setup
        self.device = device
        self._progress = progress
        scenario = setup.scenario
        execution = scenario.execution
        count = scenario.clients.count
        platform = device.platform
        self.window = automatic_window(setup, platform) if execution.window == "auto" else execution.window
        self._message_rows: Callable[[Any], None] | None = None
        self._timeline: Timeline | None = None
        self.world = build_world(setup, self._on_message if scenario.record.messages else None)
        problem = dataclasses.replace(setup.problem, optimizing=setup.problem.optimizing.on(platform))
        self.tape = tape(
            None,
            window=self.window,
            on_flush=self._tell,
            releases=tally(setup, lambda: self.world.clock.now),
            **problem.recorded,
        )
        self.algorithm = build_algorithm(setup, self.world, self.tape, lambda row: None)
        asked = scenario.evaluate.clients or scenario.record.client_models
        with algorithm_in_one_line(setup):
            own = asked and len(self.algorithm.client_models()) >= count
            chains = self.algorithm.chains
        self.width = automatic_width(problem.model, chains, platform) if execution.width == "auto" else execution.width
        if execution.width == "auto":  # every device has as many lanes
            self.width = -(-self.width // execution.devices) * execution.devices
        combines = int(np.ceil(self.width * min(1.0, self.algorithm.combines_per_gradient)))
        self.executor = Executor(
            problem,
            width=self.width,
            combines=max(1, combines),
            capacity=2 * count + 64,
            steps=self.algorithm.steps_per_call,
            device=device,
            devices=execution.devices,
        )
        self.journal = self.tape.executor = Journal(self.executor, keeps=every_s is not None or since is not None)
        if since is not None:
            self.journal.replay(since.record)
        self._checkpoints = every_s, since
        self._resumed = 0 if since is None else since.resumed + 1
        self.status = "running"
        self.reason = ""
        self.warnings = list(setup.warnings)
        #: Whether models of clients are evaluated, and kept: there must be some.
        self._each_client, self._keeps_each = scenario.evaluate.clients and own, scenario.record.client_models and own
        lost = {
            "evaluate.clients": (scenario.evaluate.clients, "table client_metrics"),
            "record.client_models": (scenario.record.client_models, "file client_models.npz"),
        }
        self.warnings += [
            f"{key}: {scenario.algorithm.kind} has one model for all clients: there is no {what}; set {key}: false"
            for key, (wanted, what) in lost.items()
            if wanted and not own
        ]
        self._refused = False
        self._zeroed: int | None = None
        self._accuracy: float | None = None
        self._evaluations: deque[tuple[tuple[Any, ...], Future[Evaluation]]] = deque()
        self._evaluated_at = -1.0
        self._evaluated_updates = -1
        self._tables: dict[str, TableWriter] = {}
        self._models: dict[str, str] = {}
        self._scenario_text = ""
        self._own_code = source_digests(scenario.resolved())
        self._data = sources_of(scenario, setup.dataset)
        self._world_files = {path: digest_of_file(Path(path)) for path in world_files(scenario)}
        #: What rows learn at the end, by table.
        self._amendments: dict[str, Amend] = {}
        self._started = 0.0
        self._told = self._flushed = 0.0
        self._closing = False
        self._signal: int | None = None
        #: Host seconds at which evaluations were collected, and those of evaluations that are collected again.
        self.walls: list[float] = []
        self._known_walls = deque([] if since is None else since.walls)

    # -- the run -----------------------------------------------------------------------------

    def run(self, folder: RunFolder, ends_after: int | None = None) -> Run:
        """Run to the end, or until it is interrupted after so many events, and write everything into `folder`.

        Whatever happens, what was measured is written as far as the disk takes it, and the manifest says what happened.
        """
        self.keeper = Keeper(self, folder.path, *self._checkpoints, ends_after)
        with folder.held() as make_room, self._interruptible():
            failure = self._simulate(folder)
            self._closing = True
            make_room()
            refused = self._complete(folder)
            failure = failure or refused
            if self.status in FINISHED and failure is None:
                self.keeper.remove()
        found = Run(folder.path, self.setup.own.given)
        self.audience.ended(found)
        if failure is not None:
            raise failure
        return found

    def _simulate(self, folder: RunFolder) -> SimflError | None:
        """Let the world run and take down what happens; return what went wrong."""
        failure: SimflError | None = None
        try:
            self._begin(folder)
            with tuned_interpreter():
                self._arm()
                self.keeper.run(self.setup.scenario.stop.time)
                self._finish()
                self._collect(wait=True)
                if not self.journal.replaying:
                    self._count_zeroed()
                    self._models = self.write_models(folder)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and self.world.clock.interrupted:
                self.status, self.reason = "interrupted", "interrupted a second time"
            else:  # a Ctrl-C that no signal told of was raised by a user's own code
                failure = self._failed(error)
        self._closing = True  # from here on a signal changes nothing
        try:
            self._collect(wait=False)
            if self._tables:
                self._write_clients()
        except BaseException as error:
            failure = failure or self._failed(error)
        return failure

    def _failed(self, error: BaseException) -> SimflError:
        """Take down that the run failed, and return what to raise: one line."""
        self.status = "failed"
        if isinstance(error, SimflError):
            self.reason = str(error)
            return error
        self.reason = raised(error)
        failure = RunError(f"{self.setup.scenario.name}: {self.reason}")
        failure.__cause__ = error
        return failure

    def _begin(self, folder: RunFolder) -> None:
        """Write what is known before anything happens, and open the tables."""
        setup = self.setup
        text = annotated(setup)
        self._scenario_text = digest_text(text)
        folder.write_scenario(text)
        folder.write_manifest(self._manifest("running"))
        record = setup.scenario.record
        names = ["clients"]
        names += ["updates"] * record.updates + ["messages"] * record.messages + ["timeline"] * record.timeline
        names += ["client_metrics"] * self._each_client
        if setup.ledger is not None:
            names += ["releases"] + ["uses"] * setup.ledger.by_passes
            names += ["client_epsilon"] * (setup.ledger.accounted and record.epsilon)
        measured = setup.problem.measured
        named = (*setup.model.metric_names, *measured.further)
        further = {"metrics": further_metrics(bool(measured.gradient_examples), named)}
        if setup.devices is not None:
            further["clients"] = DEVICE
        self._tables = {name: folder.table(name, further=further.get(name)) for name in ("metrics", *names)}
        if record.updates:
            self.algorithm.on_update = self._tables["updates"].append
        if record.messages:
            self._message_rows = self._tables["messages"].append
        if record.timeline:
            self._timeline = Timeline(self.algorithm, self._tables["timeline"].append)
        edges = list(itertools.islice(self.algorithm.pairs(), MOST_EDGES + 1))
        if len(edges) <= MOST_EDGES:
            with folder.table("edges") as table:
                table.extend(edges)
        self.audience.started(setup.scenario.resolved(), folder.path)
        self._started = self._flushed = time.perf_counter()
        if self.keeper.since is None:
            self.keeper.remove()  # that of another run
        else:
            self._started -= self.keeper.since.wall_s

    def _complete(self, folder: RunFolder) -> RunError | None:
        """Complete the tables, the small ones first, and write the last manifest; return what the disk refused."""
        failure: RunError | None = None
        for name, table in sorted(self._tables.items(), key=lambda item: item[1].num_rows):
            try:
                table.close(self._amendments.get(name))
            except Exception as error:  # the other tables are as good as they were
                if self.status != "failed":
                    self.status, self.reason = "failed", str(error)
                failure = failure or RunError(str(error))
        try:
            folder.write_manifest(self._manifest(self.status, folder.digests()))
        except RunError as error:
            failure = failure or error
        return failure

    def write_models(self, folder: RunFolder) -> dict[str, str]:
        """Write the model as it is now, the clients' own where they are asked for; return a digest by name."""
        tape, algorithm, model = self.tape, self.algorithm, self.setup.model
        tape.flush()
        mean = self.executor.mean(*tape.forms(algorithm.models()))
        found = {"model": write_models(folder.models_path("model"), model.parts(mean))}
        if self._keeps_each:
            # Not through the journal: the world does not see them.
            own = self.executor.fetch(*tape.forms(algorithm.client_models())).reshape(-1, model.size)
            found["client_models"] = write_models(folder.models_path("client_models"), model.parts(own))
        return found

    def release(self) -> None:
        """Stop the executor's thread, let go of the data, and give memory that is free back to the system.

        What is left of a run refers to itself in circles, which the garbage collector finds late.
        """
        with contextlib.suppress(RunError):
            self.executor.close()
        del self.setup
        give_back()

    def _arm(self) -> None:
        """Set the marks at which the run is evaluated or ends, and start the processes."""
        scenario, algorithm, clock = self.setup.scenario, self.algorithm, self.world.clock
        stop, every = scenario.stop, scenario.evaluate.every
        self._last_update = last_update(stop, algorithm)
        #: How many updates there are at the n-th evaluation.
        self._mark_at: Callable[[int], float] | None = None
        if every.updates is not None:
            every_updates = every.updates
            self._mark_at = lambda number: float(number * every_updates)
        elif every.epochs is not None:
            every_epochs = every.epochs
            self._mark_at = lambda number: algorithm.updates_after(number * every_epochs)
        else:
            clock.start(self._evaluate_in_time(float(every.time)))  # type: ignore[arg-type]
        self._evaluation_number, self._next_evaluation = 0, NEVER
        self._evaluate()
        algorithm.on_mark = self._on_mark
        algorithm.next_mark = self._next_mark()
        algorithm.start()

    def _next_mark(self) -> int:
        """The number of updates at which to look again."""
        updates = self.algorithm.updates
        while self._mark_at and (mark := int(np.ceil(self._mark_at(self._evaluation_number + 1) - 1e-9))) <= updates:
            self._evaluation_number += 1
        self._next_evaluation = mark if self._mark_at else NEVER
        return min(self._next_evaluation, self._last_update)

    def _on_mark(self) -> int:
        updates = self.algorithm.updates
        if updates >= self._last_update:
            if (why := ended_by(self.setup.scenario.stop, self.algorithm)) is not None:
                self._end("done", why)
                return NEVER
            self._last_update = updates + 1  # rounds of other sizes than planned: some examples are still to come
        if updates >= self._next_evaluation:
            self._evaluate()
        return self._next_mark()

    def _evaluate_in_time(self, every_s: float) -> Process:
        count = 0
        while True:
            count += 1
            if count > MOST_EVALUATIONS:
                raise RunError(
                    f"evaluate.every.time: expected at most {MOST_EVALUATIONS:,} evaluations, found more; "
                    "evaluate less often"
                )
            yield self.world.clock.timeout(count * every_s - self.world.clock.now)
            if self.world.clock.peek() == float("inf"):
                return  # nobody else has anything left to do, and the clock must not go on for us alone
            self._evaluate()

    def _end(self, status: str, reason: str) -> None:
        if self.status == "running":
            self.status, self.reason = status, reason
        self.world.clock.stop()

    def _finish(self) -> None:
        """The world has come to an end: say why, and evaluate the last state."""
        scenario, clock = self.setup.scenario, self.world.clock
        stop = scenario.stop
        if clock.interrupted:
            self.status, self.reason = "interrupted", signals.describe(self._signal or signal.SIGINT)
        elif self.status == "running":
            if stop.time is not None and clock.now >= stop.time:
                idle = clock.pending <= (scenario.evaluate.every.time is not None)
                why = f"; nothing was left to happen before it: {why_over(self.algorithm)}" if idle else ""
                self.status, self.reason = "done", f"time{why}"
            else:
                self.status, self.reason = "done", f"nothing left to happen: {why_over(self.algorithm)}"
        self._note_saturation()
        if self.status != "diverged" and not self.journal.replaying:
            self._evaluate()

    def _note_saturation(self) -> None:
        """Say that messages queued for most of the run, if they did."""
        network, now = self.world.network, self.world.clock.now
        backlog_s = network.backlog_s()
        if backlog_s > 0.2 * now and network.in_flight > 20 * self.world.num_clients:
            self.warnings.append(
                f"links: saturated at the end: {network.in_flight} messages are under way, and the busiest link has "
                f"{backlog_s:.3g} s of them to send after a run of {now:.3g} s; send less often, or widen the links"
            )

    @property
    def wall_s(self) -> float:
        """Host seconds that the run has taken, those before it was resumed included."""
        return time.perf_counter() - self._started if self._started else 0.0

    # -- evaluations -------------------------------------------------------------------------

    def _evaluate(self) -> None:
        """Evaluate the models as they are now; the numbers arrive later unless the run depends on them."""
        clock, algorithm = self.world.clock, self.algorithm
        if self._evaluated_at == clock.now and self._evaluated_updates == algorithm.updates:
            return
        self._evaluated_at, self._evaluated_updates = clock.now, algorithm.updates
        self.tape.flush()
        network = self.world.network
        ledger = self.setup.ledger
        epsilon = float("nan")
        if "client_epsilon" in self._tables and ledger is not None:
            spent = ledger.epsilon(self.account())
            epsilon = float(spent.max())
            self._record_epsilon(spent)
        elif ledger is not None:
            epsilon = ledger.largest(self.account())
        row = (
            clock.now, algorithm.updates, algorithm.epochs, algorithm.rounds,
            network.bytes_sent, network.messages, epsilon, algorithm.clipping_norm,
        )  # fmt: skip
        rows, coefs = self.tape.forms(algorithm.models())
        own = self._each_client and self.tape.forms(algorithm.client_models())
        future = self.journal.evaluate(rows, coefs, own, algorithm.clipping_norm)
        self._evaluations.append((row, future))
        goals = goals_of(self.setup.scenario.stop)
        # A target needs the number now. Divergence is looked for one evaluation later, always at the
        # same one, so that the device can lag behind the world and the run still ends at the same event.
        while len(self._evaluations) > (0 if goals else 1):
            evaluated_s = self._evaluations[0][0][0]
            evaluation, measured = self._collect_one()
            if not evaluation.finite:
                self._end("diverged", f"the loss was not finite at {evaluated_s:.6g} s of virtual time")
            for reason, reached in goals.items():
                if reached(measured):
                    self._end("done", reason)

    def account(self) -> Releases:
        """What clients have released: the algorithm's account, held against what the tape saw.

        Where something was released that cannot be certified, or was not counted, no epsilon holds from now on, and
        the user is told once.
        """
        own, seen, ledger = self.algorithm.releases, self.tape.releases, self.setup.ledger
        if seen is None or ledger is None:
            return own
        found = seen.compare(own)
        if ledger.accounted and found.refusal is not None and not self._refused:
            self._refused = True
            self._warn(f"privacy: epsilon is not certified: {found.refusal}")
        return found

    def _warn(self, warning: str) -> None:
        """Take a line down that the user should read, and say it."""
        self.warnings.append(warning)
        warnings.warn(warning, stacklevel=3)

    def _count_zeroed(self) -> None:
        """Take down how much was not finite where it is clipped, and say so."""
        clip = self.setup.problem.clipping.clip
        if clip is None:
            return
        self._zeroed = self.journal.zeroed()
        if self._zeroed:
            what = {"example": ("gradient", "gradients"), "update": ("update", "updates")}[clip][self._zeroed != 1]
            verb = "was" if self._zeroed == 1 else "were"
            self._warn(f"privacy: {self._zeroed:,} {what} {verb} not finite and {verb} released as zero")

    def _record_epsilon(self, spent: np.ndarray) -> None:
        """Write what each client has spent up to now."""
        releases, count = self.algorithm.releases, self.world.num_clients
        self._tables["client_epsilon"].extend_columns(
            {
                "time_s": np.full(count, self.world.clock.now),
                "client": np.arange(count, dtype=np.int32),
                "releases": np.array([releases.total(k) for k in range(count)], dtype=np.int64),
                "epsilon": spent,
            }
        )

    def _finalise(self, final: np.ndarray | None) -> None:
        """Let rows that were taken at the end have the counts of the end, and the final epsilons, float [K] or None.

        An evaluation that ends the run is taken within an event, which goes on and may send a message. What was
        released before is a part of the final epsilons: rows of earlier times are no larger.
        """
        now, updates, network = self.world.clock.now, self.algorithm.updates, self.world.network
        counts = {"rounds": self.algorithm.rounds, "bytes_sent": network.bytes_sent, "messages": network.messages}

        def metrics(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            last = (rows["time_s"] == now) & (rows["updates"] == updates)
            amended = {name: np.where(last, count, rows[name]) for name, count in counts.items()}
            if final is not None:
                largest = float(final.max())
                amended["epsilon"] = np.where(last | (rows["epsilon"] > largest), largest, rows["epsilon"])
            return amended

        self._amendments = {"metrics": metrics}
        if final is None:
            return
        releases = np.array([self.algorithm.releases.total(k) for k in range(len(final))], dtype=np.int64)

        def clients(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            last = (rows["time_s"] == now) & (rows["releases"] == releases[rows["client"]])
            own = final[rows["client"]]
            return {"epsilon": np.where(last | (rows["epsilon"] > own), own, rows["epsilon"])}

        self._amendments["client_epsilon"] = clients

    def _collect_one(self) -> tuple[Evaluation, dict[str, float]]:
        """Wait for the oldest evaluation and write its row; return it by column, too."""
        row, future = self._evaluations.popleft()
        evaluation = future.result()
        time_s, updates, epochs, rounds, sent, messages, epsilon, norm = row
        self.walls.append(self._known_walls.popleft() if self._known_walls else self.wall_s)
        gradients = (evaluation.gradient_norm, evaluation.clipped_share, norm if np.isfinite(norm) else np.nan)
        values = [
            time_s,
            updates,
            epochs,
            rounds,
            evaluation.train_loss,
            evaluation.test_loss,
            evaluation.test_accuracy,
            evaluation.consensus_distance,
            sent,
            messages,
            epsilon,
            self.walls[-1],
            *(gradients if self.setup.problem.measured.gradient_examples else ()),
            *evaluation.further.values(),
        ]
        table = self._tables["metrics"]
        table.append(values)
        measured = dict(zip(table.schema.names, map(float, values), strict=True))
        self.audience.evaluated(measured)
        if evaluation.client_loss is not None and evaluation.client_accuracy is not None:
            count = len(evaluation.client_loss)
            self._tables["client_metrics"].extend_columns(
                {
                    "time_s": np.full(count, time_s),
                    "updates": np.full(count, updates, dtype=np.int64),
                    "client": np.arange(count, dtype=np.int32),
                    "test_accuracy": evaluation.client_accuracy,
                    "test_loss": evaluation.client_loss,
                }
            )
        if not np.isnan(evaluation.test_accuracy):
            self._accuracy = evaluation.test_accuracy
        self._tell(force=True)
        return evaluation, measured

    def _collect(self, wait: bool) -> None:
        """Write the rows of evaluations under way."""
        while self._evaluations:
            if not wait and not self._evaluations[0][1].done():
                return
            evaluation, _ = self._collect_one()
            if not evaluation.finite and self.status == "done":
                self.status = "diverged"
                self.reason = "the loss was not finite at the end"

    # -- records -----------------------------------------------------------------------------

    def _on_message(self, row: Any) -> None:
        if self._message_rows is not None:
            self._message_rows(row)

    def _write_clients(self) -> None:
        """Write the table of clients, and that of their releases."""
        algorithm, world, setup = self.algorithm, self.world, self.setup
        count, now = world.num_clients, world.clock.now
        if self._timeline is not None:
            self._timeline.close()
        ledger, epsilon = setup.ledger, np.full(count, np.nan)
        if ledger is not None:
            account = self.account()
            self._tables["releases"].extend(ledger.kinds(account))
            if "uses" in self._tables:
                self._tables["uses"].extend(ledger.copies(account))
            epsilon = ledger.final_epsilon(account)
        self._finalise(None if ledger is None else epsilon)
        table = self._tables["clients"]
        table.extend_columns(
            {
                "client": np.arange(count, dtype=np.int32),
                "samples": setup.training.sizes,
                "updates": np.array(algorithm.client_updates, dtype=np.int64),
                "dropped": np.array(algorithm.client_dropped, dtype=np.int64),
                "compute_s": np.array([algorithm.computed_s(k) for k in range(count)]),
                "wait_s": np.array([algorithm.waited_s(k) for k in range(count)]),
                "communicate_s": np.array([t.communicate_s for t in algorithm.times]),
                "offline_s": np.array([world.availability.offline_s(k, now) for k in range(count)], dtype=float),
                "bytes": np.array([t.sent_bytes for t in world.network.traffic[:count]], dtype=np.int64),
                "epsilon": epsilon,
                "delta": np.full(count, np.nan if ledger is None else ledger.delta),
                "exhausted_s": np.array([algorithm.exhausted_s.get(k, np.nan) for k in range(count)]),
                **({} if setup.devices is None else {"device": np.array([device.name for device in setup.devices])}),
            }
        )

    def _manifest(self, status: str, digests: dict[str, str] | None = None) -> Manifest:
        scenario = self.setup.scenario
        digests = digests or {}
        extra: dict[str, Any] = {
            "scenario_digest": scenario.digest(),
            "scenario_text": self._scenario_text,
            "model_size": self.setup.model.size,
            "sampling": self.setup.training.sampling,
            "warnings": self.warnings,
        }
        if self._own_code:
            extra["own_code"] = self._own_code
        if self._data:
            extra["data"] = self._data
        if self._world_files:
            extra["world_files"] = self._world_files
        if isinstance(model := self.setup.model, OwnModel):
            extra["own_model"] = {"parameters": len(model.layout), "digest": model.own.digest()}
        if self._models:
            extra["models"] = self._models
        if (start := self.setup.start) is not None:
            extra["init"] = {"from": str(start.path), "digest": start.digest}
        if self._zeroed is not None:
            extra["released_as_zero"] = self._zeroed
        if self._resumed:
            extra["resumed"] = self._resumed
        if self.setup.ledger is not None:
            extra["privacy"] = self.setup.ledger.statement_of(self.account())
            extra["noise"] = noise_of(self.setup)
        return Manifest(
            status=status,  # type: ignore[arg-type]
            seed=scenario.seed,
            device=self.device.platform,
            reason=self.reason,
            wall_s=self.wall_s,
            time_s=self.world.clock.now,
            updates=self.algorithm.updates,
            window=self.window,
            width=self.width,
            compiled=is_compiled(),
            digest=combine_digests(digests) if digests else "",
            tables=digests,
            extra=extra,
        )

    # -- the user ----------------------------------------------------------------------------

    def _tell(self, force: bool = False) -> None:
        """Report progress, a few times a second at most, and hand rows to the system now and then."""
        now = time.perf_counter()
        if now - self._flushed >= max(FLUSH_S, FLUSH_SHARE * (now - self._started)) and not self._closing:
            for table in self._tables.values():
                table.flush()
            self._flushed = time.perf_counter()
        if self._progress is None:
            return
        if not force and now - self._told < 0.1:
            return
        self._told = now
        wall_s = max(now - self._started, 1e-9)
        clock, algorithm, stop = self.world.clock, self.algorithm, self.setup.scenario.stop
        fraction = algorithm.updates / self._last_update if self._last_update < NEVER else 0.0
        if stop.time is not None:
            fraction = max(fraction, clock.now / stop.time)
        self._progress(
            Progress(
                time_s=clock.now,
                updates=algorithm.updates,
                epochs=algorithm.epochs,
                accuracy=self._accuracy,
                fraction=min(1.0, fraction),
                wall_s=wall_s,
                updates_per_s=algorithm.updates / wall_s,
                compiled=self.executor.compiled,
            )
        )

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run before its next event; a second one ends it at once.

        When tables are being written it is too late for either.
        """
        clock, first = self.world.clock, 0.0

        def handle(number: int) -> None:
            nonlocal first
            if not clock.interrupted:
                self._signal, first = number, time.monotonic()
                clock.interrupt()
                if self._closing:
                    clock.relent()
            elif not self._closing and time.monotonic() - first >= SAME_SIGNAL_S:
                raise KeyboardInterrupt

        with signals.handled(handle):
            try:
                yield
            finally:
                clock.relent()


def goals_of(stop: Stop) -> dict[str, Callable[[Mapping[str, float]], bool]]:
    """Return what ends a run when an evaluation shows it: a reason -> whether a row of metrics does."""
    goals: dict[str, Callable[[Mapping[str, float]], bool]] = {}
    if (accuracy := stop.accuracy) is not None:
        goals["accuracy"] = lambda row: row["test_accuracy"] >= accuracy
    if (metric := stop.metric) is not None:
        least, most = stop.at_least, stop.at_most
        words = f"at least {least:g}" if least is not None else f"at most {most:g}"
        goals[f"{metric} {words}"] = lambda row: (
            row[metric] >= least if least is not None else most is not None and row[metric] <= most
        )
    return goals


def tally(setup: Setup, now: Callable[[], float] = lambda: 0.0) -> Tally | None:
    """Return what counts the releases of a run of the scenario; None without privacy."""
    ledger, training = setup.ledger, setup.training
    if ledger is None:
        return None
    scales = training.each_noise_std() if training.noise_scale is None else training.noise_scale
    return ledger.counted_by(ledger, scales, training.clipping_norm, setup.problem.rounds is not None, now)


def automatic_window(setup: Setup, platform: str) -> int:
    """Operations per window: enough to find independent ones, few enough to stay in the cache and to see progress."""
    if platform == "cpu" and setup.model.convolutional:
        return max(64, 4 * setup.scenario.clients.count)
    return int(min(8192, max(4096, 4 * setup.scenario.clients.count)))
