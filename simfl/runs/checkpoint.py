"""Checkpoints: a killed run resumes from the last one, with equal tables.

SimPy's processes cannot be written to a file. The world is deterministic and sees numbers only through the `Journal`.
So `resume` replays the world without arithmetic, with the journal's answers, up to the event of the checkpoint. There
the living models get their values back.

A checkpoint holds the position, the journal's record, and the values of living models by the name of the operation
that made them. It is a zip file of NumPy arrays with checksums, as `numpy.load` reads it, and replaces the previous
one when complete. Results do not depend on the number of checkpoints.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import json
import platform
import threading
import time
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.setup import Setup
from simfl.assembly.world import speeds
from simfl.compiled import is_compiled
from simfl.errors import DataError, RunError, raised
from simfl.models.trial import EXAMPLES
from simfl.records import RunFolder
from simfl.records.folder import flags, versions
from simfl.records.writer import cannot_write, regular, replacing
from simfl.runs.context import Context
from simfl.runs.intervals import FILE
from simfl.runs.recorder import write_models
from simfl.scenario.fields import world_files
from simfl.scenario.own_code import is_known, modules_of, source_digests, source_of
from simfl.tape.executor import Evaluation
from simfl.tape.journal import Record, ReplayError

FORMAT = 3
#: Stands in a fingerprint for a value that cannot be compared: such a run is never resumed.
UNKNOWN = "unknown"
#: The least time between checkpoints, in units of the time that the last one took: at most 3 % of a run.
REST = 32


def fingerprint(setup: Setup, device: Any, division: str) -> dict[str, str]:
    """Return the inputs of a run's numbers as comparable words, without the window.

    `division` is that of the session.
    """
    scenario, data, partition = setup.scenario.resolved(), setup.dataset, setup.partition
    for key in ("name", "description"):
        del scenario[key]
    del scenario["execution"]
    arrays = *data.arrays, partition.indices, partition.offsets
    world = [np.asarray(setup.topology.edges), speeds(setup.scenario, setup.streams)]
    if setup.underlay is not None:  # perhaps from a file
        world += setup.underlay.arrays()
    user_sources = source_digests(scenario)
    inputs = versions()
    return {
        **{f"version of {name}": inputs[name] for name in ("simfl", "jax", "jaxlib", "numpy")},
        "XLA_FLAGS": flags() or "none",
        "version of simpy": importlib.metadata.version("simpy"),
        "version of Python": inputs["python"].rpartition(".")[0],
        "machine": platform.machine(),
        "device": f"{device.platform} ({device.device_kind})",
        "width": division,
        "precision": setup.scenario.execution.precision,
        # The two builds free rows at different moments of an event, and a resume must find the same living rows.
        "build of the world": "compiled" if is_compiled() else "plain",
        "scenario": _digest(json.dumps(scenario, sort_keys=True).encode()),
        "data": _digest(*map(np.ascontiguousarray, arrays), *data.scaling.arrays),
        "topology and speeds": _digest(*map(np.ascontiguousarray, world)),
        "files of the world": _digest(*(Path(path).read_bytes() for path in world_files(setup.scenario))),
        "initial model": _digest(setup.training.initial if setup.start is None else setup.start.params),
        "model that was given from Python": _digest_of_object(setup),
        "source of the user's own modules": (
            _digest(json.dumps(user_sources).encode()) if is_known(user_sources) else UNKNOWN
        ),
    }


def _digest_of_object(setup: Setup) -> str:
    if setup.own.model is None:
        return "none"
    model, data = setup.model, setup.dataset
    x, y = data.train_x[:EXAMPLES], data.train_y[:EXAMPLES]
    return model.program_digest(x.astype(np.int32) if model.tokens else data.scaling(x), y)


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{getattr(part, 'shape', len(part))};{getattr(part, 'dtype', '')};".encode())
        digest.update(memoryview(part).cast("B") if len(part) else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class Position:
    """The place in a run where a checkpoint was taken: the same after every replay.

    `updates`, `messages` and `bytes_sent` are totals of all clients; `operations` counts the tape's, by kind.
    """

    events: int
    time_s: float
    updates: int
    operations: list[int]
    messages: int
    bytes_sent: int


@dataclass
class Checkpoint:
    """A checkpoint whose models' values are read when needed.

    `print` is the `fingerprint`, `resumed` the number of earlier resumes, and `beside` the folders of the user's own
    modules. `walls` are host seconds of the collected evaluations, `memory` is the algorithm's, and `names` are those
    of the living rows, int64 [n], ascending.
    """

    path: Path
    print: dict[str, str]
    position: Position
    wall_s: float
    resumed: int
    beside: list[str]
    record: Record
    walls: list[float]
    memory: dict[str, NDArray[Any]] = field(default_factory=dict)
    names: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def check(self, inputs: dict[str, str]) -> None:
        """Raise a `DataError` if anything that the numbers depend on has changed."""
        for name, now in inputs.items():
            if (taken := self.print.get(name, UNKNOWN)) == now != UNKNOWN:
                continue
            was, now = (f", {taken},", f"found {now}") if len(taken) < 64 else (",", "it has changed")
            raise DataError(
                f"{self.path}: expected the {name} of the checkpoint{was} {now}; restore it, or run it again: "
                f"simfl run {self.path.parent / 'scenario.yaml'}"
            )

    def values(self, rows: int) -> Iterator[NDArray[np.float32]]:
        """Yield the values of living rows by name, in blocks f32 [k, d]."""
        with zipfile.ZipFile(self.path) as archive, archive.open("values.npy") as file:
            version = np.lib.format.read_magic(file)
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            (count, size), _, kind = reader(file)
            for begin in range(0, count, rows):
                block = min(rows, count - begin)
                yield np.frombuffer(file.read(block * size * kind.itemsize), dtype=kind).reshape(block, size)


def read(path: Path) -> Checkpoint:
    """Read a checkpoint; a missing, damaged or too old one is a `DataError`."""
    try:
        with np.load(regular(path)) as archive:
            if archive.zip.testzip() is not None:
                raise ValueError("a checksum is wrong")
            about = json.loads(archive["about.json"])
            if about["format"] != FORMAT:
                raise DataError(f"{path}: expected a checkpoint of format {FORMAT}, found {about['format']}")
            arrays = {name: archive[name] for name in archive.files if name not in ("about.json", "values")}
        record = Record(
            _evaluations(arrays, about["evaluations"]), _answers(arrays["answers"], about["answers"]), about["zeroed"]
        )
        memory = {name.removeprefix("memory/"): arrays[name] for name in arrays if name.startswith("memory/")}
        given = about["print"], Position(**about["position"]), about["wall_s"], about["resumed"], about["beside"]
        return Checkpoint(path, *given, record, arrays["walls"].tolist(), memory, arrays["names"])
    except FileNotFoundError:
        again = f"simfl run {path.parent / 'scenario.yaml'}"
        raise DataError(f"{path.parent}: expected a checkpoint in it, found none; run it again: {again}") from None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: expected a whole checkpoint, found a damaged one ({error}); remove it") from error


def _measures(evaluation: Evaluation) -> dict[str, Any]:
    """Return an evaluation's values by the names of their arrays."""
    arrays = {f"measure/{entry.name}": getattr(evaluation, entry.name) for entry in fields(evaluation)}
    further = arrays.pop("measure/further")
    arrays |= {f"further/{name}": value for name, value in further.items()}
    return {name: value for name, value in arrays.items() if value is not None}


def _evaluations(arrays: dict[str, NDArray[Any]], count: int) -> list[Evaluation]:
    def values(kind: str, number: int) -> dict[str, Any]:
        named = {name.removeprefix(kind): array[number] for name, array in arrays.items() if name.startswith(kind)}
        return {name: value if value.ndim else float(value) for name, value in named.items()}

    return [Evaluation(**values("measure/", k), further=values("further/", k)) for k in range(count)]


def _answers(content: NDArray[np.uint8], kinds: list[tuple[str, list[int]]]) -> list[NDArray[Any]]:
    """Cut answers of any shape out of the bytes of all of them."""
    answers, at = [], 0
    for kind, shape in kinds:
        size = int(np.prod(shape, dtype=int)) * np.dtype(kind).itemsize
        answers.append(content[at : at + size].view(kind).reshape(shape))
        at += size
    return answers


def _write(path: Path, about: dict[str, Any], arrays: dict[str, Any], shape: tuple[int, int], values: Any) -> None:
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", allowZip64=True) as archive:
        archive.writestr("about.json", json.dumps(about))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
        with archive.open("values.npy", "w", force_zip64=True) as member:
            described = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, described)
            for part in values:
                member.write(part.data)


class CheckpointManager:
    """Takes the checkpoints of one run, and brings the run back to one.

    The journal of the context must keep its record. `every_s` is the host time between checkpoints; None takes none and
    keeps the one in the folder. The run continues from the checkpoint `since`, and is interrupted after `ends_after`
    events. `taken` counts the checkpoints. `taking_s`, `replaying_s` and `loading_s` are host seconds spent to take
    checkpoints, to replay the world, and to give models their values.
    """

    def __init__(
        self,
        context: Context,
        folder: Path,
        every_s: float | None,
        since: Checkpoint | None = None,
        ends_after: int | None = None,
    ) -> None:
        self.path = folder / FILE
        self.every_s = every_s
        self.since = since
        self.ends_after = ends_after
        #: Whether checkpoints are taken from time to time; otherwise when someone else says so.
        self.timed = True
        self.taken = 0
        self.taking_s = self.replaying_s = self.loading_s = 0.0
        self._run = context
        self._print: dict[str, str] | None = None if since is None else since.print
        self._timer = threading.Timer(0.0, self.want)

    @property
    def resumed(self) -> int:
        """The number of times that the run was resumed."""
        return 0 if self.since is None else self.since.resumed + 1

    def run(self, until: float | None) -> None:
        """Run the world as `Clock.run` does, with checkpoints."""
        clock = self._run.world.clock
        if self.since is not None:
            begun = time.perf_counter()
            try:
                clock.run(until, self.since.position.events)
            except ReplayError as error:
                self._refuse(str(error))
            if clock.interrupted:
                return
            until, clock.paused = None, False
            played = time.perf_counter()
            self.go_on(self.since)
            self.replaying_s, self.loading_s = played - begun, time.perf_counter() - played
        self._rest(0.0)
        try:
            clock.run(until, self.ends_after)
            clock.interrupted |= clock.paused and self.ends_after is not None
            while clock.paused and not (clock.interrupted or clock.stopped):
                clock.paused = False
                self.take()
                clock.run()
            if clock.interrupted:
                self.take()
        finally:
            self._timer.cancel()

    def want(self) -> None:
        """Take a checkpoint before the next event."""
        self._run.world.clock.paused = True

    def take(self) -> None:
        """Write a checkpoint now; an error of the disk becomes a warning.

        While an error is about to end the run, none is written: see `Clock.failing`.
        """
        if self.every_s is None:
            return
        if self._run.world.clock.failing:
            self._rest(0.0)
            return
        self._run.tape.flush()
        self._run.journal.zeroed()  # waits for recorded operations, so that their time is not counted as `taking_s`
        begun = time.perf_counter()
        try:
            self._take()
        except (OSError, RunError) as error:
            refused = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(refused, OSError):
                raise
            line = f"{self.path}: {cannot_write('the checkpoint', self.path, refused)}; the run goes on without it"
            if line not in self._run.warnings:
                self._run.warnings.append(line)
                warnings.warn(line, stacklevel=2)
        else:
            self.taken += 1
        took = time.perf_counter() - begun
        self.taking_s += took
        self._rest(took)

    def remove(self) -> None:
        """Delete the checkpoint."""
        self.path.unlink(missing_ok=True)

    def _rest(self, took: float) -> None:
        self._timer.cancel()
        if self.every_s is not None and self.timed:
            self._timer = threading.Timer(max(self.every_s, REST * took), self.want)
            self._timer.daemon = True
            self._timer.start()

    def _living(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return names and numbers of the living rows, sorted by name."""
        run = self._run
        run.tape.flush()
        gc.collect()  # rows that only reference cycles mention would else live until the collector finds them
        numbers = run.tape.living()
        names = run.journal.names(numbers)
        order = np.argsort(names)
        return names[order], numbers[order]

    def _position(self) -> Position:
        run = self._run
        clock, network = run.world.clock, run.world.network
        counts = list(run.journal.counts)
        return Position(clock.events, clock.now, run.algorithm.updates, counts, network.messages, network.bytes_sent)

    def _take(self) -> None:
        run, setup = self._run, self._run.setup
        names, numbers = self._living()
        record = run.journal.record()
        if self._print is None:
            self._print = fingerprint(setup, run.device, run.session.division)
        modules = modules_of(setup.scenario.resolved())
        files = [(file, module.count(".")) for module in modules if (file := source_of(module)) is not None]
        about = {
            "format": FORMAT,
            "print": self._print,
            "position": asdict(self._position()),
            "wall_s": run.wall_s,
            "resumed": self.resumed,
            "beside": [str(file.parents[depth + (file.stem == "__init__")]) for file, depth in files],
            "answers": [(answer.dtype.str, answer.shape) for answer in record.answers],
            "evaluations": len(record.evaluations),
            "zeroed": record.zeroed,
        }
        measured = [_measures(one) for one in record.evaluations]
        arrays: dict[str, Any] = {
            **{name: np.array([one[name] for one in measured]) for name in (measured or [{}])[0]},
            "walls": np.array(run.wall_times_s, dtype=np.float64),
            "answers": np.concatenate([np.zeros(0, np.uint8), *(_bytes(answer) for answer in record.answers)]),
            "names": names,
            **{f"memory/{name}": array for name, array in run.algorithm.memory().items()},
        }
        step = run.executor.rows_at_a_time
        values = (run.journal.read(numbers[at : at + step]) for at in range(0, len(numbers), step))
        _write(self.path, about, arrays, (len(numbers), len(setup.training.initial)), values)
        write_models(run, RunFolder(self.path.parent))

    def go_on(self, since: Checkpoint) -> None:
        """Set the models of the replayed world, and compute from here on."""
        run = self._run
        for process in run.world.clock.failing:
            error = process.value
            self._refuse(str(error) if isinstance(error, ReplayError) else f"expected no error, found {raised(error)}")
        names, numbers = self._living()
        index = np.searchsorted(since.names, names)
        is_saved = (index < len(since.names)) & (since.names[np.minimum(index, len(since.names) - 1)] == names)
        for key, position in asdict(self._position()).items():
            if position != (expected := getattr(since.position, key)):
                self._refuse(f"expected {key} {expected}, found {position}")
        if not is_saved.all():
            self._refuse(f"expected {len(since.names)} models, found {int((~is_saved).sum())} others")
        run.tape.bury()
        step, left = run.executor.rows_at_a_time, 0
        for values in since.values(step):
            block = (index >= left) & (index < left + len(values))
            run.journal.write(numbers[block], values[index[block] - left], run.tape.rows)
            left += len(values)
        run.algorithm.remember(since.memory)
        run.journal.go_on()

    def _refuse(self, difference: str) -> NoReturn:
        raise ReplayError(
            f"{self.path}: the replayed run differs from the checkpoint: {difference}; is the scenario's own "
            "code deterministic? run it again from its beginning"
        )


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)
