"""`simfl bench --widths`: updates per second by the number of lanes.

From these measurements comes `simfl.tape.executor.automatic_width`, the width of `execution.width: auto`. A run never
measures widths, so that a scenario gives the same tables on every machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from simfl.bench.cases import CASES, scenario_of

#: Operations per step on a CPU, and on a GPU.
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
WIDE = (8, 32, 64, 128, 256, 512)
#: Numbers of workers besides the case's own.
WORKERS = (4, 16)
#: Measurements of each width, taken in turn; the best counts.
REPEATS = 3
#: Approximate duration of a measurement.
SECONDS = 0.5


def measure_widths(
    name: str, device: str | None = None, widths: Sequence[int] | None = None, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """Measure a case at several widths and numbers of workers, in this process.

    Returns:
        For each number of workers an object with the keys case, workers, device, automatic (the width of
        `execution.width: auto`) and updates_per_s, an object by width.
    """
    from simfl.assembly.setup import Setup
    from simfl.runs.runner import prepare, run
    from simfl.tape.executor import choose_device

    platform = choose_device(device).platform
    widths = tuple(widths or (WIDTHS if platform == "cpu" else WIDE))
    rates = []
    with tempfile.TemporaryDirectory() as folder:

        def rate(setup: Setup) -> tuple[float, int]:
            manifest = run(setup, out=folder, device=device).manifest
            return manifest.updates / manifest.wall_s, manifest.width or 1

        for workers in sorted({*WORKERS, CASES[name].workers}):
            few = max(2 * workers, 50)
            automatic_run = prepare(scenario_of(name, few, workers), device)
            rate(automatic_run)  # compiles
            once, automatic = rate(automatic_run)
            updates = max(few, int(seconds * once))
            setups = {width: prepare(scenario_of(name, updates, workers, width), device) for width in widths}
            best = dict.fromkeys(widths, 0.0)
            for turn in range(1 + REPEATS):  # the first compiles
                for width, setup in setups.items():
                    measured, _ = rate(setup)
                    best[width] = max(best[width], measured) if turn else 0.0
            rates.append(
                {
                    "case": name,
                    "workers": workers,
                    "device": platform,
                    "automatic": automatic,
                    "updates_per_s": {str(width): round(value, 1) for width, value in best.items()},
                }
            )
    return rates


if __name__ == "__main__":
    print(json.dumps(measure_widths(sys.argv[1], sys.argv[2] or None)))
