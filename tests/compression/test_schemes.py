"""Schemes of D-PSGD against the listings as plain float64 loops, and the messages to late and changing neighbors."""

import dataclasses

import jax
import numpy as np
import pytest

from simfl.compression.base import CompressionPlan
from simfl.compression.compressors.moniqua import Moniqua
from simfl.compression.compressors.qsgd import Qsgd
from simfl.compression.compressors.random_k import RandomK
from simfl.compression.compressors.top_k import TopK
from simfl.compression.schemes import SCHEMES
from simfl.compression.schemes.choco import theory_gamma
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.changing import Redrawn, one_peer
from simfl.world.links import LinkModel
from tests.compression.helpers import compressed, wrapped
from tests.helpers import NumpyExecutor, exponential, lognormal, make_training, make_world, run_algorithm

D, EXAMPLES = 24, 30
SEED = np.asarray(jax.random.key_data(jax.random.key(5, impl="threefry2x32")))


def key_of(client, draw):
    return jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(SEED, impl="threefry2x32"), client), draw)


class Data:
    """Logistic regression on each client's own examples, one example per mini-batch, as in ChocoSGD's program."""

    def __init__(self, clients, penalty=0.01):
        generator = np.random.default_rng(1)
        self.examples = generator.standard_normal((clients, EXAMPLES, D))
        self.labels = np.sign(generator.standard_normal((clients, EXAMPLES)))
        self.drawn = generator.integers(0, EXAMPLES, (clients, 1000))
        self.penalty = penalty

    def gradient(self, params, client, draw, first=0, size=1):
        a, y = (part[client, self.drawn[client, draw]] for part in (self.examples, self.labels))
        return -y * a / (1.0 + np.exp(y * a @ params)) + self.penalty * params


def plain_loop(scheme, compressor, weights, data, initial, rounds, step, gamma):
    """The update rules of the papers, all clients at once; x [K, d]."""
    count = len(weights)
    x = np.tile(initial, (count, 1)).astype(np.float64)
    estimate, error = x.copy(), np.zeros_like(x)

    def each(vectors, draw):
        return np.array([compressed(compressor, v, key_of(k, draw)) for k, v in enumerate(vectors)])

    for t in range(rounds):
        descent = -step * np.array([data.gradient(x[k], k, t) for k in range(count)])
        if scheme == "choco":
            x = x + descent + gamma * (weights - np.eye(count)) @ estimate
            estimate = estimate + each(x - estimate, t + 1)  # the first message, of no change, has the first draw
        elif scheme == "dcd":
            x = x + each(weights @ x + descent - x, t)
        elif scheme == "ecd":
            stepped = weights @ estimate + descent
            z = (1 - (t + 1) / 2) * x + (t + 1) / 2 * stepped
            x, estimate = stepped, (1 - 2 / (t + 1)) * estimate + 2 / (t + 1) * each(z, t)
        elif scheme == "moniqua":
            sent, modulus = each(x, t), compressor.modulus
            near = x[:, None] + wrapped(sent - x[:, None], modulus)  # client i's estimate of each x_j
            mean = np.einsum("ij,ijd->id", weights, near - near[range(count), range(count)][:, None])
            x = x + descent + gamma * mean
        else:
            whole = x + error if scheme == "deep_squeeze" else x
            sent = each(whole, t)
            error = whole - sent
            x = x + descent + gamma * (weights - np.eye(count)) @ sent
    return x


COMPRESSORS = {"top_k": TopK(0.25), "random_k": RandomK(0.25), "qsgd": Qsgd(8)}
MONIQUA = Moniqua(theta=2.0, bits_each=6)
CASES = [(scheme, kind) for scheme in SCHEMES for kind in COMPRESSORS if scheme != "moniqua"] + [("moniqua", "moniqua")]


def run_scheme(
    world, scheme, compressor, gamma, *, step=0.1, rounds=None, data=None, models=None, prepare=None,
    algorithm="decentralized_sgd", **run,
):  # fmt: skip
    """Return the algorithm and its tape."""
    gradient = None if data is None else data.gradient
    tape = Tape(NumpyExecutor(D, gradient, seed=SEED), window=60)
    initial = np.random.default_rng(2).standard_normal(D).astype(np.float32)
    training = make_training([EXAMPLES] * world.num_clients, d=D, batch_size=1, step_size=step, initial=initial)
    training = dataclasses.replace(training, compression=CompressionPlan(compressor, scheme, gamma, D))
    updates = None if rounds is None else rounds * world.num_clients
    made, _ = run_algorithm(algorithm, world, tape, training, updates=updates, models=models, prepare=prepare, **run)
    return made, tape


@pytest.mark.slow(but=["top_k-ring"])
@pytest.mark.parametrize("topology", ["ring", "torus"])
@pytest.mark.parametrize(("scheme", "kind"), CASES)
def test_iterates_are_those_of_the_listing(scheme, kind, topology):
    world, rounds, gamma = make_world(9, topology=topology), 12, 0.3
    data, compressor = Data(9), {**COMPRESSORS, "moniqua": MONIQUA}[kind]
    gamma = 1.0 if scheme in ("dcd", "ecd") else gamma
    algorithm, tape = run_scheme(world, scheme, compressor, gamma, rounds=rounds, data=data)
    weights = world.topology.mixing_matrix().toarray()
    expected = plain_loop(scheme, compressor, weights, data, algorithm.training.initial, rounds, 0.1, gamma)
    np.testing.assert_allclose(tape.values(algorithm.model), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - algorithm.training.initial).max() > 0.1


@pytest.mark.parametrize("kind", ["matcha", "epidemic"])
def test_messages_without_memory_suit_partners_that_are_drawn(kind):
    count, rounds, gamma, data, own = 9, 12, 0.3, Data(9), np.eye(9)
    world, compressor = make_world(count, topology="torus"), TopK(0.25)
    algorithm, tape = run_scheme(world, "direct", compressor, gamma, rounds=rounds, data=data, algorithm=kind)
    x = np.tile(algorithm.training.initial, (count, 1)).astype(np.float64)
    for t in range(rounds):
        descent = -0.1 * np.array([data.gradient(x[k], k, t) for k in range(count)])
        weights = np.zeros((count, count))
        if kind == "matcha":
            for k, row in enumerate(algorithm._graph_of(t).weights):
                weights[k, list(row)] = list(row.values())
        else:  # the step comes first, and the run ends after the last one
            x, descent = x + descent, 0.0
            for k, senders in algorithm.drawn(t)[1].items():
                weights[k, [k, *senders]] = 1.0 / (1 + len(senders))
            if t == rounds - 1:
                break
        sent = np.array([compressed(compressor, vector, key_of(k, t)) for k, vector in enumerate(x)])
        x = x + descent + gamma * (weights - own) @ sent
    np.testing.assert_allclose(tape.values(algorithm.model), x, rtol=1e-5, atol=1e-5)
    assert np.abs(x - algorithm.training.initial).max() > 0.1


def distances(scheme, compressor, gamma, rounds, clients=9):
    """Gossip of fixed values: squared distances of models and of shown vectors from the mean, in each round."""
    world = make_world(clients)
    models = np.random.default_rng(3).standard_normal((clients, D))
    seen = []

    def prepare(algorithm):
        def look():
            shown = algorithm._means.scheme.shown
            x, shown = (algorithm.tape.values([of[k] for k in range(clients)]) for of in (algorithm.model, shown))
            seen.append((np.square(x - models.mean(axis=0)).sum(), np.square(x - shown).sum()))

        for r in range(rounds):
            world.clock.call_at(0.001 * r + 0.0005, look)

    run_scheme(world, scheme, compressor, gamma, step=0.0, models=models, prepare=prepare, until=0.001 * rounds)
    return np.array(seen)


@pytest.mark.slow(but=["top_k"])
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_choco_gossip_converges_linearly_at_the_rate_of_the_theorem(kind):
    compressor, world = COMPRESSORS[kind], make_world(9)
    weights = world.topology.mixing_matrix().toarray()
    rho, delta = world.topology.spectral_gap(), compressor.quality(D)
    beta = np.linalg.norm(np.eye(9) - weights, 2)
    errors = distances("choco", compressor, theory_gamma(rho, beta, delta), 60).sum(axis=1)
    promised = (1 - rho**2 * delta / 82) ** np.arange(60)
    assert (errors / errors[0] <= promised * (1 + 1e-6)).all()


@pytest.mark.parametrize("bits", [1, 4])
def test_moniqua_finds_every_vector_within_theta_and_no_vector_beyond(bits):
    compressor = Moniqua(theta=0.5, bits_each=bits)
    delta, modulus = 0.5 ** (bits + 1), 1.0 / (1 - 0.5**bits)
    assert modulus == compressor.modulus
    generator = np.random.default_rng(6)
    x = (100 * generator.standard_normal(2000)).astype(np.float32)
    message = np.asarray(compressor.compress(x, None))
    assert np.unique(message).size == 2**bits
    near = (x + generator.uniform(-0.499, 0.499, 2000)).astype(np.float32)
    found = near + np.asarray(compressor.near(message, near))
    assert np.abs(found - x).max() <= delta * modulus + 1e-4
    far = (x + modulus).astype(np.float32)
    np.testing.assert_allclose(
        far + np.asarray(compressor.near(message, far)) - x, modulus, atol=delta * modulus + 1e-4
    )


@pytest.mark.slow(but=["late-choco", "late-direct"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("fault", ["late", "churn", "changing"])
def test_who_lacks_the_last_message_is_sent_all_so_that_no_copy_drifts(scheme, fault):
    outages = {2: [Outage(0.0, 0.02)], 5: [Outage(0.0, 0.045)]} if fault == "late" else {}
    if fault == "churn":
        outages = {1: [Outage(0.01, 0.03, crash=True)], 4: [Outage(0.02, float("inf"), crash=True)]}
    links = LinkModel(latency=exponential(1e-3), loss=0.2, resend_timeout_s=0.002)
    world = make_world(8, jitter=lognormal(0.3), links=links, outages=outages)
    if fault == "changing":
        world.changing = Redrawn("one_peer", 8, lambda number: one_peer(8, number), 0.01)
        world.topology = world.changing.known()
    messages = []

    def prepare(algorithm):
        send = algorithm.send

        def noted(me, neighbor, round_num, message, size, content):
            messages.append((me, neighbor, round_num, size))
            send(me, neighbor, round_num, message, size, content)

        algorithm.send = noted

    compressor = MONIQUA if scheme == "moniqua" else TopK(0.25)
    algorithm, _ = run_scheme(world, scheme, compressor, 0.3, data=Data(8), prepare=prepare, until=0.12)
    short, whole = algorithm.training.compression.bytes, algorithm.training.model_bytes
    assert short < whole
    sent = {(me, neighbor, round_num) for me, neighbor, round_num, _ in messages}
    for me, neighbor, round_num, size in messages:
        follows = round_num == algorithm._first_round[me] or (me, neighbor, round_num - 1) in sent
        assert size == (short if follows or scheme in ("deep_squeeze", "direct", "moniqua") else whole)
    sizes = {size for *_, size in messages}
    assert sizes == {short, whole} if fault != "churn" and scheme in ("choco", "dcd", "ecd") else {short}
