"""Valid scenarios drawn from the whole schema of the world and the algorithms, small and short enough to run.

Plain draws from a seed, so that a number says which scenario it was: `drawn(17)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simfl.algorithms import ALGORITHMS

#: Those that move models of several tasks, or one machine alone, need a model, or a count, of their own.
ONE_CLIENT = ("centralized_sgd",)
LOCAL = ("fedavg", "fedprox", "fedasync", "fedbuff")


class Drawer:
    """Draws a scenario.

    Args:
        seed: of all draws.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self._random.random() < probability)

    def one(self, *choices: Any) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def between(self, low: float, high: float) -> float:
        """A number, as likely in each order of magnitude."""
        return float(np.exp(self._random.uniform(np.log(low), np.log(high))))

    def maybe(self, probability: float, **entries: Any) -> dict[str, Any]:
        """The entries that are drawn, each with the same probability; a function is called then."""
        return {
            key: value() if callable(value) else value for key, value in entries.items() if self.chance(probability)
        }

    # -- sections ------------------------------------------------------------------------------

    def scenario(self) -> dict[str, Any]:
        """A whole scenario."""
        kind = self.one(*ALGORITHMS)
        alone, served = kind in ONE_CLIENT, kind in ("async_fl", "async_sgd", "audp", "mapa", *LOCAL)
        count = 1 if alone else self.one(2, 3, 4, 6, 9)
        deciding = kind == "deep_q_sgd"
        if deciding:
            count = 2  # one size of networks to compile
        horizon = 1.5
        found = {
            "name": f"drawn-{kind}",
            "seed": int(self._random.integers(1000)),
            "data": {
                **({"set": "digits"} if deciding else {"set": "logistic", "samples": 400}),
                "partition": self.one("iid", "iid", {"kind": "dirichlet", "alpha": 5.0}),
            },
            "model": "one_vs_all" if deciding else "logistic",
            "algorithm": self.algorithm(kind, count),
            "clients": self.clients(count),
            "slowdowns": [self.slowdown(count, horizon) for _ in range(self.one(0, 0, 1, 2))],
            "links": self.links(count, served, horizon),
            "availability": [self.absence(count, horizon) for _ in range(self.one(0, 0, 1, 2))],
            "stop": {"updates": self.one(5, 60, 200), **self.maybe(0.7, time=lambda: self.between(0.05, 3.0))},
            "evaluate": {
                "every": self.one({"time": 0.2}, {"updates": 25}, {"epochs": 0.1}), "clients": self.chance(0.2),
            },
            "record": {"messages": True, "timeline": self.chance(0.5)},
        }  # fmt: skip
        if count > 1:
            found["topology"] = self.one("ring", "complete", "star", "exponential", "tree")
        if served and self.chance(0.6):
            found["server"] = self.server(horizon)
        if deciding:
            found["stop"]["updates"] = 30
        if "time" in found["evaluate"]["every"]:  # else somebody who is slow is waited for, evaluation by evaluation
            found["stop"].setdefault("time", horizon)
        if kind == "mapa":
            found["privacy"] = {"mechanism": "laplace_l2", "epsilon_per_release": 1.0, "clipping_norm": 1.0}
            found["privacy"]["neighbors"] = "replace_one"
        return found

    def algorithm(self, kind: str, count: int) -> dict[str, Any]:
        """An algorithm with some of its options."""
        found: dict[str, Any] = {"kind": kind, "batch_size": self.one(1, 8, 16)}
        options: dict[str, dict[str, Any]] = {
            "adpsgd": {"exchange": self.one("atomic", "messages"), "pairing": "everyone"},
            "sgp": {
                "graph": self.one("one_peer", "exponential", "ring", "topology"), "overlap": self.one(0, 1, 3),
            },
            "gossip_learning": {"period": self.between(2e-3, 0.2), "merge": self.one("age", "average", "none")},
            "async_sgd": {"delays": self.one("world", "cyclic")},
            "async_fl": {
                "sizes": self.one(None, 3 * count, {"kind": "polynomial", "a": 5}), "local_steps": self.chance(0.3),
                "assignment": self.one("proportional", "random"), "aggregation": self.one("sum", "mean"),
                "gate": {"kind": "rounds", "ahead": self.one(0, 1, 4)},
                "aggregators": self.one([], [1], [1, min(2, count)]),
            },
            "fedavg": {"fraction": self.one(0.3, 1.0), "deadline": self.one(None, 0.02, 0.3)},
            "fedprox": {"fraction": self.one(0.3, 1.0), "deadline": self.one(None, 0.02, 0.3)},
            "fedasync": {"concurrency": self.one(None, 1, min(2, count))},
            "fedbuff": {"buffer_size": self.one(1, 3), "after_update": "continue"},
            "without_replacement_sgd": {"contention": self.one("token", "race")},
            "random_walk_sgd": {"visits": self.one(1, 3)},
            "deep_q_sgd": {"hidden": 4, "memory": 4, "replay": 2},
        }  # fmt: skip
        found |= {name: value for name, value in options.get(kind, {}).items() if self.chance(0.6)}
        if kind == "deep_q_sgd":
            found |= options[kind]
        if kind in LOCAL:
            found |= self.maybe(0.6, local_steps=lambda: self.one(1, 2, 5))
        bounded = ("adpsgd", "gossip_learning", "async_sgd", "audp", "mapa", "fedasync", "fedbuff")
        if kind in bounded and found.get("delays") != "cyclic":
            bound = {"bound": self.one(0, 1, 5), "policy": self.one("wait", "drop", "down_weight")}
            found |= self.maybe(0.4, staleness_bound=bound)
        if kind == "mapa":
            found |= {"smoothness": 10, "sampling_std": 30, "failure_probability": 1e-3, "initial_gap": 50}
        if kind in ("audp", "async_sgd", "centralized_sgd"):
            found["step_size"] = 0.1
        return found

    def clients(self, count: int) -> dict[str, Any]:
        """How fast they are: up to a billion times slower."""
        values = [self.one(1.0, 1.0, 3.0, 1e9) for _ in range(count)]
        return {
            "count": count,
            "seconds_per_example": self.between(1e-4, 5e-3),
            **self.maybe(0.5, jitter=lambda: self.one({"kind": "lognormal", "sigma": 0.4}, "exponential")),
            **self.maybe(
                0.4, speed=lambda: self.one({"kind": "list", "values": values}, {"kind": "lognormal", "sigma": 1})
            ),
        }

    def slowdown(self, count: int, horizon: float) -> dict[str, Any]:
        """Some clients are slower for a while."""
        who = self.one({"fraction": 0.5}, {"random": self.one(1, count)}, {"clients": [0]})
        return {
            **who,
            "factor": self.one(0.5, 10.0, 1e9),
            **self.maybe(0.5, **{"from": lambda: self.between(0.01, horizon)}),
        }

    def links(self, count: int, served: bool, horizon: float) -> dict[str, Any]:
        """From free to a million seconds away."""
        latency = self.one(
            0, "1 ms", {"kind": "exponential", "mean": "10 ms"}, {"kind": "lognormal", "mean": "5 ms", "sigma": 1},
            {"kind": "uniform", "low": 0, "high": "30 ms"}, "1000000 s",
        )  # fmt: skip
        return {
            "latency": latency,
            "bandwidth": self.one(None, "1 Gbit/s", "10 Mbit/s"),
            **self.maybe(0.4, loss=lambda: self.one(0.1, 0.7), resend_timeout=lambda: self.between(1e-3, 0.2)),
            **self.maybe(0.3, fifo=True, uplink="20 Mbit/s", downlink="20 Mbit/s"),
            "partitions": [
                self.partition(count, served, horizon) for _ in range(self.one(0, 0, 1, 2) if count > 1 else 0)
            ],
        }

    def partition(self, count: int, served: bool, horizon: float) -> dict[str, Any]:
        """Some are cut off, for a while or for good."""
        begin = self.between(0.01, horizon)
        group = self.one([0], ["server"] if served else [1], [0, 1] if count > 2 or served else [1])
        until = {} if self.chance(0.2) else {"until": begin + self.between(1e-3, 1.0)}
        return {**self.one({"fraction": 0.4}, {"groups": [group]}), "from": begin, **until}

    def absence(self, count: int, horizon: float) -> dict[str, Any]:
        """Some are away, at a time, at random, or for good."""
        who = self.one({"fraction": 0.5}, {"all": True}, {"clients": [count - 1]})
        begin, length = self.between(0.01, horizon), self.between(1e-3, 0.5)
        how = self.one(
            {"join": begin},
            {"offline": [[begin, begin + length], [begin + 2 * length, begin + 3 * length]]},
            {"crash": [{"at": begin, "back": begin + length}]},
            {"crash": [{"at": begin, "back": "never"}]},
            {"offline": [[begin, begin + length]], "every": begin + 2 * length},
            {"random": {"up": {"kind": "exponential", "mean": 0.2}, "down": {"kind": "exponential", "mean": 0.05}}},
        )
        return {**who, **how}

    def server(self, horizon: float) -> dict[str, Any]:
        """What it can take, and when it is away."""
        begin = self.between(0.01, horizon)
        offline = self.one([], [[begin, begin + 0.2]], [[begin, begin + 0.01], [begin + 0.5, "never"]])
        return {
            "offline": offline,
            **self.maybe(
                0.4, seconds_per_update=lambda: self.between(1e-5, 0.02), uplink="20 Mbit/s", downlink="20 Mbit/s"
            ),
        }


def drawn(seed: int) -> dict[str, Any]:
    """Return the scenario of a number, as a mapping."""
    return Drawer(seed).scenario()
