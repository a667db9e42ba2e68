"""Runs in worlds with all features, interrupted at any event and resumed, have equal tables."""

import math

import numpy as np
import pytest

from simfl.runs.runner import prepare, resume
from simfl.scenario import from_mapping
from tests.helpers import RunWithoutNumbers, run_until

ALGORITHMS = {
    "adpsgd": {"kind": "adpsgd", "batch_size": 8},
    "gossip_learning": {"kind": "gossip_learning", "batch_size": 8, "staleness_bound": {"bound": 9, "policy": "wait"}},
    "fedavg": {"kind": "fedavg", "batch_size": 8, "local_steps": 2, "deadline": 0.05},
    "sync_sgd": {"kind": "sync_sgd", "batch_size": 8},
    "plexus": {"kind": "plexus", "batch_size": 8, "local_steps": 2, "sample": 4, "success": 0.6},
}
UNDERLAY = {"kind": "two_level", "racks": 2, "latency": "100 us", "bandwidth": "20 Mbit/s"}
CRASHES = [
    {"clients": [1], "crash": [{"at": 0.02, "back": 0.05}, {"at": 0.11, "back": 0.13}]},
    {"fraction": 0.4, "random": {"up": {"kind": "exponential", "mean": 0.1}, "down": "10 ms"}},
]
RULES = [
    {"all": True, "latency": {"kind": "exponential", "mean": "2 ms", "drawn": "link"}},
    {"clients": [0], "bandwidth": {"kind": "lognormal", "mean": "5 Mbit/s", "sigma": 1, "drawn": "message"}},
    {"all": True, "uplink": {"kind": "uniform", "low": "2 Mbit/s", "high": "9 Mbit/s"}},
    {"fraction": 0.5, "loss": {"kind": "gilbert_elliott", "good": "50 ms", "bad": "20 ms"}},
    {"regions": ["there"], "downlink": "1 Mbit/s", "from": 0.03, "until": 0.06, "every": 0.1},
]
REGIONS = {"names": ["here", "there"], "shares": [0.5, 0.5], "latency": [[None, "4 ms"], ["3 ms", None]]}
WORLDS = {
    "routers, crashes and rules": {"underlay": UNDERLAY, "availability": CRASHES, "links": {"rules": RULES}},
    "fair sharing, crashes, rules and a cut": {
        "availability": CRASHES[:1],
        "links": {
            "rules": RULES, "sharing": "fair", "startup": {"kind": "tcp", "pause": "20 ms"}, "resend_timeout": "9 ms",
            "partitions": [{"groups": [["here"]], "from": 0.04, "until": 0.07}],
        },
    },
    "rates by latency over routers": {
        "underlay": {**UNDERLAY, "clients": "random"}, "availability": CRASHES[1:],
        "links": {"sharing": "by_latency", "fifo": True, "uplink": "3 Mbit/s"},
    },
    "queues, crashes and rules": {"availability": CRASHES, "links": {"rules": RULES, "fifo": True, "overhead": 40}},
}  # fmt: skip


def ready(algorithm, world):
    return prepare(
        from_mapping(
            {
                "data": {"set": "logistic", "samples": 200},
                "model": "logistic",
                "clients": {"count": 6, "seconds_per_example": "500 us", "jitter": {"kind": "lognormal", "sigma": 0.3}},
                "slowdowns": [{"regions": ["there"], "factor": 2, "from": 0.05}],
                "regions": REGIONS,
                "algorithm": ALGORITHMS[algorithm],
                "stop": {"updates": 150, "time": 1},
                "evaluate": {"every": {"updates": 15}},
                "record": {"messages": True, "timeline": True},
                **WORLDS[world],
            }
        )
    )


class NoNumbers(RunWithoutNumbers):
    """Make all evaluations equal: a resumed run computes fewer of them."""

    def evaluate(self, rows, coefs, own, clipping_norm):
        self.evaluations = 0
        return super().evaluate(rows, coefs, own, clipping_norm)


@pytest.mark.slow(but=["sync_sgd-q", "fedavg-q"])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_run_interrupted_at_any_event_resumes_with_equal_tables(algorithm, world, tmp_path, monkeypatch):
    monkeypatch.setattr("simfl.runs.context.Executor", NoNumbers)
    whole, events = run_until(ready(algorithm, world), math.inf, tmp_path)
    assert whole.manifest.updates > 20
    number = [*ALGORITHMS].index(algorithm), [*WORLDS].index(world)
    cut, _ = run_until(ready(algorithm, world), int(np.random.default_rng(number).integers(10, events - 5)), tmp_path)
    assert cut.status == "interrupted"
    resumed = resume(cut.folder)
    assert resumed.manifest.digest == whole.manifest.digest
    assert (resumed.status, resumed.manifest.updates) == (whole.status, whole.manifest.updates)
