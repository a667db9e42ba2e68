"""What a sweep gains by playing runs of one world together.

`python -m simfl.bench.sweeps CASE DEVICE QUICK` measures one case. In one process, after all programs are compiled, one
setting runs alone, and all settings run together; both in CPU seconds, in turn. The ratio of a turn is the time of the
group over that of as many runs alone, of the updates after the first tenth. Start-up and compilation are in neither.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from simfl.bench.cases import CASES, scenario_of
from simfl.errors import RunError

REPEATS = 3


@dataclass(frozen=True)
class SweepCase:
    """Settings of a case: the values at key paths, of which all combinations are run."""

    case: str
    workers: int
    updates: int
    grid: Mapping[str, Sequence[float]]


SWEEPS: dict[str, SweepCase] = {
    "sweep": SweepCase("digits-softmax-adpsgd", 64, 200_000, {"algorithm.step_size": [0.01 * 2**k for k in range(8)]}),
    "sweep-private": SweepCase(
        "mnist-softmax-adpsgd-private",
        256,
        CASES["mnist-softmax-adpsgd-private"].updates,
        {"privacy.noise_multiplier": [0.5, 1.0, 2.0, 4.0], "algorithm.step_size": [0.01, 0.02, 0.05, 0.1]},
    ),
}


def scenarios_of(name: str, part: int = 1) -> list[Any]:
    """Return the scenarios of a case, one for each setting.

    Each has the updates of the case over `part`.
    """
    sweep = SWEEPS[name]
    base = scenario_of(sweep.case, sweep.updates // part, sweep.workers)
    return [base.replace(dict(zip(sweep.grid, values, strict=True))) for values in product(*sweep.grid.values())]


def measure(name: str, device: str | None = None, quick: bool = False) -> dict[str, Any]:
    """Measure one case in this process.

    Returns:
        An object with the keys case, workers, device, settings, alone_s (CPU seconds of nine tenths of a run alone),
        together_s (of all), ratio (the median of together_s / (settings * alone_s) over turns) and ratios.
    """
    from simfl.assembly.assemble import assemble
    from simfl.assembly.data import shared_data
    from simfl.records import RunFolder
    from simfl.runs.runner import run
    from simfl.studies.together import Group, groups_of
    from simfl.tape.executor import choose_device

    chosen = choose_device(device)
    with shared_data(), tempfile.TemporaryDirectory() as folder:
        parts = (40, 4) if quick else (10, 1)
        beginning, setups = ([assemble(scenario) for scenario in scenarios_of(name, part)] for part in parts)
        (numbers,) = groups_of(setups, [None] * len(setups))
        assert len(numbers) == len(setups)

        def alone(setups: Sequence[Any]) -> None:
            run(setups[0], out=folder, device=device, progress=False, checkpoint_every=None)

        def together(setups: Sequence[Any]) -> None:
            group = Group([*setups], chosen)
            try:
                results = group.run([RunFolder.create(Path(folder), name, None) for _ in setups])
            finally:
                group.session.executor.close()
            if any(result is None or isinstance(result, Exception) for result in results):
                raise RunError(f"{name}: {group.refusal or 'a run failed'}")

        alone(beginning)  # compiles
        together(beginning)
        ratios, times = [], []
        for _ in range(1 if quick else REPEATS):
            alone_s, together_s = (_cpu_s(work, setups, beginning) for work in (alone, together))
            times.append((alone_s, together_s))
            ratios.append(together_s / (len(setups) * alone_s))
    return {
        "case": name,
        "workers": SWEEPS[name].workers,
        "device": chosen.platform,
        "settings": len(setups),
        "alone_s": round(min(alone_s for alone_s, _ in times), 3),
        "together_s": round(min(together_s for _, together_s in times), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def _cpu_s(work: Callable[[Sequence[Any]], None], whole: Sequence[Any], beginning: Sequence[Any]) -> float:
    """Return the CPU seconds of whole runs, without those of their beginning."""
    times = []
    for setups in (beginning, whole):
        begin = time.process_time()
        work(setups)
        times.append(time.process_time() - begin)
    return times[1] - times[0]


if __name__ == "__main__":
    case, platform, quickly = sys.argv[1:]
    print(json.dumps(measure(case, platform or None, bool(quickly))))
