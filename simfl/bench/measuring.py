"""`simfl bench`: how fast the simulator is, as ratios taken in one run.

For every case, in a process of its own:

- the kernel limit: the same gradient (clipped and noised as in the case), vmapped in a bare scan at
  its best width, with no simulation around it;
- one call per event: the same world, with a jitted call for every exchange and every step, in a
  process of its own with JAX as it comes: the way an event loop around JAX is written without a tape;
- the world alone: all events, with nothing computed;
- the run itself, end to end: world, tape, execution and tables.

An update is one mini-batch, also where clients train locally: a round of H steps counts as H updates, in the kernel
limit (H gradients), in one call per event (H calls for a client's steps) and in the run.

Each is measured several times, alternating; the best of each counts, so that another program on
the machine disturbs the ratios little.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simfl.errors import RunError, ScenarioError, nearest

REPEATS = 3


@dataclass(frozen=True)
class Case:
    """One line of the benchmark.

    Attributes:
        workers: clients.
        updates: updates of the run that is measured; a round of local steps is one of them here.
        sections: what the scenario says beside clients, stop and evaluate.
    """

    workers: int
    updates: int
    sections: dict[str, Any]


def _case(data: str, model: str, workers: int, updates: int, algorithm: str = "adpsgd", **sections: Any) -> Case:
    options = sections.pop("options", {})
    # More workers than the data can be divided among draw their examples from all of it.
    few = workers > 40 if data == "digits" else workers > 1_000
    part = {"kind": "resample", "size": 128} if few else {"kind": "iid"}
    return Case(
        workers,
        updates,
        {
            "data": {"set": data, "partition": part},
            "model": {"kind": model},
            "algorithm": {"kind": algorithm, "batch_size": 32, "step_size": 0.05, **options},
            **sections,
        },
    )


_MESSAGES: dict[str, Any] = {"exchange": "messages"}
_ROUNDS: dict[str, Any] = {"buffer_size": 100, "local_steps": 10}
_PRIVACY: dict[str, Any] = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}
_LAPLACE: dict[str, Any] = {"mechanism": "laplace_l2", "neighbors": "replace_one", "epsilon_per_release": 1.0}
_STAGES: dict[str, Any] = {"step_size": None, "sampling": "without_replacement", "second_moment": "paper"}

CASES: dict[str, Case] = {
    "digits-softmax-adpsgd-16": _case("digits", "softmax", 16, 100_000),
    "digits-softmax-adpsgd": _case("digits", "softmax", 256, 100_000),
    "digits-softmax-adpsgd-10000": _case("digits", "softmax", 10_000, 200_000),
    "digits-softmax-adpsgd-messages": _case("digits", "softmax", 256, 60_000, options=_MESSAGES),
    "digits-softmax-sync": _case("digits", "softmax", 256, 60_000, "sync_sgd"),
    "digits-softmax-decentralized": _case("digits", "softmax", 256, 40_000, "decentralized_sgd"),
    "mnist-softmax-adpsgd-16": _case("mnist", "softmax", 16, 40_000),
    "mnist-softmax-adpsgd": _case("mnist", "softmax", 256, 40_000),
    "mnist-softmax-adpsgd-10000": _case("mnist", "softmax", 10_000, 80_000),
    "mnist-softmax-adpsgd-messages": _case("mnist", "softmax", 256, 40_000, options=_MESSAGES),
    "mnist-softmax-adpsgd-private": _case("mnist", "softmax", 256, 20_000, privacy=_PRIVACY),
    "mnist-softmax-sync": _case("mnist", "softmax", 256, 20_000, "sync_sgd"),
    "mnist-mlp-adpsgd": _case("mnist", "mlp", 256, 10_000),
    "mnist-softmax-fedbuff": _case("mnist", "softmax", 1_000, 8_000, "fedbuff", options=_ROUNDS),
    "mnist-softmax-mapa": _case("mnist", "softmax", 1_000, 20_000, "mapa", options=_STAGES, privacy=_LAPLACE),
    "mnist-lenet5-adpsgd": _case("mnist", "lenet5", 16, 3_000),
}


def scenario_of(name: str, updates: int | None = None, workers: int | None = None) -> Any:
    """Return the scenario of a case."""
    from simfl.scenario import from_mapping

    case = CASES[name]
    count = workers or case.workers
    total = updates or case.updates
    sections = json.loads(json.dumps(case.sections))
    if sections["data"]["set"] == "mnist" and not _has_mnist():
        sections["data"] = {"set": "npz", "path": str(_stand_in()), "partition": sections["data"]["partition"]}
    return from_mapping(
        {
            "name": name,
            "clients": {"count": count, "jitter": {"kind": "lognormal", "sigma": 0.1}},
            "stop": {"updates": total},
            "evaluate": {"every": {"updates": total}},
            **sections,
        }
    )


def _has_mnist() -> bool:
    root = os.environ.get("SIMFL_DATA")
    return root is not None and any(Path(root, "mnist").glob("train-images*"))


def _stand_in() -> Path:
    """Random data of MNIST's shape, for machines without it: speed does not depend on the values."""
    path = Path(tempfile.gettempdir()) / "simfl-bench-mnist-shape.npz"
    if not path.exists():
        generator = np.random.default_rng(0)
        x = generator.random((60_000, 784), dtype=np.float32)
        y = generator.integers(0, 10, 60_000).astype(np.int32)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, x_train=x, y_train=y, x_test=x[:10_000], y_test=y[:10_000])
        partial.replace(path)
    return path


# -- the four measurements ---------------------------------------------------------------------


def _kernel(setup: Any, device: Any) -> Callable[[], float]:
    """Return a function that measures the kernel limit, in seconds per gradient."""
    import jax
    import jax.numpy as jnp

    from simfl.privacy.noise import SAMPLERS

    problem = setup.problem
    model, batch = problem.model, problem.batches.size
    x, y = jax.device_put(problem.data.train_x, device), jax.device_put(problem.data.train_y, device)
    keys = jax.device_put(problem.keys.noise, device)
    clip = problem.clipping.norm
    scale = np.float32(setup.training.each_noise_std()[0])
    sampler = None if problem.noise is None else SAMPLERS[problem.noise.sampler]

    def gradient(params: Any, index: Any, weight: Any, draw: Any) -> Any:
        a, b = x[index], y[index]
        total = (
            model.gradient_sum(params, a, b, weight)
            if clip is None
            else model.clipped_gradient_sum(params, a, b, weight, clip)
        )
        return total if sampler is None else total + scale * sampler(keys, jnp.int32(0), draw, model.size)

    def build(width: int, steps: int) -> Callable[[], Any]:
        generator = np.random.default_rng(0)
        indices = jax.device_put(generator.integers(0, len(problem.data.train_x), (steps, width, batch)), device)
        draws = jax.device_put(np.arange(steps * width, dtype=np.int32).reshape(steps, width), device)
        start = jax.device_put(np.tile(setup.training.initial, (width, 1)), device)
        ones = jnp.ones(batch, jnp.float32)

        def scan(params: Any, indices: Any, draws: Any) -> Any:
            def body(params: Any, inputs: Any) -> Any:
                index, draw = inputs
                if width == 1:
                    total = gradient(params[0], index[0], ones, draw[0])[None]
                else:
                    total = jax.vmap(gradient, in_axes=(0, 0, None, 0))(params, index, ones, draw)
                return params - np.float32(0.001) * total, None

            return jax.lax.scan(body, params, (indices, draws))[0]

        compiled = jax.jit(scan)
        return lambda: compiled(start, indices, draws).block_until_ready()

    widths: tuple[int, ...] = (1, 4, 8, 16, 32) if device.platform == "cpu" else (8, 32, 128, 512)
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


class _PerCallTape:
    """A tape that computes at once: one jitted call for every exchange and every step.

    This is how an event loop around JAX is written without a tape; the world around it is the same.
    """

    reads = 4

    def __init__(self, setup: Any, device: Any) -> None:
        import jax
        import jax.numpy as jnp

        from simfl.tape.kernels import gradient_of_batch, positions_of_batch

        problem = setup.problem
        proximal = 0.0 if problem.rounds is None else problem.rounds.proximal
        gradient, positions = gradient_of_batch(problem.operation), positions_of_batch(problem.operation)
        self._device = device
        data = jax.device_put(problem.arrays(), device)

        def linear(coefs: Any, models: Any) -> Any:
            return sum((coefs[j] * model for j, model in enumerate(models)), jnp.float32(0.0))

        def step(base: Any, read: Any, ints: Any, coef: Any, noise_scale: Any, norm: Any, data: Any) -> Any:
            return base + coef * gradient(read, data, ints, positions(data, ints), noise_scale, norm)

        def local_step(w: Any, start: Any, ints: Any, eta: Any, data: Any) -> Any:
            total = gradient(w, data, ints, positions(data, ints), jnp.float32(0.0))
            change = total / problem.batches.size + proximal * (w - start)
            return w - eta * (change + problem.model.l2 * w if problem.model.l2 else change)

        self._local_step: Any = jax.jit(local_step)
        self._linear: Any = jax.jit(linear)
        self._step: Any = jax.jit(step)
        self._data = data
        self._norm = problem.clipping.norm or 0.0

    def constant(self, values: Any) -> Any:
        """The values themselves, on the device."""
        import jax

        return jax.device_put(values, self._device)

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
        from simfl.tape.recording import ClippedGradient

        norm = self._norm if clipping_norm is None else clipping_norm
        return ClippedGradient(model, client, draw, min(size, self.max_batch), noise_scale, norm)

    max_batch = 2**30

    def train(self, model: Any, client: int, draw: int, steps: int, size: int, step: Any, noise_scale: float) -> Any:
        """Promise a round, as `Tape.train` does."""
        from simfl.tape.recording import Round

        return Round(model, client, draw, steps, size, step, noise_scale)

    def apply(self, *terms: Any) -> Any:
        """The same as `combine`: all of them run in order."""
        return self.combine(*terms)

    def _change(self, promised: Any) -> Any:
        """Compute the change of a round: a call for every step."""
        assert not promised.noise_scale, "rounds of local steps are measured without noise"
        w, eta = promised.model, np.float32(promised.step[0])
        for h in range(promised.first):
            ints = np.array([promised.client, promised.draw + h, 0, promised.size], dtype=np.int32)
            w = self._local_step(w, promised.model, ints, eta, self._data)
        return self._linear(np.array([1.0, -1.0], dtype=np.float32), (w, promised.model))

    def combine(self, *terms: Any) -> Any:
        """Compute the combination now: a call for the models, a call for every gradient."""
        from simfl.tape import Gradient
        from simfl.tape.recording import Round

        terms = tuple((coef, self._change(value) if isinstance(value, Round) else value) for coef, value in terms)
        models = [(coef, value) for coef, value in terms if not isinstance(value, Gradient)]
        total = models[0][1]
        if len(models) > 1 or models[0][0] != 1.0:
            coefs = np.array([coef for coef, _ in models], dtype=np.float32)
            total = self._linear(coefs, tuple(value for _, value in models))
        for coef, value in terms:
            if isinstance(value, Gradient):
                ints = np.array([value.client, value.draw, 0, value.size], dtype=np.int32)
                floats = np.array([coef, value.noise_scale, *value.step], dtype=np.float32)
                total = self._step(total, value.model, ints, *floats, self._data)
        return total

    def settle(self, model: Any) -> Any:
        """Everything is computed already."""
        return model


def _serve_per_call(name: str, device: str | None = None) -> None:
    """Measure one call per event in a process of its own, whenever a line comes in: JAX as it comes, not tuned."""
    import jax

    from simfl.simulation import assembly
    from simfl.tape import executor

    setattr(executor, "configure_jax", lambda: None)  # noqa: B010
    setup = assembly.assemble(scenario_of(name))
    chosen = jax.devices(device)[0] if device else jax.devices()[0]

    def seconds(updates: int) -> float:
        tape = _PerCallTape(setup, chosen) if not tapes else tapes[0]
        tapes[:] = [tape]
        elapsed, _, algorithm = _run_world(setup, tape, updates)
        begin = time.perf_counter()
        jax.block_until_ready(list(algorithm.models()))
        return (elapsed + time.perf_counter() - begin) / updates

    tapes: list[Any] = []
    count = setup.scenario.clients.count
    seconds(2 * count)
    updates = max(2 * count, int(min(20_000, 0.8 / seconds(2 * count))))
    steps = _steps_per_update(setup)
    for _ in sys.stdin:
        print(seconds(updates) / steps, flush=True)


class _Nothing:
    """An executor that computes nothing: what is left is the world and its recording."""

    def submit(self, window: Any) -> None:
        """Forget the window."""

    def fetch(self, rows: Any, coefs: Any) -> Any:
        """Nothing has values here."""
        raise RunError("the world alone has no values")

    def probe(self, rows: Any, coefs: Any, clients: Any, draws: Any) -> Any:
        """Nothing has losses here."""
        raise RunError("the world alone has no losses")


def _run_world(setup: Any, tape: Any, updates: int) -> tuple[float, int, Any]:
    """Run the world on some tape; returns (seconds, events, the algorithm)."""
    from simfl.simulation.assembly import build_algorithm
    from simfl.simulation.world import build_world

    world = build_world(setup)
    rows: list[Any] = []
    algorithm = build_algorithm(setup, world, tape, rows.append)

    def end() -> int:
        world.clock.stop()
        return 2**62

    algorithm.on_mark, algorithm.next_mark = end, updates
    algorithm.start()
    begin = time.perf_counter()
    world.clock.run()
    return time.perf_counter() - begin, world.clock.events, algorithm


def _steps_per_update(setup: Any) -> float:
    """Mini-batches behind an update: those of a round where clients train locally, else 1."""
    return float((setup.training.update_examples or setup.problem.batches.size) / setup.problem.batches.size)


def measure(name: str, device: str | None = None, updates: int | None = None) -> dict[str, Any]:
    """Measure one case in this process; see `run_bench` for the keys of the result."""
    from simfl.simulation.runner import prepare, run
    from simfl.tape import Tape
    from simfl.tape.executor import choose_device, tuned_interpreter

    chosen = choose_device(device)
    setup = prepare(scenario_of(name, updates), device)
    total = setup.scenario.stop.updates
    assert total is not None
    steps = _steps_per_update(setup)
    command = [sys.executable, "-m", "simfl.bench.measuring", "--per-call", name, *([device] if device else [])]
    untuned = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=untuned) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        run(setup, out=folder, device=device)  # compiles
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
        kernel = _kernel(setup, chosen)
        best = {"run": np.inf, "kernel": np.inf, "per_call": np.inf, "event": np.inf}
        for _ in range(REPEATS):
            result = run(setup, out=folder, device=device)
            best["run"] = min(best["run"], result.manifest.wall_s / (result.manifest.updates * steps))
            best["kernel"] = min(best["kernel"], kernel())
            child.stdin.write("again\n")
            child.stdin.flush()
            best["per_call"] = min(best["per_call"], float(child.stdout.readline()))
            with tuned_interpreter():
                tape = Tape(_Nothing(), **setup.problem.recorded)
                seconds, events, _ = _run_world(setup, tape, min(total, 50_000))
            best["event"] = min(best["event"], seconds / events)
        child.stdin.close()
    return {
        "case": name,
        "workers": setup.scenario.clients.count,
        "device": chosen.platform,
        "updates_per_s": round(1.0 / best["run"], 1),
        "kernel_limit_ratio": round(best["kernel"] / best["run"], 4),
        "per_call_ratio": round(best["per_call"] / best["run"], 3),
        "world_events_per_s": round(1.0 / best["event"], 1),
        "peak_rss_bytes": rss,
    }


def run_bench(
    cases: Sequence[str] | None = None, device: str | None = None, echo: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Measure cases, each in a fresh process, and return one object per case.

    Args:
        cases: names from `CASES`; all of them by default.
        device: "cpu" or "gpu".
        echo: told which case is being measured.

    Returns:
        Objects with the keys case, workers, device, updates_per_s, kernel_limit_ratio (end to end over
        the bare kernel: 1 would be a simulation that costs nothing), per_call_ratio (over one call per
        event), world_events_per_s (SimPy events of the world alone) and peak_rss_bytes.
    """
    names = list(cases) if cases else list(CASES)
    for name in names:
        if name not in CASES:
            raise ScenarioError(f"bench: found {name!r}, expected one of {', '.join(CASES)}{nearest(name, CASES)}")
    results = []
    for name in names:
        echo(name)
        command = [sys.executable, "-m", "simfl.bench.measuring", name, *([device] if device else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RunError(f"bench: {name} failed: {last}")
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return results


def _main(arguments: list[str]) -> None:
    if arguments[0] == "--per-call":
        _serve_per_call(arguments[1], arguments[2] if len(arguments) > 2 else None)
    else:
        print(json.dumps(measure(arguments[0], arguments[1] if len(arguments) > 1 else None)))


if __name__ == "__main__":
    _main(sys.argv[1:])
