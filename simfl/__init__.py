"""simfl: a simulator of asynchronous, decentralized and federated DP learning.

The Python interface: `load` a scenario, `run` it, read the tables of the `Run`, and `plot` it.

    import simfl

    scenario = simfl.load("scenarios/demo/adpsgd.yaml")
    scenario = simfl.Scenario(algorithm="adpsgd", clients={"count": 8})   # or from Python
    run = simfl.run(scenario.replace(algorithm__step_size=0.1))
    run.metrics                       # a pandas frame
    run.model, run.predict(x)         # the trained model
    simfl.plot([run], x="time")       # matplotlib axes
    swept = simfl.sweep({"base": scenario, "grid": {"clients.count": [8, 16]}, "seeds": 4})
    swept.metrics                     # every evaluation of every run, one frame

Heavy libraries (JAX, pandas, matplotlib) are imported when a name that needs them is first used, so `import simfl` is
fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simfl.errors import DataError, RunError, ScenarioError, SimflError
from simfl.version import __version__

if TYPE_CHECKING:
    from simfl.accounts.events import dp_event
    from simfl.assembly.assemble import prepare
    from simfl.attacks.audit import audit
    from simfl.comparison.readable import compare
    from simfl.frameworks.items import from_dataset
    from simfl.frameworks.libraries import from_equinox, from_flax, from_haiku
    from simfl.frameworks.pytorch import from_torch, to_torch
    from simfl.plots import plot, thumbnail
    from simfl.records import Run, read
    from simfl.reports.player import play
    from simfl.reports.reporting import report
    from simfl.runs.runner import resume, run
    from simfl.scenario import Scenario, load
    from simfl.studies import sweep
    from simfl.trained.predictions import evaluate, predict

__all__ = [
    "DataError", "Run", "RunError", "Scenario", "ScenarioError", "SimflError", "__version__", "audit", "compare",
    "dp_event", "evaluate", "from_dataset", "from_equinox", "from_flax", "from_haiku", "from_torch", "load", "play",
    "plot", "predict", "prepare", "read", "report", "resume", "run", "sweep", "thumbnail", "to_torch",
]  # fmt: skip

_NAMES_BY_MODULE = {
    "simfl.accounts.events": ("dp_event",),
    "simfl.attacks.audit": ("audit",),
    "simfl.frameworks.items": ("from_dataset",),
    "simfl.frameworks.libraries": ("from_equinox", "from_flax", "from_haiku"),
    "simfl.frameworks.pytorch": ("from_torch", "to_torch"),
    "simfl.plots": ("plot", "thumbnail"),
    "simfl.records": ("Run", "read"),
    "simfl.comparison.readable": ("compare",),
    "simfl.assembly.assemble": ("prepare",),
    "simfl.runs.runner": ("resume", "run"),
    "simfl.trained.predictions": ("evaluate", "predict"),
    "simfl.scenario": ("Scenario", "load"),
    "simfl.studies": ("sweep",),
    "simfl.reports.player": ("play",),
    "simfl.reports.reporting": ("report",),
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name == "callbacks":
        return importlib.import_module("simfl.callbacks")
    if name not in _HOMES:
        raise AttributeError(f"module 'simfl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
