"""Followed messages equal computed ones, where every gradient and every noise is a separate direction."""

from __future__ import annotations

import numpy as np
import pytest

from simfl.accounts.knowledge import KnowledgeTape, Listener
from simfl.errors import ScenarioError
from simfl.tape import Tape
from simfl.tape.recording import Model
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import LOCAL, NumpyExecutor, exponential, lognormal, make_training, make_world, run_algorithm

CLIENTS, DRAWS = 5, 40
#: Losses, latencies that let messages overlap, and crashes.
LINKS = LinkModel(latency=exponential(0.004), bandwidth=1e5, loss=0.2, resend_timeout_s=0.003)
OUTAGES = {1: [Outage(0.011, 0.03, crash=True)], 3: [Outage(0.02, 0.05)], 4: [Outage(0.06, np.inf, crash=True)]}


def rough_world():
    """Return a ring in which messages are lost and overtake each other, and clients crash; a server needs no graph."""
    return make_world(CLIENTS, jitter=lognormal(0.5), links=LINKS, outages=OUTAGES, speeds=[1.0, 2.0, 1.0, 3.0, 1.5])


class Watcher:
    """A witness that fetches the values in messages from the tape when they are sent."""

    def __init__(self, tape, clock):
        self.tape, self.clock = tape, clock
        self.messages, self.sums = [], []

    def _value(self, content):
        model = content if isinstance(content, Model) else self.tape.combine((1.0, content.twin()))
        return self.tape.values([model])[0]

    def sent(self, source, target, content, deliver):
        number = len(self.messages)
        self.messages.append([source, target, np.inf, self._value(content)])

        def arrived():
            self.messages[number][2] = self.clock.now
            deliver()

        return arrived

    def beside(self, source, target, content, deliver):
        return self.sent(source, target, content, deliver)

    def shown(self, source, target, content):
        self.messages.append([source, target, self.clock.now, self._value(content)])

    def merged(self, node, content):
        self.sums.append((node, self._value(content)))


def computed(kind, training, updates, options):
    """Run with arithmetic in which each (client, draw) has one direction for its gradient and another for its noise."""

    def direction(client, draw, of_noise):
        unit = np.zeros(2 * CLIENTS * DRAWS)
        unit[of_noise * CLIENTS * DRAWS + client * DRAWS + draw] = 1.0
        return unit

    executor = NumpyExecutor(
        2 * CLIENTS * DRAWS,
        lambda params, client, draw, first, size: direction(client, draw, 0) * (first == 0 or kind in LOCAL),
        lambda client, draw: direction(client, draw, 1),
        capacity=64,
    )
    world = rough_world()
    tape = Tape(executor, window=7, max_batch=8 if kind in LOCAL else 4, local=kind in LOCAL)
    watcher = world.network.witness = Watcher(tape, world.clock)
    run_algorithm(kind, world, tape, training, updates=updates, **options)
    return watcher


def followed(kind, training, updates, options):
    world = rough_world()
    tape = KnowledgeTape(max_batch=8 if kind in LOCAL else 4, local=kind in LOCAL)
    world.network.witness = Listener(tape.knowledge, lambda: world.clock.now)
    run_algorithm(kind, world, tape, training, updates=updates, **options)
    return tape.knowledge


def placed(known, rows):
    """Return A and B of rows, with their columns placed at the directions of `computed`."""
    a, b = known.matrices(rows)
    matrix = np.zeros((len(rows), 2, CLIENTS, DRAWS))
    for column, one in enumerate(known.batches):
        matrix[:, 0, one.client, one.draw] += a[:, column]
    for column, (client, draw) in enumerate(known.noises):
        matrix[:, 1, client, draw] += b[:, column]
    return matrix.reshape(len(rows), -1)


CASES = [
    ("adpsgd", "shuffle", {}),
    ("adpsgd", "poisson", {"exchange": "atomic"}),
    ("decentralized_sgd", "poisson", {}),
    ("sgp", "shuffle", {"overlap": 1}),
    ("gossip_learning", "poisson", {"period_s": 0.01}),
    ("sync_sgd", "shuffle", {}),
    ("async_sgd", "poisson", {}),
    ("fedasync", "shuffle", {}),
    ("fedavg", "shuffle", {"fraction": 0.6}),
]


@pytest.mark.parametrize(("kind", "sampling", "options"), CASES)
def test_followed_messages_equal_computed_ones(kind, sampling, options):
    training = make_training(
        [40] * CLIENTS, d=2 * CLIENTS * DRAWS, batch_size=8, sampling=sampling, step_size=0.3, l2=0.01, noise_std=2.0
    )
    known = followed(kind, training, 60, options)
    watcher = computed(kind, training, 60, options)
    assert len(known.messages) == len(watcher.messages) > 20
    assert len(known.merged) == len(watcher.sums)
    assert (len(known.merged) > 0) == (kind in ("decentralized_sgd", "sgp", "sync_sgd", "fedavg"))
    expected = np.array([value for *_, value in watcher.messages])
    for sight, (source, target, came_s, _) in zip(known.messages, watcher.messages, strict=True):
        assert (sight.source, sight.target, sight.came_s) == (source, target, came_s)
    np.testing.assert_allclose(placed(known, [one.row for one in known.messages]), expected, atol=2e-6)
    if known.merged:
        made = np.array([value for _, value in watcher.sums])
        np.testing.assert_allclose(placed(known, [one.row for one in known.merged]), made, atol=2e-6)
    assert np.abs(expected).max() > 0.01
    # Each gradient has its own noise, so B follows from A.
    std = known.own_noise()
    a, b = known.matrices([one.row for one in known.messages])
    columns = {key: column for column, key in enumerate(known.noises)}
    own = [columns[one.client, one.draw] for one in known.batches]
    np.testing.assert_allclose(b[:, own], a * std, atol=1e-12)


def test_a_gradient_is_taken_at_a_model_that_is_known_before_it():
    known = followed("adpsgd", make_training([40] * CLIENTS, batch_size=8, noise_std=1.0), 40, {})
    for row in range(known.rows):
        batch = known._batch[row]
        assert batch < 0 or known.batches[batch].read < row


def test_a_batch_in_pieces_is_one_column():
    tape = KnowledgeTape(max_batch=4)
    model = tape.constant(np.zeros(3, np.float32))
    gradient = tape.gradient_in_pieces(model, 2, 5, 11, 3.0, start=(1, 6))
    seen = tape.knowledge.row_of(gradient)
    used = tape.combine((1.0, model), (-0.5, gradient))
    a, b = tape.knowledge.matrices([seen, tape.knowledge.row_of(used)])
    np.testing.assert_array_equal(a, [[1.0], [-0.5]])
    np.testing.assert_array_equal(b, [[3.0], [-1.5]])
    (batch,) = tape.knowledge.batches
    assert (batch.begin, batch.examples) == ((1, 6), 11)
    assert tape.knowledge.own_noise() is None  # its noise is added by a separate operation


def test_noise_of_a_server_is_in_its_messages_only():
    tape = KnowledgeTape(local=True)
    model = tape.constant(np.zeros(3, np.float32))
    rounds = [tape.train(model, client, 0, 2, 4, (0.1, 0.0, 0.0, 0.0)) for client in range(2)]
    sent = [tape.knowledge.row_of(one) for one in rounds]
    noised = tape.with_noise([(1.0, one) for one in rounds], 7.0)
    made = tape.apply((1.0, model), *((0.5 * c, update) for c, update in noised))
    a, b = tape.knowledge.matrices([*sent, tape.knowledge.row_of(made)])
    np.testing.assert_array_equal(a, [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    np.testing.assert_array_equal(b, [[0.0], [0.0], [3.5]])


def test_values_of_models_are_refused():
    tape = KnowledgeTape()
    model = tape.constant(np.zeros(3, np.float32))
    with pytest.raises(ScenarioError, match=r"algorithm\.kind: expected an algorithm that does not look at values"):
        tape.values([model])
    with pytest.raises(ScenarioError, match=r"algorithm\.optimizer: expected none"):
        tape.transform(model, model, [], 0, 0.1)
