"""simfl: a discrete-event simulator of asynchronous, decentralised and federated learning with differential privacy.

The front door for Python: `load` a scenario, `run` it, look at the tables of the `Run`, `plot` it.

    import simfl

    scenario = simfl.load("scenarios/demo/adpsgd.yaml")
    run = simfl.run(scenario)         # also simfl.run({"algorithm": "adpsgd"})
    run.metrics                       # a pandas frame
    run.model, run.predict(x)         # what was trained
    simfl.plot([run], x="time")       # matplotlib axes

What each name needs (JAX, pandas, matplotlib) is imported on first use, so that `import simfl` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from simfl.errors import DataError, RunError, ScenarioError, SimflError
from simfl.version import __version__

if TYPE_CHECKING:
    from simfl.audits.audit import audit
    from simfl.plots import plot
    from simfl.records import Run, compare, read
    from simfl.scenario import load
    from simfl.simulation.runner import prepare, resume, run
    from simfl.simulation.trained import evaluate, predict
    from simfl.studies import sweep
    from simfl.studies.reporting import report

__all__ = [
    "DataError",
    "Run",
    "RunError",
    "ScenarioError",
    "SimflError",
    "__version__",
    "audit",
    "compare",
    "evaluate",
    "load",
    "plot",
    "predict",
    "prepare",
    "read",
    "report",
    "resume",
    "run",
    "sweep",
]

_HOMES = {
    "Run": "simfl.records",
    "audit": "simfl.audits.audit",
    "compare": "simfl.records",
    "evaluate": "simfl.simulation.trained",
    "load": "simfl.scenario",
    "plot": "simfl.plots",
    "predict": "simfl.simulation.trained",
    "prepare": "simfl.simulation.runner",
    "read": "simfl.records",
    "report": "simfl.studies.reporting",
    "resume": "simfl.simulation.runner",
    "run": "simfl.simulation.runner",
    "sweep": "simfl.studies",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its room when it is first asked for (PEP 562)."""
    if name == "callbacks":
        return importlib.import_module("simfl.callbacks")
    if name not in _HOMES:
        raise AttributeError(f"module 'simfl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
