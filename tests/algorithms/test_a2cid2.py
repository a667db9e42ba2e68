"""A2CiD2: an independent loop in NumPy, chi_1 and chi_2 in closed form, and what it gains on two graphs."""

import math

import networkx as nx
import numpy as np
import pytest

from simfl.algorithms.a2cid2 import resistances
from simfl.tape import Tape
from simfl.world.topology import Topology
from tests.helpers import NumpyExecutor, begin_apart, lognormal, make_training, make_world, run_algorithm

D, STEP = 3, 0.1


def models(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, D))


def gossip(kind, count, *, topology, until, step=0.0, prepare=lambda algorithm: None, **options):
    """Return an algorithm after `until` seconds, and its models; gradients are 8 (params + 1) for batches of 8."""
    tape = Tape(NumpyExecutor(D, lambda params, *_: 8 * (params + 1.0)), window=50, max_batch=8)

    def begin(algorithm):
        begin_apart(algorithm, models(count))
        if kind == "a2cid2":
            algorithm.second = list(algorithm.model)
        prepare(algorithm)

    world = make_world(count, topology=topology, jitter=lognormal(0.3), seed=2)
    training = make_training([64] * count, d=D, step_size=step)
    algorithm, _ = run_algorithm(
        kind, world, tape, training, until=until, prepare=begin, exchange="atomic", pairing="everyone", **options
    )
    return algorithm, tape.values(algorithm.models())


def test_models_equal_those_of_a_numpy_loop():
    count, events = 5, []

    def watch(algorithm):
        batches, average, apply = algorithm.batches, algorithm._average, algorithm.apply
        read = batches.gradient
        batches.gradient = lambda model, me: (events.append(("read", algorithm.clock.now, me)), read(model, me))[1]
        algorithm._average = lambda me, peer: (
            events.append(("pair", algorithm.clock.now, me, peer)),
            average(me, peer),
        )[1]
        algorithm.apply = lambda me, *rest: (events.append(("step", algorithm.clock.now, me)), apply(me, *rest))[1]

    each_s = [0.008, 0.009, 0.01, 0.008, 0.007]
    _, found = gossip("a2cid2", count, topology="ring", until=0.1, step=STEP, prepare=watch, gradient_s=each_s)
    laplacian = np.zeros((count, count))
    for i in range(count):
        for j in ((i + 1) % count, (i - 1) % count):  # client i starts an exchange per gradient, with either neighbor
            e = np.eye(count)[i] - np.eye(count)[j]
            laplacian += np.mean(each_s) / each_s[i] / 2 * np.outer(e, e)
    first, inverse = 1 / np.sort(np.linalg.eigvals(laplacian).real)[1], np.linalg.pinv(laplacian)
    edges = [np.eye(count)[i] - np.eye(count)[(i + 1) % count] for i in range(count)]
    second = max(0.5 * e @ inverse @ e for e in edges)
    eta, alpha = 0.5 / math.sqrt(first * second), 0.5 * math.sqrt(first / second)
    x, y, last, gradients = models(count), models(count), np.zeros(count), {}

    def mix(k, now):
        kept = (1 + math.exp(-2 * eta * (now - last[k]) / np.mean(each_s))) / 2
        x[k], y[k], last[k] = kept * x[k] + (1 - kept) * y[k], kept * y[k] + (1 - kept) * x[k], now

    for event, now, me, *peer in events:
        mix(me, now)
        if event == "read":
            gradients[me] = x[me] + 1.0
        elif event == "step":
            x[me], y[me] = x[me] - STEP * gradients[me], y[me] - STEP * gradients[me]
        else:
            mix(peer[0], now)
            difference = x[peer[0]] - x[me]
            for k, sign in ((me, 1), (peer[0], -1)):
                x[k], y[k] = x[k] + sign * difference / 2, y[k] + sign * alpha * difference
    assert sum(event == "pair" for event, *_ in events) > 40
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [8, 32])
def test_resistances_of_rings_and_complete_graphs_have_closed_forms(count):
    ring = Topology.from_graph(nx.cycle_graph(count))
    slow, edge = 1 / (2 - 2 * math.cos(2 * math.pi / count)), (count - 1) / (2 * count)
    assert resistances(ring, [1.0] * count) == pytest.approx((slow, edge))
    complete = Topology.from_graph(nx.complete_graph(count))
    assert resistances(complete, [1.0] * count) == pytest.approx((edge, edge)), "no gain"
    assert resistances(complete, [2.0] * count) == pytest.approx((edge / 2, edge / 2)), "twice the rate"
