"""Runs equal those of an independent simulator in random worlds: times, peers, staleness, messages and bytes."""

from typing import Any

import numpy as np
import pytest

from simfl.assembly.data import shared_data
from simfl.records import RunFolder
from simfl.runs import runner
from simfl.scenario import from_mapping
from simfl.tape.executor import choose_device
from tests.oracle import families, rounds, servers
from tests.oracle.core import World

FAMILIES = {
    "adpsgd": families.adpsgd,
    "async_sgd": families.AsyncSGD,
    "fedbuff": families.FedBuff,
    "gossip_learning": families.gossip_learning,
    "fedasync": families.FedBuff,
    "async_local_sgd": families.FedBuff,
    "ca2fl": families.FedBuff,
    "ringmaster": servers.Ringmaster,
    "rennala": servers.Rennala,
    "m_sync_sgd": servers.MSyncSGD,
    "mindflayer": servers.MindFlayer,
    "ringleader": servers.Ringleader,
    "fedavg": servers.Rounds,
    "fedat": servers.Rounds,
    "decentralized_sgd": rounds.matcha,
    "matcha": rounds.matcha,
    "plexus": rounds.Plexus,
    "teleportation": rounds.Teleportation,
}
#: Those that take a bound on staleness.
BOUNDED = ("adpsgd", "async_sgd", "fedbuff", "gossip_learning", "fedasync", "async_local_sgd", "ca2fl")
#: Those in whose worlds no client joins late or leaves.
STAYING = ("decentralized_sgd", "matcha", "plexus", "teleportation")
WITHOUT_SERVER = ("adpsgd", "gossip_learning", *STAYING)
#: Those whose clients wait for one that is cut off.
WAITING = ("m_sync_sgd", "mindflayer", "ringleader", "fedavg", "fedat", *STAYING)
#: What is drawn for the options of the others.
OPTIONS = {
    "fedasync": {"local_steps": (1, 2), "concurrency": (None, 2)},
    "async_local_sgd": {"local_steps": (1, 2), "concurrency": (None, 2)},
    "ca2fl": {"local_steps": (1, 2), "buffer_size": (1, 2), "after_update": ("continue", "wait")},
    "ringmaster": {"threshold": (1, 2, 4), "late": ("drop", "stop")},
    "rennala": {"gradients_per_step": (1, 2, 4), "late": ("drop", "stop")},
    "m_sync_sgd": {"wait_for": (1, 2, 4), "late": ("drop", "stop")},
    "mindflayer": {"trials": (1, 2, 3), "trial_factor": (0.9, 1.5, 3.0)},
    "ringleader": {"harmonic_batch": (1.0, 1.5)},
    "fedavg": {"local_steps": (1, 2), "fraction": (0.5, 1.0)},
    "fedat": {"local_steps": (1, 2), "fraction": (0.5, 1.0), "tiers": (1, 2, 3)},
    "decentralized_sgd": {},
    "matcha": {"budget": (0.4, 0.7, 1.0)},
    "plexus": {"sample": (2, 3, 4), "success": (0.5, 0.8, 1.0), "local_steps": (1, 2)},
    "teleportation": {"active": (1, 2, 4), "graph": ("one_peer", "ring", "complete")},
}
WORLDS = 10
DIMENSION = 20
SECONDS = 3.0

pytestmark = pytest.mark.usefixtures("without_numbers")


def drawn(family: str, number: int) -> dict[str, Any]:
    """Return a scenario; in those with odd numbers, messages share links fairly."""
    draw = np.random.default_rng([[*FAMILIES].index(family), number])
    count, special = int(draw.choice([4, 5, 6, 8])), number % 5 == 4

    def one(*choices: Any) -> Any:
        return choices[int(draw.integers(len(choices)))]

    def between(low: float, high: float) -> float:
        return float(draw.uniform(low, high))

    def span(longest: float) -> tuple[float, float]:
        begin = between(0.05, 0.7 * SECONDS)
        return begin, begin + between(0.1, 1.0) * longest

    def pace() -> str:
        """Return a bandwidth at which a model of 84 bytes takes some milliseconds.

        On links that are shared and full, rounding errors would grow exponentially.
        """
        return f"{between(80, 400) * (1 + number % 2):.1f} kbit/s"

    def exponential(mean: str) -> dict[str, str]:
        return {"kind": "exponential", "mean": mean}

    algorithm: dict[str, Any] = {
        "adpsgd": {"exchange": "atomic" if special else "messages", "pairing": one("auto", "everyone")},
        "async_sgd": {"delays": "cyclic" if special else "world", "step_size": 0.1},
        "fedbuff": {
            "buffer_size": one(1, 2),
            "local_steps": one(1, 2),
            "concurrency": one(None, count // 2),
            "after_update": "wait" if special else "continue",
        },
        "gossip_learning": {"period": between(0.01, 0.05)},
    }.get(family) or {name: one(*choices) for name, choices in OPTIONS[family].items()}
    policy = (None, "wait", "wait", "drop", None, "down_weight")[number % 6]
    if policy and algorithm.get("delays") != "cyclic" and family in BOUNDED:
        algorithm["staleness_bound"] = {"bound": one(1, 2, 3), "policy": policy}
    waits = special or policy == "wait" or family in WAITING  # then others wait for a client that is cut off, too
    (begin, end), (later, again), down = span(0.6), span(0.4), span(0.2)
    served = family not in WITHOUT_SERVER
    server = {"uplink": one(None, pace()), "downlink": one(None, pace()), "seconds_per_update": one(0, "2 ms")}
    group = one([0], [0, 1], ["server", 0] if served else [1, 3])
    cuts = [
        {"groups": [group], "from": begin, "until": end},
        {"groups": [[1]], "from": 0.5 * (begin + end), "until": end + 0.1},
        {"groups": [[count - 1], [0, 2]], "from": later, "until": again},
        {"groups": [[count - 1]], "from": later, **({"until": again} if waits else {})},
    ]
    # Shorter than a message takes: a message that is cut is sent again after its last byte has left.
    flaps = [
        {"groups": [group], "from": t, "until": t + between(1e-3, 1e-2)} for t in np.arange(0.11, SECONDS, 0.1).tolist()
    ]
    back, churn = span(0.5), {"up": exponential("400 ms"), "down": exponential("60 ms")}
    absences: list[dict[str, Any]] = [
        {"clients": [0], "offline": [list(span(0.5))], **one({}, {"every": 1.3})},
        {"clients": [1, 2], "crash": [{"at": back[0], "back": back[1]}]},
        {"clients": [count - 1], "join": between(0.1, 1.0)},
        {"clients": [1], "random": churn},
        {"clients": [2], "crash": [{"at": span(0.5)[0], "back": "never"}]},
        {"clients": [3], "offline": [list(span(0.3))]},
        {"clients": [3], "offline": [list(span(0.3))]},
    ]
    if family in STAYING:
        absences = [absences[n] for n in (0, 1, 3, 5, 6)]
    return {
        "name": f"{family}-{number}",
        "seed": int(draw.integers(1000)),
        "data": {"set": "logistic", "samples": 400, "dimension": DIMENSION},
        "model": "logistic",
        "topology": one("ring", "complete", "star", {"kind": "erdos_renyi"}),
        "algorithm": {"kind": family, "batch_size": one(4, 10), **algorithm},
        "clients": {
            "count": count,
            "seconds_per_example": between(5e-4, 3e-3),
            "seconds_per_batch": one(0, "4 ms"),
            "jitter": one(
                {"kind": "lognormal", "sigma": 0.4}, "exponential", {"kind": "uniform", "low": 0.5, "high": 2}
            ),
            "speed": one(
                1.0, {"kind": "lognormal", "sigma": 0.5}, {"kind": "list", "values": [1, 4, 2, 1, 1, 1, 0.5, 1][:count]}
            ),
        },
        "slowdowns": one([], [{"clients": [0, 1], "factor": 2.5, "from": 1.0, "until": 2.0}]),
        "links": {
            "latency": one(exponential("8 ms"), {"kind": "uniform", "low": "1 ms", "high": "20 ms"}),
            "bandwidth": one(None, pace()),
            "uplink": one(None, pace()),
            "downlink": one(None, pace()),
            "rules": one([], [{"clients": [0, 2], "uplink": pace()}, {"clients": [2, 3], "bandwidth": pace()}]),
            "loss": one(0, 0.1, 0.3),
            "resend_timeout": between(0.01, 0.1),
            "fifo": one(True, False, False) if family != "plexus" else one(False, False, False),
            "overhead": one(0, 40),
            "sharing": ("fifo", "fair", "fifo", "by_latency")[number % 4],
            "partitions": [cut for cut in cuts if one(True, False)] + flaps[: len(flaps) * (number // 2 % 2)],
        },
        "availability": [rule for rule in absences if one(True, True, False)],
        "server": {**server, "offline": one([], [list(down)])} if served else {},
        "stop": {"time": SECONDS},
        "evaluate": {"every": {"time": SECONDS}},
        "record": {"messages": True},
    }


def colored(simulation: Any) -> list[tuple[Any, float]]:
    """Return the links that are active together in a round, and how probable they are.

    They are those of MATCHA, which tests/world/test_matchings.py compares with the optimum, or all links.
    """
    algorithm = simulation.algorithm
    if algorithm.kind != "matcha":
        return [(algorithm.world.topology.edges, 1.0)]
    return list(zip(algorithm.matchings, algorithm.chances.tolist(), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_worlds_of_a_family_have_all_kinds_of_links_and_faults(family):
    worlds = [drawn(family, number) for number in range(WORLDS)]
    links = [world["links"] for world in worlds]
    assert {one["sharing"] for one in links} == {"fifo", "fair", "by_latency"}
    assert {one["fifo"] for one in links} == {True, False} - ({True} if family == "plexus" else set())
    assert all(any(one[name] for one in links) for name in ("loss", "bandwidth", "uplink", "downlink", "overhead"))
    rules = [rule for world in worlds for rule in world["availability"]]
    names = {name for rule in rules for name in rule}
    if family in STAYING:
        assert names > {"offline", "every", "crash", "random"}
    else:
        assert names > {"join", "offline", "every", "crash", "random"}
        assert any(crash["back"] == "never" for rule in rules for crash in rule.get("crash", ()))
    if family not in WAITING:
        assert any("until" not in cut for one in links for cut in one["partitions"])
    bounds = {world["algorithm"].get("staleness_bound", {}).get("policy") for world in worlds}
    assert bounds == ({None, "wait", "drop", "down_weight"} if family in BOUNDED else {None})


@pytest.mark.slow(but=["-1", "-4"])
@pytest.mark.parametrize("number", range(WORLDS))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_equals_that_of_the_oracle(family, number, tmp_path):
    scenario = from_mapping(drawn(family, number))
    with shared_data():
        simulation = runner.Simulation(runner.prepare(scenario), choose_device(None))
    try:
        run = simulation.run(RunFolder.create(tmp_path, scenario.name))
    finally:
        simulation.release()
    edges = run.edges[["source", "target"]].to_numpy().tolist()
    world = World(scenario, edges, model_bytes=4 * (DIMENSION + 1), matchings=colored(simulation))
    FAMILIES[family](world)
    world.clock.run(until=SECONDS)

    updates = run.updates[["time_s", "client", "peer", "staleness"]].to_numpy()
    assert len(updates) > 5
    np.testing.assert_allclose(updates, np.array(world.updates), rtol=1e-9)
    columns = ["source", "target", "sent_s", "delivered_s", "bytes", "resends"]
    messages = run.messages[columns].sort_values(columns).to_numpy()
    expected = sorted((row[2], row[3], row[0], row[1], row[4], row[5]) for row in world.network.rows)
    np.testing.assert_allclose(messages, np.array(expected).reshape(-1, 6), rtol=1e-9)
    assert run.clients["bytes"].to_list() == [world.network.bytes[k] for k in range(world.clients)]
