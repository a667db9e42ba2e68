"""What is measured: the cases of `simfl bench` and their scenarios."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One line of the benchmark.

    Attributes:
        workers: clients.
        updates: updates of the run that is measured; a round of local steps is one of them here.
        sections: what the scenario says beside clients, stop and evaluate.
    """

    workers: int
    updates: int
    sections: dict[str, Any]


def _case(data: str, model: str, workers: int, updates: int, algorithm: str = "adpsgd", **sections: Any) -> Case:
    options = {**({"exchange": "atomic"} if algorithm == "adpsgd" else {}), **sections.pop("options", {})}
    # More workers than the data can be divided among draw their examples from all of it.
    few = workers > 40 if data == "digits" else workers > 1_000
    part = {"kind": "resample", "size": 128} if few else {"kind": "iid"}
    return Case(
        workers,
        updates,
        {
            "data": {"set": data, "partition": part},
            "model": {"kind": model},
            "algorithm": {"kind": algorithm, "batch_size": 32, "step_size": 0.05, **options},
            **sections,
        },
    )


_MESSAGES: dict[str, Any] = {"exchange": "messages"}
_ROUNDS: dict[str, Any] = {"buffer_size": 100, "local_steps": 10}
_PRIVACY: dict[str, Any] = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}
_LAPLACE: dict[str, Any] = {"mechanism": "laplace_l2", "neighbors": "replace_one", "epsilon_per_release": 1.0}
_STAGES: dict[str, Any] = {"step_size": None, "sampling": "without_replacement", "second_moment": "paper"}

CASES: dict[str, Case] = {
    "digits-softmax-adpsgd-16": _case("digits", "softmax", 16, 100_000),
    "digits-softmax-adpsgd": _case("digits", "softmax", 256, 100_000),
    "digits-softmax-adpsgd-10000": _case("digits", "softmax", 10_000, 200_000),
    "digits-softmax-adpsgd-messages": _case("digits", "softmax", 256, 60_000, options=_MESSAGES),
    "digits-softmax-sync": _case("digits", "softmax", 256, 60_000, "sync_sgd"),
    "digits-softmax-decentralized": _case("digits", "softmax", 256, 40_000, "decentralized_sgd"),
    "digits-softmax-gossip": _case("digits", "softmax", 256, 60_000, "gossip_learning"),
    "mnist-softmax-adpsgd-16": _case("mnist", "softmax", 16, 40_000),
    "mnist-softmax-adpsgd": _case("mnist", "softmax", 256, 40_000),
    "mnist-softmax-adpsgd-10000": _case("mnist", "softmax", 10_000, 80_000),
    "mnist-softmax-adpsgd-messages": _case("mnist", "softmax", 256, 40_000, options=_MESSAGES),
    "mnist-softmax-adpsgd-private": _case("mnist", "softmax", 256, 20_000, privacy=_PRIVACY),
    "mnist-softmax-sync": _case("mnist", "softmax", 256, 20_000, "sync_sgd"),
    "mnist-mlp-adpsgd": _case("mnist", "mlp", 256, 10_000),
    "mnist-mlp-gossip": _case("mnist", "mlp", 100, 10_000, "gossip_learning"),
    "mnist-softmax-fedbuff": _case("mnist", "softmax", 1_000, 8_000, "fedbuff", options=_ROUNDS),
    "mnist-softmax-mapa": _case("mnist", "softmax", 1_000, 20_000, "mapa", options=_STAGES, privacy=_LAPLACE),
    "mnist-lenet5-adpsgd": _case("mnist", "lenet5", 16, 3_000),
}


#: The cases that matter, of which `simfl bench --quick` measures a tenth each.
QUICK = (
    "digits-softmax-adpsgd",
    "digits-softmax-gossip",
    "mnist-softmax-adpsgd-messages",
    "mnist-softmax-adpsgd-private",
    "mnist-mlp-gossip",
)


def scenario_of(name: str, updates: int | None = None, workers: int | None = None) -> Any:
    """Return the scenario of a case."""
    from simfl.scenario import from_mapping

    case = CASES[name]
    count = workers or case.workers
    total = updates or case.updates
    sections = json.loads(json.dumps(case.sections))
    if sections["data"]["set"] == "mnist" and not _has_mnist():
        sections["data"] = {"set": "npz", "path": str(_stand_in()), "partition": sections["data"]["partition"]}
    return from_mapping(
        {
            "name": name,
            "clients": {"count": count, "jitter": {"kind": "lognormal", "sigma": 0.1}},
            "stop": {"updates": total},
            "evaluate": {"every": {"updates": total}},
            **sections,
        }
    )


def _has_mnist() -> bool:
    root = os.environ.get("SIMFL_DATA")
    return root is not None and any(Path(root, "mnist").glob("train-images*"))


def _stand_in() -> Path:
    """Random data of MNIST's shape, for machines without it: speed does not depend on the values."""
    path = Path(tempfile.gettempdir()) / "simfl-bench-mnist-shape.npz"
    if not path.exists():
        generator = np.random.default_rng(0)
        x = generator.random((60_000, 784), dtype=np.float32)
        y = generator.integers(0, 10, 60_000).astype(np.int32)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, x_train=x, y_train=y, x_test=x[:10_000], y_test=y[:10_000])
        partial.replace(path)
    return path
