"""SWIFT: an independent loop over its events, weights that keep the mean, and no waiting."""

import networkx as nx
import numpy as np
import pytest

import simfl
from simfl.algorithms.swift import weights_of
from simfl.scenario import from_mapping
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from simfl.world.topology import Topology, build_topology
from tests.helpers import exponential, lognormal, make_world, pulled, run_without_numbers, targets

D, STEP, BATCH_S = 3, 0.1, 8e-3


@pytest.mark.parametrize("skip", [0, 2])
def test_models_equal_those_of_a_loop_over_the_events(skip):
    """Messages are slow, lost and overtaken; client 4 is twice as slow as the others."""
    count, events = 5, []
    pulls, speeds = targets(count, D), [1.0, 1.0, 1.0, 1.0, 2.0]
    links = LinkModel(latency=exponential(10e-3), loss=0.2, resend_timeout_s=0.01)
    world = make_world(count, jitter=lognormal(0.4), links=links, speeds=speeds)

    def watch(algorithm):
        send, receive, average = algorithm._send, algorithm._receive, algorithm._average
        algorithm._send = lambda me: (events.append(("step", me, algorithm.client_updates[me])), send(me))[1]
        algorithm._receive = lambda me, source, number, model: (
            events.append(("came", me, source, number)),
            receive(me, source, number, model),
        )[1]
        algorithm._average = lambda me: (events.append(("mean", me)), average(me))[1]

    _, models = pulled("swift", world, 0.5, prepare=watch, skip=skip, gradient_s=[BATCH_S * one for one in speeds])
    x, heard, sent = np.zeros((count, D)), {}, {}
    p = 1 / np.array(speeds)
    for event, me, *rest in events:
        if event == "step":
            x[me] = x[me] - STEP * (x[me] - pulls[me])
            sent[me, rest[0]] = x[me].copy()
        elif event == "came":
            heard[me, rest[0]] = max(heard.get((me, rest[0]), 0), rest[1])
        else:
            total, weight = 0.0, 0.0
            for j in ((me + 1) % count, (me - 1) % count):
                w = min(1 / 3, p[j] / p[me] / 3)
                total, weight = total + w * sent.get((j, heard.get((me, j), 0)), np.zeros(D)), weight + w
            x[me] = total + (1 - weight) * x[me]
    kinds = [event for event, *_ in events]
    assert kinds.count("mean") == pytest.approx(kinds.count("step") / (1 + skip), abs=count)
    np.testing.assert_allclose(models, x, atol=1e-5)


@pytest.mark.parametrize("kind", ["ring", "star", "erdos_renyi"])
def test_weights_keep_the_mean_in_expectation(kind):
    """The expected matrix sum_i p_i W_i, of which client i changes row i, is symmetric and doubly stochastic."""
    options = {"probability": 0.4} if kind == "erdos_renyi" else {}
    topology = build_topology(kind, 12, np.random.default_rng(0), **options)
    for shares in (np.ones(12), np.random.default_rng(1).exponential(size=12)):
        p, expected = shares / shares.sum(), np.zeros((12, 12))
        for i, row in enumerate(weights_of(topology, shares)):
            matrix = np.eye(12)
            matrix[i] = 0.0
            for j, weight in row.items():
                matrix[i, j] = weight
            matrix[i, i] = 1 - sum(row.values())
            assert matrix.min() >= 0.0
            assert matrix[i, i] > 1 / 12 - 1e-12
            expected += p[i] * matrix
        np.testing.assert_allclose(expected, expected.T, atol=1e-15)
        np.testing.assert_allclose(expected.sum(axis=0), 1.0, atol=1e-12)
        assert np.linalg.eigvalsh(expected)[-2] < 1.0 - 1e-6, "it mixes"
    assert np.array_equal(
        [sorted(row.items()) for row in weights_of(Topology.from_graph(nx.cycle_graph(5)), [1.0] * 5)],
        [[(j, 1 / 3) for j in sorted(((k + 1) % 5, (k - 1) % 5))] for k in range(5)],
    ), "Metropolis weights if all are equal"


def test_no_client_waits_and_models_that_come_late_count_when_they_come():
    world = make_world(8, links=LinkModel(latency=exponential(1.0)), speeds=[1.0] * 7 + [5.0])
    algorithm, _ = run_without_numbers("swift", world, until=1.0001)
    assert algorithm.client_updates == [125] * 7 + [25]
    assert all(algorithm.times.waited_s(k) == pytest.approx(0.0, abs=1e-9) for k in range(8))
    assert world.network.messages == 2 * sum(algorithm.client_updates)


def test_the_weight_of_a_client_that_left_goes_to_the_others_own():
    world = make_world(4, outages={1: [Outage(0.1, np.inf, crash=True)], 2: [Outage(0.1, 0.3)]})
    algorithm, rows = run_without_numbers("swift", world, until=0.5)
    assert 1 not in algorithm._newest[0]
    assert 2 in algorithm._newest[3]
    assert {row[1] for row in rows if row[0] > 0.4} == {0, 2, 3}


def test_overloaded_links_are_warned_of():
    base = {"algorithm": {"kind": "swift", "batch_size": 8}, "clients": {"count": 4}, "stop": {"updates": 8}}
    slow = {**base, "links": {"latency": "1 ms", "uplink": "100 kB/s"}}
    (warning,) = [line for line in simfl.prepare(from_mapping(slow)).warnings if "swift" in line]
    assert "more than links.uplink carries" in warning
    assert not [line for line in simfl.prepare(from_mapping(base)).warnings if "swift" in line]
