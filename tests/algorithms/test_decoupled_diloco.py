"""Decoupled DiLoCo: an event loop of its own, its mean of directions, its grace, and goodput under failures."""

import heapq
import itertools
import math

import numpy as np
import pytest

from simfl.assembly.assemble import assemble
from simfl.scenario import from_mapping
from simfl.tape.fragment_steps import FragmentStep
from simfl.tape.fragments import Fragments
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_fedbuff import ETA, STEPS, change
from tests.helpers import Lab, constant, make_problem, make_world, run_algorithm
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
            self.send((k, "up"), p, "came", k, p, x[self.part(p)].copy(), one["since"][p] * 64.0, self.now)
        self.at(self.now + self.turn_s(k), "turn", k)

    def came(self, k, p, x, weight, sent):
        this = self.gathered[p]
        this["came"][k] = weight, x
        this.setdefault("sent", {})[k] = sent
        if len(this["came"]) >= K and not this["enough"]:
            this["enough"] = True
            step_s = min(8e-3 * SPEEDS[j] for j in this["came"])
            slack = TAU * step_s - (self.now - min(this["sent"].values())) - (self.bytes_s(p) + LATENCY_S)
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


def test_learners_never_wait():
    links = LinkModel(latency=constant(0.5), bandwidth=1e3)
    algorithm, rows = run("decoupled_diloco", make_world(4, speeds=[1, 2, 3, 4], links=links), until=2.001, quorum=4)
    assert [algorithm.times.waited_s(k) for k in range(4)] == [0.0] * 4
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


def steps_of(world, until, **options):
    """Return the times of the server's steps."""
    times_s = []

    def watch(algorithm):
        merge = algorithm.merge
        algorithm.merge = lambda *given: (times_s.append(world.clock.now), merge(*given))

    algorithm, rows = run("decoupled_diloco", world, until=until, prepare=watch, **options)
    return np.array(times_s), algorithm, rows


NEVER = math.inf
#: Who leaves or comes late -> outages, speeds, the quorum, and the times of the server's steps. A turn takes 8 ms.
LEAVES = {
    "two crash": ({k: [Outage(0.05, NEVER, True)] for k in (1, 2)}, None, 3, 8e-3 * np.arange(1, 26)),
    "two leave": ({k: [Outage(0.05, NEVER)] for k in (1, 2)}, None, 2, 8e-3 * np.arange(1, 26)),
    "the second of the quorum": ({1: [Outage(0.011, NEVER)]}, [1, 100], 2, [0.011, 0.016, 0.024]),
    "the server is away": ({1: [Outage(0.011, NEVER)], 2: [Outage(0.01, 0.02)]}, [1, 100], 2, [0.02, 0.02]),
    "one has not joined": ({2: [Outage(0.0, 9.0)]}, None, 3, 8e-3 * np.arange(1, 26)),
}


@pytest.mark.parametrize("name", LEAVES)
def test_the_quorum_is_one_of_the_clients_that_are_left(name):
    """The server steps at once when a client leaves for which it waits, or when it is back itself."""
    outages, speeds, quorum, expected = LEAVES[name]
    world = make_world(2 if speeds else 3, speeds=speeds, outages=outages)
    times_s, _, rows = steps_of(world, 0.201 if len(expected) > 3 else 0.03, quorum=quorum, fragments=2)
    assert times_s == pytest.approx(expected)
    assert sum(row[1] == 0 for row in rows) >= 3


def test_the_quorum_waits_for_a_client_that_comes_back():
    world = make_world(2, outages={1: [Outage(0.05, 1.0, crash=True)]})
    times_s, _, rows = steps_of(world, 2.001, quorum=2, fragments=2)
    assert not np.any((times_s > 0.05) & (times_s < 1.0))
    assert np.sum(times_s > 1.0) == 125
    assert sum(row[1] == 0 for row in rows) == 250


def test_staleness_counts_the_steps_on_the_fragment_that_is_sent():
    """Client 1 takes 107 ms for a turn, and the server steps with each of client 0, of 10 ms."""
    world = make_world(2, seconds_per_example=10e-3 / 8, speeds=[1.0, 10.7])
    _, _, rows = steps_of(world, 0.995, fragments=2, margin=0.0)
    assert {row[4] for row in rows if row[1] == 0} == {0}
    slow = [row[4] for row in rows if row[1] == 1]
    for turn, staleness in enumerate(slow):  # in turn 0 client 0 ends 10 turns, of which 5 send fragment 0
        begin, end = 10.7 * turn, 10.7 * (turn + 1)
        assert staleness == sum(begin < at < end for at in range(1 + turn % 2, 108, 2))
    assert len(slow) == 9
    world = make_world(4, speeds=[1.0, 2.0, 3.0, 4.0])
    times_s, _, rows = steps_of(world, 1.0, fragments=5, quorum=4)
    assert {row[4] for row in rows if row[0] <= times_s[0]} == {0}


def test_fragments_without_a_tensor_leave_turns_in_which_nothing_is_sent():
    world = make_world(1)
    sent = []

    def watch(algorithm):
        report = algorithm.report
        algorithm.report = lambda me, fragment, *given: (
            sent.append((round(world.clock.now / 8e-3), fragment)),
            report(me, fragment, *given),
        )

    _, rows = run("decoupled_diloco", world, until=0.161, prepare=watch, fragments=5, tensors=[(1, False), (3, True)])
    assert sent == [(1, 0), (3, 1), (6, 0), (8, 1), (11, 0), (13, 1), (16, 0), (18, 1)]
    assert len(rows) == 20


@pytest.mark.numbers
def test_the_mean_is_radial_for_each_tensor_and_plain_for_embeddings():
    with Lab(make_problem(2)) as lab:
        d = len(lab.training().initial)
        lengths, embeds, generator = [100, 7, 400, 143], [True, False, False, True], np.random.default_rng(3)
        cut = Fragments.packed(lengths, 2)
        step = FragmentStep(cut, tuple((n, not is_one) for n, is_one in zip(lengths, embeds, strict=True)))
        shared, velocity, *models = generator.standard_normal((5, d)).astype(np.float32)
        models[0][100:107] = shared[100:107]  # no change of a tensor
        weights = [1.0, 2.0, 5.0]
        for fragment in range(2):
            rows = [lab.tape.constant(row) for row in (shared, velocity, *models)]
            after, moved = step.take(lab.tape, *rows[:2], list(zip(weights, rows[2:], strict=True)), fragment, LR, BETA)
            x, m = shared.astype(np.float64), velocity.astype(np.float64)
            for tensor, end in enumerate(np.cumsum(lengths)):
                part = slice(end - lengths[tensor], end)
                if cut.of()[part][0] == fragment:
                    average = mean if embeds[tensor] else radial
                    change = average([x[part] - model[part] for model in models], np.array(weights) / 8)
                    m[part] = BETA * m[part] + change
                    x[part] -= LR * (change + BETA * m[part])
            got = lab.tape.values([after, moved])
            np.testing.assert_allclose(got, [x, m], rtol=0, atol=2e-6)


def test_a_transformer_is_cut_into_whole_tensors_and_its_embeddings_are_averaged():
    data = {"set": "text", "length": 16, "stride": 4, "generate": {"length": 2000}}
    algorithm = {"kind": "decoupled_diloco", "fragments": 4}
    scenario = from_mapping({"data": data, "model": {"kind": "transformer"}, "algorithm": algorithm})
    setup = assemble(scenario)
    options = setup.options
    layout = setup.model.layout
    assert [length for length, _ in options["tensors"]] == [math.prod(shape) for _, shape in layout]
    assert [name for (name, _), (_, embeds) in zip(layout, options["tensors"], strict=True) if embeds] == [
        "tokens",
        "places",
    ]
    assert set(options["steps"]) == {1}, "a mini-batch, as in the paper"
