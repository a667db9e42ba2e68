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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simfl.bench.cases import CASES, scenario_of
from simfl.bench.limits import Nothing, kernel_limit, run_world, steps_per_update
from simfl.errors import RunError, ScenarioError, nearest

REPEATS = 3


def measure(name: str, device: str | None = None, updates: int | None = None) -> dict[str, Any]:
    """Measure one case in this process; see `run_bench` for the keys of the result."""
    from simfl.simulation.runner import prepare, run
    from simfl.tape import Tape
    from simfl.tape.executor import choose_device, tuned_interpreter

    chosen = choose_device(device)
    setup = prepare(scenario_of(name, updates), device)
    total = setup.scenario.stop.updates
    assert total is not None
    steps = steps_per_update(setup)
    command = [sys.executable, "-m", "simfl.bench.limits", name, *([device] if device else [])]
    untuned = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=untuned) as child,
    ):
        assert child.stdin is not None
        assert child.stdout is not None
        run(setup, out=folder, device=device)  # compiles
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts kilobytes
        kernel = kernel_limit(setup, chosen)
        best = {"run": np.inf, "kernel": np.inf, "per_call": np.inf, "event": np.inf}
        for _ in range(REPEATS):
            result = run(setup, out=folder, device=device)
            best["run"] = min(best["run"], result.manifest.wall_s / (result.manifest.updates * steps))
            best["kernel"] = min(best["kernel"], kernel())
            child.stdin.write("again\n")
            child.stdin.flush()
            best["per_call"] = min(best["per_call"], float(child.stdout.readline()))
            with tuned_interpreter():
                tape = Tape(Nothing(), **setup.problem.recorded)
                seconds, events, _ = run_world(setup, tape, min(total, 50_000))
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


if __name__ == "__main__":
    case, *rest = sys.argv[1:]
    print(json.dumps(measure(case, rest[0] if rest else None)))
