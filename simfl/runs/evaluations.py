"""When a run is evaluated, how the numbers arrive, and whether they end the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Algorithm
from simfl.assembly.setup import Setup
from simfl.each import of_setting
from simfl.errors import RunError
from simfl.runs.context import Context, Status
from simfl.runs.endings import NEVER, ended_by, last_update
from simfl.runs.recorder import Recorder
from simfl.scenario.checks import MOST_EVALUATIONS
from simfl.scenario.control import Stop
from simfl.tape import Model
from simfl.tape.executor import Evaluation
from simfl.world import World
from simfl.world.engine import ROUNDING

#: Pairs of clients that exchanged messages, how many, and how much of these counted.
_Counted = tuple[list[tuple[int, int, int]], Future[NDArray[np.float32]]]
#: An evaluation on its way: what is known already, the numbers, the clipping norm if it adapts, and what counted.
_Pending = tuple[dict[str, float], Future[Evaluation], Future[NDArray[np.float32]] | None, _Counted | None]


class Evaluations:
    """Takes evaluations, and writes their rows when the device has computed them.

    `report` is called with each row of `metrics`, by column. `known_wall_times_s` are host seconds of the evaluations
    that a resumed run had collected before its checkpoint.
    """

    def __init__(
        self,
        context: Context,
        recorder: Recorder,
        report: Callable[[dict[str, float]], None],
        known_wall_times_s: list[float],
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._report = report
        self._known_wall_times_s = deque(known_wall_times_s)
        self._goals = goals_of(context.setup.scenario.stop, bool(context.setup.of_validation))
        self._pending: deque[_Pending] = deque()
        self._last: tuple[float, int] | None = None
        #: Which clients had taken part at each pending evaluation of own test examples.
        self._seen: deque[NDArray[np.bool_]] = deque()

    def take(self) -> None:
        """Evaluate the current models; the numbers arrive later unless a goal needs them."""
        context, algorithm, network = self._context, self._context.algorithm, self._context.world.network
        now = context.world.clock.now
        if self._last == (now, algorithm.updates):
            return
        self._last = (now, algorithm.updates)
        each_model = algorithm.client_models() if context.each_client else None  # may record how they are made
        context.tape.flush()
        clipping = algorithm.clipping_norm
        adapted = clipping if isinstance(clipping, Model) else None
        norm = of_setting(clipping if adapted is None else algorithm.training.clipping_norm, context.number)
        taken = {
            "time_s": now,
            "updates": algorithm.updates,
            "epochs": algorithm.marks.epochs(algorithm.updates),
            "rounds": algorithm.rounds,
            "bytes_sent": network.bytes_sent,
            "messages": network.messages,
            "epsilon": self._recorder.spent_epsilon(),
            **self._recorder.spent(),
            "clipping_norm": norm if np.isfinite(norm) else np.nan,
        }
        rows, coefs = context.tape.forms(algorithm.evaluated())
        each = False if each_model is None else context.tape.forms(each_model)
        if context.setup.problem.measured.own is not None:
            self._seen.append(np.asarray(algorithm.client_updates) > 0)
        future = context.journal.evaluate(rows, coefs, each, norm)
        self._pending.append((taken, future, self._look(adapted), self._counted()))
        # A goal needs the number now. Divergence is checked one evaluation later, always at the same one, so that the
        # device can lag after the world and the run still ends at the same event.
        while len(self._pending) > (0 if self._goals else 1):
            evaluated_s = self._pending[0][0]["time_s"]
            evaluation, row = self._collect_oldest()
            if not evaluation.finite:
                context.end("diverged", f"the loss was not finite at {evaluated_s:.6g} s of virtual time")
            for reason, is_reached in self._goals.items():
                if is_reached(row):
                    context.end("done", reason)

    def collect(self, wait: bool) -> None:
        """Write the rows of pending evaluations; unless `wait`, only the computed ones."""
        context = self._context
        while self._pending and (wait or self._pending[0][1].done()):
            evaluation, _ = self._collect_oldest()
            if not evaluation.finite and context.status == "done":
                context.status, context.reason = "diverged", "the loss was not finite at the end"

    def _collect_oldest(self) -> tuple[Evaluation, dict[str, float]]:
        taken, future, norm, counted = self._pending.popleft()
        evaluation = future.result()
        if norm is not None:
            taken["clipping_norm"] = float(norm.result()[0])
        earlier = self._known_wall_times_s
        wall_s = earlier.popleft() if earlier else self._context.wall_s
        self._context.wall_times_s.append(wall_s)
        if (own := self._context.setup.problem.measured.own) is not None:
            taken |= own.summary(evaluation, self._seen.popleft())
        row = self._recorder.evaluated(taken, evaluation, wall_s)
        if counted is not None:
            self._recorder.aggregated(taken["time_s"], counted[0], counted[1].result())
        self._report(row)
        return evaluation, row

    def _look(self, norm: Model | None) -> Future[NDArray[np.float32]] | None:
        """Look at the present clipping norm, if it follows from data."""
        if norm is None:
            return None
        return self._context.journal.look(np.array([norm.rows[0].number], dtype=np.int32), np.zeros(1, dtype=np.int64))

    def _counted(self) -> _Counted | None:
        """Look at how much of each message counted since the last evaluation."""
        aggregation = self._context.algorithm.aggregation
        tallies = None if aggregation is None else aggregation.tallies()
        if tallies is None or not tallies.pairs:
            return None
        rows = np.array([model.rows[0].number for model in tallies.models], dtype=np.int32)
        return tallies.pairs, self._context.journal.look(rows, np.array(tallies.places, dtype=np.int64))


class Played(Protocol):
    """What a schedule ends: a run, or a group of runs."""

    setup: Setup
    world: World
    algorithm: Algorithm

    def end(self, status: Status, reason: str) -> None:
        """Stop the world before its next event."""


class Evaluated(Protocol):
    """What a schedule evaluates."""

    def take(self) -> None:
        """Evaluate the current models."""


class Schedule:
    """Evaluates a run at the scenario's marks, and ends it after the last update."""

    def __init__(self, context: Played, evaluations: Evaluated) -> None:
        self._context = context
        self._evaluations = evaluations
        self._number, self._next_evaluation = 0, NEVER
        #: Number of the next evaluation by virtual time.
        self._timed = 0
        self.last_update = last_update(context.setup.scenario.stop, context.algorithm)

    def begin(self) -> None:
        """Evaluate the initial models, set the first mark, and start the processes."""
        algorithm, every = self._context.algorithm, self._context.setup.scenario.evaluate.every
        if every.time is not None:
            self._set_time()
        self._evaluations.take()
        algorithm.marks.call, algorithm.marks.next = self._on_mark, self._next_mark()
        algorithm.start()

    def _updates_at(self, number: int) -> float | None:
        """Return the updates before evaluation `number`; None if the clock decides."""
        every = self._context.setup.scenario.evaluate.every
        if every.updates is not None:
            return float(number * every.updates)
        return None if every.epochs is None else self._context.algorithm.marks.updates_in(number * every.epochs)

    def _next_mark(self) -> int:
        """Return the number of updates at which to evaluate, or end, next."""
        updates, self._next_evaluation = self._context.algorithm.updates, NEVER
        while (mark := self._updates_at(self._number + 1)) is not None:
            self._next_evaluation = int(np.ceil(mark - 1e-9))
            if self._next_evaluation > updates:
                break
            self._number += 1
        return min(self._next_evaluation, self.last_update)

    def _on_mark(self) -> int:
        context, updates = self._context, self._context.algorithm.updates
        if updates >= self.last_update or context.algorithm.marks.ends:
            if (reason := ended_by(context.setup.scenario.stop, context.algorithm)) is not None:
                context.end("done", reason)
                return NEVER
            self.last_update = updates + 1  # rounds were smaller than planned: some examples are still to come
        if updates >= self._next_evaluation:
            self._evaluations.take()
        return self._next_mark()

    def _set_time(self) -> None:
        """Schedule the next evaluation by virtual time."""
        clock, every_s = self._context.world.clock, float(self._context.setup.scenario.evaluate.every.time or 0.0)
        self._timed += 1
        if self._timed > MOST_EVALUATIONS:
            expected = f"expected at most {MOST_EVALUATIONS:,} evaluations, found more"
            raise RunError(f"evaluate.every.time: {expected}; evaluate less often")
        clock.tell_before(clock.now + (self._timed * every_s - clock.now), self._in_time)

    def _in_time(self) -> None:
        clock, end_s = self._context.world.clock, self._context.setup.scenario.stop.time
        if clock.peek() == float("inf"):
            return  # nothing else is scheduled, and evaluations alone must not keep the clock running
        if end_s is None or clock.now < end_s * (1.0 - ROUNDING):  # the end has its own
            self._evaluations.take()
        self._set_time()


def goals_of(stop: Stop, validated: bool = False) -> dict[str, Callable[[Mapping[str, float]], bool]]:
    """Return the goals that end a run: a reason, and a test of a row of metrics.

    `validated` says whether there is a validation part, whose accuracy decides.
    """
    column = "validation_accuracy" if validated else "test_accuracy"
    goals: dict[str, Callable[[Mapping[str, float]], bool]] = {}
    if (accuracy := stop.accuracy) is not None:
        goals["accuracy"] = lambda row: row[column] >= accuracy
    if (suboptimality := stop.suboptimality) is not None:
        goals["suboptimality"] = lambda row: row["suboptimality"] <= suboptimality
    if (metric := stop.metric) is not None:
        least, most = stop.at_least, stop.at_most
        words = f"at least {least:g}" if least is not None else f"at most {most:g}"
        goals[f"{metric} {words}"] = lambda row: (
            row[metric] >= least if least is not None else most is not None and row[metric] <= most
        )
    return goals
