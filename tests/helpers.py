"""Small worlds, problems and executors, so that a test of the core begins in three lines.

    world = make_world(8, topology="complete", jitter=lognormal(0.5))
    with Lab(make_problem(8)) as lab:
        algorithm, rows = run_algorithm("adpsgd", world, lab.tape, lab.training(), updates=100)

A `Lab` computes with the real executor. If a test does not need numbers, `NullExecutor` takes the windows and does
nothing (for whole runs there is the fixture `without_numbers`). If it needs numbers, but not gradients of a model,
`NumpyExecutor` interprets the windows in float64.
"""

import contextlib
import dataclasses
import functools
import hashlib
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import jax
import numpy as np

from simfl.algorithms import ALGORITHMS, Training, fedavg, k_gt, local_rounds, noloco, plexus
from simfl.assembly.kinds import completed
from simfl.each import of_setting
from simfl.models import build_model
from simfl.privacy.ledger import Ledger
from simfl.privacy.terms import Terms
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario.catalogues import Algorithm
from simfl.scenario.fields import kind_of, members_of
from simfl.streams import Streams
from simfl.tape import LearningProblem, Tape
from simfl.tape.draws import batch_positions
from simfl.tape.executor import Evaluation, Executor, choose_device
from simfl.tape.layout import BRANCH, MAP_CLIENT, MAP_DRAW
from simfl.tape.maps import Given
from simfl.tape.packing import Bank, pack
from simfl.tape.problem import Batches, ClientData, Clipping, Keys, LocalRounds, Measured, Noise
from simfl.world import Availability, Clock, Compute, Network, World, engine
from simfl.world.compute import Constant
from simfl.world.links import LinkModel
from simfl.world.topology import build_topology

NEVER = 2**62
#: Algorithms whose clients train in rounds of many steps.
_ROUNDS = (local_rounds.LocalRounds, fedavg.FedAvg, k_gt.KGT, noloco.NoLoCo, plexus.Plexus)
LOCAL = tuple(kind for kind, one in ALGORITHMS.items() if issubclass(one, _ROUNDS))


@contextlib.contextmanager
def optimized():
    """Compile with optimization, as for users; drop the programs compiled before and inside."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:  # also if a test fails, so that later tests compile as before
        jax.config.update("jax_disable_most_optimizations", before)
        jax.clear_caches()


class TooLongError(Exception):
    """Something took too long. It is not an OSError, which the code under test might catch."""


@contextlib.contextmanager
def limited(seconds, what):
    """Raise `TooLongError` after `seconds` of processor time; a busy machine does not count."""

    def stop(number, frame):
        raise TooLongError(f"{what} takes more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# -- worlds ------------------------------------------------------------------------------------


def lognormal(sigma):
    """Return a sampler of log-normal factors with mean 1."""
    return lambda generator, n: np.exp(generator.normal(-0.5 * sigma**2, sigma, n))


def exponential(mean):
    """Return a sampler of exponential times."""
    return lambda generator, n: generator.exponential(mean, n)


def constant(value):
    """Return a sampler of one value."""
    return Constant(float(value))


def make_world(
    num_clients=8,
    *,
    topology="ring",
    seconds_per_example=1e-3,
    speeds=None,
    jitter=None,
    slowdowns=(),
    outages=None,
    random_outages=None,
    links=None,
    seed=0,
    on_delivery=None,
    carrier=None,
    **topology_options,
):
    """Return a world at virtual time 0; by default all clients are online, equally fast, and links take no time."""
    streams = Streams(seed)
    clock = Clock()
    availability = Availability(streams, outages, random_outages)
    return World(
        clock,
        Compute(seconds_per_example, speeds or [1.0] * num_clients, streams, jitter, slowdowns),
        availability,
        Network(clock, links or LinkModel(), num_clients, streams, availability, on_delivery, carrier),
        build_topology(topology, num_clients, streams.generator("topology"), **topology_options),
        streams,
    )


# -- problems ----------------------------------------------------------------------------------


@functools.cache
def digits():
    """Return 400 training and 100 test digits, (x f32 [n, 64], y int32 [n]) each."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x / 16.0).astype(np.float32), y.astype(np.int32)
    return (x[:400], y[:400]), (x[400:500], y[400:500])


def make_problem(
    num_clients=8,
    *,
    batch_size=8,
    sampling="shuffle",
    clipping_norm=None,
    noisy=False,
    sizes=None,
    l2=0.0,
    seed=0,
    noise=None,
    clip="example",
    own_clipping=False,
    gradient_examples=0,
    local=False,
    power=1.0,
    proximal=0.0,
    blocks=1,
):
    """Return softmax regression (d = 650) on digits; by default all clients have equal shares of 320 examples."""
    (train_x, train_y), (test_x, test_y) = digits()
    sizes = [320 // num_clients] * num_clients if sizes is None else list(sizes)
    streams = Streams(seed)
    sampler = "gaussian" if noisy else noise
    return LearningProblem(
        model=build_model("softmax", input_shape=(64,), num_classes=10, l2=l2),
        data=ClientData(
            train_x,
            train_y,
            test_x,
            test_y,
            indices=streams.generator("partition").permutation(400)[: sum(sizes)].astype(np.int32),
            offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        ),
        batches=Batches(sampling, batch_size),
        keys=Keys(streams.key("data"), streams.key("noise")),
        measured=Measured(np.arange(200), gradient_examples),
        clipping=Clipping(clipping_norm, clip, own_clipping),
        noise=None if sampler is None else Noise(sampler),
        rounds=LocalRounds(power, proximal) if local else None,
        blocks=blocks,
    )


def replace_data(problem, **arrays):
    """Return the problem with other data."""
    return dataclasses.replace(problem, data=dataclasses.replace(problem.data, **arrays))


def make_training(sizes, *, d=4, batch_size=8, sampling="shuffle", step_size=0.5, l2=0.0, noise_std=0.0, initial=None):
    """Return plain values of local training with a constant step size."""
    return Training(
        initial=np.zeros(d, np.float32) if initial is None else initial,
        sizes=np.asarray(sizes, np.int64),
        batch_size=batch_size,
        sampling=sampling,
        step_size=lambda updates, examples, epochs: step_size,
        l2=l2,
        noise_std=noise_std,
    )


class Lab(contextlib.AbstractContextManager):
    """A problem with an executor and a tape; with the default sizes, tests share compiled programs."""

    def __init__(self, problem, *, window=64, width=4, combines=2, capacity=200, reads=4):
        self.problem = problem
        self.executor = Executor(
            problem, reads=reads, width=width, combines=combines, capacity=capacity, device=choose_device("cpu")
        )
        self.tape = Tape(
            self.executor,
            window=window,
            reads=reads,
            **problem.recorded,
        )

    def training(self, *, step_size=0.5, noise_std=0.0, spread=0.1, seed=1):
        """Return training from a random model, its coordinates with standard deviation `spread`."""
        problem = self.problem
        initial = spread * np.random.default_rng(seed).standard_normal(problem.model.size)
        return make_training(
            problem.data.sizes,
            batch_size=problem.batches.size,
            sampling=problem.batches.sampling,
            step_size=step_size,
            l2=problem.model.l2,
            noise_std=noise_std,
            initial=initial.astype(np.float32),
        )

    def __exit__(self, *_):
        self.executor.close()


@functools.cache
def _positions(sampling, batch_size, lanes):
    def positions(key, client, draw, n):
        return batch_positions(sampling, key, client, draw, np.int32(0), batch_size, lanes, n)

    return jax.jit(positions)


def batch_examples(problem, client, draw, size):
    """Return the rows of the training set in a client's mini-batch number `draw`, int [size]."""
    n = int(problem.data.sizes[client])
    lanes = problem.batches.size if problem.batches.sampling == "shuffle" else max(64, problem.max_batch)
    positions = _positions(problem.batches.sampling, problem.batches.size, lanes)
    places = positions(problem.keys.data, np.int32(client), np.int32(draw), np.int32(n))
    return problem.data.indices[problem.data.offsets[client] + np.asarray(places)[:size]]


def softmax_gradient(params, x, y, clipping_norm=None):
    """Return the sum of the examples' (clipped) gradients of softmax regression in float64, by the textbook formula."""
    params, x = np.asarray(params, np.float64), np.asarray(x, np.float64)
    features, classes = x.shape[1], len(params) // (x.shape[1] + 1)
    weights, bias = params[: features * classes].reshape(classes, features), params[features * classes :]
    total = np.zeros_like(params)
    for example, label in zip(x, y, strict=True):
        logits = weights @ example + bias
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        chances[label] -= 1.0
        gradient = np.concatenate((np.outer(chances, example).ravel(), chances))
        norm = np.sqrt(gradient @ gradient)
        if clipping_norm is not None and norm > clipping_norm:
            gradient *= clipping_norm / norm
        total += gradient
    return total


def batch_gradient(problem, params, client, draw, size):
    """Return what `Tape.gradient` promises, without noise, computed independently in float64."""
    rows = batch_examples(problem, client, draw, size)
    return softmax_gradient(params, problem.data.train_x[rows], problem.data.train_y[rows], problem.clipping.norm)


# -- executors that compute nothing, or in NumPy -----------------------------------------------


class NullExecutor:
    """Takes windows and counts."""

    def __init__(self):
        self.windows = self.gradients = self.combines = self.serial = 0
        self.rows = 0

    def submit(self, window):
        self.windows += 1
        self.gradients += len(window.gradients)
        self.serial += len(window.serials)
        self.combines += len(window.combines)
        self.rows = window.rows

    def fetch(self, rows, coefs):
        raise AssertionError("nothing was computed")


class RunWithoutNumbers:
    """Replaces a run's executor and computes nothing: every model is 0, and the loss falls at each evaluation.

    Args:
        problem: gives the number of parameters and the names of measures.
        options: the options of `simfl.tape.Executor`, which are ignored.
    """

    def __init__(self, problem, **options):
        self.problem = problem
        self.size = problem.model.size
        self.whole = problem.evaluated.size
        own, measured = problem.evaluated.metric_names, problem.measured
        aside = ("loss", "accuracy", *own) if measured.validation else ()
        self.further = dict.fromkeys((*own, *measured.further, *(f"validation_{name}" for name in aside)), 0.5)
        self.evaluations = 0

    def of(self, setting):
        return RunWithoutNumbers(self.problem)

    def end(self, setting):
        """Ignore the end of a setting."""

    def submit(self, window):
        """Ignore the window."""

    def fetch(self, rows, coefs):
        return np.zeros((len(rows), self.size), dtype=np.float32)

    def probe(self, rows, coefs, clients, draws, decide):
        return decide(self.fetch(rows, coefs), np.zeros(draws.shape, dtype=np.float32))

    def evaluate(self, rows, coefs, own, clipping_norm):
        self.evaluations += 1
        loss = 1.0 / self.evaluations
        each = np.full(len(own[0]), loss) if own else None
        future = Future()
        measures = Evaluation(loss, loss, 1.0 - loss / 2, 0.1, each, each, further=self.further, client_distance=each)
        future.set_result(measures)
        return future

    def look(self, rows, places):
        values = Future()
        values.set_result(np.zeros(len(places), dtype=np.float32))
        return values

    def mean(self, rows, coefs):
        return np.zeros(self.whole, dtype=np.float32)

    rows_at_a_time = 1000
    compiled = True

    def read(self, rows):
        return np.zeros((len(rows), self.size), dtype=np.float32)

    def write(self, rows, values, numbers):
        """Ignore the values."""

    def zeroed(self):
        return 0

    def close(self):
        """Do nothing: there is no thread to stop."""


class RunOfOperations(RunWithoutNumbers):
    """Replaces a run's executor; a row's value says how it was computed, and no gradient is.

    The value is a digest of the operation, its numbers and the values that it reads, in the first four of f32 [d].
    Models are equal only if the same operations make them, whatever the window, and a row that is read must be alive.

    Args:
        problem: see `RunWithoutNumbers`.
        others: those of the further settings of a group.
        setting: the one that this executor answers for.
        rows: [settings], the digests of rows by number, which the executors of a group share.
        options: ignored.
    """

    def __init__(self, problem, others=(), setting=0, rows=None, **options):
        super().__init__(problem)
        self.problems, self.setting = [problem, *others], setting
        self.rows = rows or [{} for _ in self.problems]

    def of(self, setting):
        return RunOfOperations(self.problem, self.problems[1:], setting, self.rows)

    def submit(self, window):
        kinds = window.gradients, window.combines, window.mapped, window.serials
        order = sorted(
            (int(operations.depths[at]), kind == 3, kind, at)
            for kind, operations in enumerate(kinds)
            for at in range(len(operations))
        )
        for setting, (problem, rows) in enumerate(zip(self.problems, self.rows, strict=True)):
            floats = [each.floats if each.varied is None else each.varied.into(each.floats, setting) for each in kinds]
            keys = problem.keys.data.tobytes() + problem.keys.noise.tobytes()
            rows |= {number: self._digest(of_setting(values, setting).tobytes()) for number, values in window.constants}
            for _, _, kind, at in order:
                operations = kinds[kind]
                read = (rows[number] for number in operations.read[at].tolist() if number >= 0)
                said = operations.rest[at].tobytes(), floats[kind][at].tobytes(), b"" if kind else keys
                made = self._digest(bytes([kind]), *said, *read)
                written = (number for number in operations.written[at].tolist() if number >= 0)
                rows.update(
                    (number, made if not place else self._digest(made, bytes([place])))
                    for place, number in enumerate(written)
                )
            for number in window.dead:
                rows.pop(number, None)

    @staticmethod
    def _digest(*parts):
        return hashlib.blake2b(b"".join(parts), digest_size=8).digest()

    def _vectors(self, digests, size):
        values = np.zeros((len(digests), size), dtype=np.float32)
        values[:, :4] = np.frombuffer(b"".join(digests), np.uint16).reshape(-1, 4)
        return values

    def _forms(self, rows, coefs):
        coefs, living = coefs if coefs.ndim == 2 else coefs[self.setting], self.rows[self.setting]
        return [
            self._digest(coef.tobytes(), *(living[number] for number in form if number >= 0))
            for form, coef in zip(rows.tolist(), coefs, strict=True)
        ]

    def fetch(self, rows, coefs):
        return self._vectors(self._forms(rows, coefs), self.size)

    def mean(self, rows, coefs):
        return self._vectors([self._digest(*self._forms(rows, coefs))], self.whole)[0]

    def evaluate(self, rows, coefs, own, clipping_norm):
        self.evaluations = 0  # all measures but one are the same before and after an interruption
        future, measures = Future(), super().evaluate(rows, coefs, own, clipping_norm).result()
        distance = int.from_bytes(self._digest(*self._forms(rows, coefs), str(clipping_norm).encode())) / 2.0**64
        future.set_result(dataclasses.replace(measures, consensus_distance=distance))
        return future

    def read(self, rows):
        return self._vectors([self.rows[self.setting][number] for number in rows.tolist()], self.size)

    def write(self, rows, values, numbers):
        digests = values[:, :4].astype(np.uint16)
        self.rows[self.setting].update(
            (number, one.tobytes()) for number, one in zip(rows.tolist(), digests, strict=True)
        )


class NumpyExecutor:
    """Packs windows, interprets the steps one by one in float64, and checks what each step reads and writes.

    Places without a living row hold NaN, so that a step that reads one of them fails.

    Args:
        d: parameters of a model.
        gradient: (params, client, draw, first, size) -> f64 [d].
        noise: (client, draw) -> f64 [d].
        change: (params, client, draw, steps, size, eta, correction) -> f64 [d], of a tape of corrected rounds.
        seed: the `Given.seed` that functions of models get.
    """

    def __init__(self, d, gradient=None, noise=None, *, change=None, width=3, combines=2, capacity=4, seed=0):
        self.seed = seed
        self.bank = Bank(capacity)
        self.values = np.full((capacity + 1, d), np.nan)
        self.values[-1] = 0.0
        self.gradient = gradient or (lambda params, client, draw, first, size: np.zeros(d))
        self.noise = noise or (lambda client, draw: np.zeros(d))
        self.change = change
        self.width, self.combines = width, combines
        self.steps = self.operations = self.peak = 0

    def submit(self, window):
        before = self.bank.capacity
        steps = pack(window, self.bank, self.width, self.combines)
        spare = self.bank.spare
        if self.bank.capacity != before:
            values = np.full((self.bank.capacity + 1, self.values.shape[1]), np.nan)
            values[:before] = self.values[:before]
            values[spare] = 0.0
            self.values = values
        for number, constant_values in window.constants:
            self.values[self.bank.place[number]] = constant_values
        done = 0
        for step in range(steps.count):
            done += self._step(steps, step, window.serials.layout, window.mapped.layout, window.branches)
        assert done == window.operations, "every operation runs exactly once"
        self.steps += steps.count
        self.operations += window.operations
        self.peak = max(self.peak, self.bank.capacity - len(self.bank.free))
        assert len(set(self.bank.free)) == len(self.bank.free), "no place is free twice"
        self.values[self.bank.free] = np.nan

    def _step(self, steps, step, serial, mapped, branches):
        reads = steps.combines.floats.shape[2]
        spare = self.bank.spare
        gathered = self.values.copy()
        written, done = {}, 0
        for ints, floats in zip(steps.gradients.ints[step], steps.gradients.floats[step], strict=True):
            read, out, (client, draw, first, size) = int(ints[0]), int(ints[reads + 1]), ints[reads + 2 :].tolist()
            scale, noise_scale = floats[reads : reads + 2].tolist()
            if out == spare:
                assert not floats.any(), "an unused lane does nothing"
                continue
            assert out not in written, "a step writes a place once"
            if self.change is None:
                total = self.gradient(gathered[read], client, draw, first, size)
            else:
                eta, factor = floats[reads + 2], floats[-1]
                total = self.change(gathered[read], client, draw, first, size, eta, factor * gathered[ints[1]])
            if noise_scale:
                total = total + noise_scale * self.noise(client, draw)
            written[out] = self._linear(gathered, ints[1 : reads + 1], floats[:reads]) + scale * total
        for ints, floats in zip(steps.combines.ints[step], steps.combines.floats[step], strict=True):
            out = int(ints[reads])
            if out == spare:
                assert not floats.any(), "an unused lane does nothing"
                continue
            assert out not in written, "a step writes a place once"
            written[out] = self._linear(gathered, ints[:reads], floats)
        if len(steps.mapped.ints):
            for ints, floats in zip(steps.mapped.ints[step], steps.mapped.floats[step], strict=True):
                if ints[0] == spare:
                    assert not floats.any(), "an unused lane does nothing"
                    continue
                made = self._mapped(gathered, branches, mapped, ints, floats)
                assert not set(made) & set(written), "a step writes a place once"
                written |= made
                done -= len(made) - 1
        for place, value in written.items():
            assert np.isfinite(value).all(), "a step read a place that held nothing"
            self.values[place] = value
        bounds = steps.serial_bounds[step : step + 2].tolist()
        for ints, floats in zip(steps.serials.ints[slice(*bounds)], steps.serials.floats[slice(*bounds)], strict=True):
            if serial.further and ints[serial.rest][BRANCH]:
                made = self._mapped(self.values, branches, serial, ints, floats)
            else:
                made = {int(ints[serial.reads]): self._linear(self.values, ints[:reads], floats[:reads])}
            assert not set(made) & set(written), "a step writes a place once"
            written |= made
            done -= len(made) - 1
            for out, value in made.items():
                self.values[out] = value
                assert np.isfinite(value).all(), "a serial operation read a place that held nothing"
        return len(written) + done

    def _mapped(self, values, branches, layout, ints, floats):
        """Run a function of models; return the values that it writes, by place."""
        rest = ints[layout.rest]
        branch, spare = branches[rest[BRANCH] - 1], self.bank.spare
        read = ints[: branch.inputs]
        present = read != spare
        assert branch.pads or np.isfinite(values[read]).all(), "a function read a place that held nothing"
        names = int(rest[MAP_CLIENT]), int(rest[MAP_DRAW])
        made = branch.function(values[read], Given(floats[: branch.numbers], present, *names, self.seed))
        made = [made] if np.ndim(made) == 1 else made
        written = ints[layout.written].tolist()
        assert written[branch.outputs :] == [spare] * (layout.writes - branch.outputs)
        return dict(zip(written[: branch.outputs], made, strict=True))

    @staticmethod
    def _linear(values, places, coefs):
        return sum(float(c) * values[p] for c, p in zip(coefs, places, strict=True))

    def fetch(self, rows, coefs):
        places = self.bank.places(rows)
        return np.array([self._linear(self.values, p, c) for p, c in zip(places, coefs, strict=True)])


# -- runs --------------------------------------------------------------------------------------


def run_until(setup, event, out, *, since=None, folder=None):
    """Run with checkpoints, and interrupt the run before an event; return the run and its number of events.

    Args:
        setup: the result of `prepare`.
        event: the number of the event, from 1; inf for no interruption.
        out: the folder of all results.
        since: a checkpoint to resume from.
        folder: the folder of the run that is resumed.
    """
    simulation = Simulation(setup, choose_device("cpu"), every_s=1e6, since=since)
    clock, happened = simulation.world.clock, 0
    take = engine.heappop

    def watched(queue):
        nonlocal happened
        happened += 1
        clock.interrupted = happened >= event
        return take(queue)

    engine.heappop = watched
    try:
        result = simulation.run(RunFolder(folder) if folder else RunFolder.create(out, setup.scenario.name))
    finally:
        engine.heappop = take
        simulation.release()
    # The thread of a canceled timer may take a moment to end.
    waiting = [one for one in threading.enumerate() if isinstance(one, threading.Timer) and not one.finished.is_set()]
    assert not waiting, "no timer of the run is left"
    return result, clock.events


def tally_of(training, *, rounds=False, by_server=False):
    """Return the counter of releases for Gaussian noise with C = 1."""
    stds = training.each_noise_std()
    terms = Terms("gaussian", 1e-5, unit="client" if rounds else "example", by_server=by_server)
    if training.tasks > 1:
        from simfl.papers.without_replacement.passes import OnePassClaim, OnePassLedger

        claim = OnePassClaim(1.0, 1e-5, "analytic", "joint")
        ledger = OnePassLedger(terms, training.sizes, training.batch_size, stds[0], training.tasks, 1, claim)
    else:
        ledger = Ledger(terms, training.sizes, training.batch_size, training.sampling, stds)
    return ledger.counted_by(ledger, stds, 1.0, rounds)


def recorded(kind):
    """Return the options of a tape that an algorithm needs."""
    gradient = uses_of(kind).gradient
    return {"local": kind in LOCAL, "corrected": gradient == "corrected", "own_clipping": gradient == "own_norm"}


def uses_of(kind):
    """Return what an algorithm does with messages, sums and steps."""
    return next(section for section in members_of(Algorithm) if kind_of(section, "kind") == kind).uses


def make_algorithm(kind, world, tape, training, on_update=lambda row: None, **options):
    """Return an algorithm that is not started yet, on a tape that counts releases."""
    if tape.releases is None:
        tape.releases = tally_of(training, rounds=tape.local, by_server=options.get("noise") == "server")
    return completed(ALGORITHMS[kind])(world, tape, training, on_update, **options)


def targets(count, size):
    """Return what the clients' losses in `pulled` pull to, f64 [count, size]."""
    return np.random.default_rng(3).standard_normal((count, size))


def pulled(kind, world, until, *, size=3, step=0.1, **options):
    """Return an algorithm with gradients params - target in batches of 8, and its models f64 after a time."""
    pulls = targets(world.num_clients, size)
    tape = Tape(NumpyExecutor(size, lambda params, client, *_: 8 * (params - pulls[client])), window=50, max_batch=8)
    training = make_training([64] * world.num_clients, d=size, step_size=step)
    algorithm, _ = run_algorithm(kind, world, tape, training, until=until, **options)
    return algorithm, tape.values(algorithm.models())


def begin_apart(algorithm, models):
    """Give every client another initial model, f32 [K, d], before the start."""
    algorithm.model = [algorithm.tape.constant(model) for model in models]


def run_algorithm(
    kind: str,
    world: World,
    tape: Tape,
    training: Training,
    *,
    updates: int | None = None,
    until: float | None = None,
    models: Sequence[np.ndarray] | None = None,
    prepare: Callable | None = None,
    **options,
):
    """Run an algorithm for a number of updates or a time; return it and its rows of updates."""
    rows: list[tuple] = []
    algorithm = make_algorithm(kind, world, tape, training, rows.append, **options)
    if models is not None:
        begin_apart(algorithm, models)
    if prepare is not None:
        prepare(algorithm)
    if updates is not None:

        def stop():
            world.clock.stop()
            return NEVER

        algorithm.marks.call, algorithm.marks.next = stop, updates
    algorithm.start()
    world.clock.run(until)
    return algorithm, rows


def run_without_numbers(kind, world, *, batch_size=8, updates=None, until=None, **options):
    """Run an algorithm in a world without arithmetic, for tests of times."""
    training = options.pop("training", None) or make_training([64] * world.num_clients, batch_size=batch_size)
    tape = Tape(
        NullExecutor(),
        window=1000,
        max_batch=batch_size,
        **recorded(kind),
    )
    return run_algorithm(kind, world, tape, training, updates=updates, until=until, **options)
