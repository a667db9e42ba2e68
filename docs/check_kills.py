"""Kill runs of every algorithm at random moments, resume them, and compare them with runs that nobody killed.

    python docs/check_kills.py                # 100 kills, the better part of an hour
    python docs/check_kills.py --kills 10 --only adpsgd fedbuff

A child process works through runs and takes a checkpoint several times a second. It is ended by SIGKILL at a moment
drawn over the length of a run, behind its first checkpoint, so that kills hit the world, a checkpoint that is being
written, and worlds that are played again. The next child goes on where it was. Whatever the moments, tables and
models must be those of the run that was left alone, bit for bit. Leaves with 1 where one is not.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WORLD = """
data: {set: digits, partition: {kind: dirichlet, alpha: 5.0}}
clients:
  count: 8
  seconds_per_example: 1 ms
  speed: {kind: uniform, low: 0.5, high: 2.0}
  jitter: {kind: lognormal, sigma: 0.4}
slowdowns: [{random: 1, factor: 2}, {clients: [3], factor: 4, from: 20 ms, until: 1 s}]
links: {latency: {kind: exponential, mean: 2 ms}, bandwidth: 10 Mbit/s, loss: 0.1, resend_timeout: 5 ms}
availability:
  - {clients: [1], crash: [{at: 60 ms, back: 120 ms}]}
  - {clients: [2], offline: [[50 ms, 90 ms]]}
  - {clients: [4], join: 40 ms}
  - {clients: [5], random: {up: {kind: exponential, mean: 80 ms}, down: 10 ms}}
  - {clients: [6], crash: [{at: 150 ms, back: never}]}
evaluate: {every: {updates: 150}, clients: true}
record: {messages: true, timeline: true, client_models: true}
"""
#: Privacy sections, of which every algorithm can do with one; and what those are told that are on their own.
MECHANISMS = (
    "{mechanism: one_pass_gaussian, epsilon: 300}",
    "{mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 0.5}",
    "{mechanism: gaussian_update, clipping_norm: 1.0, noise_multiplier: 0.5}",
    "{mechanism: laplace_l2, neighbors: replace_one}",
)
ALONE = ("clients.count=1", "slowdowns=[]", "availability=[{clients: [0], crash: [{at: 60 ms, back: 120 ms}]}]")
#: Decisions by deep-Q networks take as long as hundreds of updates.
SLOW = {"deep_q_sgd": 100}


def scenario_of(kind: str, private: bool, updates: int) -> Any:
    """Return a scenario with every hindrance there is, of an algorithm; None if it is not to be had so."""
    import simfl
    from simfl.scenario import loads

    for privacy in MECHANISMS if private else ("null",):
        for further in ((), ALONE):
            changes = (
                f"algorithm={{kind: {kind}, batch_size: 8}}",
                f"privacy={privacy}",
                f"stop={{updates: {SLOW.get(kind, updates)}}}",
                *further,
            )
            try:
                scenario = loads(WORLD, f"{kind}-{'private' if private else 'plain'}", overrides=changes)
                simfl.prepare(scenario)
            except (simfl.ScenarioError, ValueError):
                continue
            return scenario
    return None


def is_over(folder: Path) -> bool:
    """Return whether a run has come to its end."""
    import simfl
    from simfl.records.results import FINISHED

    try:
        return simfl.read(folder).status in FINISHED
    except simfl.SimflError:
        return False


def work(tell: Any, root: Path, every_s: float, jobs: Sequence[str]) -> None:
    """Run `<root>/<name>.yaml`, or resume it, for each job `name/number`; tell what became of it (the child)."""
    import simfl
    from simfl.assembly.data import shared_data
    from simfl.runs.intervals import FILE

    warnings.simplefilter("ignore")
    with shared_data():
        for job in jobs:
            name, number = job.split("/")
            begun = (root / job / FILE).exists()
            tell.send({"job": job, "resumes": begun})
            if begun and is_over(root / job):  # it was killed when all but its checkpoint's removal was done
                run = simfl.read(root / job)
            elif begun:
                run = simfl.resume(root / job, checkpoint_every=every_s)
            else:
                run = simfl.run(simfl.load(root / f"{name}.yaml"), out=root, run_id=number, checkpoint_every=every_s)
            found = {"digest": run.manifest.digest, **run.manifest.extra["models"]}
            tell.send({"job": job, "found": found, "wall_s": run.manifest.wall_s})


class Child:
    """A process that works through jobs; iterating gives what it says. It begins with everything imported."""

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["simfl.runs.runner", "simfl.algorithms", "simfl.data", "sklearn.datasets"])

    def __init__(self, root: Path, every_s: float, jobs: Sequence[str]) -> None:
        self.heard, tell = self.context.Pipe(duplex=False)
        self.process = self.context.Process(target=work, args=(tell, root, every_s, jobs))
        self.process.start()
        tell.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(EOFError):
            while True:
                yield self.heard.recv()

    def kill(self) -> list[dict[str, Any]]:
        """End it by SIGKILL; return what it had said until then."""
        self.process.kill()
        left = list(self)
        self.process.join()
        return left


def soak(kills: int, names: Sequence[str], root: Path, every_s: float, seed: int) -> int:
    """Kill so many times; return how many of the runs that were killed are not what they should be."""
    from simfl.runs.intervals import FILE

    draws = random.Random(seed)
    alone = {
        line["job"].split("/")[0]: line for line in Child(root, 1e6, [f"{name}/0" for name in names]) if "found" in line
    }
    if len(alone) < len(names):
        raise SystemExit(f"runs that nobody kills fail: {set(names) - set(alone)}")
    done = wrong = resumed = number = 0
    killed = 0  # how often the job that is under way was
    while done < kills or killed:
        child = Child(root, every_s, [f"{names[k % len(names)]}/{1 + k}" for k in range(number, number + len(names))])
        for line in child:
            name, said = line["job"].split("/")[0], [line]
            if "resumes" in line:
                resumed += line["resumes"]
                if done >= kills or (killed and draws.random() < 0.7):
                    continue
                while not ((root / line["job"] / FILE).exists() or child.heard.poll(0.005)):
                    pass  # nothing is left of a run that is killed before its first checkpoint
                time.sleep(draws.uniform(0.0, 0.5 * alone[name]["wall_s"]))
                said = child.kill()
            found = next((each["found"] for each in said if each["job"] == line["job"] and "found" in each), None)
            if found is None:
                killed += 1
                done += 1
                break
            number += 1
            wrong += found != alone[name]["found"]
            verdict = "equal" if found == alone[name]["found"] else "DIFFERENT"
            print(f"{line['job']}: killed {killed} times, {verdict} ({done} kills)", flush=True)
            killed = 0
            if "resumes" in line or done >= kills:  # it was killed just after it
                break
        child.kill()
        if child.process.exitcode not in (0, -signal.SIGKILL):
            raise SystemExit("a run that was resumed fails")
    print(f"{done} kills, {resumed} resumed from a checkpoint, {number} runs, {wrong} different")
    return wrong


def main() -> int:
    """Take the arguments, write the scenarios, and kill."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--only", nargs="*", help="names of algorithms (default: all)")
    parser.add_argument("--updates", type=int, default=1_500, help="of a run (default: 1,500)")
    parser.add_argument("--every", type=float, default=0.1, help="host seconds between checkpoints (default: 0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    asked = parser.parse_args()
    from simfl.algorithms import ALGORITHMS

    with tempfile.TemporaryDirectory(prefix="simfl-kills-") as folder:
        names = []
        for kind in asked.only or sorted(ALGORITHMS):
            for private in (True, False):
                if (scenario := scenario_of(kind, private, asked.updates)) is not None:
                    (Path(folder) / f"{scenario.name}.yaml").write_text(scenario.to_yaml())
                    names.append(scenario.name)
        return int(soak(asked.kills, names, Path(folder), asked.every, asked.seed) > 0)


if __name__ == "__main__":
    sys.exit(main())
