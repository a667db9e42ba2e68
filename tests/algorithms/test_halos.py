"""HALoS: an event loop of its own, its limit without a global server, and the environment of its authors' program."""

import heapq
import itertools
from pathlib import Path

import numpy as np
import pytest

from simfl.algorithms.staleness import StalenessBound
from simfl.assembly.kinds import find_kind
from simfl.assembly.places import Places
from simfl.errors import ScenarioError
from simfl.scenario import from_mapping, load
from simfl.streams import Streams
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_fedbuff import ETA, STEPS, change
from tests.helpers import Lab, constant, make_problem, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.17, 0.71]
REGION_OF = [0, 0, 1, 1, 2, 2]
LATENCY_S, BANDWIDTH = 0.004, 3e4
OPTIONS = {
    "server_step": 1.1, "momentum": 0.5, "momentum_every": 2, "regional_step": 0.9, "regional_momentum": 0.8,
    "regional_momentum_every": 3, "accumulate": 4, "merging": 0.3,
}  # fmt: skip
SCENARIO = Path(__file__).parents[2] / "scenarios/low_communication/halos.yaml"


class Momentum:
    """Delayed Nesterov momentum in float64, with c = 0."""

    def __init__(self, lr, beta, every):
        self.lr, self.beta, self.every, self.t = lr, beta, every, 0
        self.m = self.total = 0.0

    def __call__(self, x, g):
        self.t, self.total = self.t + 1, self.total + g
        if self.t % self.every:
            return x - self.lr * g / self.every
        self.m, self.total = self.beta * self.m + self.total / self.every, 0.0
        return x - self.lr * (self.beta * self.m + g / self.every)


def halos(problem, initial, updates):
    """Return (time, client) of each update and the global model, by the paper's listing on a heap of events."""
    message_s = LATENCY_S + 4 * len(initial) / BANDWIDTH
    queue, order = [], itertools.count()

    def at(time, *what):
        heapq.heappush(queue, (time, next(order), *what))

    regions = [{"x": initial, "merged": initial, "count": 0, "step": Momentum(0.9, 0.8, 3)} for _ in range(3)]
    x, step, draws, made = initial, Momentum(1.1, 0.5, 2), [0] * 6, []
    for k in range(6):
        at(0.0, "begin", k, initial)
    while len(made) < updates:
        now, _, what, k, value = heapq.heappop(queue)
        if what == "begin":
            delta = change(problem, value, k, draws[k], STEPS[k])
            at(now + STEPS[k] * 8e-3 * SPEEDS[k] + message_s, "change", k, delta)
            draws[k] += STEPS[k]
        elif what == "change":
            region = regions[REGION_OF[k]]
            region["x"], region["count"] = region["step"](region["x"], -value), region["count"] + 1
            made.append((now, k))
            if region["count"] == 4:
                at(now + message_s, "up", REGION_OF[k], region["merged"] - region["x"])
            at(now + message_s, "begin", k, region["x"])
        elif what == "up":
            x = step(x, value)
            at(now + message_s, "down", k, x)
        else:
            regions[k]["x"] = 0.7 * regions[k]["x"] + 0.3 * value
            regions[k].update(merged=regions[k]["x"], count=0)
    return made, x


@pytest.mark.numbers
@pytest.mark.slow
def test_times_and_models_equal_those_of_an_event_loop():
    problem = make_problem(6, local=True)
    links = LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    with Lab(problem) as lab:
        training = lab.training(step_size=ETA)
        algorithm, rows = run_algorithm(
            "halos", make_world(6, speeds=SPEEDS, links=links), lab.tape, training, updates=90, steps=STEPS,
            region_of=REGION_OF, **OPTIONS,
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0]
    made, x = halos(problem, training.initial.astype(np.float64), 90)
    assert [row[1] for row in rows] == [k for _, k in made]
    assert [row[0] for row in rows] == pytest.approx([time for time, _ in made])
    np.testing.assert_allclose(model, x, rtol=0, atol=2e-5)
    assert np.abs(x - training.initial).max() > 0.05


@pytest.mark.parametrize("policy", ["drop", "wait", "down_weight"])
def test_staleness_counts_the_changes_of_the_region(policy):
    """Client 0 is alone in its region: its changes are never stale, and a bound does not delay it."""
    world = make_world(4, speeds=[1.0, 1.0, 1.3, 2.0], links=LinkModel(latency=constant(0.001)))
    bound = StalenessBound(1, policy)
    algorithm, rows = run("halos", world, until=1.0, region_of=[0, 1, 1, 1], accumulate=3, staleness=bound)
    assert {row[4] for row in rows if row[1] == 0} == {0}
    assert [row[0] for row in rows if row[1] == 0] == pytest.approx(0.009 + 0.01 * np.arange(100), abs=1e-3)
    others = [row[4] for row in rows if row[1] != 0]
    assert (max(others) > 1) == (policy == "down_weight")
    assert algorithm.client_dropped[0] == 0
    assert (sum(algorithm.client_dropped) > 0) == (policy == "drop")
    assert [region.version for region in algorithm.regions] == [100, len(others)]


def test_regions_go_on_while_the_global_server_is_away():
    """Changes of regions wait for it; no client does."""
    away = {4: [Outage(0.5, 1.5)]}
    world = make_world(4, speeds=[1.0, 1.3, 1.7, 2.3], outages=away)
    algorithm, rows = run("halos", world, until=1.4, accumulate=4)
    assert [region.changes > 4 for region in algorithm.regions] == [True, True]
    assert sum(row[0] > 0.5 for row in rows) > 200
    world = make_world(4, speeds=[1.0, 1.3, 1.7, 2.3], outages=away)
    algorithm, _ = run("halos", world, until=1.6, accumulate=4)
    assert max(region.changes for region in algorithm.regions) <= 4


def test_the_scenario_is_the_environment_of_the_authors_program():
    scenario = load(SCENARIO)
    kind = find_kind(scenario)
    assert kind.round_steps([100] * 16) == [3, 8, 8, 4, 6, 5, 7, 2, 8, 2, 8, 1, 8, 5, 5, 7]
    places = Places(scenario, Streams(scenario.seed))
    assert [places.regions[node] for node in range(21)] == [k // 4 for k in range(16)] + [0, 0, 1, 2, 3]


def test_clients_belong_to_the_server_of_their_region():
    regions = {"names": ["a", "b"], "clients": ["b", "a", "b"]}
    mapping = {"clients": {"count": 3}, "regions": regions, "algorithm": {"kind": "halos"}}
    places = Places(from_mapping(mapping), Streams(0))
    assert [places.regions[node] for node in (0, 1, 2, 4, 5)] == [1, 0, 1, 0, 1]
    assert places.of(["a"]) == {1, 4}
    assert places.of(["server"]) == {3, 4, 5}
    mapping["server"] = {"aggregator_regions": ["a"]}
    with pytest.raises(ScenarioError, match=r"server\.aggregator_regions: expected at most 0, the aggregators"):
        from_mapping(mapping)
