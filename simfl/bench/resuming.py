"""The cost of checkpoints, and of resuming.

`python -m simfl.bench.resuming CASE [UPDATES]` measures one case of `simfl bench`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from simfl.bench.cases import scenario_of

#: Position of the checkpoint in the run, as a share of its events.
POSITION = 0.95
#: Seconds between regular checkpoints: none is taken during a run.
NEVER_S = 1e9


def measure(name: str, updates: int | None = None, repeats: int = 3) -> dict[str, Any]:
    """Measure one case in this process; the best of the repetitions counts.

    Returns:
        An object with the keys case, parameters, first_s and next_s (host seconds for a checkpoint: the first one also
        computes a digest of all data), bytes (of its file), run_s (until the checkpoint), load_s (for the values of
        models), replay_s (for the world's replay) and replay_share (of run_s).
    """
    from simfl.records import RunFolder
    from simfl.runs import checkpoint, intervals
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
            first = run(folder, int(POSITION * events)).checkpoints.taking_s
            since = checkpoint.read(folder.path / intervals.FILE)
            size = (folder.path / intervals.FILE).stat().st_size
            again = run(folder, 1, since).checkpoints  # takes another checkpoint, one event later
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
