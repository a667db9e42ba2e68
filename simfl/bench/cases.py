"""The cases of `simfl bench` and their scenarios."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Case:
    """One line of the benchmark."""

    workers: int  # number of clients
    updates: int  # of the measured run; here a round of local steps is one update
    sections: dict[str, Any]  # of the scenario, without clients, stop and evaluate


def _case(
    data: str, model: str | dict[str, Any], workers: int, updates: int, algorithm: str = "adpsgd", **sections: Any
) -> Case:
    options = {**({"exchange": "atomic"} if algorithm == "adpsgd" else {}), **sections.pop("options", {})}
    # If the data is too small to be divided among the workers, each draws its examples from all of it.
    too_small = workers > (40 if data == "digits" else 1_000)
    part = {"kind": "resample", "size": 128} if too_small else {"kind": "iid"}
    return Case(
        workers,
        updates,
        {
            "data": {"set": data, "partition": part},
            "model": {"kind": model} if isinstance(model, str) else model,
            "algorithm": {"kind": algorithm, "batch_size": 32, "step_size": 0.05, **options},
            **sections,
        },
    )


_MESSAGES: dict[str, Any] = {"exchange": "messages"}
_ROUNDS: dict[str, Any] = {"buffer_size": 100, "local_steps": 10}
_TOP_K: dict[str, Any] = {"kind": "top_k", "share": 0.01, "gamma": 0.05}
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
    "mnist-softmax-decentralized": _case("mnist", "softmax", 256, 10_000, "decentralized_sgd"),
    "mnist-softmax-choco": _case("mnist", "softmax", 256, 10_000, "decentralized_sgd", compression=_TOP_K),
    "mnist-mlp-adpsgd": _case("mnist", "mlp", 256, 10_000),
    "mnist-mlp-gossip": _case("mnist", "mlp", 100, 10_000, "gossip_learning"),
    "mnist-softmax-fedbuff": _case("mnist", "softmax", 1_000, 8_000, "fedbuff", options=_ROUNDS),
    "mnist-softmax-mapa": _case("mnist", "softmax", 1_000, 20_000, "mapa", options=_STAGES, privacy=_LAPLACE),
    "mnist-lenet5-adpsgd": _case("mnist", "lenet5", 16, 3_000),
    "text-transformer-adpsgd": _case("text", "transformer", 16, 4_000),
    "cifar10-resnet8-adpsgd": _case("cifar10", "resnet", 16, 800),
    "cifar10-resnet20-adpsgd": _case("cifar10", {"kind": "resnet", "blocks": 3}, 16, 300),
}

#: Seconds of a quick measurement: it begins no case that would probably end later.
QUICK_S = 60.0
#: The cases of `simfl bench --quick`, which measures a part of each. A sweep is one of `simfl.bench.sweeps`.
QUICK = (
    "digits-softmax-adpsgd",
    "sweep",
    "digits-softmax-gossip",
    "mnist-softmax-adpsgd-messages",
    "mnist-softmax-adpsgd-private",
    "mnist-mlp-gossip",
)

#: A case for each kind of model, for `simfl bench --widths`.
MODELS = ("digits-softmax-adpsgd", "mnist-softmax-adpsgd", "mnist-mlp-gossip", "mnist-lenet5-adpsgd")

#: Data sets from files: a pattern that matches a file of the set, and the shape of the random examples used without it.
FILES: dict[str, tuple[str, tuple[int, ...]]] = {
    "mnist": ("train-images*", (60_000, 784)),
    "cifar10": ("*", (10_000, 32, 32, 3)),
}


def scenario_of(
    name: str, updates: int | None = None, workers: int | None = None, width: int | Literal["auto"] = "auto"
) -> Any:
    """Return the scenario of a case; the arguments replace numbers of the case."""
    from simfl.scenario import from_mapping

    case = CASES[name]
    total = updates or case.updates
    sections = json.loads(json.dumps(case.sections))
    data = sections["data"]["set"]
    if data in FILES and not _has_files(data):
        sections["data"] = {"set": "npz", "path": str(_stand_in(data)), "partition": sections["data"]["partition"]}
    return from_mapping(
        {
            "name": name,
            "clients": {"count": workers or case.workers, "jitter": {"kind": "lognormal", "sigma": 0.1}},
            "stop": {"updates": total},
            "evaluate": {"every": {"updates": total}},
            "execution": {"width": width},
            **sections,
        }
    )


def _has_files(data: str) -> bool:
    root = os.environ.get("SIMFL_DATA")
    return root is not None and any(Path(root, data).glob(FILES[data][0]))


def _stand_in(data: str) -> Path:
    """Return a file of random data of the same shape, for machines without the files."""
    path = Path(tempfile.gettempdir()) / f"simfl-bench-{data}-shape.npz"
    if not path.exists():
        generator = np.random.default_rng(0)
        x = generator.random(FILES[data][1], dtype=np.float32)
        y = generator.integers(0, 10, len(x)).astype(np.int32)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, x_train=x, y_train=y, x_test=x[:10_000], y_test=y[:10_000])
        partial.replace(path)
    return path
