"""`simfl bench`: how fast the simulator is, as ratios measured in one run.

For every case, in a separate process:

- the kernel limit: the same gradient (clipped and noised as in the case), vmapped in a bare scan at its best width,
  without a simulation;
- the machine: the triad of STREAM and a large product, beside which the kernel limit stands;
- one call per event: the same world, with a jitted call for every exchange and every step, in a separate process with
  JAX's default configuration: an event loop around JAX without a tape;
- the world alone: all events, computing nothing, beside timeouts of bare SimPy; both in CPU seconds, of one thread;
- the run itself: world, tape, execution and tables. Its rate is that of the updates after the first tenth: a run of a
  tenth is taken from a whole one, and what both of them take to start, to evaluate and to end is a number of its own.

An update is one mini-batch, also if clients train locally: a round of H steps counts as H updates, in the kernel limit
(H gradients), in one call per event (H calls for a client's steps) and in the run.

Each is measured several times, in turn. The best of each counts, so that another program on the machine disturbs the
ratios little. A quick measurement takes half of the updates, twice, and leaves out one call per event.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from simfl.bench.cases import CASES, scenario_of
from simfl.bench.limits import Nothing, bare_simpy, kernel_limit, machine_limits, run_world, steps_per_update
from simfl.compiled import is_compiled
from simfl.errors import RunError

REPEATS, QUICK_REPEATS = 3, 2


def _peak_bytes() -> float:
    """Return the peak of this process's memory; NaN where it is unknown (Windows)."""
    try:
        import resource
    except ModuleNotFoundError:
        return math.nan
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(name: str, device: str | None = None, updates: int | None = None, quick: bool = False) -> dict[str, Any]:
    """Measure one case in this process; see `run_bench` for the keys of the result."""
    from simfl.runs.runner import prepare, run
    from simfl.tape import Tape
    from simfl.tape.executor import choose_device
    from simfl.tape.tuning import tuned_interpreter

    chosen = choose_device(device)
    total = updates or CASES[name].updates // (2 if quick else 1)
    setup, beginning = (prepare(scenario_of(name, count), device) for count in (total, total // 10))
    steps = steps_per_update(setup)
    samples: dict[str, list[float]] = {"begun": [], "whole": [], "kernel": [], "per_call": [], "event": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        per_call = None if quick else stack.enter_context(_per_call(name, device))
        run(beginning if quick else setup, out=folder, device=device)  # compiles
        rss = _peak_bytes()
        kernel = kernel_limit(setup, chosen, quick)
        triad, gemm, flops = machine_limits(setup, chosen)
        for _ in range(QUICK_REPEATS if quick else REPEATS):
            begun, whole = (run(one, out=folder, device=device).manifest for one in (beginning, setup))
            samples["begun"].append(begun.wall_s)
            samples["whole"].append(whole.wall_s)
            samples["kernel"].append(kernel())
            if per_call is not None:
                samples["per_call"].append(per_call())
            with tuned_interpreter(clients=setup.scenario.clients.count):
                tape = Tape(Nothing(), **setup.problem.recorded)
                seconds, events, _ = run_world(setup, tape, min(total, 50_000), time.process_time)
                samples["event"].append(seconds / events)
                samples["bare"].append(bare_simpy())
    best = {key: min(values) for key, values in samples.items() if values}
    median = {key: statistics.median(samples[key]) for key in ("begun", "whole")}
    # Each of the two is a minimum of its own: the least difference would be that of a disturbed beginning.
    update_s, usual_s = ((each["whole"] - each["begun"]) / (steps * (total - total // 10)) for each in (best, median))
    return {
        "case": name,
        "workers": setup.scenario.clients.count,
        "device": chosen.platform,
        "compiled": is_compiled(),
        "updates_per_s": round(1.0 / update_s, 1),
        "median_updates_per_s": round(1.0 / usual_s, 1),
        "start_s": round(max(0.0, best["begun"] - update_s * steps * (total // 10)), 3),
        "kernel_limit_ratio": round(best["kernel"] / update_s, 4),
        "kernel_gemm_ratio": round(flops / best["kernel"] / gemm, 4),
        "triad_bytes_per_s": round(triad),
        "gemm_flops_per_s": round(gemm),
        "per_call_ratio": round(best["per_call"] / update_s, 3) if "per_call" in best else None,
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
        requests, answers = child.stdin, child.stdout
        assert requests is not None
        assert answers is not None

        def seconds() -> float:
            print("again", file=requests, flush=True)
            return float(answers.readline())

        yield seconds
        requests.close()


def run_bench(
    cases: Sequence[str], device: str | None, echo: Callable[[str], None], quick: bool
) -> list[dict[str, Any]]:
    """Measure cases, each in a new process; `echo` receives the name of each.

    Returns:
        For each case an object with the keys case, workers, device, compiled (whether the world is), updates_per_s and
        median_updates_per_s (after the first tenth), start_s (of what comes once), kernel_limit_ratio (over the bare
        kernel: 1 would be a simulation that costs nothing), kernel_gemm_ratio (the kernel's FLOP/s over those of a
        large product, gemm_flops_per_s; triad_bytes_per_s is the memory's rate), per_call_ratio (over one call per
        event), world_events_per_s (events of the world alone, per CPU second), bare_simpy_ratio (those over timeouts of
        bare SimPy) and peak_rss_bytes.
    """
    return [_in_process("measuring", name, echo, device or "", "quick" if quick else "") for name in cases]


def run_sweep(case: str, device: str | None, echo: Callable[[str], None], quick: bool) -> dict[str, Any]:
    """Measure a sweep in a new process; see `simfl.bench.sweeps.measure`."""
    measured: dict[str, Any] = _in_process("sweeps", case, echo, device or "", "quick" if quick else "")
    return measured


def run_widths(
    cases: Sequence[str], device: str | None, echo: Callable[[str], None] = lambda line: None
) -> list[dict[str, Any]]:
    """Measure cases at several widths, each in a new process; see `measure_widths`."""
    return [rates for name in cases for rates in _in_process("widths", name, echo, device or "")]


def _in_process(module: str, name: str, echo: Callable[[str], None], *arguments: str) -> Any:
    """Return the output of a module of this package for a case, in a new process."""
    echo(name)
    command = [sys.executable, "-m", f"simfl.bench.{module}", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"bench: {name} failed: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    case, platform, quickly = sys.argv[1:]
    print(json.dumps(measure(case, platform or None, quick=bool(quickly))))
