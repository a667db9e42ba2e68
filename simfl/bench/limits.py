"""Limits of a run: the bare kernel, one call per event, the world alone.

The program `python -m simfl.bench.limits CASE [DEVICE]` measures one call per event for every line of its input. It is
a separate process, so that JAX keeps its default configuration.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simfl.bench.cases import scenario_of
from simfl.errors import RunError
from simfl.tape.recording import ClippedGradient, Gradient, Model, Round, Tape


def kernel_limit(setup: Any, device: Any, quick: bool = False) -> Callable[[], float]:
    """Return a function that measures the seconds per gradient of the bare kernel."""
    import jax
    import jax.numpy as jnp

    from simfl.privacy.noise import SAMPLERS

    problem = setup.problem
    model, size = problem.model, problem.batches.size
    x, y, keys = jax.device_put((problem.arrays()["x"], problem.arrays()["y"], problem.keys.noise), device)
    clip = problem.clipping.norm
    scale = np.float32(setup.training.each_noise_std()[0])
    sampler = None if problem.noise is None else SAMPLERS[problem.noise.sampler]

    def gradient(params: Any, examples: Any, index: Any, weight: Any, draw: Any) -> Any:
        batch = examples[0][index], examples[1][index], weight
        total = model.gradient_sum(params, *batch) if clip is None else model.clipped_gradient_sum(params, *batch, clip)
        return total if sampler is None else total + scale * sampler(keys, jnp.int32(0), draw, model.size)

    def build(width: int, steps: int) -> Callable[[], Any]:
        generator = np.random.default_rng(0)
        indices = jax.device_put(generator.integers(0, len(problem.data.train_x), (steps, width, size)), device)
        draws = jax.device_put(np.arange(steps * width, dtype=np.int32).reshape(steps, width), device)
        start = jax.device_put(np.tile(setup.training.initial, (width, 1)), device)
        ones = jnp.ones(size, jnp.float32)

        # The examples are an argument: a constant would be copied into each program.
        def scan(params: Any, examples: Any, indices: Any, draws: Any) -> Any:
            def body(params: Any, inputs: Any) -> Any:
                index, draw = inputs
                if width == 1:
                    total = gradient(params[0], examples, index[0], ones, draw[0])[None]
                else:
                    total = jax.vmap(gradient, in_axes=(0, None, 0, None, 0))(params, examples, index, ones, draw)
                return params - np.float32(0.001) * total, None

            return jax.lax.scan(body, params, (indices, draws))[0]

        compiled = jax.jit(scan)
        return lambda: compiled(start, (x, y), indices, draws).block_until_ready()

    widths: tuple[int, ...] = (1, 4, 8, 16, 32) if device.platform == "cpu" else (8, 32, 128, 512)
    if quick and len(widths) > 4:
        widths = widths[1:4]
    if model.convolutional and device.platform == "cpu":
        widths = (1,)
    probe = build(1, 8)
    probe()
    once = time.perf_counter()
    probe()
    estimate = max((time.perf_counter() - once) / 8, 1e-6)
    total = int(np.clip(0.4 / estimate, 32, 8192))
    candidates = {width: build(width, max(1, total // width)) for width in widths}
    for run in candidates.values():
        run()

    def measure() -> float:
        best = np.inf
        for width, run in candidates.items():
            begin = time.perf_counter()
            run()
            best = min(best, (time.perf_counter() - begin) / (max(1, total // width) * width))
        return float(best)

    return measure


def machine_limits(setup: Any, device: Any) -> tuple[float, float, float]:
    """Return bytes/s (STREAM's triad), FLOP/s (GEMM), and FLOP of a gradient.

    Triad and product are loops of JAX in float32, as gradients are, of 64 MB and of 1,024 x 1,024 numbers.
    """
    import jax
    import jax.numpy as jnp

    model, x, y = setup.problem.model, setup.problem.arrays()["x"], setup.problem.arrays()["y"]
    some = slice(setup.problem.batches.size)
    batch = jnp.asarray(setup.training.initial), jnp.asarray(x[some]), jnp.asarray(y[some]), jnp.ones(some.stop)
    # Clipping and noise are not counted: the share is that of the products.
    counted: Any = jax.jit(model.gradient_sum).lower(*batch).cost_analysis()

    def seconds(step: Callable[[Any, Any], Any], shape: tuple[int, ...], times: int) -> float:
        compiled = jax.jit(lambda a, b: jax.lax.fori_loop(0, times, lambda _, a: step(a, b), a))
        given = jax.device_put((np.ones(shape, np.float32), np.full(shape, 2.0**-11, np.float32)), device)
        best = np.inf
        for _ in range(4):
            begin = time.perf_counter()
            compiled(*given).block_until_ready()
            best = min(best, (time.perf_counter() - begin) / times)
        return float(best)

    triad = seconds(lambda a, b: b + np.float32(0.5) * a, (2**24,), 3)
    product = seconds(lambda a, b: jnp.matmul(a, b, precision="highest"), (1024, 1024), 3)
    return 3 * 4 * 2**24 / triad, 2 * 1024**3 / product, float(counted["flops"])


class Computed(Model):
    """A model whose parameters are known, f32 [d]."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__((), ())
        self.value = value


class PerCallTape(Tape):
    """A tape that computes at once: one jitted call for every exchange and every step.

    An event loop around JAX works like this without a tape. The world is the same. Nothing is accounted for.
    """

    def __init__(self, setup: Any, device: Any) -> None:
        super().__init__(None, max_batch=2**30)
        import jax
        import jax.numpy as jnp

        from simfl.tape.kernels import gradient_of_batch, positions_of_batch
        from simfl.tape.maps import Given

        problem = setup.problem
        proximal = 0.0 if problem.rounds is None else problem.rounds.proximal
        gradient, positions = gradient_of_batch(problem.operation), positions_of_batch(problem.operation)
        self._data = jax.device_put(problem.arrays(), device)
        self._norm = problem.clipping.norm or 0.0

        def linear(coefs: Any, models: Any) -> Any:
            return sum((coefs[j] * model for j, model in enumerate(models)), jnp.float32(0.0))

        def step(base: Any, read: Any, ints: Any, coef: Any, noise_scale: Any, norm: Any, data: Any) -> Any:
            return base + coef * gradient(read, data, ints, positions(data, ints), noise_scale, norm)[0]

        def local_step(w: Any, start: Any, ints: Any, eta: Any, data: Any) -> Any:
            total, _ = gradient(w, data, ints, positions(data, ints), jnp.float32(0.0))
            change = total / problem.batches.size + proximal * (w - start)
            return w - eta * (change + problem.model.l2 * w if problem.model.l2 else change)

        def mapped(function: Any, rows: Any, scalars: Any, names: Any, seed: Any) -> Any:
            made = function(rows, Given(scalars, jnp.ones(len(rows), bool), names[0], names[1], seed))
            return tuple(made) if isinstance(made, tuple | list) else (made,)

        self._local_step: Any = jax.jit(local_step)
        self._linearly: Any = jax.jit(linear)
        self._one_step: Any = jax.jit(step)
        self._function: Any = jax.jit(mapped, static_argnums=0)
        self._seed = problem.keys.maps
        self._calls: dict[int, int] = {}
        self._device = device

    def constant(self, values: Any) -> Model:
        """Put a vector on the device."""
        import jax

        return Computed(jax.device_put(values, self._device))

    def gradient(
        self,
        model: Any,
        client: int,
        draw: int,
        size: int,
        noise_scale: float = 0.0,
        clipping_norm: float | None = None,
    ) -> Any:
        """Promise a gradient, as `Tape.gradient` does."""
        norm = self._norm if clipping_norm is None else clipping_norm
        size = size if self.draw_size is None else self.draw_size(client, draw, size)
        return ClippedGradient(model, client, draw, min(size, self.max_batch), noise_scale, norm)

    def train(
        self,
        model: Any,
        client: int,
        draw: int,
        steps: int,
        size: int,
        step: Any,
        noise_scale: float = 0.0,
        expected: int = 0,
        correction: Model | None = None,
        state: Sequence[Model] = (),
        count: int = 0,
    ) -> Any:
        """Promise a round, as `Tape.train` does."""
        assert correction is None, "rounds of local steps are measured without corrections"
        return Round(model, client, draw, steps, size, step, noise_scale)

    def release(self, promised: Any) -> None:
        """Count nothing."""

    def _change(self, promised: Any) -> Any:
        """Compute the change of a round: a call for every step."""
        assert not promised.noise_scale, "rounds of local steps are measured without noise"
        start = w = promised.model.value
        eta = np.float32(promised.step[0])
        for h in range(promised.steps):
            ints = np.array([promised.client, promised.draw + h, 0, promised.size], dtype=np.int32)
            w = self._local_step(w, start, ints, eta, self._data)
        return Computed(self._linearly(np.array([1.0, -1.0], dtype=np.float32), (w, start)))

    def combine(self, *terms: Any) -> Any:
        """Compute the combination now: a call for the models, a call for every gradient."""
        terms = tuple((coef, self._change(value) if isinstance(value, Round) else value) for coef, value in terms)
        models = [(coef, value) for coef, value in terms if not isinstance(value, Gradient)]
        total = models[0][1].value
        if len(models) > 1 or models[0][0] != 1.0:
            coefs = np.array([coef for coef, _ in models], dtype=np.float32)
            total = self._linearly(coefs, tuple(value.value for _, value in models))
        for coef, value in terms:
            if isinstance(value, Gradient):
                ints = np.array([value.client, value.draw, 0, value.size], dtype=np.int32)
                floats = np.array([coef, value.noise_scale, *value.step], dtype=np.float32)
                read: Any = value.model
                total = self._one_step(total, read.value, ints, *floats, self._data)
        return Computed(total)

    apply = combine  # operations run in order

    def step(self, base: Any, coef: Any, gradient: Any) -> Any:
        """Compute the step now."""
        return self.combine((1.0, base), (coef, gradient))

    def map(
        self,
        function: Any,
        models: Any,
        *,
        scalars: Any = (),
        outputs: int = 1,
        client: int | None = None,
        pads: bool = False,
    ) -> Any:
        """Compute a function of models now: one call."""
        draw = self._calls[client or 0] = self._calls.get(client or 0, -1) + 1
        names = np.array([client or 0, draw], dtype=np.int32)
        rows = tuple(model.value for model in models)
        made = self._function(function, rows, np.array(scalars, dtype=np.float32), names, self._seed)
        return tuple(Computed(row) for row in made)

    def settle(self, model: Any) -> Any:
        """Return the model: everything is computed already."""
        return model


def serve_per_call(name: str, device: str | None = None) -> None:
    """Print the seconds per update of one call per event for every line of the input."""
    import jax

    from simfl.assembly import assemble
    from simfl.models import lazy

    setattr(lazy, "start_jax", lambda: None)  # noqa: B010
    setup = assemble.assemble(scenario_of(name))
    tape: Any = PerCallTape(setup, jax.devices(device)[0] if device else jax.devices()[0])

    def seconds(updates: int) -> float:
        elapsed, _, algorithm = run_world(setup, tape, updates)
        begin = time.perf_counter()
        models: Any = algorithm.models()
        jax.block_until_ready([model.value for model in models])
        return (elapsed + time.perf_counter() - begin) / updates

    count = setup.scenario.clients.count
    seconds(2 * count)
    updates = max(2 * count, int(min(20_000, 0.8 / seconds(2 * count))))
    steps = steps_per_update(setup)
    for _ in sys.stdin:
        print(seconds(updates) / steps, flush=True)


class Nothing:
    """An executor that computes nothing, to measure the world and its recording alone."""

    def submit(self, window: Any) -> None:
        """Forget the window."""

    def fetch(self, rows: Any, coefs: Any) -> Any:
        """Reject the request: there are no values."""
        raise RunError("the world alone has no values")

    def probe(self, rows: Any, coefs: Any, clients: Any, draws: Any, decide: Any) -> Any:
        """Reject the request: there are no losses."""
        raise RunError("the world alone has no losses")


def bare_simpy(timeouts: int = 100_000) -> float:
    """Return the CPU seconds of a SimPy timeout."""
    import simpy

    env = simpy.Environment()

    def process() -> Any:
        for _ in range(timeouts):
            yield env.timeout(1.0)

    env.process(process())
    begin = time.process_time()
    env.run()
    return (time.process_time() - begin) / timeouts


def run_world(
    setup: Any, tape: Any, updates: int, timer: Callable[[], float] = time.perf_counter
) -> tuple[float, int, Any]:
    """Run the world on a tape; return seconds, events and the algorithm."""
    from simfl.assembly.assemble import begin_world

    world, algorithm = begin_world(setup, tape, updates)
    begin = timer()
    world.clock.run()
    return timer() - begin, world.clock.events, algorithm


def steps_per_update(setup: Any) -> float:
    """Return the number of mini-batches of an update: those of a local round, else 1."""
    return float((setup.training.update_examples or setup.problem.batches.size) / setup.problem.batches.size)


if __name__ == "__main__":
    serve_per_call(*sys.argv[1:])
