"""Verification of determinism: one scenario run in several equivalent ways.

`python -m simfl.bench.verification SCENARIO OUT DEVICE` runs a scenario and prints its digests, in a process of its
own with other hashes of strings, on which results must not depend.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from simfl.errors import RunError
from simfl.records import Run, RunFolder
from simfl.records.folder import combine_digests
from simfl.runs.runner import Simulation, prepare, resume
from simfl.scenario import Scenario, from_mapping, load
from simfl.tape.executor import choose_device

#: Host seconds between checkpoints, for a run that takes one only when it is interrupted.
NEVER_S = 1e9


@dataclass(frozen=True)
class Way:
    """A way of running the scenario, with digests of its tables and models."""

    name: str
    status: str
    updates: int
    digests: dict[str, str]

    @property
    def digest(self) -> str:
        """One digest of everything."""
        return combine_digests(self.digests)

    def differing(self, other: Way) -> list[str]:
        """Return the names of digests that differ."""
        names = sorted({*self.digests, *other.digests})
        return [name for name in names if self.digests.get(name) != other.digests.get(name)]


def shortened(scenario: Scenario, updates: int) -> Scenario:
    """Return the scenario with at most `updates` updates."""
    values = scenario.resolved()
    values["stop"]["updates"] = min(updates, values["stop"]["updates"] or updates)
    return from_mapping(values)


def verify(
    scenario: Scenario, folder: Path, device: str | None = None, tell: Callable[[str], None] = lambda name: None
) -> Iterator[Way]:
    """Run a scenario in several ways and yield the digests, which must be equal.

    `tell` is called with the name of each way before it runs. Raises a `RunError` if a run fails.
    """
    tell(name := "as it is")
    first, events = _run(scenario, folder / "first", device)
    yield _way(name, first)
    window = max(1, min(first.manifest.window or 1, first.manifest.updates) // 10)
    tell(name := f"window {window} for {first.manifest.window}")
    values = scenario.resolved()
    values["execution"]["window"] = window
    yield _way(name, _run(from_mapping(values), folder / "window", device)[0])
    tell(name := "interrupted half-way, resumed")
    interrupted, _ = _run(scenario, folder / "resumed", device, max(1, events // 2))
    yield _way(name, resume(interrupted.folder, checkpoint_every=NEVER_S))
    tell(name := "in another process")
    yield _elsewhere(name, scenario, folder / "elsewhere", device)


def _run(scenario: Scenario, folder: Path, device: str | None, ends_after: int | None = None) -> tuple[Run, int]:
    simulation = Simulation(prepare(scenario, device), choose_device(device), every_s=NEVER_S)
    try:
        run = simulation.run(RunFolder.create(folder, scenario.name, "001"), ends_after)
        return run, simulation.world.clock.events
    finally:
        simulation.release()


def _way(name: str, run: Run) -> Way:
    manifest = run.manifest
    return Way(name, manifest.status, manifest.updates, {**manifest.tables, **manifest.extra.get("models", {})})


def _elsewhere(name: str, scenario: Scenario, folder: Path, device: str | None) -> Way:
    folder.mkdir(parents=True)
    written = folder / "scenario.yaml"
    written.write_text(scenario.to_yaml(), encoding="utf-8")
    command = [sys.executable, "-m", "simfl.bench.verification", str(written), str(folder), device or ""]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # users' own modules, too
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"{scenario.name}: {name}: {last}")
    return Way(name, **json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    path, out, device_name = sys.argv[1:]
    way = _way("", _run(load(path), Path(out), device_name or None)[0])
    print(json.dumps({"status": way.status, "updates": way.updates, "digests": way.digests}))
