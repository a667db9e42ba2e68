"""Runs of one world, played together: the world once, the arithmetic for each run.

The settings of a group differ in arithmetic alone. The world is played once, and its tape is recorded and packed once,
with an `Each` in place of each number that differs. The executor runs every window for one setting after the other.
Each run has its own evaluations, tables, ledger, checkpoints and end, with the bits of the run alone. A run that
diverges leaves the group, and the others go on.

If the runs turn out not to have one world, or anything fails, the group is given up. Then its runs are run alone, each
from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simfl.assembly.setup import Setup
from simfl.errors import RunError, SimflError
from simfl.records import Progress, Run, RunFolder
from simfl.runs.checkpoint import REST, Checkpoint, Position
from simfl.runs.context import Session, Status
from simfl.runs.evaluations import Schedule
from simfl.runs.reporting import Interruption
from simfl.runs.runner import Simulation
from simfl.studies.setups import is_one_world, together
from simfl.tape.journal import Names, Together
from simfl.tape.tuning import tuned_interpreter
from simfl.threads import one_thread

#: The most bytes of the models of a group.
MOST_BYTES = 2**30


def groups_of(setups: Sequence[Setup], positions: Sequence[Position | None]) -> Iterator[list[int]]:
    """Yield the numbers of setups that can be played together.

    Their scenarios have equal keys (`simfl.studies.worlds`).
    """
    left = list(range(len(setups)))
    while left:
        lead = left[0]
        same = [
            k for k in left if positions[k] == positions[lead] and (k == lead or is_one_world(setups[lead], setups[k]))
        ]
        first = setups[lead]
        rows = 2 * first.scenario.clients.count + 64
        most = max(1, MOST_BYTES // (4 * rows * first.problem.model.size))
        for at in range(0, len(same), most):
            yield same[at : at + most]
        left = [k for k in left if k not in same]


class Member(Simulation):
    """One run of a group: its end is not that of the world."""

    def end(self, status: Status, reason: str) -> None:
        """Leave the group before the next event; the first status is kept."""
        if self.status == "running":
            self.status, self.reason = status, reason
        self.world.clock.paused = True

    def release(self) -> None:
        """Drop the data."""
        del self.setup


class Group:
    """Runs that are played together.

    Args:
        setups: one for each run, as `groups_of` gives them.
        device: where to compute.
        progress: called with reports of each run.
        every_s: host time between checkpoints; None for none.
        since: the checkpoints of one position to continue from, one for each run; None: from the beginning.
    """

    def __init__(
        self,
        setups: Sequence[Setup],
        device: Any,
        progress: Callable[[Progress], None] | None = None,
        every_s: float | None = None,
        since: Sequence[Checkpoint] | None = None,
    ) -> None:
        self.setup = together(setups)
        self.session = Session(self.setup, device, problems=[setup.problem for setup in setups])
        self.world, self.algorithm = self.session.world, self.session.algorithm
        keeps, names = every_s is not None or since is not None, Names()
        self._every_s, self._since = every_s, since
        self.members: list[Member] = []
        try:
            for number, setup in enumerate(setups):
                begun = None if since is None else since[number]
                shared = self.session, number, names
                self.members.append(Member(setup, device, progress, every_s=every_s, since=begun, shared=shared))
                self.members[-1]._share = 1.0 / len(setups)
        except BaseException:
            self.session.executor.close()
            raise
        journals = [member.journal for member in self.members]
        self.session.tape.executor = Together(self.session.executor, journals, names if keeps else None)
        self._playing = list(self.members)
        self._results: dict[int, Run | SimflError] = {}
        #: Why the group was given up; None if it was not.
        self.refusal: BaseException | None = None
        self._rooms: list[Callable[[], None]] = []
        self._wanted = False
        self._timer = threading.Timer(0.0, self._want)

    @one_thread()
    def run(self, folders: Sequence[RunFolder]) -> list[Run | SimflError | None]:
        """Run to the end; return the runs, or why they failed.

        None stands for a run that must be run alone; `refusal` says why.
        """
        interruption = Interruption(self.world.clock)
        with contextlib.ExitStack() as stack:
            for member, folder in zip(self.members, folders, strict=True):
                member.enter(folder)
                member.checkpoints.timed = False
                member._interruption = interruption
                self._rooms.append(stack.enter_context(folder.held()))
            stack.enter_context(interruption.handled())
            try:
                self._simulate()
            except BaseException as error:
                if not (isinstance(error, KeyboardInterrupt) and self.world.clock.interrupted):
                    self._give_up(error)
                for member in self._playing:
                    member.status, member.reason = "interrupted", "interrupted a second time"
            interruption.closing = True
            for member in list(self._playing):
                self._leave(member)
        return [self._results.get(member.number) for member in self.members]

    def release(self) -> None:
        """Stop the executor's thread, and drop the data."""
        self._timer.cancel()
        with contextlib.suppress(RunError):
            self.session.executor.close()
        for member in self.members:
            member.release()

    # -- what a schedule sees ------------------------------------------------------------------

    def end(self, status: Status, reason: str) -> None:
        """Stop the world before its next event, for all runs."""
        for member in self._playing:
            member.end(status, reason)
        self.world.clock.stop()

    def take(self) -> None:
        """Evaluate the current models of all runs."""
        for member in self._playing:
            member.evaluations.take()

    def _report(self) -> None:
        for member in self._playing:
            member.reporter.report()

    # -- the events ----------------------------------------------------------------------------

    def _simulate(self) -> None:
        members = self.members
        for member in members:
            member.begin()
        members[0].recorder.listen([member.recorder for member in members[1:]])
        with tuned_interpreter():
            schedule = Schedule(self, self)
            for member in members:
                member.reporter.begin(schedule)
            self.session.on_flush = self._report
            schedule.begin()
            self._play(self.setup.scenario.stop.time)
            for member in self._playing:
                member.finish()

    def _play(self, until: float | None) -> None:
        """Run the world, with checkpoints; runs leave when they end."""
        clock = self.world.clock
        if self._since is not None:
            clock.run(until, self._since[0].position.events)
            if clock.interrupted:
                return
            until, clock.paused = None, False
            for member, since in zip(self.members, self._since, strict=True):
                member.checkpoints.go_on(since)
        self._rest(0.0)
        try:
            clock.run(until)
            while clock.paused and not (clock.interrupted or clock.stopped):
                clock.paused = False
                leaving = [member for member in self._playing if member.status != "running"]
                if self.algorithm.budgets.owed() and 0 < len(leaving) < len(self._playing):
                    raise RunError("a run ends, and others go on, while a secure sum is being unmasked")
                for member in leaving:
                    member.finish()
                    self._leave(member)
                if not self._playing:
                    break
                if self._wanted:
                    self._take()
                clock.run()
            if clock.interrupted:
                self._take()
        finally:
            self._timer.cancel()

    def _leave(self, member: Member) -> None:
        """Complete a run's folder."""
        member.reporter.closing = True
        failure = member.leave(self._rooms[member.number], member.settle())
        self._results[member.number] = failure or Run(member.folder.path, member.setup.own.given)
        self._playing.remove(member)
        with contextlib.suppress(RunError):  # the others will hear of it
            self.session.executor.end(member.number)

    def _give_up(self, error: BaseException) -> None:
        """Discard what is not complete."""
        self.refusal = error
        for member in self._playing:
            member.recorder.abort()
        self._playing = []

    def _take(self) -> None:
        """Take a checkpoint of every run."""
        self._wanted = False
        before = sum(member.checkpoints.taking_s for member in self._playing)
        for member in self._playing:
            member.checkpoints.take()
        self._rest(sum(member.checkpoints.taking_s for member in self._playing) - before)

    def _rest(self, took_s: float) -> None:
        self._timer.cancel()
        if self._every_s is not None:
            self._timer = threading.Timer(max(self._every_s, REST * took_s), self._want)
            self._timer.daemon = True
            self._timer.start()

    def _want(self) -> None:
        self._wanted = self.world.clock.paused = True
