"""The executor: a thread that packs windows and runs them on the device.

The world submits windows, evaluations and requests for values; they run in that order. The queue
is bounded, so a fast world waits for a slow device and memory stays bounded.
"""

from __future__ import annotations

import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from simfl.each import EachArray, of_setting
from simfl.errors import RunError, ScenarioError, raised
from simfl.models import AbstractModel
from simfl.models.lazy import check_settings, has_devices, start_jax
from simfl.tape import kernels, layout, measures
from simfl.tape.ahead import Ahead
from simfl.tape.cores import Cores, begun_at_once, in_order, ready_after
from simfl.tape.evaluation import Evaluator
from simfl.tape.inputs import Integers
from simfl.tape.own_tests import EachClient
from simfl.tape.packing import LARGE, Bank, Steps, pack
from simfl.tape.problem import LearningProblem
from simfl.tape.recording import Decide, Window
from simfl.tape.tuning import STEPS

T = TypeVar("T")
#: Models as linear forms of rows: rows int32 [k, reads] (-1 for none) and coefs f32 [k, reads].
Forms = tuple[NDArray[np.int32], NDArray[np.float32]]

#: The number of serial operations is padded to a multiple of this.
SERIAL = 8192
#: The device counts with 32 bits.
MOST_COUNTED = 2**31 - 1
#: Models averaged at a time.
CHUNK_MODELS = 16
#: Numbers of a model averaged at a time, and fewer than twice as many: of 4 rows for each model, at most 16 MB.
PART_COLUMNS = 2**15
#: Largest number of floats in the gradients of a chunk of examples, 64 MB: a model may compute them one by one.
CHUNK_GRADIENTS = 2**24
#: Number of floats that are read from the bank, or written to it, at a time: 16 MB.
CHUNK_VALUES = 2**22
#: Largest number of cores of a run.
MOST_CORES = 64


def choose_device(kind: str | None) -> jax.Device:
    """Return the first device of `kind` ("cpu", "gpu"), or JAX's default.

    Raises:
        ScenarioError: this machine has no such device.
        RunError: see `simfl.models.lazy.start_jax`.
    """
    start_jax()
    check_settings()
    platforms = jax.config.jax_platforms
    if kind == "cpu" and platforms and "cpu" not in platforms.split(",") and not has_devices():
        jax.config.update("jax_platforms", "cpu")  # of JAX_PLATFORMS, which is about JAX's default
    try:
        return jax.devices(kind)[0] if kind else jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # JAX asserts that it has a device
        try:
            present = ", ".join(sorted({device.platform for device in jax.devices()}))
        except (RuntimeError, AssertionError):
            raise ScenarioError(
                f"JAX_PLATFORMS: expected devices of this machine, found {platforms!r}; unset it, or use --device cpu"
            ) from error
        raise ScenarioError(
            f"--device: found {kind!r}, expected one of the devices of this machine ({present}); "
            "a GPU needs the extra for it: pip install 'simfl[cuda12]'"
        ) from error


def check_devices(device: jax.Device, count: int | Literal["auto"]) -> None:
    """Raise a `ScenarioError` if a machine has too few devices of a kind."""
    most = len(jax.devices(device.platform)) if device.platform != "cpu" else MOST_CORES
    if count != "auto" and count > most:
        raise ScenarioError(
            f"execution.devices: expected at most {most} on the {device.platform} of this machine, found {count}"
        )


def choose_devices(device: jax.Device, count: int) -> list[jax.Device]:
    """Return `count` devices of one kind, this one first."""
    return [device, *(other for other in jax.devices(device.platform) if other != device)][:count]


@dataclass(frozen=True)
class Evaluation:
    """The measures of one evaluation.

    Attributes:
        train_loss, test_loss: of the mean model, with the regularizer.
        test_accuracy: share of correct answers of the mean model; NaN for regression.
        consensus_distance: sqrt( (1/K) sum_k ||w_k - w_mean||^2 ).
        client_loss, client_accuracy: float [K] of each model, or None if not requested.
        client_distance: float [K], L2 distance of each model from the mean model, or None if not requested.
        gradient_norm, clipped_share: of gradients at the mean model, see `simfl.records.tables.GRADIENTS`; NaN if not
            requested.
        further: the model's own metrics on the test set, loss, accuracy and own metrics on the validation part, and the
            further measures that were requested (`simfl.tape.problem.Measured.further`), by name.
    """

    train_loss: float
    test_loss: float
    test_accuracy: float
    consensus_distance: float
    client_loss: NDArray[np.float64] | None = None
    client_accuracy: NDArray[np.float64] | None = None
    gradient_norm: float = float("nan")
    clipped_share: float = float("nan")
    further: dict[str, float] = field(default_factory=dict)
    client_distance: NDArray[np.float64] | None = None

    @property
    def finite(self) -> bool:
        """Whether the model still has a finite loss."""
        return bool(np.isfinite(self.train_loss))


@dataclass
class _Part:
    """The steps of one call: first one, number, integers, bounds of serial ones."""

    at: int
    count: int
    ints: list[NDArray[np.int32]]
    bounds: NDArray[np.int32]


class _OfSetting:
    """An executor's methods for one setting of a group."""

    _METHODS = frozenset({"fetch", "probe", "evaluate", "look", "mean", "zeroed", "read", "write"})

    def __init__(self, executor: Executor, setting: int) -> None:
        self._executor = executor
        self._setting = setting

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._executor, name)
        return functools.partial(attribute, setting=self._setting) if name in self._METHODS else attribute


def _same(one: Any, other: Any) -> bool:
    """Whether two arguments of programs have the same bits."""
    if isinstance(one, Integers) and isinstance(other, Integers):
        return one.stored is other.stored and one.tokens == other.tokens and one.scaling is other.scaling
    return one is other or (
        isinstance(one, np.ndarray | np.generic)
        and isinstance(other, np.ndarray | np.generic)
        and (one.dtype, one.shape) == (other.dtype, other.shape)
        and one.tobytes() == other.tobytes()
    )


def _coefs_of(coefs: NDArray[np.float32], setting: int) -> NDArray[np.float32]:
    """Return the coefficients of forms in one setting; see `Tape.forms`."""
    return coefs if coefs.ndim == 2 else coefs[setting]


def automatic_width(model: AbstractModel, num_clients: int, platform: str) -> int:
    """Return the gradients per step for a model and device.

    Measured; see docs/benchmarks.md.

    On a CPU, a convolution with weights per client must not be batched. The rows and examples of a step should stay in
    the cache: 4 gradients of a model of tens of kilobytes, 2 of a larger one. A smaller model gains little beyond 16.
    Few clients have few independent operations. A GPU needs hundreds of gradients.
    """
    if platform != "cpu":
        return int(min(256, max(8, 2 ** int(np.log2(max(num_clients, 1))))))
    if model.convolutional:
        return 1
    if num_clients < 4:
        return 1
    if model.size > 2**15:
        return 2
    return 4 if num_clients < 12 or model.size > 2**12 else 16


@dataclass
class _Setting:
    """What one run of a group has for itself.

    Attributes:
        problem: its arithmetic.
        data: the arguments of its programs.
        rows: its bank, f32 [places + 1, d].
        counted: the device's count of gradients set to zero, int32[], which is not read for every window.
        counted_at_most: a bound on it.
        gradients: the program that measures gradients; None if they are not measured.
        evaluated: forms whose mean an evaluation has computed since anything was written, and that mean.
        zeroed: gradients set to zero so far.
        is_over: whether nothing is to be computed any more.
    """

    problem: LearningProblem
    data: dict[str, Any]
    rows: jax.Array
    counted: jax.Array
    gradients: Callable[[jax.Array, float], tuple[float, float]] | None
    evaluated: tuple[NDArray[np.int32], NDArray[np.float32], jax.Array] | None = None
    counted_at_most: int = 0
    zeroed: int = 0
    is_over: bool = False


def _padded_serial(array: NDArray[Any]) -> NDArray[Any]:
    """Return a window's serial operations, padded to a multiple of SERIAL."""
    count = len(array)
    padded = np.zeros((-(-count // SERIAL) * SERIAL or 1, *array.shape[1:]), dtype=array.dtype)
    padded[:count] = array
    return padded


class Executor:
    """Runs the recorded operations; one instance per run or group of runs.

    The settings of a group have one tape. A window is packed once, and runs for one setting after the other, by the
    same programs as in a run alone. `setting` is the number of one of them; a run alone is setting 0.

    Args:
        problem: the arithmetic.
        others: that of the further settings, which differ in values alone.
        reads: rows per operation, as in `Tape`.
        width: gradients per step (W).
        combines: linear combinations per step (C).
        capacity: expected number of rows alive at once; the bank grows when it is exceeded.
        steps: steps per call of the window program; fewer if windows are short, because a call draws the batches of all
            its steps.
        device: where to compute.
        devices: how many devices of its kind share the lanes of a step; `width` is a multiple of them.
        cores: cores of a CPU that compute steps side by side, see `simfl.tape.cores`; 0: a program computes all steps.
        draws_beside: whether another core may draw for the next steps meanwhile.
    """

    def __init__(
        self,
        problem: LearningProblem,
        *,
        reads: int = 4,
        width: int = 8,
        combines: int = 2,
        capacity: int = 64,
        steps: int = STEPS,
        device: jax.Device | None = None,
        devices: int = 1,
        cores: int = 0,
        draws_beside: bool = False,
        others: Sequence[LearningProblem] = (),
    ) -> None:
        self.problem = problem
        self.reads = reads
        self.width = width
        self.combines = combines
        self.steps = steps
        self.device: jax.Device | NamedSharding = device or choose_device(None)
        mesh = None
        if devices > 1:  # every device holds all data; only the window's program divides the lanes among them
            mesh = Mesh(choose_devices(self.device, devices), kernels.LANES)
            self.device = NamedSharding(mesh, PartitionSpec())
        self.bank = Bank(capacity, 32 if problem.model.size >= LARGE else 2)
        model = problem.model
        arrays = problem.arrays()
        data = self._put(arrays)
        bank = (capacity, model.size)
        shapes = (bank, *(array.shape for array in data.values()))
        self._program_of = functools.partial(
            kernels.window_program, shapes, problem.operation, reads, width, combines, mesh
        )
        operation = problem.operation
        self._cores, self._apart = Cores(cores) if cores else None, (shapes, operation, reads, width)
        alone = self.device if isinstance(self.device, jax.Device) and not cores else None
        self._ahead = Ahead(problem, shapes, steps, width, alone, 1 + len(others), draws_beside)
        self._probe = kernels.probe_program(shapes, problem.operation, reads)
        self._average = kernels.average_program(bank, reads, CHUNK_MODELS, CHUNK_VALUES // (2 * CHUNK_MODELS * reads))
        self._rows = kernels.rows_program(bank, reads)
        self._constants = kernels.constants_program(bank)
        self._gather = kernels.gather_program(bank)
        examples, chosen = problem.data, problem.measured.loss_examples
        self._evaluator = Evaluator(problem.evaluated, self.device, examples.scaling)
        self._test = self._evaluator.examples(examples.test_x, examples.test_y)
        self._validation = [self._evaluator.examples(*part) for part in problem.measured.validation]
        self._train = self._evaluator.examples(examples.train_x[chosen], examples.train_y[chosen])
        self._each = EachClient(self._evaluator, problem, self._test)
        self._settings = [self._setting(problem, data)]
        for other in others:  # what is the same for all is on the device once
            own = other.arrays()
            taken = {name: data[name] if _same(own[name], arrays[name]) else self._put(own[name]) for name in own}
            self._settings.append(self._setting(other, taken))
        #: Whether a window has been computed, so that its program is compiled.
        self.compiled = False
        self._mixes: measures.OwnClasses | None = None  # made when they are first measured
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=2)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="simfl-executor", daemon=True)
        self._thread.start()

    # -- called by the world -----------------------------------------------------------------

    def submit(self, window: Window) -> None:
        """Queue a window; waits while two are queued already."""

        def run() -> None:
            if self._failure is None:
                self._run(window)

        self._enqueue(run)

    def of(self, setting: int) -> Any:
        """Return this executor as that of one setting alone."""
        return _OfSetting(self, setting)

    def end(self, setting: int) -> None:
        """Compute nothing more for a setting."""

        def run() -> None:
            self._settings[setting].is_over = True

        self._enqueue(run)

    def fetch(self, rows: NDArray[np.int32], coefs: NDArray[np.float32], *, setting: int = 0) -> NDArray[np.float32]:
        """Return models f32 [k, d] given as forms; waits for everything submitted before."""

        def task() -> NDArray[np.float32]:
            bank = self._settings[setting].rows
            return np.array(self._rows(bank, self.bank.places(rows), _coefs_of(coefs, setting)))

        return self._request(task).result()

    def probe(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: NDArray[np.int32],
        draws: NDArray[np.int32],
        decide: Decide,
        *,
        setting: int = 0,
    ) -> NDArray[Any]:
        """Return the decision about models f32 [k, d] and losses f32 [k, m].

        See `Tape.probe`. It waits for everything submitted before. k is padded to a power of four, so that few sizes
        are compiled.
        """
        count = len(rows)
        fill = np.zeros((1 << 2 * -(-(count - 1).bit_length() // 2)) - count, dtype=np.int64)
        take = np.concatenate((np.arange(count), fill))

        def task() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            places, of = self.bank.places(rows[take]), self._settings[setting]
            models, losses = self._probe(of.rows, places, coefs[take], clients[take], draws[take], of.data)
            return np.array(models)[:count], np.array(losses)[:count]

        return decide(*self._request(task).result())

    def evaluate(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: bool | Forms = False,
        clipping_norm: float = float("inf"),
        *,
        setting: int = 0,
    ) -> Future[Evaluation]:
        """Queue an evaluation of the mean of models given as forms.

        With several tasks, a model is one row for each, in order.

        Args:
            rows: int32 [k, reads], -1 for none.
            coefs: f32 [k, reads].
            clients: True to evaluate each of these models too; forms to evaluate other models one by one.
            clipping_norm: the current one, inf for none; used if gradients are measured (`Measured.gradient_examples`).
        """
        coefs = _coefs_of(coefs, setting)
        each = clients if isinstance(clients, bool) else (clients[0], _coefs_of(clients[1], setting))
        return self._request(lambda: self._evaluate(self._settings[setting], rows, coefs, each, clipping_norm))

    def look(
        self, rows: NDArray[np.int32], places: NDArray[np.int64], *, setting: int = 0
    ) -> Future[NDArray[np.float32]]:
        """Queue a look at some numbers in rows, which are joined one after the other.

        Args:
            rows: their numbers, int32 [k].
            places: which of their k d numbers, int64 [m]; the result is f32 [m].
        """
        size, step = self.problem.model.size, self.rows_at_a_time
        row, column = np.divmod(places, size)

        def task() -> NDArray[np.float32]:
            values = np.empty(len(places), dtype=np.float32)
            for at in range(0, len(rows), step):
                block = rows[at : at + step]
                filled = np.concatenate((block, np.full(step - len(block), -1, dtype=np.int32)))
                numbers = np.asarray(self._gather(self._settings[setting].rows, self.bank.places(filled)))
                here = (row >= at) & (row < at + step)
                values[here] = numbers[row[here] - at, column[here]]
            return values

        return self._request(task)

    def mean(self, rows: NDArray[np.int32], coefs: NDArray[np.float32], *, setting: int = 0) -> NDArray[np.float32]:
        """Return the mean of models that evaluations measure, f32 [d of a whole model]."""
        own = _coefs_of(coefs, setting)

        def task() -> NDArray[np.float32]:
            of = self._settings[setting]
            known = of.evaluated  # at the end of a run the last evaluation has computed it
            same = known is not None and np.array_equal(known[0], rows) and np.array_equal(known[1], own)
            return np.array(known[2] if known is not None and same else self._mean(of, rows, own)[0])

        return self._request(task).result()

    def zeroed(self, *, setting: int = 0) -> int:
        """Return the number of gradients or updates that were not finite, set to zero.

        It counts those of everything submitted before, and waits for it.
        """
        return self._request(lambda: self._count(self._settings[setting])).result()

    @property
    def rows_at_a_time(self) -> int:
        """How many rows `read` and `write` take at most."""
        return max(1, CHUNK_VALUES // self.problem.model.size)

    def read(self, rows: NDArray[np.int32], *, setting: int = 0) -> NDArray[np.float32]:
        """Return the values of rows, f32 [k, d], bit for bit, after all submitted work."""
        at_a_time = self.rows_at_a_time
        assert len(rows) <= at_a_time, "one size is compiled"
        filled = np.concatenate((rows, np.full(at_a_time - len(rows), -1, dtype=np.int32)))

        def task() -> NDArray[np.float32]:
            return np.array(self._gather(self._settings[setting].rows, self.bank.places(filled)))[: len(rows)]

        return self._request(task).result()

    def write(self, rows: NDArray[np.int32], values: NDArray[np.float32], numbers: int, *, setting: int = 0) -> None:
        """Give places in the bank, and values f32 [k, d], to rows that have none.

        The settings of a group write the same rows, setting 0 first: it gives the places.

        Args:
            rows: their numbers, [k].
            values: as returned by `read`.
            numbers: the total number of row numbers.
        """

        def task() -> None:
            if setting == 0:
                self.bank.hold(numbers)
                before = self.bank.capacity
                self.bank.take(rows.tolist())
                if self.bank.capacity != before:
                    self._grow(before)
            of = self._settings[setting]
            of.rows, of.evaluated = self._constants(of.rows, self.bank.place[rows], values), None

        self._request(task).result()

    def close(self) -> None:
        """Finish the queue and stop the thread. Raises the thread's error."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        if self._cores is not None:
            self._cores.close()
        self._ahead.close()
        # The data takes most of the memory: free it without waiting for the garbage collector.
        for name in ("_settings", "_test", "_train", "_each", "problem"):
            self.__dict__.pop(name, None)
        self._check()

    def _request(self, task: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                self._check()  # after a failure, callers get the error instead of waiting
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)
                raise

        self._enqueue(run)
        return future

    def _enqueue(self, task: Callable[[], None]) -> None:
        self._check()
        self._queue.put(task)

    def _check(self) -> None:
        if self._failure is not None:
            raise RunError(f"the executor failed: {raised(self._failure)}") from self._failure

    # -- in the thread -----------------------------------------------------------------------

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            try:
                task()
            except BaseException as error:  # carried to the world, which raises it
                self._failure = self._failure or error

    def _put(self, array: Any) -> jax.Array:
        return jax.device_put(array, self.device)

    def _setting(self, problem: LearningProblem, data: dict[str, Any]) -> _Setting:
        """Return a setting before its first window."""
        rows = np.zeros((self.bank.capacity + 1, problem.model.size), dtype=np.float32)
        return _Setting(problem, data, self._put(rows), self._put(np.int32(0)), self._gradient_program(problem))

    def _gradient_program(self, problem: LearningProblem) -> Callable[[jax.Array, float], tuple[float, float]] | None:
        """Return a program that measures gradients, or None.

        It returns (norm of the mean gradient, share clipped) of (mean model, clipping norm).
        """
        count = problem.measured.gradient_examples
        if not count:
            return None
        whole, leading = problem.model.size * problem.num_tasks, problem.measured.leading
        which = slice(count) if leading is None else leading[:count]
        train_x, train_y = problem.data.train_x[which], problem.data.train_y[which]
        chunk = min(self._evaluator.chunk, len(train_x), max(1, CHUNK_GRADIENTS // whole))
        x, y, weight = self._evaluator.examples(train_x, train_y, chunk)
        clip, model = problem.clipping.clip, problem.model.with_precision("float32")  # as all that is measured
        program = kernels.gradients_program(weight.shape, model, chunk, clip == "example", problem.num_tasks)

        def measure(params: jax.Array, clipping_norm: float) -> tuple[float, float]:
            norm, share = program(params, x, y, weight, np.float32(clipping_norm))
            return float(norm), float("nan") if clip == "update" else float(share)

        return measure

    def _run(self, window: Window) -> None:
        before = self.bank.capacity
        steps = pack(window, self.bank, self.width, self.combines)
        if self.bank.capacity != before:
            self._grow(before)
        places = self.bank.place[[number for number, _ in window.constants]]
        constants = [values for _, values in window.constants]
        vary = any(isinstance(values, EachArray) for values in constants)
        given = np.stack(constants) if constants and not vary else None
        playing = [(setting, of) for setting, of in enumerate(self._settings) if not of.is_over]
        most = self._most_zeroed(window.gradients)
        for setting, of in playing:
            of.evaluated = None
            if vary:
                given = np.stack([of_setting(values, setting) for values in constants])
            if given is not None:
                of.rows = self._constants(of.rows, places, given)
            of.rows.block_until_ready()
            if of.counted_at_most + most > MOST_COUNTED:
                self._count(of)
            of.counted_at_most += most
        if self._cores is None:
            self._compute(playing, window, steps)
        for setting, of in playing if self._cores else ():
            _compute_apart(self, self._cores, setting, of, window, steps)
        self.compiled = True

    def _count(self, of: _Setting) -> int:
        """Add the device's count, and return the total."""
        of.zeroed += int(of.counted)
        of.counted, of.counted_at_most = self._put(np.int32(0)), 0
        return of.zeroed

    def _most_zeroed(self, gradients: layout.Operations) -> int:
        """Return how many gradients or updates can be set to zero at most."""
        operation = self.problem.operation
        steps = int(gradients.rest[:, layout.STEPS].max(initial=1)) if operation.local else 1
        return len(gradients) * operation.lanes * steps

    def _part(self, steps: Steps, at: int) -> _Part:
        """Return the integers of the steps of one call."""
        arrays = [steps.gradients.ints, steps.combines.ints]
        if len(steps.mapped.ints):
            arrays.append(steps.mapped.ints)
        bounds = steps.serial_bounds[np.minimum(np.arange(at, at + self.steps + 1), steps.count)]
        return _Part(at, min(self.steps, steps.count - at), [self._filled(array, at) for array in arrays], bounds)

    def _filled(self, array: NDArray[Any], at: int) -> NDArray[Any]:
        """Return some steps as an array of constant size, so that one trace serves all."""
        part = array[at : at + self.steps]
        if len(part) == self.steps:
            return part
        full = np.zeros((self.steps, *array.shape[1:]), dtype=array.dtype)
        full[: len(part)] = part
        return full

    def _compute(self, playing: Sequence[tuple[int, _Setting]], window: Window, steps: Steps) -> None:
        """Run the steps of a window for the settings, one after the other.

        What several settings draw alike (mini-batches, and noise of unit scale) is drawn once for each part.
        """
        parts = [self._part(steps, at) for at in range(0, steps.count, self.steps)]
        serial = _padded_serial(steps.serials.ints)
        numbers = {
            setting: [lanes.floats_of(setting) for lanes in (steps.gradients, steps.combines, steps.mapped)]
            for setting, _ in playing
        }
        floats = {setting: _padded_serial(steps.serials.floats_of(setting)) for setting, _ in playing}
        for together in self._drawing_alike(playing):
            data, first_name = together[0][1].data, window.gradients.layout.rest.start
            draws = self._ahead.draws_for(len(together))
            calls = [(np.int32(part.count), part.ints[0]) for part in parts] if draws else []
            drawn = self._ahead.drawn(calls, first_name, data) if calls else itertools.repeat({})
            program = self._program_of(window.branches, draws)
            for part, before in zip(parts, drawn, strict=False):
                gradients, combines, *mapped = part.ints
                for setting, of in together:
                    g_floats, c_floats, *m_floats = (
                        self._filled(each, part.at) for each, _ in zip(numbers[setting], part.ints, strict=False)
                    )
                    given = np.int32(part.count), gradients, g_floats, combines, c_floats, serial, floats[setting]
                    beside = [*mapped, *m_floats]
                    of.rows, of.counted = program(
                        of.rows, of.counted, *given, part.bounds, {**of.data, **before}, *beside
                    )

    @staticmethod
    def _drawing_alike(playing: Sequence[tuple[int, _Setting]]) -> Iterable[list[tuple[int, _Setting]]]:
        """Return the settings in groups of equal keys, which share their arrays."""
        names = "data_key", "noise_key", "x", "y", "table", "offsets", "sizes"
        groups: dict[tuple[int, ...], list[tuple[int, _Setting]]] = {}
        for setting, of in playing:
            groups.setdefault(tuple([id(of.data[name]) for name in names]), []).append((setting, of))
        return groups.values()

    def _grow(self, before: int) -> None:
        """Give banks the capacity of the table; the old spare rows are dropped."""
        for of in self._settings:
            bank = np.zeros((self.bank.capacity + 1, self.problem.model.size), dtype=np.float32)
            bank[:before] = np.asarray(of.rows)[:before]
            of.rows = self._put(bank)

    def _evaluate(
        self,
        of: _Setting,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: bool | Forms,
        clipping_norm: float,
    ) -> Evaluation:
        mean, distance = self._mean(of, rows, coefs)
        of.evaluated = rows, coefs, mean
        train_loss, *_ = self._evaluator.measure(mean, self._train)
        test_loss, accuracy, own = self._evaluator.measure(mean, self._test)
        client_loss = client_accuracy = client_distance = None
        own_classes: list[float] = []
        if clients is not False:
            rows, coefs = (rows, coefs) if clients is True else clients
            tasks = self.problem.num_tasks
            count = len(rows) // tasks

            def model_of(k: int) -> jax.Array:
                part = slice(k * tasks, (k + 1) * tasks)
                return self._joined(of, rows[part], coefs[part])[0]

            client_loss, client_accuracy, client_distance = self._each(mean, model_of, count, of.data)
            if "own_classes_models" in of.problem.measured.further and count == len(self.problem.data.sizes):
                own_classes = [float(self._own_classes(model_of(k))[k]) for k in range(count)]
        norm, share = (float("nan"),) * 2 if of.gradients is None else of.gradients(mean, clipping_norm)
        further = own | self._evaluator.validated(mean, self._validation)
        if of.problem.measured.further:
            further |= self._further(of.problem, mean, client_accuracy, own_classes)
        return Evaluation(
            train_loss, test_loss, accuracy, float(distance), client_loss, client_accuracy, norm, share, further,
            client_distance,
        )  # fmt: skip

    def _own_classes(self, model: jax.Array) -> NDArray[np.float64]:
        """Return accuracies on the clients' test data; see `measures.OwnClasses`."""
        data = self.problem.data
        if data.test_y.ndim != 1:  # the labels of a sequence
            return np.full(len(data.sizes), np.nan)
        if self._mixes is None:
            self._mixes = measures.OwnClasses(data.test_y, data.train_y, data.indices, data.offsets)
        return self._mixes.accuracy(self._evaluator.answers(model, data.test_x, data.test_y)[1])

    def _further(
        self,
        problem: LearningProblem,
        mean: jax.Array,
        client_accuracy: NDArray[np.float64] | None,
        own_classes: Sequence[float],
    ) -> dict[str, float]:
        """Return the further measures; NaN if clients have no models of their own."""
        names, data = problem.measured.further, problem.data
        whose = slice(None) if problem.measured.clients is None else problem.measured.clients
        values = {}
        if any(name in measures.OF_SCORES | measures.OF_TARGETS for name in names):
            values = measures.measure(names, data.test_y, self._evaluator.answers(mean, data.test_x, data.test_y)[0])
        if "worst_decile" in names:
            right = self._evaluator.answers(mean, data.train_x, data.train_y)[1]
            own = right.astype(np.float64)[data.indices]
            values["worst_decile"] = measures.worst_decile(
                (np.add.reduceat(own, data.offsets[:-1]) / data.sizes)[whose]
            )
        if "worst_decile_models" in names and client_accuracy is not None:
            values["worst_decile_models"] = measures.worst_decile(client_accuracy[whose])
        if "own_classes" in names:
            values["own_classes"] = measures.mean_of_known(self._own_classes(mean)[whose])
        if own_classes:
            values["own_classes_models"] = measures.mean_of_known(np.array(own_classes)[whose])
        measured = problem.measured
        if measured.optimum is not None and measured.suboptimality is not None:
            w = np.asarray(mean, dtype=np.float64)
            values["suboptimality"] = measured.suboptimality(w)
            values["distance"] = float(np.linalg.norm(w - measured.optimum))
        return {name: values.get(name, float("nan")) for name in names}

    def _mean(self, of: _Setting, rows: NDArray[np.int32], coefs: NDArray[np.float32]) -> tuple[jax.Array, jax.Array]:
        """Return the mean of models, f32 [d], and their consensus distance."""
        if self.problem.num_tasks > 1:
            models = self._joined(of, rows, coefs)
            mean = models.mean(axis=0)
            return mean, jax.numpy.sqrt(((models - mean) ** 2).sum(axis=1).mean())
        count = len(rows)
        padded = -(-count // CHUNK_MODELS) * CHUNK_MODELS
        places = np.full((padded, self.reads), self.bank.spare, dtype=np.int32)
        places[:count] = self.bank.places(rows)
        weights = np.zeros((padded, self.reads), dtype=np.float32)
        weights[:count] = coefs
        valid = (np.arange(padded) < count).astype(np.float32)
        mean, distance = self._average(of.rows, places, weights, valid)
        return mean, distance

    def _joined(self, of: _Setting, rows: NDArray[np.int32], coefs: NDArray[np.float32]) -> jax.Array:
        """Return models with the rows of all tasks joined, f32 [k, d of a whole model]."""
        models = self._rows(of.rows, self.bank.places(rows), coefs)
        return models.reshape(len(rows) // self.problem.num_tasks, -1)


def _compute_apart(executor: Executor, cores: Any, setting: int, of: _Setting, window: Window, steps: Steps) -> None:
    """Run the steps of a window for a setting, the totals of several steps at once."""
    put, operation, apart = executor._put, executor.problem.operation, executor._apart
    read, compute = kernels.read_program(*apart), kernels.compute_program(*apart)
    finish = kernels.finish_program(*apart, executor.combines, window.branches)
    lanes = steps.gradients, steps.combines, *([steps.mapped] if len(steps.mapped.ints) else [])
    floats = [each.floats_of(setting) for each in lanes]
    serial = [put(_padded_serial(each)) for each in (steps.serials.ints, steps.serials.floats_of(setting))]

    def begin(step: int) -> Callable[[], Any]:
        numbers = steps.gradients.ints[step], floats[0][step]
        begun: Callable[[], Any] = cores.begin(compute, of.data, numbers, read(of.rows, *numbers))
        return begun

    kept = () if operation.optimizing.kept is None else (1 + operation.optimizing.kept.rows,)
    shape = executor.width, *kept, executor.problem.model.size
    nothing = put(np.zeros(shape, dtype=np.float32)), put(np.int32(0))
    given: tuple[Any, ...] = ()
    after = ready_after(window, steps, executor.bank.spare, operation.corrected)
    for step, made in in_order(after, begin, begun_at_once(cores.count)):
        if step % executor.steps == 0:
            part = executor._part(steps, step)
            gradients, combines, *mapped = map(put, part.ints)
            g_floats, c_floats, *m_floats = [put(executor._filled(each, step)) for each in floats]
            given = np.int32(part.count), gradients, g_floats, combines, c_floats, *serial, put(part.bounds)
            given = *given, of.data, *mapped, *m_floats
        total = nothing if made is None else made
        of.rows, of.counted = finish(of.rows, of.counted, *total, np.int32(step % executor.steps), *given)
