"""The session of runs, and the context of one run: its parts and its status."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from simfl.assembly.assemble import algorithm_in_one_line, build_algorithm
from simfl.assembly.memory import rows_of
from simfl.assembly.setup import Setup
from simfl.assembly.world import build_world
from simfl.errors import RunError, SimflError, raised
from simfl.privacy.releases import Releases, Tally
from simfl.runs.memory import give_back
from simfl.tape import Tape
from simfl.tape.equations import worth_a_core
from simfl.tape.executor import Executor, automatic_width
from simfl.tape.journal import Journal, Names, Record
from simfl.tape.packing import LARGE
from simfl.tape.problem import LearningProblem
from simfl.threads import idle_cores

Status = Literal["running", "done", "diverged", "interrupted", "failed"]


class Session:
    """What is played: a world, its tape and algorithm, and the executor.

    `setup` says what happens; `tape` is the class of the tape, or a function that builds one. `problems` are those of
    the settings that are played together, one for a run alone. `on_flush` and `on_message` are called after each flush
    of the tape, and with a row for each message; they are set when the run begins.
    """

    def __init__(
        self, setup: Setup, device: Any, tape: Callable[..., Tape] = Tape, problems: Sequence[LearningProblem] = ()
    ) -> None:
        self.on_flush: Callable[[], None] = lambda: None
        self.on_message: Callable[[Any], None] = lambda row: None
        scenario, platform = setup.scenario, device.platform
        execution = scenario.execution
        self.window = automatic_window(setup, platform) if execution.window == "auto" else execution.window
        self.world = build_world(setup, (lambda row: self.on_message(row)) if scenario.record.messages else None)
        problem, *others = [
            dataclasses.replace(each, optimizing=each.optimizing.on(platform)) for each in problems or [setup.problem]
        ]
        self.tape = tape(
            None,
            window=self.window,
            on_flush=lambda: self.on_flush(),
            releases=tally(setup, lambda: self.world.clock.now),
            settings=1 + len(others),
            **problem.recorded,
        )
        self.algorithm = build_algorithm(setup, self.world, self.tape, lambda row: None)
        needs_client_models = scenario.evaluate.clients or scenario.record.client_models
        with algorithm_in_one_line(setup):
            self.has_client_models = bool(
                needs_client_models and len(self.algorithm.client_models()) >= scenario.clients.count
            )
            chains = self.algorithm.chains
        forced, on_cpu = execution.devices if execution.devices != "auto" else 1, platform == "cpu"
        is_large = on_cpu and worth_a_core(problem)
        if execution.width == "auto":
            self.width = 1 if is_large else automatic_width(problem.model, chains, platform)
        else:
            self.width = execution.width
        #: How operations are divided, as far as the last bits may depend on it.
        self.division, cores, devices = str(self.width), 0, 1
        if is_large or (on_cpu and forced > 1):  # programs of one step do not depend on the number of cores
            self.division = f"{self.width}, each step by itself"
            cores = max(1, min(idle_cores() if execution.devices == "auto" else forced, chains))
        elif forced > 1:
            self.division, devices = f"{self.width} on {forced} devices", forced
        lanes = self.width * devices
        self.executor = Executor(
            problem,
            width=lanes,
            combines=max(1, int(np.ceil(lanes * min(1.0, self.algorithm.combines)))),
            capacity=rows_of(setup),
            steps=self.algorithm.steps_per_call,
            device=device,
            devices=devices,
            cores=cores,
            draws_beside=on_cpu and execution.devices == "auto" and idle_cores() > 1,
            others=others,
        )


class Context:
    """The parts and the status of one run.

    `tape` is the class of the tape, or a function that builds one: a privacy audit listens to it. With `keeps`, the
    journal keeps its record for checkpoints; `replayed` is the record of the checkpoint that the run continues from.
    `shared` is the session of a group, with the run's number in it and the names of rows.

    `window` operations are executed together, `width` gradients are computed side by side. `each_client` and
    `keeps_each` say whether the clients' own models are evaluated, and stored at the end. `status`, `reason` and
    `warnings` are as in the manifest; `wall_times_s` has the host seconds at which evaluations were collected.
    """

    def __init__(
        self,
        setup: Setup,
        device: Any,
        tape: Callable[..., Tape] = Tape,
        keeps: bool = False,
        replayed: Record | None = None,
        shared: tuple[Session, int, Names] | None = None,
    ) -> None:
        self.setup = setup
        self.device = device
        self.status: Status = "running"
        self.reason = ""
        self.warnings = list(setup.warnings)
        self.wall_times_s: list[float] = []
        self._started_s = self._already_s = 0.0
        #: The part of host time that is this run's.
        self._share = 1.0
        self._is_uncertified = False
        #: Its number in its group.
        self.number = 0 if shared is None else shared[1]
        scenario, keeps = setup.scenario, keeps or replayed is not None
        self.session = Session(setup, device, tape) if shared is None else shared[0]
        self.window, self.width, self.world = self.session.window, self.session.width, self.session.world
        self.tape, self.algorithm, self.executor = self.session.tape, self.session.algorithm, self.session.executor
        if shared is None:
            self.journal = self.tape.executor = Journal(self.executor, keeps)
        else:
            self.executor = self.executor.of(shared[1])
            self.journal = Journal(self.executor, keeps, shared[2])
        if replayed is not None:
            self.journal.replay(replayed)
        has_client_models = self.session.has_client_models
        own = scenario.evaluate.clients == "own"
        self.each_client = own or (bool(scenario.evaluate.clients) and has_client_models)
        self.keeps_each = scenario.record.client_models and has_client_models
        for key, is_set, missing in (
            ("evaluate.clients", scenario.evaluate.clients and not own, "table client_metrics"),
            ("record.client_models", scenario.record.client_models, "file client_models.npz"),
        ):
            if is_set and not has_client_models:
                cause = f"{scenario.algorithm.kind} has one model for all clients: there is no {missing}"
                self.warnings.append(f"{key}: {cause}; set {key}: false")

    @property
    def wall_s(self) -> float:
        """Host seconds that the run has taken, including those before it was resumed."""
        if not self._started_s:
            return 0.0
        return self._already_s + self._share * (time.perf_counter() - self._started_s)

    def start_watch(self, already_s: float) -> None:
        """Start to count host seconds, from `already_s` of before a resume."""
        self._started_s, self._already_s = time.perf_counter(), already_s

    def account(self) -> Releases:
        """Return the releases by the algorithm's account, checked against the tape's.

        If a release cannot be certified, or was not counted, no epsilon holds from now on, and the user is warned once.
        """
        declared, seen, ledger = self.algorithm.releases, self.tape.releases, self.setup.ledger
        if seen is None or ledger is None:
            return declared
        account = seen.compare(declared)
        if ledger.accounted and account.refusal is not None and not self._is_uncertified:
            self._is_uncertified = True
            self.warn(f"privacy: epsilon is not certified: {account.refusal}")
        return account

    def warn(self, warning: str) -> None:
        """Keep a line for the manifest, and show it to the user."""
        self.warnings.append(warning)
        warnings.warn(warning, stacklevel=3)

    def end(self, status: Status, reason: str) -> None:
        """Stop the world before its next event; the first status is kept."""
        if self.status == "running":
            self.status, self.reason = status, reason
        self.world.clock.stop()

    def fail(self, error: BaseException) -> SimflError:
        """Set the status to failed and return the error to raise, which has one line."""
        self.status = "failed"
        if isinstance(error, SimflError):
            self.reason = str(error)
            return error
        self.reason = raised(error)
        failure = RunError(f"{self.setup.scenario.name}: {self.reason}")
        failure.__cause__ = error
        return failure

    def release(self) -> None:
        """Stop the executor's thread, drop the data, and return free memory to the system.

        A finished run refers to itself in cycles, which the garbage collector finds late.
        """
        with contextlib.suppress(RunError):
            self.executor.close()
        del self.setup
        give_back()


def tally(setup: Setup, now: Callable[[], float] = lambda: 0.0) -> Tally | None:
    """Return the tally of a run's releases; None without privacy."""
    ledger, training = setup.ledger, setup.training
    if ledger is None:
        return None
    scales = training.each_noise_std() if training.noise_scale is None else training.noise_scale
    return ledger.counted_by(ledger, scales, training.clipping_norm, setup.problem.rounds is not None, now)


def automatic_window(setup: Setup, platform: str) -> int:
    """Return the operations per window."""
    if platform == "cpu" and (setup.model.convolutional or setup.model.size >= LARGE):
        return max(64, 4 * setup.scenario.clients.count)
    return int(min(8192, max(4096, 4 * setup.scenario.clients.count)))
