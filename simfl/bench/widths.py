"""`simfl bench --widths`: updates per second by the number of lanes.

What `execution.width: auto` takes is written down in `simfl.tape.executor.automatic_width`, from these measurements:
never measured in a run, so that a scenario gives the same tables wherever it runs.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from simfl.bench.cases import CASES, scenario_of

#: The widths that are tried.
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
#: On a GPU, in the place of these.
WIDE = (8, 32, 64, 128, 256, 512)
#: Numbers of workers that are tried beside the case's own.
WORKERS = (4, 16)
#: How often each width is measured, in turns: the best counts.
REPEATS = 3
#: How long a measurement takes, in seconds.
SECONDS = 0.5


def measure_widths(
    name: str, device: str | None = None, widths: Sequence[int] | None = None, seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """Measure a case at several widths and numbers of workers, in this process.

    Args:
        name: of the case.
        device: "cpu" or "gpu".
        widths: operations per step; by default those that make sense on the device.
        seconds: how long a measurement takes, about.

    Returns:
        For each number of workers an object with the keys case, workers, device, automatic (the width that
        `execution.width: auto` has) and updates_per_s, an object by width.
    """
    from simfl.build.setup import Setup
    from simfl.runs.runner import prepare, run
    from simfl.tape.executor import choose_device

    platform = choose_device(device).platform
    widths = tuple(widths or (WIDTHS if platform == "cpu" else WIDE))
    rates = []
    with tempfile.TemporaryDirectory() as folder:

        def rate(setup: Setup) -> tuple[float, int]:
            done = run(setup, out=folder, device=device).manifest
            return done.updates / done.wall_s, done.width or 1

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
    case, chosen = sys.argv[1:]
    print(json.dumps(measure_widths(case, chosen or None)))
