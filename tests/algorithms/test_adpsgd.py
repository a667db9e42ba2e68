import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import NumpyExecutor, constant, make_training, make_world, run_algorithm, run_without_numbers

exchanges = pytest.mark.parametrize("exchange", ["atomic", "messages"])


def total(tape, algorithm):
    """Return the sum of all models, less the differences in flight, which their receivers will subtract."""
    flying = list(algorithm.in_flight.values())
    total = tape.values(algorithm.model).astype(np.float64).sum(axis=0)
    return total - (tape.values(flying).astype(np.float64).sum(axis=0) if flying else 0.0)


def crossing(count, links, until, *, topology="complete", gradient=None, step_size=0.0, spread=None, **world):
    """Let equal clients, all of which start exchanges, begin at once at models of their own."""
    tape = Tape(NumpyExecutor(2, gradient), window=50)
    models = np.random.default_rng(3).standard_normal((count, 2)) if spread is None else spread
    world = make_world(count, topology=topology, links=links, **world)
    training = make_training([64] * count, d=2, step_size=step_size)
    algorithm, rows = run_algorithm("adpsgd", world, tape, training, until=until, models=models, pairing="everyone")
    return algorithm, rows, tape.values(algorithm.model).astype(np.float64), models


@pytest.mark.parametrize("latency_s", [1e-3, 6e-3, 5e-2])
@pytest.mark.parametrize("fifo", [False, True])
def test_two_exchanges_of_a_pair_that_cross_are_one(latency_s, fifo):
    """Each model becomes the mean after one latency, not the other's; each request is the answer to the other."""
    period = max(8e-3, latency_s)
    links = LinkModel(latency=constant(latency_s), fifo=fifo)
    algorithm, rows, after, models = crossing(2, links, until=4.5 * period)
    np.testing.assert_allclose(after, np.tile(models.mean(axis=0), (2, 1)), atol=1e-6)
    assert sorted(row[1:3] for row in rows) == [(0, 1)] * 4 + [(1, 0)] * 4
    np.testing.assert_allclose([row[0] for row in rows], period * np.repeat([1, 2, 3, 4], 2))
    assert algorithm.world.network.messages == 2 * 5, "a request each, and no answer"
    assert not algorithm.in_flight or latency_s > period / 2


@pytest.mark.parametrize("back", [0.05, float("inf")])
def test_a_crossing_request_that_is_refused_is_sent_again_as_an_answer(back):
    """Client 1's request reaches client 0 while it is offline; client 0's has reached client 1, which has averaged."""
    links = LinkModel(latency=constant(5e-3), resend_timeout_s=0.01)
    outages = {0: [Outage(4e-3, back)]}
    algorithm, _, after, models = crossing(2, links, until=0.049, outages=outages)
    d = (models[0] - models[1]) / 2
    np.testing.assert_allclose(after, [models[0], models[1] + d], atol=1e-6)
    np.testing.assert_allclose(algorithm.tape.values([algorithm.in_flight[0]]), [d], atol=1e-6)
    algorithm, rows, after, models = crossing(2, links, until=0.3, outages=outages)
    if back < 1.0:
        np.testing.assert_allclose(after, np.tile(models.mean(axis=0), (2, 1)), atol=1e-6)
        assert rows[0][:3] == (8e-3, 1, 0), "client 1 does not wait for client 0"
        first = next(row for row in rows if row[1] == 0)
        assert first[2] == 1
        assert first[0] > back
    else:
        np.testing.assert_allclose(after, [models[0], models[1] + d], atol=1e-6)
        assert list(algorithm.in_flight) == [0]


def test_requests_that_are_both_refused_change_no_model():
    links = LinkModel(latency=constant(5e-3), resend_timeout_s=0.01)
    outages = {0: [Outage(4e-3, 6e-3)], 1: [Outage(4.5e-3, 7e-3)]}
    algorithm, rows, after, models = crossing(2, links, until=0.0151, outages=outages)
    np.testing.assert_allclose(after, models, atol=1e-6)
    assert not algorithm.in_flight
    assert [row[2] for row in rows] == [-1, -1]


def test_only_one_side_of_a_bipartite_graph_starts_exchanges():
    def starters(topology, **options):
        _, rows = run_without_numbers("adpsgd", make_world(6, topology=topology), updates=200, **options)
        return {row[1] for row in rows if row[2] >= 0}

    assert starters("ring") == {0, 2, 4}
    assert starters("star") == {0}
    assert starters("complete") == set(range(6))
    assert starters("ring", pairing="everyone") == set(range(6))
    assert starters("ring", pairing="senders") == {0, 2, 4}
    with pytest.raises(ScenarioError, match=r"^algorithm\.pairing: found 'senders' on a graph that is not bipartite"):
        starters("complete", pairing="senders")
