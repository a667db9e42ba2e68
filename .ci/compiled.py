"""Build the compiled wheel from a copy of the sources, compare what it computes, and run tests with it.

    python .ci/compiled.py [FOLDER]

compares runs with those of the sources, and runs the quick tests of `SUITE` with the compiled package. It leaves the
wheel in FOLDER (dist/ by default) and what is in it in build/compiled/, outside of the sources: nothing that is
compiled ever lies beside a file that is edited.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("simfl", "scenarios", "setup.py", "pyproject.toml", "README.md", "LICENSE")
PLACE = ROOT / "build" / "compiled"
#: Programs that XLA has compiled for the tests of the sources: those of the compiled package are the same.
PROGRAMS = ROOT / ".pytest_cache" / "d" / "compiled"
#: Of child processes. XLA's programs are the same for both packages and run for milliseconds: they are not optimized.
ENVIRONMENT = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

#: The compiled algorithms, and between them what the compiled modules do: messages that get lost and queue, slow and
#: random clients, crashes, rounds, optimizers, noise, bounds on staleness, and numbers of NumPy. A user's algorithm in
#: plain Python is derived from a compiled one. The runs of a sweep are played together.
COMMON: dict[str, Any] = {
    "data": {"set": "digits"},
    "model": {"kind": "softmax"},
    "clients": {"count": 8, "jitter": {"kind": "lognormal", "sigma": 0.3}, "seconds_per_example": "1 ms"},
    "stop": {"updates": 300},
    "evaluate": {"every": {"updates": 100}},
    "record": {"messages": True},
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "adpsgd": {
        "algorithm": {"kind": "adpsgd", "batch_size": 8, "step_size": 0.1},
        "links": {"latency": "3 ms", "bandwidth": "1 Mbit/s", "loss": 0.1, "fifo": True},
        "slowdowns": [{"random": 1, "factor": 4}],
        "availability": [{"clients": [2], "crash": [{"at": "1 s", "back": "2 s"}]}],
    },
    "gossip": {
        "algorithm": {"kind": "gossip_learning", "batch_size": 8, "step_size": 0.1, "sampling": "poisson"},
        "links": {"latency": {"kind": "exponential", "mean": "5 ms"}, "uplink": "2 Mbit/s", "downlink": "1 Mbit/s"},
        "privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0},
    },
    "fedbuff": {
        "algorithm": {"kind": "fedbuff", "batch_size": 8, "step_size": 0.1, "local_steps": 3, "buffer_size": 3},
        "links": {"latency": "2 ms", "rules": [{"clients": [1, 2], "latency": "9 ms"}]},
    },
    "atomic": {
        "algorithm": {
            "kind": "adpsgd", "exchange": "atomic", "batch_size": 8, "step_size": 0.1,
            "optimizer": {"kind": "momentum", "momentum": 0.5},
        },
        "privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0},
    },
    "waiting": {
        "algorithm": {
            "kind": "adpsgd", "batch_size": 8, "step_size": 0.1, "staleness_bound": {"bound": 6, "policy": "wait"},
        },
        "links": {"latency": "3 ms"},
    },
    "fedasync": {
        "algorithm": {"kind": "fedasync", "batch_size": 8, "step_size": 0.1, "local_steps": 2, "concurrency": 5},
        "links": {"latency": "2 ms"},
    },
    "fedavg": {
        "algorithm": {"kind": "fedavg", "batch_size": 8, "step_size": 0.1, "local_steps": 2, "fraction": 0.5},
        "links": {"latency": "2 ms", "bandwidth": "1 Mbit/s"},
        "availability": [{"clients": [2], "crash": [{"at": "1 s", "back": "2 s"}]}],
    },
    "scaffold": {"algorithm": {"kind": "scaffold", "batch_size": 8, "step_size": 0.1, "local_steps": 2}},
    "sync": {"algorithm": {"kind": "sync_sgd", "batch_size": 8, "step_size": 0.1}, "links": {"latency": "1 ms"}},
    "decentralized": {
        "algorithm": {"kind": "decentralized_sgd", "batch_size": 8, "step_size": 0.1},
        "links": {"latency": "3 ms"},
        "topology": {"kind": "ring"},
    },
    "own": {
        "algorithm": {"kind": "own_code:Own", "batch_size": 8, "step_size": 0.1, "options": {"exchange": "atomic"}},
    },
}  # fmt: skip

OWN = """
from simfl.algorithms.adpsgd import ADPSGD

class Own(ADPSGD):
    kind = "own"
    combines_per_gradient = 0.75

    def step_size(self):
        return 0.5 * super().step_size()

    def exchange_and_apply(self, me, gradient, weight, staleness):
        if staleness % 2:
            super().exchange_and_apply(me, gradient, weight, staleness)
        else:
            self.apply(me, gradient, None, weight, staleness)
"""

#: Quick tests that use each compiled class: the contract of all algorithms; runs in an independent simulator's worlds;
#: groups of runs, checkpoints; exchanges in pairs, also compressed and with robust rules; the tape; devices and links;
#: copies of frozen dataclasses.
SUITE = (
    "tests/algorithms/test_contract.py", "tests/algorithms/test_adpsgd.py", "tests/algorithms/test_aggregation.py",
    "tests/compression/test_pairs.py", "tests/oracle", "tests/runs/test_checkpoint.py",
    "tests/studies/test_together.py", "tests/tape/test_recording.py", "tests/world/test_compute.py",
    "tests/world/test_links.py", "tests/world/test_queueing.py",
    "tests/test_compiled.py::test_frozen_dataclasses_are_copied_pickled_and_replaced",
)  # fmt: skip
#: Tests that replace a method of a compiled object or class, which is not possible.
PATCHING = (
    "test_batch_sizes_and_devices_do_not_depend_on_the_algorithm",
    "test_a_rows_staleness_is_the_number_of_updates_since_its_read",
    "test_a_pair_with_an_attacker_is_its_numpy_loop",
    "test_fedasync_with_a_norm_clip_around_the_server_is_its_numpy_loop",
    "test_fedbuff_with_median_is_its_numpy_loop",
    "test_runs_that_do_not_agree_are_given_up_and_run_alone",
)

PLAY = """
import gc, json, pathlib, sys, simfl
gc.disable()
found = {}
sections_of = sys.stdin.read()
for name, sections in json.loads(sections_of).items():
    run = simfl.run({"name": name, **sections}, out=sys.argv[1], checkpoint_every="never")
    found[name] = run.manifest.compiled, run.manifest.digest
    del run
    found[name] += (gc.collect(),)
for name in ("atomic", "fedbuff"):
    base = {"name": name, **json.loads(sections_of)[name]}
    study = {"base": base, "grid": {"algorithm.step_size": [0.1, 0.05]}, "seeds": {"world": 1, "learning": 2}}
    simfl.sweep({"name": f"{name}-swept", **study}, out=sys.argv[1], jobs=1)
    manifests = pathlib.Path(sys.argv[1], f"{name}-swept").rglob("manifest.json")
    digests = sorted(json.loads(path.read_text())["digest"] for path in manifests)
    found[f"{name}-swept"] = found[name][0], " ".join(digests), 0
from simfl.cli.app import versions
found["simfl --version"] = versions()[0].endswith(", compiled"), "", 0
print(json.dumps(found))
"""


def play(package: Path, folder: Path) -> dict[str, tuple[bool, str, int]]:
    """Run all scenarios with the simfl that lies in a folder.

    Returns, by name: whether it is compiled, the digest, and the number of objects that only the collector frees.
    """
    folder.mkdir()
    (folder / "own_code.py").write_text(OWN, encoding="utf-8")
    scenarios = {name: {**COMMON, **sections} for name, sections in SCENARIOS.items()}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(folder)],
        input=json.dumps(scenarios),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**ENVIRONMENT, "PYTHONPATH": str(package)},
        check=False,
    )
    if done.returncode:
        sys.exit(f"compiled: the runs of {package} failed:\n{done.stderr}")
    return {name: tuple(values) for name, values in json.loads(done.stdout.splitlines()[-1]).items()}


def test(package: Path, folder: Path) -> None:
    """Run the tests of `SUITE` with the simfl that lies in a folder, and no other."""
    folder.mkdir()
    for name in ("tests", "scenarios"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow", "-n", "2", *SUITE]
    done = subprocess.run(
        [*command, "-k", " and ".join(f"not {name}" for name in PATCHING)],
        cwd=folder,
        env={**ENVIRONMENT, "PYTHONPATH": str(package)},
        check=False,
    )
    if done.returncode:
        sys.exit("compiled: tests failed; if they pass with the sources, a compiled module does something else")


def build(wheels: Path, scratch: Path) -> Path:
    """Build the wheel from a copy of the sources and return its path."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, scratch / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(scratch / "wheels"), str(scratch)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "SIMFL_COMPILE": "1"}
    )
    if done.returncode:
        sys.exit(f"compiled: the wheel could not be built:\n{done.stdout}{done.stderr}")
    (wheel,) = (scratch / "wheels").glob("*.whl")
    wheels.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, wheels / wheel.name))


def main(wheels: Path) -> None:
    """Build, unpack, run and compare."""
    spec = importlib.util.spec_from_file_location("simfl_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    if missing := setup.compiler_missing():
        print(f"compiled: skipped, there is no C compiler: {missing}")
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name, "copy")
        scratch.mkdir()
        ENVIRONMENT.setdefault("JAX_COMPILATION_CACHE_DIR", str(PROGRAMS))
        ENVIRONMENT.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        with ThreadPoolExecutor() as pool:  # the C compiler takes a minute or two on one core
            plainly = pool.submit(play, ROOT, Path(name, "plain"))
            wheel = build(wheels, scratch)
            plain = plainly.result()
        shutil.rmtree(PLACE, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(PLACE)
        compiled = play(PLACE, Path(name, "compiled"))
        test(PLACE, Path(name, "tests"))
    for scenario, (is_compiled, digest, garbage) in compiled.items():
        if not is_compiled or plain[scenario][:2] != (False, digest):
            sys.exit(f"compiled: {scenario}: expected equal digests, found {compiled[scenario]} and {plain[scenario]}")
        if garbage > plain[scenario][2] + COMMON["stop"]["updates"]:
            sys.exit(
                f"compiled: {scenario}: expected no cycles of references for each update, found {garbage} objects in "
                f"cycles, not compiled {plain[scenario][2]}: nested functions that call each other make them"
            )
    print(f"compiled: {', '.join(compiled)}: equal digests compiled and not; the wheel is {wheel}")
    print(f"compiled: to use it, pip install --force-reinstall --no-deps {wheel}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist")
