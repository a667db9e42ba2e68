"""The memory that a run will need, in named parts, before it runs.

The parts are those of a process that runs one scenario on a CPU. Arrays are counted, because their shapes are known.
Libraries and compiled programs are constants that were measured (docs/planning.md).
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from simfl.assembly.setup import Setup
from simfl.errors import RunError, ScenarioError
from simfl.records.display import show_bytes
from simfl.tape import Tape
from simfl.tape.layout import padded_size
from simfl.tape.packing import LARGE, Bank, pack
from simfl.tape.recording import Window
from simfl.tape.tuning import CACHE_BYTES, MOST_DRAWN_BYTES, STEPS
from simfl.threads import idle_cores

#: Python with the libraries of every run, and with those of privacy; measured.
LIBRARIES, OF_PRIVACY = 230 << 20, 70 << 20
#: Compiled programs of a run, further ones for each equation of a model's loss, for an optimizer, and for each size of
#: functions of models; measured.
PROGRAMS, OF_EQUATION, OF_OPTIMIZER, OF_SIZE = 150 << 20, 1.05 * 2**20, 65 << 20, 20 << 20
#: Equations of the loss of a linear model.
OF_LINEAR = 31
#: Rows beside the bank while models are averaged, 16 at a time (`simfl.tape.executor.CHUNK_MODELS`) of 4 rows each.
OF_MEAN = 16 * (1 + 4)
#: Columns of these rows at most (twice `PART_COLUMNS` there), and then whole rows: two means and a model.
OF_PART, OF_WHOLE = 2**16, 3
#: Calls whose draws are in memory at once: the one before, the one that runs, and the next.
OF_DRAWS = 3
#: Events after which a world in which little is updated is no longer played, to count rows.
MOST_EVENTS = 10**5
#: What to lower, by the part that is the largest of those that a scenario decides.
LOWER = {
    "data": "the number of examples (data)",
    "models": "clients.count, or take a smaller model",
    "tables": "the number of examples (data), raise algorithm.batch_size, or take a smaller model",
    "computing": "algorithm.batch_size, or take a smaller model",
    "programs": "the number of the model's layers",
}


@dataclass(frozen=True)
class Memory:
    """The bytes of a run, by part; `loaded` of them are taken when the run begins.

    Parts: `libraries`, `programs` (compiled), `data` (on the host and on the device), `models` (rows of the bank),
    `tables` (rows that clients keep beside models, if they do), and `computing` (activations of a mini-batch, and the
    mean of models).
    """

    parts: dict[str, int]
    loaded: int

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        largest = sorted(self.parts.items(), key=lambda part: -part[1])[:3]
        return f"{show_bytes(self.total)} of memory, " + ", ".join(f"{name} {show_bytes(of)}" for name, of in largest)


class _NumbersError(RunError):
    """The world asks for numbers, of which there are none while rows are counted."""


def memory_of(setup: Setup, settings: int = 1) -> Memory:
    """Return the memory that a run of a scenario needs on a CPU, as an estimate.

    `settings` is the number of runs that are played together, each with a bank of its own.
    """
    problem, dataset, training = setup.problem, setup.dataset, setup.training
    measured = [dataset.test_x, dataset.test_y, *(dataset.validation or ())]
    stored = sum(array.nbytes for array in (dataset.train_x, dataset.train_y, *measured))
    losses = len(problem.measured.loss_examples) * problem.data.train_x[:1].nbytes
    # Evaluations have padded copies. The device takes the training part as it is, if that is in one piece.
    on_device = sum(array.nbytes for array in measured) + losses + 4 * len(setup.partition.indices)
    if dataset.validation is not None:
        on_device += dataset.train_x.nbytes
    equations, results, begun = OF_LINEAR, 0, 0
    if training.initial.any():  # else a linear model: no reason to import JAX
        from simfl.tape.cores import begun_at_once
        from simfl.tape.equations import equations_of, worth_a_core

        equations, results = equations_of(problem)
        forced = setup.scenario.execution.devices
        cores = min(idle_cores() if forced == "auto" else forced, setup.scenario.clients.count)
        begun = begun_at_once(cores) if worth_a_core(problem) else 0
    optimizers = sum(plan is not None for plan in (training.optimizer, training.server_optimizer))
    mixed = padded_size(setup.scenario.algorithm.mixed(setup.scenario.clients.count))
    libraries = LIBRARIES + OF_PRIVACY * (setup.ledger is not None)
    kept = _table_rows(setup)
    row_bytes = 4 * problem.model.size
    tables = {"tables": row_bytes * kept * settings} if kept else {}
    averaged = min(OF_MEAN * row_bytes, OF_MEAN * 4 * OF_PART + OF_WHOLE * row_bytes)
    return Memory(
        {
            "libraries": libraries,
            "programs": PROGRAMS
            + round(OF_EQUATION * equations)
            + OF_OPTIMIZER * optimizers
            + OF_SIZE * (mixed.bit_length() - 1),
            "data": stored + on_device,
            "models": row_bytes * (rows_of(setup) - kept + 1) * settings,
            **tables,
            "computing": averaged + (2 * begun + mixed) * row_bytes + results + _drawn(setup),
        },
        libraries + stored,
    )


def _drawn(setup: Setup) -> int:
    """Return the bytes of what is drawn before steps (`simfl.tape.ahead`)."""
    problem, width = setup.problem, setup.scenario.execution.width
    x, at_a_time = problem.data.train_x, width if width != "auto" else 4 if problem.model.size > 2**12 else 16
    taken, noise = (STEPS * at_a_time * each for each in (problem.max_batch * x[:1].nbytes, 4 * problem.model.size))
    if x.nbytes <= CACHE_BYTES or max(taken, noise) > MOST_DRAWN_BYTES or problem.rounds is not None:
        return 0
    return OF_DRAWS * (taken + noise * (problem.noise is not None))


def rows_of(setup: Setup) -> int:
    """Return the rows that the bank begins with: two for each client, tables, and 64.

    If a row is large, they are those that the algorithm has alive in its first updates, and an eighth more.
    """
    if setup.rows is None:
        clients, rows = setup.scenario.clients.count, 2 * setup.scenario.clients.count + 64
        if setup.problem.model.size >= LARGE:
            alive = _alive(setup, math.ceil(min(setup.kind.planned_total(setup.sizes.tolist()), max(64, 4 * clients))))
            rows = alive + alive // 8 + 2
        setup.rows = rows + _table_rows(setup)
    return setup.rows


def _table_rows(setup: Setup) -> int:
    """Return how many vectors clients keep beside their models."""
    sizes = setup.sizes.tolist() if setup.kind.keeps_table else []
    return sum(-(-n // size) + 1 for n, size in zip(sizes, setup.kind.batch_sizes(sizes), strict=True))


class _Counted:
    """An executor that computes nothing, and counts the rows alive at once."""

    def __init__(self) -> None:
        self.bank = Bank(0, 128)  # grows by one row

    def submit(self, window: Window) -> None:
        """Give places to the rows of a window."""
        pack(window, self.bank, 1, 1)

    def fetch(self, *forms: Any) -> NoReturn:
        """Refuse: no model has numbers."""
        raise _NumbersError("a model without numbers")

    def probe(self, *arguments: Any) -> NoReturn:
        """Refuse: no model has numbers."""
        raise _NumbersError("a decision without numbers")


def _alive(setup: Setup, updates: int) -> int:
    """Return the most rows that are alive at once in the first updates.

    They are at least two for each client if the world asks for numbers, for then it cannot go on.

    Raises:
        RunError: the algorithm fails, as it would in the run.
    """
    from simfl.assembly.assemble import begin_world

    counted = _Counted()
    tape = Tape(counted, window=updates, **setup.problem.recorded)
    with contextlib.suppress(_NumbersError):
        world, _algorithm = begin_world(setup, tape, updates)  # which keeps its models alive
        world.clock.run(setup.scenario.stop.time, MOST_EVENTS)
        tape.flush()
        return counted.bank.capacity
    return max(counted.bank.capacity, 2 * setup.scenario.clients.count)


def refuse_too_large(setup: Setup, settings: int = 1) -> None:
    """Refuse a run that does not fit into what this machine has left.

    `settings` is the number of runs that are played together.

    Raises:
        ScenarioError: one line that says what to lower.
    """
    memory, left = memory_of(setup, settings), available_bytes()
    if memory.total - memory.loaded > left:
        decided = {**memory.parts, "programs": memory.parts["programs"] - PROGRAMS}
        largest = max(LOWER, key=lambda name: decided.get(name, 0))
        raise ScenarioError(
            f"{setup.scenario.name}: expected a run that fits into the {show_bytes(left)} of memory that are left "
            f"here, found one that needs {memory}; lower {LOWER[largest]}"
        )


def available_bytes() -> float:
    """Return the bytes that this process can still take; infinite if unknown."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        left = 1024.0 * sum(map(int, re.findall(r"^(?:MemAvailable|SwapFree): +(\d+) kB", text, re.MULTILINE)))
    except (OSError, ValueError):  # another system
        return math.inf
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of a container
        with contextlib.suppress(OSError, ValueError):  # none
            left = min(left, float((Path("/sys/fs/cgroup") / limit).read_text(encoding="ascii")))
    return left
