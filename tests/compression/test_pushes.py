"""Compressed pushes of gossip learning and of SGP against plain float64 loops; sums, sizes, windows, interruptions."""

import dataclasses
import math

import numpy as np
import pytest

from simfl.accounts.network import network
from simfl.compression.base import CompressionPlan
from simfl.compression.compressors.top_k import TopK
from simfl.compression.schemes import PAIRWISE
from simfl.scenario import from_mapping
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.compression.helpers import compressed
from tests.compression.test_runs import PRIVATE
from tests.compression.test_schemes import COMPRESSORS, EXAMPLES, SEED, D, Data, key_of
from tests.helpers import NumpyExecutor, constant, exponential, lognormal, make_training, make_world, run_algorithm
from tests.test_reproducibility import unchanged

K, STEP = 6, 0.1
LINKS = LinkModel(latency=exponential(8e-3), loss=0.2, resend_timeout_s=0.01)


def play(kind, world, scheme, compressor, gamma, data=None, step=STEP, **run):
    """Return an algorithm after a run, and its tape."""
    tape = Tape(NumpyExecutor(D, None if data is None else data.gradient, seed=SEED), window=50)
    initial = np.random.default_rng(2).standard_normal(D).astype(np.float32)
    training = make_training([EXAMPLES] * world.num_clients, d=D, batch_size=1, step_size=step, initial=initial)
    training = dataclasses.replace(training, compression=CompressionPlan(compressor, scheme, gamma, D))
    return run_algorithm(kind, world, tape, training, **run)[0], tape


class Sender:
    """What clients show, in float64: an estimate for each key, or messages with or without an error."""

    def __init__(self, scheme, compressor, initial):
        self.scheme, self.compressor, self.initial = scheme, compressor, np.asarray(initial, np.float64)
        self.shown, self.error, self.draws = {}, np.zeros((K, D)), [0] * K

    def last(self, key):
        return self.shown.get(key if self.scheme == "choco" else key[0], self.initial)

    def show(self, key, x):
        client = key[0]
        draw_key = key_of(client, self.draws[client])
        self.draws[client] += 1
        if self.scheme == "choco":
            self.shown[key] = self.last(key) + compressed(self.compressor, x - self.last(key), draw_key)
            return self.shown[key]
        whole = x + self.error[client] if self.scheme == "deep_squeeze" else x
        self.shown[client] = sent = compressed(self.compressor, whole, draw_key)
        if self.scheme == "deep_squeeze":
            self.error[client] = whole - sent
        return sent

    def undo(self, key, before, sent):
        if self.scheme == "choco":
            self.shown[key] = before
        self.error[key[0]] += sent


class Events:
    """What gossip learning does, in order."""

    def __init__(self, world):
        self.events, send, numbers = [], world.network.send, iter(range(10**9))

        def spied(source, target, size, deliver, refused=None, content=None):
            number = next(numbers)
            self.events.append(("send", source, target, number))
            note = self.events.append
            send(
                source, target, size,
                lambda: (note(("deliver", target, source, number)), deliver()),
                lambda: (note(("lose", source, target, number)), refused()),
                content,
            )  # fmt: skip

        world.network.send = spied

    def prepare(self, algorithm):
        gradient, on_update = algorithm.batches.gradient, algorithm.on_update

        def read(model, client):
            promised = gradient(model, client)
            self.events.append(("read", client, promised.draw, None))
            return promised

        algorithm.batches.gradient = read
        algorithm.on_update = lambda row: (self.events.append(("update", row[1], None, None)), on_update(row))

    def replay(self, data, sender, gamma):
        """Return the models of all clients, and how often each event happened."""
        w, age, flying, reads = np.tile(sender.initial, (K, 1)), [0] * K, {}, {}
        for event, me, other, number in self.events:
            if event == "send":
                before = sender.last((me, other))
                flying[number] = before, sender.show((me, other), w[me]), age[me]
            elif event == "lose":
                before, sent, _ = flying.pop(number)
                sender.undo((me, other), before, sent)
            elif event == "deliver":
                _, sent, t = flying.pop(number)
                a = 0.5 if t + age[me] == 0 else t / (t + age[me])
                w[me] = w[me] + gamma * a * (sent - sender.last((me, other)))
                age[me] = max(t, age[me])
            elif event == "read":
                reads[me] = data.gradient(w[me], me, other)
            else:
                w[me] = w[me] - STEP * reads.pop(me)
                age[me] += 1
        return w


@pytest.mark.slow(but=["choco-random_k"])
@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("scheme", PAIRWISE)
def test_merges_of_gossip_learning_are_those_of_the_equation(scheme, kind):
    """Messages cross, come late and are lost; no change of an estimate is sent while another is on its way."""
    world = make_world(K, jitter=lognormal(0.5), links=LINKS, outages={1: [Outage(0.05, 0.12)]}, seed=3)
    events, data, gamma = Events(world), Data(K), 0.3
    algorithm, tape = play(
        "gossip_learning", world, scheme, COMPRESSORS[kind], gamma, data, prepare=events.prepare, updates=80,
        period_s=0.004,
    )  # fmt: skip
    expected = events.replay(data, Sender(scheme, COMPRESSORS[kind], algorithm.training.initial), gamma)
    np.testing.assert_allclose(tape.values(algorithm.model), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - algorithm.training.initial).max() > 0.1
    assert {event for event, *_ in events.events} == {"send", "lose", "deliver", "read", "update"}
    under_way, most = set(), 0
    for event, me, other, _ in events.events:
        if event == "send":
            assert scheme != "choco" or (me, other) not in under_way
            under_way.add((me, other))
        elif event in ("deliver", "lose"):
            under_way.discard((other, me) if event == "deliver" else (me, other))
        most = max(most, len(under_way))
    assert most > K


def pushed(graph, world, sender, gamma, data, rounds):
    """Return z of all clients: compressed push-sum, all clients at once."""
    x, w = np.tile(sender.initial, (K, 1)), np.ones(K)
    for r in range(rounds):
        x = x - STEP * np.array([data.gradient(x[k] / w[k], k, r) for k in range(K)])
        if graph == "topology":
            targets = [list(world.topology.neighbors(k)) for k in range(K)]
        else:
            hops = [1, 2, 4] if graph == "exponential" else [[1, 2, 4][r % 3]]
            targets = [[(k + hop) % K for hop in hops] for k in range(K)]
        mixing = np.eye(K)
        for k in range(K):
            share = gamma / (1 + len(targets[k]))
            mixing[k, k] -= share * len(targets[k])
            mixing[targets[k], k] += share
        keys = [(k, targets[k][0]) if graph == "one_peer" else (k,) for k in range(K)]
        shown = np.array([sender.show(keys[k], x[k]) for k in range(K)])
        x, w = x + (mixing - np.eye(K)) @ shown, mixing @ w
    return x / w[:, None]


@pytest.mark.slow(but=["one_peer-choco-random_k"])
@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("scheme", PAIRWISE)
@pytest.mark.parametrize("graph", ["one_peer", "exponential", "topology"])
def test_pushes_of_sgp_are_those_of_the_equation(graph, scheme, kind):
    world, rounds, gamma, data = make_world(K, topology="star"), 12, 0.3, Data(K)
    algorithm, tape = play(
        "sgp", world, scheme, COMPRESSORS[kind], gamma, data, until=0.001 * rounds + 0.0005, graph=graph
    )
    sender = Sender(scheme, COMPRESSORS[kind], algorithm.training.initial)
    expected = pushed(graph, world, sender, gamma, data, rounds)
    np.testing.assert_allclose(tape.values(algorithm.models()), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - algorithm.training.initial).max() > 0.1


@pytest.mark.parametrize("scheme", ["choco", "deep_squeeze"])
def test_private_pushes_are_those_of_a_loop_with_times(scheme):
    """The parts of DP-CSGP: clipped gradients with noise, estimates or an error memory, and push-sum."""
    rounds, gamma, std, norm, latency_s, bandwidth = 14, 0.4, 0.05, 0.8, 0.004, 2e4
    speeds, data, compressor = [1.0, 1.4, 2.1, 0.5, 3.2, 0.7], Data(K), TopK(0.25)
    links = LinkModel(latency=constant(latency_s), bandwidth=bandwidth)

    def clipped(params, client, draw, *rest):
        gradient = data.gradient(params, client, draw, *rest)
        return gradient * min(1.0, norm / np.linalg.norm(gradient))

    def noise(client, draw):
        return np.random.default_rng((client, draw)).standard_normal(D)

    initial = np.random.default_rng(2).standard_normal(D).astype(np.float32)
    training = dataclasses.replace(
        make_training([EXAMPLES] * K, d=D, batch_size=1, step_size=STEP, initial=initial, noise_std=std),
        compression=CompressionPlan(compressor, scheme, gamma, D),
    )
    sender, x, w = Sender(scheme, compressor, initial), np.tile(initial, (K, 1)).astype(np.float64), np.ones(K)
    free, expected, models = np.zeros(K), {}, []
    for r in range(rounds):
        done = free + 1e-3 * np.array(speeds)
        x = x - STEP * np.array([clipped(x[k] / w[k], k, r) + std * noise(k, r) for k in range(K)])
        targets = [(k + [1, 2, 4][r % 3]) % K for k in range(K)]
        shown = np.array([sender.show((k, targets[k]), x[k]) for k in range(K)])
        moved, given = gamma / 2 * shown, gamma / 2 * w
        x, w = x - moved, w - given
        free = done.copy()
        for k, target in enumerate(targets):
            x[target], w[target] = x[target] + moved[k], w[target] + given[k]
            free[target] = max(done[target], done[k] + latency_s + training.compression.bytes / bandwidth)
        expected |= {(r, k): done[k] for k in range(K)}
        models.append(x / w[:, None])
    tape, seen = Tape(NumpyExecutor(D, clipped, noise, seed=SEED), window=50), {}

    def prepare(algorithm):
        gradient = algorithm._gradient_at
        algorithm._gradient_at = lambda me: (
            seen.setdefault((algorithm._client_round[me], me), algorithm.debiased(me)), gradient(me)
        )[1]  # fmt: skip

    world = make_world(K, speeds=speeds, links=links)
    _, rows = run_algorithm("sgp", world, tape, training, updates=K * rounds - 8, prepare=prepare)
    assert len(rows) > 60
    for row in rows:
        assert row[0] == pytest.approx(expected[row[3], row[1]], abs=1e-12)
    for (r, k), model in seen.items():
        if r:
            np.testing.assert_allclose(tape.values([model])[0], models[r - 1][k], atol=1e-6)


@pytest.mark.slow
def test_receivers_that_missed_a_message_are_sent_all():
    outages = {2: [Outage(0.0, 0.02)], 4: [Outage(0.05, math.inf, crash=True)]}
    for graph in ("one_peer", "exponential", "topology"):
        world, sizes = make_world(K, topology="ring", outages=outages, links=LINKS), []
        send = world.network.send
        world.network.send = lambda *told, send=send, sizes=sizes, **more: (sizes.append(told[2]), send(*told, **more))
        algorithm, _ = play("sgp", world, "choco", TopK(0.25), 0.3, Data(K), until=0.3, graph=graph)
        short, whole = algorithm.training.compression.bytes, algorithm.training.model_bytes
        assert set(sizes) == ({short} if graph == "one_peer" else {short, whole}), graph
        assert sizes.count(short) > 5 * sizes.count(whole)


WAYS = {
    "gossip_learning": ("{kind: gossip_learning, period: 5 ms, batch_size: 8}", "{kind: random_k, share: 0.1}"),
    "sgp": ("{kind: sgp, batch_size: 8}", "{kind: qsgd}"),
    "sgp-overlap": ("{kind: sgp, overlap: 2, batch_size: 8}", "{kind: sign, scheme: deep_squeeze}"),
}


def scenario(name, window="auto", compression=True):
    algorithm, compressor = WAYS[name]
    changes = [f"algorithm={algorithm}", f"execution.window={window}"]
    changes += [f"compression={compressor}", "compression.gamma=0.2"] if compression else []
    return from_mapping(unchanged("adpsgd-messages"), "rough", changes)


@pytest.mark.slow(but=["choco-sgp"])
@pytest.mark.parametrize("name", ["gossip_learning", "sgp"])
@pytest.mark.parametrize("scheme", ["choco", "deep_squeeze"])
def test_an_observer_of_a_push_is_charged_for_what_it_was_made_of(name, scheme):
    changes = [PRIVATE, "record.client_models=false", "stop={updates: 24}", "privacy.accountant=renyi"]
    changes += [f"algorithm={WAYS[name][0]}", f"compression={{kind: sign, scheme: {scheme}, gamma: 0.2}}"]
    pairs = network(from_mapping(unchanged("adpsgd-messages"), "rough", changes)).pairs
    assert len(pairs)
    assert (pairs["pairwise_mu"] <= pairs["local_mu"] * (1 + 1e-9)).all()
    assert (pairs["pairwise_mu"] > 0).any()
