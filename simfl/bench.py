"""`simfl bench`: how fast the simulator is, as ratios taken in one run.

For every case, in a process of its own:

- the kernel limit: the same gradient (clipped and noised as in the case), vmapped in a bare scan at
  its best width, with no simulation around it;
- one call per event: a jitted call for every update, the way an event loop around JAX is written;
- the world alone: all events, with nothing computed;
- the run itself, end to end: world, tape, execution and tables.

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
        updates: updates of the run that is measured.
        sections: what the scenario says beside clients, stop and evaluate.
    """

    workers: int
    updates: int
    sections: dict[str, Any]


def _case(data: str, model: str, workers: int, updates: int, algorithm: str = "adpsgd", **sections: Any) -> Case:
    options = sections.pop("options", {})
    part = {"kind": "resample", "size": 128} if workers > 40 and data == "digits" else {"kind": "iid"}
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
_PRIVACY: dict[str, Any] = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}

CASES: dict[str, Case] = {
    "digits-softmax-adpsgd-16": _case("digits", "softmax", 16, 100_000),
    "digits-softmax-adpsgd": _case("digits", "softmax", 256, 100_000),
    "digits-softmax-adpsgd-10000": _case("digits", "softmax", 10_000, 200_000),
    "digits-softmax-adpsgd-messages": _case("digits", "softmax", 256, 60_000, options=_MESSAGES),
    "digits-softmax-sync": _case("digits", "softmax", 256, 60_000, "sync_sgd"),
    "digits-softmax-decentralized": _case("digits", "softmax", 256, 40_000, "decentralized_sgd"),
    "mnist-softmax-adpsgd": _case("mnist", "softmax", 256, 40_000),
    "mnist-softmax-adpsgd-messages": _case("mnist", "softmax", 256, 40_000, options=_MESSAGES),
    "mnist-softmax-adpsgd-private": _case("mnist", "softmax", 256, 20_000, privacy=_PRIVACY),
    "mnist-softmax-sync": _case("mnist", "softmax", 256, 20_000, "sync_sgd"),
    "mnist-mlp-adpsgd": _case("mnist", "mlp", 256, 10_000),
    "mnist-lenet5-adpsgd": _case("mnist", "lenet5", 16, 1_500),
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

    from simfl.tape.draws import noise

    problem = setup.problem
    model, batch = problem.model, problem.batch_size
    x, y = jax.device_put(problem.train_x, device), jax.device_put(problem.train_y, device)
    keys = jax.device_put(problem.noise_key, device)
    clip = problem.clipping_norm
    std = np.float32(setup.training.noise_std)

    def gradient(params: Any, index: Any, weight: Any, draw: Any) -> Any:
        a, b = x[index], y[index]
        total = (
            model.gradient_sum(params, a, b, weight)
            if clip is None
            else model.clipped_gradient_sum(params, a, b, weight, clip)
        )
        return total + std * noise(keys, jnp.int32(0), draw, model.size) if problem.noisy else total

    def build(width: int, steps: int) -> Callable[[], Any]:
        generator = np.random.default_rng(0)
        indices = jax.device_put(generator.integers(0, len(problem.train_x), (steps, width, batch)), device)
        draws = jax.device_put(np.arange(steps * width, dtype=np.int32).reshape(steps, width), device)
        start = jax.device_put(np.tile(setup.training.initial, (width, 1)), device)
        ones = jnp.ones(batch, jnp.float32)

        @jax.jit
        def scan(params: Any, indices: Any, draws: Any) -> Any:
            def body(params: Any, inputs: Any) -> Any:
                index, draw = inputs
                if width == 1:
                    total = gradient(params[0], index[0], ones, draw[0])[None]
                else:
                    total = jax.vmap(gradient, in_axes=(0, 0, None, 0))(params, index, ones, draw)
                return params - np.float32(0.001) * total, None

            return jax.lax.scan(body, params, (indices, draws))[0]

        return lambda: scan(start, indices, draws).block_until_ready()

    widths = (1, 4, 8, 16, 32) if device.platform == "cpu" else (8, 32, 128, 512)
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


def _per_call(setup: Any, device: Any) -> Callable[[], float]:
    """Return a function that measures one jitted call per event, in seconds per update."""
    import jax
    import jax.numpy as jnp

    from simfl.tape.kernels import gradient_of_batch, positions_of_batch

    problem = setup.problem
    gradient = gradient_of_batch(problem.model, problem.max_batch, problem.clipping_norm is not None, problem.noisy)
    positions = positions_of_batch(problem.sampling, problem.batch_size, problem.max_batch)
    data = jax.device_put(
        {
            "x": problem.train_x,
            "y": problem.train_y,
            "table": problem.indices,
            "offsets": problem.offsets[:-1].astype(np.int32),
            "sizes": problem.sizes.astype(np.int32),
            "data_key": problem.data_key,
            "noise_key": problem.noise_key,
            "clipping_norm": np.float32(problem.clipping_norm or 0.0),
        },
        device,
    )

    @jax.jit
    def update(read: Any, mine: Any, peer: Any, ints: Any, noise_std: Any, data: Any) -> Any:
        mean = 0.5 * (mine + peer)
        return mean - jnp.float32(0.001) * gradient(read, data, ints, positions(data, ints), noise_std), mean

    count = len(problem.sizes)
    generator = np.random.default_rng(0)
    models = [jax.device_put(setup.training.initial, device) for _ in range(count)]
    std = np.float32(setup.training.noise_std)

    def run(updates: int) -> float:
        clients = generator.integers(0, count, updates).tolist()
        begin = time.perf_counter()
        for draw, client in enumerate(clients):
            peer = (client + 1) % count
            ints = np.array([client, draw & 1023, 0, problem.batch_size], dtype=np.int32)
            mine = models[client]
            models[client], models[peer] = update(mine, mine, models[peer], ints, std, data)
        models[clients[-1]].block_until_ready()
        return (time.perf_counter() - begin) / updates

    estimate = run(16) and run(16)
    updates = int(np.clip(0.6 / estimate, 16, 20_000))
    return lambda: run(updates)


class _Nothing:
    """An executor that computes nothing: what is left is the world and its recording."""

    def submit(self, window: Any) -> None:
        """Forget the window."""

    def fetch(self, rows: Any, coefs: Any) -> Any:
        """Nothing has values here."""
        raise RunError("the world alone has no values")


def _world(setup: Any, updates: int) -> tuple[float, int]:
    """Return (seconds, events) of the world alone, recording into a tape that nobody executes."""
    from simfl.assembly import build_algorithm, build_world
    from simfl.tape import Tape

    world = build_world(setup)
    tape = Tape(_Nothing(), max_batch=setup.problem.max_batch)
    rows: list[Any] = []
    algorithm = build_algorithm(setup, world, tape, rows.append)

    def end() -> int:
        world.clock.stop()
        return 2**62

    algorithm.on_mark, algorithm.next_mark = end, updates
    algorithm.start()
    begin = time.perf_counter()
    world.clock.run()
    return time.perf_counter() - begin, world.clock.events


def measure(name: str, device: str | None = None, updates: int | None = None) -> dict[str, Any]:
    """Measure one case in this process; see `run_bench` for the keys of the result."""
    from simfl.runner import prepare, run
    from simfl.tape.executor import choose_device

    chosen = choose_device(device)
    setup = prepare(scenario_of(name, updates), device)
    total = setup.scenario.stop.updates
    assert total is not None
    with tempfile.TemporaryDirectory() as folder:
        run(setup, out=folder, device=device)  # compiles
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
        kernel, per_call = _kernel(setup, chosen), _per_call(setup, chosen)
        best = {"run": np.inf, "kernel": np.inf, "per_call": np.inf, "event": np.inf}
        for _ in range(REPEATS):
            result = run(setup, out=folder, device=device)
            best["run"] = min(best["run"], result.manifest.wall_s / result.manifest.updates)
            best["kernel"] = min(best["kernel"], kernel())
            best["per_call"] = min(best["per_call"], per_call())
            seconds, events = _world(setup, min(total, 50_000))
            best["event"] = min(best["event"], seconds / events)
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
        command = [sys.executable, "-m", "simfl.bench", name, *([device] if device else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RunError(f"bench: {name} failed: {last}")
        results.append(json.loads(done.stdout.strip().splitlines()[-1]))
    return results


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:3])))
