"""`simfl bench peers`: other simulators and simfl on the same work.

Each peer is installed, in pinned versions, into a separate environment in the user's cache folder. Its script in this
folder runs there; it imports the peer and never simfl. Peers and simfl take turns, several times; the best of each
counts. Rates are updates per second; an update is a mini-batch of one client. Peers send the messages of their usual
way of running. Starting, loading and the first round, which compiles, do not count. Data are random numbers of the
stated shape: nothing is learned, and all simulators compute the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simfl.errors import RunError

#: Measurements of each peer and of simfl, in turn.
TURNS = 3
#: Time limit of an installation, and of a measurement, in seconds.
PATIENCE_S = 1200.0


@dataclass(frozen=True)
class Work:
    """The work to measure."""

    name: str
    peer: str  # the other simulator
    arguments: tuple[str, ...]  # of the peer's script
    features: int
    classes: int
    clients: int
    scenario: Mapping[str, Any]  # the sections model and algorithm of simfl's scenario
    updates: int  # of simfl's run
    steps: int = 1  # mini-batches of such an update


#: Peer -> the packages that are installed, pinned.
PINS: dict[str, tuple[str, ...]] = {
    "gossipy": (
        "gossipy-dfl==0.0.1", "torch==2.14.1", "torchvision==0.29.1", "numpy==1.26.4", "pandas==2.2.3",
        "scikit-learn==1.5.2", "scipy==1.14.1", "networkx==3.6.1", "rich==15.0.0", "tqdm==4.70.1", "matplotlib==3.11.2",
    ),
    "fedjax": (
        "fedjax==0.0.16", "jax==0.4.23", "jaxlib==0.4.23", "numpy==1.26.4", "scipy==1.12.0", "dm-haiku==0.0.11",
        "optax==0.1.9", "chex==0.1.85", "setuptools==65.5.0",
    ),
}  # fmt: skip
BATCH = 32
GOSSIP = {"kind": "gossip_learning", "batch_size": BATCH, "sampling": "shuffle"}
WORKS = (
    Work(
        "gossip, logistic 57x2", "gossipy", ("57", "2", "100", "0"), 57, 2, 100,
        {"model": {"kind": "softmax"}, "algorithm": GOSSIP}, 200_000,
    ),
    Work(
        "gossip, MLP 784-100-10", "gossipy", ("784", "10", "100", "100"), 784, 10, 100,
        {"model": {"kind": "mlp", "hidden": [100]}, "algorithm": GOSSIP}, 10_000,
    ),
    Work(
        "federated averaging, softmax 784x10", "fedjax", ("784", "10", "100"), 784, 10, 100,
        {"model": {"kind": "softmax"}, "algorithm": {**GOSSIP, "kind": "fedavg", "local_epochs": 1}}, 20_000, 10,
    ),
)  # fmt: skip


def environment(peer: str, echo: Callable[[str], None]) -> Path:
    """Return the Python of a peer's environment, which is created if missing.

    Raises:
        RunError: the peer cannot be installed; one line says why.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    version = PINS[peer][0].partition("==")[2]
    folder = cache / "simfl" / "peers" / f"{peer}-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists():
        return python
    echo(f"installing {peer} {version} into {folder}")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[peer]],
    ):
        _output(command, f"bench peers: {peer} cannot be installed")
    complete.touch()
    return python


def measure_peer(work: Work, python: Path) -> float:
    """Return the peer's updates per second."""
    script = Path(__file__).with_name(f"{work.peer}_script.py")
    output = _output([str(python), str(script), *work.arguments], f"bench peers: {work.peer} failed")
    return float(output.strip().splitlines()[-1])


def measure_simfl(work: Work, device: str | None = None) -> float:
    """Return simfl's updates per second, end to end."""
    from simfl.runs.runner import prepare, run

    generator = np.random.default_rng(0)
    count = work.clients * work.steps * BATCH
    x = generator.standard_normal((count, work.features), dtype=np.float32)
    y = generator.integers(work.classes, size=count).astype(np.int32)
    scenario = {
        "name": "peers",
        "clients": {"count": work.clients},
        "topology": {"kind": "complete"},
        **work.scenario,
        "evaluate": {"every": {"updates": work.updates}},
        "record": {"updates": False},
        "stop": {"updates": work.updates},
    }
    setup = prepare(scenario, device, data=(x, y, x[:BATCH], y[:BATCH]))
    with tempfile.TemporaryDirectory() as folder:
        manifest = run(setup, out=folder, device=device).manifest
    return work.steps * manifest.updates / manifest.wall_s


def run_peers(device: str | None = None, echo: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Measure all works; return name, clients, peer, rates and ratios of each.

    Raises:
        RunError: a peer cannot be installed, or fails.
    """
    results = []
    for work in WORKS:
        python = environment(work.peer, echo)
        echo(f"{work.name}: {work.peer} and simfl, {TURNS} times in turn")
        measure_simfl(work, device)  # compiles
        turns = [(measure_peer(work, python), measure_simfl(work, device)) for _ in range(TURNS)]
        peer, own = (max(rates) for rates in zip(*turns, strict=True))
        results.append(
            {
                "work": work.name,
                "clients": work.clients,
                "peer": PINS[work.peer][0].replace("==", " "),
                "peer_updates_per_s": round(peer, 1),
                "simfl_updates_per_s": round(own, 1),
                "ratio": round(own / peer, 2),
                "ratios": [round(mine / theirs, 2) for theirs, mine in turns],
            }
        )
    return results


def _output(command: list[str], failure: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{failure}: expected an end within {PATIENCE_S:.0f} s, found none") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"{failure}: {last}")
    return done.stdout
