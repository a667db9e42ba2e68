"""A listening tape hears each promise once, on any path from its client."""

import math

import numpy as np
import pytest

from simfl.attacks.adversary import HEARD_AT_A_TIME, ListeningTape
from simfl.errors import ScenarioError
from simfl.tape import Tape
from tests.helpers import NumpyExecutor, make_training, tally_of

SIZE = 3


def value_of(client, draw, count):
    return np.full(SIZE, 100.0 * client + 10.0 * draw + count)


def executor():
    """Gradients that identify their client, and noise of 0.5."""
    return NumpyExecutor(
        SIZE,
        gradient=lambda params, client, draw, first, size: value_of(client, draw, size),
        noise=lambda client, draw: np.full(SIZE, 0.5),
    )


@pytest.fixture
def told():
    """(client, draw, releases) of what was heard."""
    return []


@pytest.fixture
def tape(told):
    """A tape of two clients that listens to client 0, and to 2 releases of client 1."""

    def hear(models, releases, promises):
        assert len(models) == len(releases) == len(promises) <= HEARD_AT_A_TIME
        told.extend(
            (promise.client, promise.draw, *release) for promise, release in zip(promises, releases, strict=True)
        )

    return ListeningTape(
        executor(),
        window=7,
        max_batch=8,
        clients={0: math.inf, 1: 2},
        hear=hear,
        releases=tally_of(make_training([64, 64], batch_size=8, noise_std=1.0, sampling="shuffle")),
    )


def promise_of(tape, model, client, draw, size=8):
    return tape.gradient(model, client, draw, size, 1.0)


#: Ways on which promises leave a client.
WAYS = {
    "combine": lambda tape, model, promise: tape.combine((1.0, model), (-0.1, promise)),
    "combine-with-penalty": lambda tape, model, promise: tape.combine((1.0, model), (-0.1, promise), (0.2, model)),
    "apply": lambda tape, model, promise: tape.apply((1.0, model), (-0.1, promise)),
    "apply-with-penalty": lambda tape, model, promise: tape.apply((1.0, model), (-0.1, promise), (0.2, model)),
    "sent-and-lost": lambda tape, model, promise: tape.release(promise),
    "sent-and-applied": lambda tape, model, promise: (tape.release(promise), tape.apply((1.0, model), (1.0, promise))),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_promise_is_heard_once_unchanged(tape, told, way):
    model = tape.constant(np.zeros(SIZE, np.float32))
    for draw in range(20):
        WAYS[way](tape, model, promise_of(tape, model, 0, draw))
        WAYS[way](tape, model, promise_of(tape, model, 1, draw))
    promise_of(tape, model, 0, 20)  # work destroyed by a crash is not released
    tape.deliver()
    assert [draw for client, draw, *_ in told if client == 0] == list(range(20))
    assert [draw for client, draw, *_ in told if client == 1] == [0, 1]
    assert tape.releases.total(0) == tape.releases.total(1) == 20
    assert tape.releases.refusal is None
    for client, draw, *release in told:
        np.testing.assert_allclose(release, value_of(client, draw, 8) + 0.5)


@pytest.mark.parametrize("start", [None, (0, 4)])
@pytest.mark.parametrize("way", WAYS)
def test_pieces_are_heard_as_one_release(tape, told, way, start):
    model = tape.constant(np.zeros(SIZE, np.float32))
    promise = tape.gradient_in_pieces(model, 0, 3, 20, 1.0, start=start)
    WAYS[way](tape, model, promise)
    tape.deliver()
    assert len(told) == 1
    assert tape.releases.others == {0: {(20, 1.0): 1}}
    assert tape.releases.refusal is None


def test_the_parts_of_a_sum_with_server_noise_are_heard_separately(tape, told):
    model = tape.constant(np.zeros(SIZE, np.float32))
    updates = [(1.0, tape.gradient(model, 0, draw, 8)) for draw in range(3)]
    tape.apply((1.0, model), *tape.with_noise(updates, 2.0))
    tape.deliver()
    assert [draw for _, draw, *_ in told] == [0, 1, 2]


def test_gradients_that_a_client_keeps_are_refused(tape):
    model = tape.constant(np.zeros(SIZE, np.float32))
    with pytest.raises(ScenarioError, match="expected an algorithm whose clients send what they compute"):
        tape.hold(promise_of(tape, model, 0, 0))


def test_listening_does_not_change_the_run(tape):
    def run(on):
        model = on.constant(np.zeros(SIZE, np.float32))
        for draw in range(20):
            promise = promise_of(on, model, draw % 2, draw // 2)
            model = on.apply((1.0, model), (0.1, promise)) if draw % 3 else on.combine((1.0, model), (0.1, promise))
        return on.values([model])

    np.testing.assert_array_equal(run(tape), run(Tape(executor(), window=7, max_batch=8)))
