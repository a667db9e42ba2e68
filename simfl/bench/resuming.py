"""The cost of checkpoints, and of resuming.

Run as a module, `python -m simfl.bench.resuming CASE [UPDATES]`, it measures one case of `simfl bench`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from simfl.bench.cases import scenario_of

#: Where in the run the checkpoint is taken, as a share of its events.
POSITION = 0.95
NEVER_S = 1e9


def measure(name: str, updates: int | None = None, repeats: int = 3) -> dict[str, Any]:
    """Measure one case in this process.

    Args:
        name: of the case.
        updates: of its run; those of the case by default.
        repeats: number of repetitions, of which the best counts.

    Returns:
        An object with the keys case, parameters, first_s and next_s (host seconds for a checkpoint: the first one reads
        all data to know them again), bytes (of its file), run_s (up to it), load_s (to give models their values),
        replay_s (to play the world again) and replay_share (of run_s).
    """
    from simfl.records import RunFolder
    from simfl.runs import checkpoint
    from simfl.runs.runner import Simulation, prepare
    from simfl.tape.executor import choose_device

    device = choose_device(None)
    setup = prepare(scenario_of(name, updates))

    def run(folder: RunFolder, ends_after: int | None, since: Any = None) -> Simulation:
        simulation = Simulation(setup, device, every_s=NEVER_S, since=since)
        simulation.run(folder, ends_after)
        simulation.executor.close()
        return simulation

    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as out:
        events = run(RunFolder.create(Path(out), name), None).world.clock.events  # compiles
        for _ in range(repeats):
            folder = RunFolder.create(Path(out), name)
            first = run(folder, int(POSITION * events)).keeper.taking_s
            since = checkpoint.read(folder.path / checkpoint.FILE)
            size = (folder.path / checkpoint.FILE).stat().st_size
            again = run(folder, 1, since).keeper  # which takes another, of one event later
            times = {
                "first_s": first,
                "next_s": again.taking_s,
                "run_s": since.wall_s,
                "load_s": again.loading_s,
                "replay_s": again.replaying_s,
            }
            best = {key: min(value, best.get(key, value)) for key, value in times.items()}
    return {
        "case": name,
        "parameters": setup.model.size,
        **{key: round(value, 3) for key, value in best.items()},
        "bytes": size,
        "replay_share": round(best["replay_s"] / best["run_s"], 3),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *map(int, sys.argv[2:]))))
