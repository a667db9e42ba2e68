"""Decoupled DiLoCo: an event loop of its own, its mean of directions, its grace, and goodput under failures."""

import heapq
import itertools
import math

import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.tape.fragment_steps import FragmentStep
from simfl.tape.fragments import Fragments
from simfl.world.availability import Outage, RandomOutages
from simfl.world.links import LinkModel
from tests.algorithms.test_fedbuff import ETA, STEPS, change
from tests.helpers import Lab, constant, exponential, make_problem, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

SPEEDS = [1.0, 1.37, 2.11, 0.53, 3.17, 0.71]
LATENCY_S, BANDWIDTH = 0.004, 3e4
LR, BETA, ALPHA, P, K, TAU, MARGIN = 0.6, 0.8, 0.3, 3, 3, 4.0, 0.7


def radial(changes, weights):
    """Return the radial-directional mean, f64 [d]."""
    norms = [np.linalg.norm(one) for one in changes]
    ways = sum(w * one / norm for w, one, norm in zip(weights, changes, norms, strict=True) if norm)
    return sum(w * norm for w, norm in zip(weights, norms, strict=True)) * ways / np.linalg.norm(ways)


def mean(changes, weights):
    """Return the weighted mean, f64 [d]."""
    return sum(w * one for w, one in zip(weights, changes, strict=True))


class EventLoop:
    """Decoupled DiLoCo of six clients on a heap of events, in float64."""

    def __init__(self, problem, initial, average, updates):
        self.problem, self.average = problem, average
        self.queue, self.order, self.free = [], itertools.count(), {}
        d = len(initial)
        self.ends = [d * (p + 1) // P for p in range(P)]
        self.x, self.m = initial.copy(), np.zeros(d)
        self.clients = [
            {"x": initial, "turn": 0, "draw": 0, "since": [0] * P, "inbox": {}, "known": [0] * P} for _ in range(6)
        ]
        self.gathered = [{"came": {}, "enough": False} for _ in range(P)]
        self.stepped, self.rows = [0] * P, []
        for k in range(6):
            self.at(self.turn_s(k), "turn", k)
        while len(self.rows) < updates:
            self.now, _, what, *given = heapq.heappop(self.queue)
            getattr(self, what)(*given)

    def at(self, time, *what):
        heapq.heappush(self.queue, (time, next(self.order), *what))

    def turn_s(self, k):
        return STEPS[k] * 8e-3 * SPEEDS[k]

    def part(self, p):
        return slice(self.ends[p - 1] if p else 0, self.ends[p])

    def bytes_s(self, p):
        part = self.part(p)
        return 4 * (part.stop - part.start) / BANDWIDTH

    def send(self, link, p, *what):
        self.free[link] = max(self.now, self.free.get(link, 0.0)) + self.bytes_s(p)
        self.at(self.free[link] + LATENCY_S, *what)

    def turn(self, k):
        one = self.clients[k]
        x = one["x"] + change(self.problem, one["x"], k, one["draw"], STEPS[k])
        one["draw"] += STEPS[k]
        self.rows.append((self.now, k))
        one["since"] = [count + STEPS[k] for count in one["since"]]
        for p, shared in one["inbox"].items():
            x[self.part(p)] = ALPHA * x[self.part(p)] + (1 - ALPHA) * shared
            one["since"][p] = 0
        one["x"], one["inbox"], p = x, {}, one["turn"] % P
        one["turn"] += 1
        if one["since"][p]:
            self.send((k, "up"), p, "came", k, p, x[self.part(p)].copy(), one["since"][p] * 64.0)
        self.at(self.now + self.turn_s(k), "turn", k)

    def came(self, k, p, x, weight):
        this = self.gathered[p]
        this.setdefault("began", self.now)
        this["came"][k] = weight, x
        if len(this["came"]) >= K and not this["enough"]:
            this["enough"] = True
            step_s = min(8e-3 * SPEEDS[j] for j in this["came"])
            slack = TAU * step_s - (self.now - this["began"]) - (self.bytes_s(p) + LATENCY_S)
            self.at(self.now + max(0.0, MARGIN * slack), "over", p, this)
        if len(this["came"]) == 6:
            self.over(p, this)

    def over(self, p, this):
        if self.gathered[p] is not this:
            return
        self.gathered[p] = {"came": {}, "enough": False}
        part, total = self.part(p), sum(weight for weight, _ in this["came"].values())
        moved = self.average(
            [self.x[part] - x for _, x in this["came"].values()], [w / total for w, _ in this["came"].values()]
        )
        self.m[part] = BETA * self.m[part] + moved
        self.x[part] -= LR * (moved + BETA * self.m[part])
        self.stepped[p] += 1
        for k in range(6):
            self.send((k, "down"), p, "fragment", k, p, self.x[part].copy(), self.stepped[p])

    def fragment(self, k, p, shared, number):
        one = self.clients[k]
        if number > one["known"][p]:
            one["known"][p], one["inbox"][p] = number, shared


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize(("averaging", "average"), [("radial", radial), ("mean", mean)])
def test_times_and_models_equal_those_of_an_event_loop(averaging, average):
    problem = make_problem(6, local=True)
    links = LinkModel(latency=constant(LATENCY_S), bandwidth=BANDWIDTH)
    with Lab(problem) as lab:
        training = lab.training(step_size=ETA)
        algorithm, rows = run_algorithm(
            "decoupled_diloco", make_world(6, speeds=SPEEDS, links=links), lab.tape, training, updates=140, steps=STEPS,
            fragments=P, server_step=LR, momentum=BETA, local_share=ALPHA, quorum=K, overlap_steps=TAU, margin=MARGIN,
            averaging=averaging,
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0]
    loop = EventLoop(problem, training.initial.astype(np.float64), average, 140)
    assert [row[1] for row in rows] == [k for _, k in loop.rows]
    assert [row[0] for row in rows] == pytest.approx([time for time, _ in loop.rows])
    assert algorithm.stepped == loop.stepped
    assert min(loop.stepped) > 3
    np.testing.assert_allclose(model, loop.x, rtol=0, atol=2e-5)
    assert np.abs(loop.x - training.initial).max() > 0.05


def test_the_mean_of_orthogonal_changes_of_one_length_has_that_length():
    """The paper's reason for it: the plain mean is shorter by the root of their number."""
    lengths = []
    for is_radial in (True, False):
        with Lab(make_problem(2)) as lab:
            d = len(lab.training().initial)
            step = FragmentStep(Fragments((d,)), is_radial)
            zero, basis = np.zeros(d, np.float32), 2.0 * np.eye(d, dtype=np.float32)
            shared = lab.tape.constant(zero)
            parts = [(1.0, lab.tape.constant(basis[i])) for i in range(4)]
            after, _ = step.take(lab.tape, shared, shared, parts, 0, 1.0, 0.0)
            lengths.append(np.linalg.norm(lab.tape.values([after])[0]))
    assert lengths == pytest.approx([2.0, 1.0])


def test_learners_never_wait():
    links = LinkModel(latency=constant(0.5), bandwidth=1e3)
    algorithm, rows = run("decoupled_diloco", make_world(4, speeds=[1, 2, 3, 4], links=links), until=2.001, quorum=4)
    assert [algorithm.waited_s(k) for k in range(4)] == [0.0] * 4
    assert [sum(row[1] == k for row in rows) for k in range(4)] == [250, 125, 83, 62]


def test_the_grace_lets_slower_clients_in():
    """Client 1 is 2 ms later than client 0, within a grace of 0.5 * 2 * 8 ms, and client 2 is too late for it."""
    for margin, senders in ((0.5, 2), (0.0, 1)):
        merged = []

        def watch(algorithm, merged=merged):
            merge = algorithm.merge
            algorithm.merge = lambda fragment, parts: (merged.append(len(parts)), merge(fragment, parts))

        world = make_world(3, speeds=[1.0, 1.25, 4.0])
        run("decoupled_diloco", world, until=0.025, prepare=watch, fragments=1, overlap_steps=2.0, margin=margin)
        assert merged[0] == senders


def crashes(generator, up_s, down_s, until_s):
    """Draw outages with a mean time up, and a given time down."""
    outages, now = [], 0.0
    while now < until_s:
        begin = now + generator.exponential(up_s)
        now = begin + down_s
        outages.append(Outage(begin, now, crash=True))
    return outages


@pytest.mark.slow
@pytest.mark.parametrize("learners", [1, 8, 16])
def test_goodput_under_failures_equals_its_closed_form(learners):
    """1.2 million chips with one failure a year each; one failure stops a learner and destroys its turn.

    A learner of n chips has failures at the rate n / (a year). With mean time u between them, turns of T and outages of
    R it completes turns for T / (exp(T / u) - 1) in each period of u + R on average. Without lost turns that is u.
    """
    until_s, down_s, turn_s = 40_000.0, 29.0, 4.0
    up_s = 365.25 * 86_400 / 1.2e6 * learners
    generator = np.random.default_rng(learners)
    outages = {k: crashes(generator, up_s, down_s, until_s) for k in range(learners)}
    world = make_world(learners, seconds_per_example=turn_s / 8, outages=outages)
    algorithm, rows = run("decoupled_diloco", world, until=until_s)
    goodput = len(rows) * turn_s / (learners * until_s)
    expected = turn_s / (math.exp(turn_s / up_s) - 1.0) / (up_s + down_s)
    periods = learners * until_s / (up_s + down_s)
    assert goodput == pytest.approx(expected, rel=3.0 / math.sqrt(periods))
    assert sum(algorithm.waited_s(k) for k in range(learners)) == pytest.approx(0.0, abs=1e-6)
    pauses = dict.fromkeys(range(learners), RandomOutages(exponential(up_s), constant(down_s)))
    world = make_world(learners, seconds_per_example=turn_s / 8, random_outages=pauses)
    _, rows = run("decoupled_diloco", world, until=until_s)
    kept = len(rows) * turn_s / (learners * until_s)
    assert kept == pytest.approx(up_s / (up_s + down_s), rel=3.0 / math.sqrt(periods))


def test_without_a_quorum_the_server_does_not_step():
    gone = {k: [Outage(0.05, math.inf, crash=True)] for k in (1, 2)}
    algorithm, rows = run("decoupled_diloco", make_world(3, outages=gone), until=2.001, quorum=3, fragments=2)
    before = list(algorithm.stepped)
    assert sum(before) < 8
    assert sum(row[1] == 0 for row in rows) == 250, "and who is left trains on"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"quorum": 9}, r"algorithm\.quorum: expected at most clients\.count, which is 8, found 9; lower it or add"),
        ({"staleness_bound": {"bound": 3}}, r"staleness_bound: expected null with 'decoupled_diloco', found a bound"),
        ({"concurrency": 3}, r"concurrency: expected null with 'decoupled_diloco', found 3"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, line):
    with pytest.raises(ScenarioError, match=line):
        from_mapping({"clients": {"count": 8}, "algorithm": {"kind": "decoupled_diloco", **options}})
