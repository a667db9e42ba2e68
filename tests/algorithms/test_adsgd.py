"""ADSGD: an independent loop over its events, and a limit that speeds and delays do not move."""

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import exponential, lognormal, make_world, pulled, run_without_numbers, targets

D, STEP, COUNT = 3, 0.1, 5
#: Metropolis weights of a ring of five.
W = sum(np.roll(np.eye(COUNT), shift, axis=1) for shift in (-1, 0, 1)) / 3


def heavy(speeds, mean_s=10e-3, **more):
    links = LinkModel(latency=exponential(mean_s), loss=0.2, resend_timeout_s=0.01)
    return make_world(COUNT, jitter=lognormal(1.0), links=links, speeds=speeds, **more)


def test_models_equal_those_of_a_loop_over_the_events():
    """Messages are slow, lost and overtaken; client 4 is five times as slow as the others."""
    events, pulls = [], targets(COUNT, D)

    def watch(algorithm):
        send, receive = algorithm._send, algorithm._receive
        algorithm._send = lambda me: (events.append(("step", me, algorithm.client_updates[me])), send(me))[1]
        algorithm._receive = lambda me, source, number, model: (
            events.append(("came", me, source, number)),
            receive(me, source, number, model),
        )[1]

    algorithm, models = pulled("adsgd", heavy([1.0] * 4 + [5.0]), 0.5, prepare=watch)
    x, heard, sent, overtaken = np.zeros((COUNT, D)), {}, {}, 0
    for event, me, *rest in events:
        if event == "came":
            overtaken += rest[1] < heard.get((me, rest[0]), 0)
            heard[me, rest[0]] = max(heard.get((me, rest[0]), 0), rest[1])
            continue
        near = sum(sent.get((j, heard.get((me, j), 0)), np.zeros(D)) for j in ((me + 1) % COUNT, (me - 1) % COUNT))
        x[me] = (x[me] + near) / 3 - STEP * (x[me] - pulls[me])
        sent[me, rest[0]] = x[me].copy()
    assert overtaken > 10
    assert sum(algorithm.client_updates) == sum(event == "step" for event, *_ in events) > 100
    np.testing.assert_allclose(models, x, atol=1e-6)


@pytest.mark.parametrize(("speeds", "mean_s"), [([1.0] * 5, 1e-3), ([1.0, 1.0, 1.0, 4.0, 16.0], 1e-3),
                                                ([1.0, 1.0, 1.0, 4.0, 16.0], 0.2)])  # fmt: skip
def test_speeds_and_delays_do_not_move_the_limit(speeds, mean_s):
    """The limit is that of D-PSGD, x = W x - step (x - target), solved here; SWIFT's weights favor the fast."""
    expected = np.linalg.solve(np.eye(COUNT) * (1 + STEP) - W, STEP * targets(COUNT, D))
    _, models = pulled("adsgd", heavy(speeds, mean_s), 20.0)
    np.testing.assert_allclose(models, expected, atol=2e-6)
    if max(speeds) > 1.0:
        _, other = pulled("swift", heavy(speeds, mean_s), 5.0, skip=0, gradient_s=speeds)
        assert np.abs(other.mean(axis=0) - targets(COUNT, D).mean(axis=0)).max() > 0.1


def test_no_client_waits_and_times_are_those_of_the_devices():
    world = make_world(8, links=LinkModel(latency=exponential(1.0)), speeds=[1.0] * 7 + [5.0])
    algorithm, _ = run_without_numbers("adsgd", world, until=1.0001)
    assert algorithm.client_updates == [125] * 7 + [25]
    assert all(algorithm.times.waited_s(k) == pytest.approx(0.0, abs=1e-9) for k in range(8))
    assert world.network.messages == 2 * sum(algorithm.client_updates)


def test_the_weight_of_a_client_that_left_goes_to_the_others_own():
    """Without client 1, the others are a path: their limit is that of the ring whose lost weights are their own."""
    world = heavy([1.0] * 5, 1e-3, outages={1: [Outage(0.05, np.inf, crash=True)]})
    algorithm, models = pulled("adsgd", world, 10.0)
    left = np.delete(np.delete(W, 1, 0), 1, 1)
    left += np.diag(1.0 - left.sum(axis=1))
    expected = np.linalg.solve(np.eye(4) * (1 + STEP) - left, STEP * np.delete(targets(COUNT, D), 1, 0))
    assert 1 not in algorithm._newest[0]
    np.testing.assert_allclose(np.delete(models, 1, 0), expected, atol=2e-6)
