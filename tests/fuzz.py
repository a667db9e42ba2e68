"""Valid scenarios drawn from the whole schema of the world and the algorithms, small and short enough to run.

A scenario follows from its seed, so that a number identifies it: `drawn(17, folder)`. Files that the scenario reads are
written into the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simfl.algorithms import ALGORITHMS
from simfl.algorithms.server import ServerAlgorithm
from simfl.assembly.data import shared_data
from tests.helpers import LOCAL

#: Algorithms that refuse graphs that change.
ONE_GRAPH = ("a2cid2", "adsgd", "matcha", "multi_walk", "swift")
#: Algorithms of one client.
ONE_CLIENT = ("centralized_sgd",)


class Drawer:
    """Draws a scenario.

    Args:
        seed: the seed of all draws.
        folder: where files are written.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self._seed, self._folder = seed, folder
        self._random = np.random.default_rng(seed)
        self._regions: list[str] = []

    def chance(self, probability: float) -> bool:
        return bool(self._random.random() < probability)

    def one(self, *choices: Any) -> Any:
        return choices[int(self._random.integers(len(choices)))]

    def between(self, low: float, high: float) -> float:
        """Draw a number whose logarithm is uniform."""
        return float(np.exp(self._random.uniform(np.log(low), np.log(high))))

    def maybe(self, probability: float, **entries: Any) -> dict[str, Any]:
        """Keep each entry with the given probability; a value that is a function is called if it is kept."""
        return {
            key: value() if callable(value) else value for key, value in entries.items() if self.chance(probability)
        }

    # -- sections ------------------------------------------------------------------------------

    def scenario(self, kind: str | None = None, counts: Sequence[int] = (2, 3, 4, 6, 9)) -> dict[str, Any]:
        """Draw a whole scenario, of an algorithm if it is given, with one of some numbers of clients."""
        kind = kind or self.one(*ALGORITHMS)
        alone, served = kind in ONE_CLIENT, issubclass(ALGORITHMS[kind], ServerAlgorithm)
        count = 1 if alone else self.one(*counts)
        deciding = kind == "deep_q_sgd"
        if deciding:
            count = 2  # one size of networks to compile
        horizon = 1.5
        content = {
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
            content["topology"] = self.one("ring", "complete", "star", "exponential", "tree")
        if served and self.chance(0.6):
            content["server"] = self.server(horizon)
        if deciding:
            content["stop"]["updates"] = 30
        if "time" in content["evaluate"]["every"]:  # else a very slow client leads to very many evaluations
            content["stop"].setdefault("time", horizon)
        if kind == "mapa":
            content["privacy"] = {"mechanism": "laplace_l2", "epsilon_per_release": 1.0, "clipping_norm": 1.0}
            content["privacy"]["neighbors"] = "replace_one"
        self._random = np.random.default_rng([self._seed, 1])  # a second stream: draws below do not change those above
        self.differ(content, count, served, horizon)
        return content

    def algorithm(self, kind: str, count: int) -> dict[str, Any]:
        """Draw an algorithm with some of its options."""
        section: dict[str, Any] = {"kind": kind, "batch_size": self.one(1, 8, 16)}
        options: dict[str, dict[str, Any]] = {
            "adpsgd": {"exchange": self.one("atomic", "messages"), "pairing": "everyone"},
            "sgp": {
                "graph": self.one("one_peer", "exponential", "ring", "topology"), "overlap": self.one(0, 1, 3),
            },
            "divshare": {"fragments": self.one(1, 3), "peers": self.one(None, 1) if count > 1 else None},
            "epidemic": {  # in an oracle's graph each client of an odd number has an even one of peers
                "peers": self.one(None, 1 + count % 2) if count > 1 else None, "graph": self.one("local", "oracle")
            },
            "matcha": {"budget": self.one(0.3, 1.0)},
            "plexus": {"sample": self.one(1, 2, 20), "success": self.one(0.3, 0.8, 1.0)},
            "swift": {"skip": self.one(0, 2)},
            "teleportation": {"active": self.one(1, 2, 20), "graph": self.one("one_peer", "ring", "complete")},
            "gossip_learning": {"period": self.between(2e-3, 0.2), "merge": self.one("age", "average", "none")},
            "async_sgd": {"delays": self.one("world", "cyclic")},
            "ringmaster": {"threshold": self.one(None, 1, 3), "late": self.one("drop", "stop")},
            "rennala": {"gradients_per_step": self.one(None, 1, 3), "late": self.one("drop", "stop")},
            "m_sync_sgd": {"wait_for": self.one(None, 1), "late": self.one("drop", "stop")},
            "mindflayer": {"trials": self.one(1, 3), "trial_factor": self.one(1.0, 2.0)},
            "ringleader": {"harmonic_batch": self.one(1.0, 2.0)},
            "async_fl": {
                "sizes": self.one(None, 3 * count, {"kind": "polynomial", "a": 5}), "local_steps": self.chance(0.3),
                "assignment": self.one("proportional", "random"), "aggregation": self.one("sum", "mean"),
                "gate": {"kind": "rounds", "ahead": self.one(0, 1, 4)},
                "aggregators": self.one([], [1], [1, min(2, count)]),
            },
            "fedavg": {"fraction": self.one(0.3, 1.0), "deadline": self.one(None, 0.02, 0.3)},
            "fedprox": {"fraction": self.one(0.3, 1.0), "deadline": self.one(None, 0.02, 0.3)},
            "fedasync": {"concurrency": self.one(None, 1, min(2, count))},
            "ca2fl": {"buffer_size": self.one(1, 3)},
            "ace": {"max_age": self.one(None, 2)},
            "fadas": {"buffer_size": self.one(1, 3)},
            "fedat": {"tiers": self.one(1, min(2, count)), "fraction": self.one(0.3, 1.0)},
            "favas": {
                "period": self.between(2e-3, 0.2), "fraction": self.one(0.3, 1.0),
                "divisor": self.one("expected", "actual"),
            },
            "area": {"buffer_size": self.one(1, 3)},
            "fedbuff": {"buffer_size": self.one(1, 3), "after_update": "continue"},
            "without_replacement_sgd": {"contention": self.one("token", "race")},
            "random_walk_sgd": {"visits": self.one(1, 3)},
            "deep_q_sgd": {"hidden": 4, "memory": 4, "replay": 2},
        }  # fmt: skip
        section |= {name: value for name, value in options.get(kind, {}).items() if self.chance(0.6)}
        if kind == "deep_q_sgd":
            section |= options[kind]
        if kind in ("deep_q_sgd", "random_walk_sgd", "without_replacement_sgd") and section.get("contention") != "race":
            section |= self.maybe(0.6, order=lambda: self.one("random", "round_robin", "fewest", "rounds"))
        if kind in LOCAL:
            section |= self.maybe(0.6, local_steps=lambda: self.one(1, 2, 5))
        bounded = ("adpsgd", "gossip_learning", "async_sgd", "audp", "mapa", "fedasync", "fedbuff")
        if kind in bounded and section.get("delays") != "cyclic":
            bound = {"bound": self.one(0, 1, 5), "policy": self.one("wait", "drop", "down_weight")}
            section |= self.maybe(0.4, staleness_bound=bound)
        if kind == "mapa":
            section |= {"smoothness": 10, "sampling_std": 30, "failure_probability": 1e-3, "initial_gap": 50}
        if kind in ("audp", "async_sgd", "centralized_sgd"):
            section["step_size"] = 0.1
        return section

    def clients(self, count: int) -> dict[str, Any]:
        """Draw the speeds of clients; some are a billion times slower."""
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
        """Slow some clients down for a while."""
        who = self.one({"fraction": 0.5}, {"random": self.one(1, count)}, {"clients": [0]})
        return {
            **who,
            "factor": self.one(0.5, 10.0, 1e9),
            **self.maybe(0.5, **{"from": lambda: self.between(0.01, horizon)}),
        }

    def links(self, count: int, served: bool, horizon: float) -> dict[str, Any]:
        """Draw links, with latencies from 0 to a million seconds."""
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
        """Cut off some clients, for a while or permanently."""
        begin = self.between(0.01, horizon)
        group = self.one([0], ["server"] if served else [1], [0, 1] if count > 2 or served else [1])
        until = {} if self.chance(0.2) else {"until": begin + self.between(1e-3, 1.0)}
        return {**self.one({"fraction": 0.4}, {"groups": [group]}), "from": begin, **until}

    def absence(self, count: int, horizon: float) -> dict[str, Any]:
        """Let some clients be offline, at given times, at random times, or permanently."""
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
        """Draw the capacities of the server, and when it is offline."""
        begin = self.between(0.01, horizon)
        offline = self.one([], [[begin, begin + 0.2]], [[begin, begin + 0.01], [begin + 0.5, "never"]])
        return {
            "offline": offline,
            **self.maybe(
                0.4, seconds_per_update=lambda: self.between(1e-5, 0.02), uplink="20 Mbit/s", downlink="20 Mbit/s"
            ),
        }

    # -- links, devices and graphs that differ, and change -----------------------------------------

    def differ(self, scenario: dict[str, Any], count: int, served: bool, horizon: float) -> None:
        """Let links differ, take devices from files, and let the graph change, each by chance."""
        links, clients = scenario["links"], scenario["clients"]
        if count > 1 and self.chance(0.3):
            scenario["regions"] = self.regions(count)
            if served and self.chance(0.5):
                scenario["server"] = {**scenario.get("server", {}), "region": self.one(*self._regions)}
            for section in ("slowdowns", "availability"):
                for rule in scenario[section]:
                    if "fraction" in rule and self.chance(0.5):
                        del rule["fraction"]
                        rule["regions"] = [self.one(*self._regions)]
            for rule in links["partitions"]:
                if "groups" in rule and self.chance(0.5):
                    rule["groups"] = [[self.one(*self._regions)]]
        links["rules"] = [self.link_rule(count, served, horizon) for _ in range(self.one(0, 0, 1, 2, 3))]
        links |= self.maybe(
            0.2, overhead=40, sharing=lambda: self.one("fair", "by_latency"),
            startup=lambda: {"kind": "tcp", "window": self.one(100, 14_600), "pause": self.between(1e-3, 1.0)},
        )  # fmt: skip
        if self.chance(0.25):
            scenario["underlay"] = self.underlay(count)
        clients |= self.maybe(
            0.2,
            seconds_per_batch=lambda: self.between(1e-4, 5e-3),
            devices=lambda: self.file(
                "devices.csv", "name,seconds_per_example,seconds_per_batch,uplink,downlink,share",
                "slow,5 ms,1 ms,1 Mbit/s,,2", "fast,100 us,,,50 Mbit/s,1", "odd,1 ms,,10 Mbit/s,10 Mbit/s,",
            ),
            trace=lambda: {
                "path": self.file("speeds.csv", "time,client,factor", "0,all,2", f"0.1,{count - 1},0.5", "0.4,all,1"),
                "every": self.one(None, 0.5),
            },
        )  # fmt: skip
        if self.chance(0.15):
            path = self.file("there.csv", "client,from,to", "a,0,0.2", "a,0.3,0.45", "b,0.1,0.5")
            scenario["availability"].append({"fraction": 0.5, "trace": {"path": path, "draw": True}, "every": 0.5})
        if count > 1 and self.chance(0.3) and scenario["algorithm"]["kind"] not in ONE_GRAPH:
            scenario["topology"] = self.changing(count, horizon)

    def file(self, name: str, *lines: str) -> str:
        """Write a file, and return its path."""
        path = self._folder / f"{self._seed}-{name}"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def regions(self, count: int) -> dict[str, Any]:
        """Draw two regions, and the latency and bandwidth within and between them."""
        self._regions = ["here", "there"]
        first = int(self._random.integers(count + 1))
        where = self.one(
            {"counts": [first, count - first]},
            {"shares": [0.5, 0.5]},
            {"clients": [self.one(*self._regions) for _ in range(count)]},
        )
        return {
            "names": list(self._regions),
            **where,
            **self.maybe(0.7, latency=[["100 us", "20 ms"], ["30 ms", None]]),
            **self.maybe(0.4, bandwidth=[[None, "1 Mbit/s"], ["2 Mbit/s", "100 Mbit/s"]]),
        }

    def link_rule(self, count: int, served: bool, horizon: float) -> dict[str, Any]:
        """Draw a rule that makes some links different, perhaps at some times only."""
        nodes: list[Any] = [*range(count), *(["server"] if served else []), *self._regions]
        who = self.one(
            {"all": True},
            {"clients": [self.one(*nodes)]},
            {"fraction": 0.5},
            {"between": [self.one(*nodes), self.one(*nodes)]},
            {"regions": [self.one(*self._regions)]} if self._regions else {"all": True},
        )
        one_way = self.chance(0.2)
        paces = ["bandwidth"] if one_way or "between" in who else ["bandwidth", "uplink", "downlink"]
        values = {name: self.pace(name) for name in paces if self.chance(0.4)}
        values |= self.maybe(0.5, latency=self.latency, loss=self.loss)
        window: dict[str, Any] = {}
        if self.chance(0.4):
            begin, length = self.between(0.01, horizon), self.between(1e-2, 0.5)
            window = {"from": begin, "until": begin + length, **self.maybe(0.5, every=1.5 * length)}
        way = {"direction": self.one("out", "in")} if one_way else {}
        return {**who, **way, **(values or {"latency": "3 ms"}), **window}

    def pace(self, name: str) -> Any:
        """Draw a bandwidth, an uplink or a downlink."""
        drawn = self.one("link", "client", "message") if name == "bandwidth" else "client"
        return self.one(
            "2 Mbit/s",
            {"kind": "lognormal", "mean": "5 Mbit/s", "sigma": 1, "drawn": drawn},
            {"kind": "uniform", "low": "1 Mbit/s", "high": "9 Mbit/s", "drawn": drawn},
            {
                "kind": "trace", "every": 0.9,
                "path": self.file("paces.csv", "time,value", "0,20 Mbit/s", "0.2,200 kbit/s", "0.6,5 Mbit/s"),
            },
        )  # fmt: skip

    def latency(self) -> Any:
        """Draw a latency, or its distribution."""
        drawn = self.one("link", "client", "message")
        return self.one(
            0, "4 ms",
            {"kind": "exponential", "mean": "5 ms", "drawn": drawn},
            {"kind": "uniform", "low": 0, "high": "20 ms", "drawn": drawn},
            {"kind": "trace", "path": self.file("ways.csv", "time,client,value", "0.1,0,15 ms", "0.5,0,0")},
        )  # fmt: skip

    def loss(self) -> Any:
        """Draw a probability of loss, or its distribution."""
        return self.one(
            0.2,
            {"kind": "uniform", "low": 0, "high": 0.5, "drawn": self.one("link", "client", "message")},
            {"kind": "gilbert_elliott", "good": "200 ms", "bad": "50 ms", "drawn": self.one("link", "client")},
        )

    def underlay(self, count: int) -> dict[str, Any]:
        """Draw a network beneath the links."""
        names = [f"switch{self.one(0, 1)}" for _ in range(count)]
        shape = self.one(
            {"kind": "star", "switches": 2, **self.maybe(0.5, clients={"kind": "nodes", "nodes": names})},
            {"kind": "two_level", "racks": 2, "trunk": self.one(None, "20 Mbit/s")},
            {"kind": "fat_tree"},
            {"kind": "graph", "nodes": 5, "graph": self.one("ring", "star", {"kind": "regular", "degree": 2})},
        )
        return {
            "clients": self.one("round_robin", "random"), **shape,
            **self.maybe(0.5, latency=lambda: self.one(0, "2 ms"), paths="hops", bandwidth=self.one(None, "5 Mbit/s")),
        }  # fmt: skip

    def changing(self, count: int, horizon: float) -> dict[str, Any]:
        """Draw a topology that changes."""
        every = self.between(0.01, horizon)
        middle = self.between(0.05, 0.5)
        met = [f"{begin},{begin + 0.3},{k},{(k + 1) % count}" for k in range(count) for begin in (0.1 * k, 0.1 * k + 1)]
        return self.one(
            {"kind": "one_peer", "redraw_every": every},
            {"kind": "peer_sampling", "peers": 1, "redraw_every": every},
            {"kind": "erdos_renyi", "redraw_every": every},
            {
                "kind": "sequence", "graphs": [{"graph": "ring"}, {"from": middle, "graph": "complete"}],
                **self.maybe(0.5, every=2 * middle),
            },
            {
                "kind": "contacts", "path": self.file("meetings.csv", "from,until,a,b", *met),
                **self.maybe(0.5, every=0.1 * count + 2.0),
            },
        )  # fmt: skip


def drawn(seed: int, folder: Path) -> dict[str, Any]:
    """Return the scenario of a seed, as a mapping; the files that it reads are written into the folder."""
    return Drawer(seed, folder).scenario()


def count(seeds: Iterable[int], one: Callable[[int, Path], bool], folder: Path) -> int:
    """Return for how many seeds a check of a drawn scenario is true; an error names its seed."""
    with shared_data():
        return sum(_named(seed, one, folder) for seed in seeds)


def _named(seed: int, one: Callable[[int, Path], bool], folder: Path) -> bool:
    try:
        return one(seed, folder)
    except BaseException as error:
        error.add_note(f"seed {seed}: drawn({seed}, {str(folder)!r}) returns its scenario")
        raise
