"""`simfl bench`: how fast the simulator is, as ratios taken in one run.

For every case, in a process of its own:

- the kernel limit: the same gradient (clipped and noised as in the case), vmapped in a bare scan at
  its best width, with no simulation around it;
- one call per event: the same world, with a jitted call for every exchange and every step, in a
  process of its own with JAX as it comes: the way an event loop around JAX is written without a tape;
- the world alone: all events, with nothing computed, beside timeouts of bare SimPy; both in CPU seconds, of one thread;
- the run itself, end to end: world, tape, execution and tables.

An update is one mini-batch, also where clients train locally: a round of H steps counts as H updates, in the kernel
limit (H gradients), in one call per event (H calls for a client's steps) and in the run.

Each is measured several times, alternating; the best of each counts, so that another program on
the machine disturbs the ratios little. A quick measurement takes a tenth of the updates, once, and leaves out one call
per event.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simfl.bench.cases import CASES, scenario_of
from simfl.bench.limits import Nothing, bare_simpy, kernel_limit, run_world, steps_per_update
from simfl.compiled import is_compiled
from simfl.errors import RunError, ScenarioError, nearest

REPEATS = 3


def measure(name: str, device: str | None = None, updates: int | None = None, quick: bool = False) -> dict[str, Any]:
    """Measure one case in this process; see `run_bench` for the keys of the result."""
    from simfl.runs.runner import prepare, run
    from simfl.tape import Tape
    from simfl.tape.executor import choose_device
    from simfl.tape.tuning import tuned_interpreter

    chosen = choose_device(device)
    setup = prepare(scenario_of(name, CASES[name].updates // 10 if quick and updates is None else updates), device)
    total = setup.scenario.stop.updates
    assert total is not None
    steps = steps_per_update(setup)
    samples: dict[str, list[float]] = {"run": [], "kernel": [], "per_call": [], "event": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        per_call = None if quick else stack.enter_context(_per_call(name, device))
        run(setup, out=folder, device=device)  # compiles
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
        kernel = kernel_limit(setup, chosen, quick)
        for _ in range(1 if quick else REPEATS):
            result = run(setup, out=folder, device=device)
            samples["run"].append(result.manifest.wall_s / (result.manifest.updates * steps))
            samples["kernel"].append(kernel())
            if per_call is not None:
                samples["per_call"].append(per_call())
            with tuned_interpreter():
                tape = Tape(Nothing(), **setup.problem.recorded)
                seconds, events, _ = run_world(setup, tape, min(total, 50_000), time.process_time)
                samples["event"].append(seconds / events)
                samples["bare"].append(bare_simpy())
    best = {key: min(values) for key, values in samples.items() if values}
    return {
        "case": name,
        "workers": setup.scenario.clients.count,
        "device": chosen.platform,
        "compiled": is_compiled(),
        "updates_per_s": round(1.0 / best["run"], 1),
        "median_updates_per_s": round(1.0 / statistics.median(samples["run"]), 1),
        "kernel_limit_ratio": round(best["kernel"] / best["run"], 4),
        "per_call_ratio": round(best["per_call"] / best["run"], 3) if "per_call" in best else None,
        "world_events_per_s": round(1.0 / best["event"], 1),
        "bare_simpy_ratio": round(best["bare"] / best["event"], 4),
        "peak_rss_bytes": rss,
    }


@contextlib.contextmanager
def _per_call(name: str, device: str | None) -> Iterator[Callable[[], float]]:
    """Yield a function that measures one call per event, in another process."""
    command = [sys.executable, "-m", "simfl.bench.limits", name, *([device] if device else [])]
    untuned = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=untuned) as child:
        asked, answered = child.stdin, child.stdout
        assert asked is not None
        assert answered is not None

        def seconds() -> float:
            asked.write("again\n")
            asked.flush()
            return float(answered.readline())

        yield seconds
        asked.close()


def run_bench(
    cases: Sequence[str] | None = None,
    device: str | None = None,
    echo: Callable[[str], None] = lambda line: None,
    quick: bool = False,
) -> list[dict[str, Any]]:
    """Measure cases, each in a fresh process, and return one object per case.

    Args:
        cases: names from `CASES`; all of them by default.
        device: "cpu" or "gpu".
        echo: told which case is being measured.
        quick: measure a tenth, once, without one call per event.

    Returns:
        Objects with the keys case, workers, device, compiled (whether the world is), updates_per_s and
        median_updates_per_s, kernel_limit_ratio (end to end over the bare kernel: 1 would be a simulation that costs
        nothing), per_call_ratio (over one call per event), world_events_per_s (events of the world alone, per CPU
        second), bare_simpy_ratio (those over timeouts of bare SimPy) and peak_rss_bytes.
    """
    names = list(cases) if cases else list(CASES)
    for name in names:
        if name not in CASES:
            raise ScenarioError(f"bench: found {name!r}, expected one of {', '.join(CASES)}{nearest(name, CASES)}")
    results = []
    for name in names:
        echo(name)
        results.append(_in_process("measuring", name, device or "", "quick" if quick else ""))
    return results


def run_widths(
    cases: Sequence[str], device: str | None = None, echo: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Measure cases at several widths, each in a new process."""
    results: list[dict[str, Any]] = []
    for name in cases:
        echo(name)
        results += _in_process("widths", name, device or "")
    return results


def _in_process(module: str, name: str, *arguments: str) -> Any:
    """Return the output of a module of this package for a case, in a new process."""
    command = [sys.executable, "-m", f"simfl.bench.{module}", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"bench: {name} failed: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    case, platform, quickly = sys.argv[1:]
    print(json.dumps(measure(case, platform or None, quick=bool(quickly))))
