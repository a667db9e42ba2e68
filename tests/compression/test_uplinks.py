"""Compressed updates to a server, and its models: plain loops, bytes, windows, interruptions, epsilons."""

import dataclasses
import weakref

import numpy as np
import pytest

from simfl.accounts.network import network
from simfl.algorithms.aggregation import Hostility
from simfl.compression.base import CompressionPlan
from simfl.compression.compressors.top_k import TopK
from simfl.compression.schemes import UPLINKS
from simfl.robust.attacks.sign_flip import SignFlip
from simfl.robust.rules.clipped_gossip import ClippedGossip
from simfl.robust.rules.median import Median
from simfl.runs.runner import prepare, run
from simfl.scenario import from_mapping
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.compression.helpers import compressed
from tests.compression.test_schemes import COMPRESSORS, EXAMPLES, SEED, D, Data, key_of
from tests.helpers import LOCAL, NullExecutor, NumpyExecutor, exponential, make_training, make_world, run_algorithm
from tests.test_reproducibility import unchanged

CLIENTS, STEP = 4, 0.1


class Server:
    """The memories of a scheme in float64."""

    def __init__(self, scheme, compressor):
        self.scheme, self.compressor = scheme, compressor
        self.memory, self.sent = np.zeros((CLIENTS, D)), [0] * CLIENTS

    def key(self, client):
        self.sent[client] += 1
        return key_of(client, self.sent[client] - 1)

    def decode(self, client, update):
        key = self.key(client)
        memory = self.memory[client].copy()
        if self.scheme == "ef21":
            self.memory[client] += compressed(self.compressor, update - memory, key)
            return self.memory[client].copy()
        whole = update + memory if self.scheme == "error_feedback" else update
        message = compressed(self.compressor, whole, key)
        if self.scheme == "error_feedback":
            self.memory[client] = whole - message
        return message


def played(kind, scheme, compressor, updates, downlink=False, plan=None, **options):
    """Return the algorithm after a number of updates, in a world where all clients are equally fast."""
    data, local = Data(CLIENTS, penalty=0.0), kind in LOCAL

    def gradient(params, client, draw, first, size):
        return (-STEP if local else 1.0) * data.gradient(params, client, draw)

    tape = Tape(NumpyExecutor(D, gradient, seed=SEED), window=40, local=local, corrected=kind == "ditto")
    initial = np.random.default_rng(2).standard_normal(D).astype(np.float32)
    training = make_training([EXAMPLES] * CLIENTS, d=D, batch_size=1, step_size=STEP, initial=initial)
    compression = CompressionPlan(compressor, scheme, 1.0, D, downlink)
    training = dataclasses.replace(training, compression=compression, **(plan or {}))
    algorithm, _ = run_algorithm(kind, make_world(CLIENTS), tape, training, updates=updates, **options)
    return tape.values([algorithm.server_model])[0], data, np.asarray(initial, np.float64)


schemes = pytest.mark.parametrize("scheme", UPLINKS)
compressors = pytest.mark.parametrize("compressor", COMPRESSORS.values(), ids=COMPRESSORS)


@pytest.mark.slow(every=3)
@schemes
@compressors
@pytest.mark.parametrize("kind", ["fedavg", "fedbuff", "fednova", "ditto"])
def test_rounds_are_those_of_the_listing(kind, scheme, compressor):
    """Changes of FedNova are those of FedAvg if all clients make as many steps, and Ditto's models those of FedAvg.

    Personal models use every other mini-batch.
    """
    options = {"buffer_size": CLIENTS, "after_update": "wait"} if kind == "fedbuff" else {}
    made, data, model = played(kind, scheme, compressor, 10 * CLIENTS, **options)
    server = Server(scheme, compressor)
    for draw in range(10):
        batch = 2 * draw + 1 if kind == "ditto" else draw
        decoded = [server.decode(k, -STEP * data.gradient(model, k, batch)) for k in range(CLIENTS)]
        model = model + np.mean(decoded, axis=0)
    np.testing.assert_allclose(made, model, rtol=1e-5, atol=1e-5)


@schemes
@compressors
def test_asynchronous_updates_are_those_of_the_listing(scheme, compressor):
    """Clients take turns: an update is computed at the model that its client last received."""
    mixed, data, initial = played("fedasync", scheme, compressor, 40, mixing=0.5, weighting="constant")
    stepped, *_ = played("async_sgd", scheme, compressor, 40, delays="cyclic")
    of_mix, of_steps = Server(scheme, compressor), Server(scheme, compressor)
    mix, steps = initial.copy(), initial.copy()
    read = [(initial, initial)] * CLIENTS
    for t in range(40):
        client, draw = t % CLIENTS, t // CLIENTS
        before, at = read[client]
        change = of_mix.decode(client, -STEP * data.gradient(before, client, draw))
        mix = 0.5 * mix + 0.5 * (before + change)
        steps = steps - STEP * of_steps.decode(client, data.gradient(at, client, draw))
        read[client] = mix, steps
    np.testing.assert_allclose(mixed, mix, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(stepped, steps, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", ["error_feedback", "ef21"])
@pytest.mark.parametrize("kind", ["fedavg", "fedbuff", "fedasync"])
def test_a_rule_combines_what_the_server_decodes_and_attackers_replace_it(kind, scheme):
    """Client 1 sends minus its update; what it remembers of its messages is that of an honest client."""
    compressor, tau = COMPRESSORS["top_k"], 0.05
    rule = ClippedGossip(tau=tau) if kind == "fedasync" else Median().without_own()
    plan = {"rule": rule, "hostility": Hostility(frozenset({1}), SignFlip())}
    options = {"buffer_size": CLIENTS, "after_update": "wait"} if kind == "fedbuff" else {}
    options = {"mixing": 0.5, "weighting": "constant"} if kind == "fedasync" else options
    made, data, model = played(kind, scheme, compressor, 40, plan=plan, **options)
    server, read = Server(scheme, compressor), [model] * CLIENTS
    for draw in range(10):
        rows = []
        for k in range(CLIENTS):
            decoded = server.decode(k, -STEP * data.gradient(read[k], k, draw))
            rows.append(-decoded if k == 1 else decoded)
            if kind == "fedasync":
                apart = read[k] + rows[k] - model
                model = model + 0.5 * min(1.0, tau / np.linalg.norm(apart)) * apart
                read[k] = model
        if kind != "fedasync":
            model = model + np.median(rows, axis=0)
            read = [model] * CLIENTS
    np.testing.assert_allclose(made, model, rtol=1e-5, atol=1e-5)


@pytest.mark.slow(but=["fedavg"])
@pytest.mark.parametrize("kind", ["fedavg", "fedasync", "async_sgd"])
def test_models_of_the_server_change_each_clients_estimate(kind):
    """EF21-P: a client trains from w, and the next message to it changes w by Q(x - w)."""
    compressor = COMPRESSORS["qsgd"]
    options = {"fedasync": {"mixing": 0.5, "weighting": "constant"}, "async_sgd": {"delays": "cyclic"}}
    made, data, initial = played(kind, "error_feedback", compressor, 40, downlink=True, **options.get(kind, {}))
    server, x, w = Server("error_feedback", compressor), initial.copy(), np.tile(initial, (CLIENTS, 1))
    changes = []
    for t in range(40):
        client, draw = t % CLIENTS, t // CLIENTS
        if kind == "fedavg" and draw:
            w[client] += compressed(compressor, x - w[client], server.key(client))
        descent = -STEP * data.gradient(w[client], client, draw)
        if kind == "async_sgd":
            x = x - STEP * server.decode(client, -descent / STEP)
        elif kind == "fedasync":
            x = 0.5 * x + 0.5 * (w[client] + server.decode(client, descent))
        else:
            changes.append(server.decode(client, descent))
        if kind != "fedavg":
            w[client] += compressed(compressor, x - w[client], server.key(client))
        elif client == CLIENTS - 1:
            x, changes = x + np.mean(changes, axis=0), []
    np.testing.assert_allclose(made, x, rtol=1e-5, atol=1e-5)
    assert np.abs(x - initial).max() > 0.05


@pytest.mark.slow
def test_a_model_that_a_client_misses_is_taken_back():
    """The message to a client that is offline changes no estimate."""
    kept = []

    def prepare(algorithm):
        shortened, memory = algorithm.channel.down, algorithm.channel.held

        def spied(client, model, refused):
            before = memory.shown[client]
            shown, take_back = shortened(client, model, refused)
            return shown, lambda: (take_back(), kept.append(memory.shown[client] is before))

        algorithm.channel.down = spied

    outages = {1: [Outage(0.02, 0.05)], 2: [Outage(0.031, 0.06, crash=True)]}
    links = LinkModel(latency=exponential(2e-3), resend_timeout_s=0.002)
    training = make_training([EXAMPLES] * CLIENTS, d=D, batch_size=1, step_size=STEP)
    training = dataclasses.replace(training, compression=CompressionPlan(TopK(0.25), "ef21", 1.0, D, True))
    data = Data(CLIENTS)
    tape = Tape(NumpyExecutor(D, data.gradient, seed=SEED), window=40)
    world = make_world(CLIENTS, outages=outages, links=links)
    algorithm, _ = run_algorithm("async_sgd", world, tape, training, until=0.2, prepare=prepare)
    assert kept, "a message was refused"
    assert all(kept)
    assert algorithm.updates > 50


def test_a_round_keeps_nothing_that_takes_a_message_back_after_it_arrived():
    """It would keep two models of the last client alive while the others compute."""
    ways = []

    def prepare(algorithm):
        shortened = algorithm.channel.down

        def spied(client, model, refused):
            shown, take_back = shortened(client, model, refused)
            way = lambda: take_back()  # noqa: E731
            ways.append(weakref.ref(way))
            return shown, way

        algorithm.channel.down = spied

    links = LinkModel(latency=exponential(2e-3))
    training = make_training([EXAMPLES] * CLIENTS, d=D, batch_size=1, step_size=STEP)
    training = dataclasses.replace(training, compression=CompressionPlan(TopK(0.25), "ef21", 1.0, D, True))
    tape = Tape(NullExecutor(), window=40, local=True)
    world = make_world(CLIENTS, links=links, seconds_per_example=1.0)
    algorithm, _ = run_algorithm("fedavg", world, tape, training, until=1.5, prepare=prepare, fraction=1.0)
    assert algorithm.round_num == 1
    assert len(ways) == CLIENTS
    assert not [way for way in ways if way() is not None], "all messages have arrived"


LATE = [
    ("ringmaster", {"threshold": 2}), ("ringmaster", {"threshold": 2, "late": "stop"}),
    ("rennala", {"gradients_per_step": 2, "late": "stop"}), ("m_sync_sgd", {"wait_for": 2, "late": "stop"}),
    ("ringleader", {}), ("mindflayer", {"trials": 2}), ("fedbuff", {"buffer_size": 2}), ("fedasync", {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options"), LATE, ids=[f"{kind}-{options.get('late')}" for kind, options in LATE])
def test_clients_of_late_servers_compute_at_the_models_that_messages_gave_them(kind, options):
    """Also a client that stops its computation: its new model is the estimate, not the server's model."""
    given, used = {}, []

    def prepare(algorithm):
        shortened, gradient_at = algorithm.channel.down, algorithm.gradient_at
        given.update({client: [algorithm.server_model] for client in range(CLIENTS)})

        def shown(client, model, *refused):
            made = shortened(client, model, *refused)
            given[client].append(made[0])
            return made

        def computed(client, content):
            used.append(any(content[0] is model for model in given[client]))
            return gradient_at(client, content)

        algorithm.channel.down, algorithm.gradient_at = shown, computed

    local = kind in LOCAL
    training = make_training([EXAMPLES] * CLIENTS, d=D, batch_size=1, step_size=STEP)
    training = dataclasses.replace(training, compression=CompressionPlan(TopK(0.25), "ef21", 1.0, D, True))
    world = make_world(
        CLIENTS, speeds=[1.0, 1.3, 4.0, 9.0], links=LinkModel(latency=exponential(2e-4), resend_timeout_s=0.002),
        outages={1: [Outage(0.02, 0.03)]},
    )  # fmt: skip
    tape = Tape(NullExecutor(), window=40, local=local, max_batch=1)
    algorithm, rows = run_algorithm(kind, world, tape, training, until=0.2, prepare=prepare, **options)
    assert len(rows) > 20
    assert all(used), "the initial model, or one of a message"
    assert algorithm.channel.down_bytes == training.message_bytes


WAYS = {
    "fedavg": ("{kind: fedavg, deadline: 60 ms, batch_size: 8}", "{kind: sign, scheme: ef21, downlink: true}"),
    "fedbuff": ("{kind: fedbuff, buffer_size: 3, batch_size: 8}", "{kind: random_k, share: 0.1, downlink: true}"),
    "fedasync": ("{kind: fedasync, staleness_bound: {bound: 2, policy: drop}, batch_size: 8}", "{kind: qsgd}"),
    "async_sgd": ("{kind: async_sgd, server_optimizer: adam, batch_size: 8}", "{kind: top_k, scheme: ef21}"),
}


def scenario(name, *more, window="auto", compression=True, stop="{updates: 100}"):
    algorithm, compressor = WAYS[name]
    privacy = "gaussian" if name == "async_sgd" else "gaussian_update"
    changes = [f"algorithm={algorithm}", f"execution.window={window}", f"stop={stop}"]
    changes += [f"privacy={{mechanism: {privacy}, clipping_norm: 1.0, noise_multiplier: 1.0, accountant: renyi}}"]
    changes += [f"compression={compressor}"] if compression else []
    return from_mapping(unchanged("adpsgd-atomic"), "rough", [*changes, *more])


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.usefixtures("without_numbers")
def test_messages_are_as_short_as_the_plan_says_and_epsilon_follows_from_the_releases(name, tmp_path):
    setup = prepare(scenario(name))
    made = run(setup, out=tmp_path)
    sent = made.messages[made.messages["bytes"] > 0]
    assert set(sent[sent["target"] == 8]["bytes"]) == {setup.training.compression.bytes}
    plan = setup.training.compression
    size = plan.bytes if plan.downlink else setup.training.model_bytes
    assert set(sent[sent["source"] == 8]["bytes"]) == {size}
    ledger = prepare(scenario(name, compression=False)).ledger
    releases = setup.kind.planned(prepare(scenario(name, compression=False)))
    np.testing.assert_array_equal(ledger.final_epsilon(releases), setup.ledger.final_epsilon(releases))
    counts = np.bincount(made.releases["client"], made.releases["count"], minlength=8)
    assert np.isfinite(made.clients["epsilon"].astype(float)).all()
    assert counts.sum() >= 100


@pytest.mark.parametrize("name", ["fedbuff", "async_sgd"])
def test_an_observer_of_the_server_is_charged_for_what_messages_were_made_of(name):
    pairs = network(scenario(name, "algorithm.server_optimizer=sgd", stop="{updates: 24}")).pairs
    assert len(pairs)
    assert (pairs["pairwise_mu"] <= pairs["local_mu"] * (1 + 1e-9)).all()
    assert (pairs["pairwise_mu"] > 0).any()
