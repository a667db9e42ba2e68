import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.streams import Streams
from simfl.world import Compute
from simfl.world import compute as compute_module
from simfl.world.compute import ClientDraws, Draws, Slowdown, Trace
from simfl.world.steps import Steps
from tests.helpers import lognormal


def make_compute(speeds, seed=0, seconds_per_example=1e-3, **options):
    return Compute(seconds_per_example, speeds, Streams(seed), **options)


@pytest.mark.parametrize("tenths", [3, 6, 7, 8, 10, 29])
def test_rounding_moves_no_computation_over_the_edge_of_a_slowdown_or_a_trace(tenths):
    """Sums of 0.1 s are above 0.3 and 0.6, below 0.8 and 1.0, and equal to 0.7."""
    edge_s, now = tenths / 10, sum([0.1] * tenths)
    for begin_s, end_s, factor in ((edge_s, np.inf, 3.0), (0.0, edge_s, 1.0)):
        compute = make_compute([1.0], slowdowns=[Slowdown(3.0, start_s=begin_s, end_s=end_s, clients=frozenset({0}))])
        assert compute.duration(0, 100, now) == pytest.approx(0.1 * factor)
    compute = make_compute([1.0], trace=Trace(Steps((0.0, edge_s), (1.0, 3.0))))
    assert compute.duration(0, 100, now) == pytest.approx(0.3)


@given(st.lists(st.integers(0, 9), min_size=100, max_size=400))
@settings(max_examples=10)
def test_draws_that_are_not_kept_are_drawn_again(clients):
    def uniform(generator, count):
        return generator.random(count)

    all_kept, some = Draws(Streams(1), "some", uniform), Draws(Streams(1), "some", uniform, kept=3)
    assert [some.next(client) for client in clients] == [all_kept.next(client) for client in clients]
    assert len(some._blocks) <= 3


def test_draws_of_a_client_do_not_depend_on_other_clients():
    alone = make_compute([1.0] * 4, jitter=lognormal(0.5), slowdowns=[Slowdown(2.0, random=1)])
    expected = [alone.duration(2, 8, 0.0) for _ in range(700)]
    among = make_compute([1.0] * 4, jitter=lognormal(0.5), slowdowns=[Slowdown(2.0, random=1)])
    order = np.random.default_rng(0).integers(0, 4, 4000)
    seen = {k: [] for k in range(4)}
    for k in order:
        seen[k].append(among.duration(k, 8, 0.0))
    assert seen[2][:700] == expected
    other = make_compute([1.0] * 4, seed=1, jitter=lognormal(0.5))
    assert [other.duration(2, 8, 0.0) for _ in range(10)] != expected[:10]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(num_clients=st.integers(1, 12), data=st.data(), seed=st.integers(0, 100))
def test_a_random_rule_slows_exactly_k_clients_in_every_iteration(num_clients, data, seed):
    k = data.draw(st.integers(1, num_clients))
    iterations = 300  # beyond one block of draws
    speeds = [1.0] * num_clients
    compute = make_compute(speeds, seed=seed, slowdowns=[Slowdown(2.0, random=k)])
    # Each client draws in blocks; the draw of iteration i does not depend on the client that asks first.
    slow = np.array([[compute.duration(c, 1, 0.0) > 1.5e-3 for _ in range(iterations)] for c in range(num_clients)])
    assert (slow.sum(axis=0) == k).all()
    again = make_compute(speeds, seed=seed, slowdowns=[Slowdown(2.0, random=k)])
    rows = [[again.duration(c, 1, 0.0) > 1.5e-3 for c in reversed(range(num_clients))] for _ in range(iterations)]
    np.testing.assert_array_equal(slow, np.array(rows).T[::-1])


@pytest.mark.parametrize("k", [1, 3])
def test_a_random_rule_is_fair_and_drawn_for_each_iteration(k):
    num_clients, iterations = 8, 8000
    compute = make_compute([1.0] * num_clients, slowdowns=[Slowdown(2.0, random=k)])
    slow = np.array([[compute.duration(c, 1, 0.0) > 1.5e-3 for _ in range(iterations)] for c in range(num_clients)])
    p = k / num_clients
    tolerance = 5 * np.sqrt(p * (1 - p) / iterations)
    np.testing.assert_allclose(slow.mean(axis=1), p, atol=tolerance)
    stays = (slow[:, 1:] & slow[:, :-1]).mean()
    assert stays == pytest.approx(p * p, abs=tolerance)


def test_two_random_rules_draw_independently():
    rules = [Slowdown(2.0, random=1), Slowdown(5.0, random=1)]
    compute = make_compute([1.0] * 8, slowdowns=rules)
    times = np.array([[compute.duration(c, 1, 0.0) / 1e-3 for _ in range(4000)] for c in range(8)])
    both = np.isclose(times, 10.0).mean()
    assert both == pytest.approx(1 / 64, abs=5 * np.sqrt(1 / 64 / 32_000) + 1e-3)
    assert np.isclose(times, 2.0).any()
    assert np.isclose(times, 5.0).any()


def test_draws_come_in_blocks_that_continue_each_other():
    draws = Draws(Streams(5), "anything", lambda generator, n: generator.random(n))
    values = [draws.next(3) for _ in range(2000)]
    assert len(set(values)) == 2000
    again = Draws(Streams(5), "anything", lambda generator, n: generator.random(n))
    mixed = []
    for _ in range(2000):
        again.next(0)
        mixed.append(again.next(3))
    assert mixed == values
    assert Draws(Streams(5), "else", lambda generator, n: generator.random(n)).next(3) not in values


@pytest.mark.parametrize("k", [1, 4])
def test_few_blocks_of_slow_clients_are_kept_and_drawn_again_as_they_were(k, monkeypatch):
    monkeypatch.setattr(compute_module, "_KEPT_BYTES", 0)
    compute = make_compute([1.0] * 9, slowdowns=[Slowdown(2.0, random=k)], seed=5)
    iterations = 256 * 10
    first = [compute.duration(0, 1, 0.0) for _ in range(iterations)]
    assert len(compute._drawn) == 8
    assert sum(block.nbytes for block in compute._drawn.values()) == 8 * 256 * k * 4
    late = [compute.duration(1, 1, 0.0) for _ in range(iterations)]
    streams = Streams(5)
    for block in range(10):
        generator = streams.generator("slowdown", 0, block)
        if k == 1:
            slow = generator.integers(0, 9, (256, 1))
        else:
            slow = np.argpartition(generator.random((256, 9)), k - 1, axis=1)[:, :k]
        rows = slice(256 * block, 256 * (block + 1))
        for client, times in ((0, first), (1, late)):
            np.testing.assert_array_equal(np.array(times[rows]) > 1.5e-3, (slow == client).any(axis=1))


@pytest.mark.parametrize("clients", [4, 5000])
def test_draws_of_clients_are_those_of_draws(clients):
    """Also where a part of each block is kept."""
    plain = Draws(Streams(3), "jitter", lambda g, n: g.normal(size=n))
    arrays = ClientDraws(Streams(3), "jitter", lambda g, n: g.normal(size=n), clients)
    for client in (0, 3, 3, 1, *[2, 0, 3] * 50):
        assert arrays.next(client) == plain.next(client)
    whole = ClientDraws(Streams(3), "batch", lambda g, n: g.binomial(10, 0.5, n), 2)
    assert whole.next(1) == Draws(Streams(3), "batch", lambda g, n: g.binomial(10, 0.5, n)).next(1)
