"""The cost of secure aggregation: published counts of bytes, and reconstruction by brute force."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from simfl.world.secure_sums import Bonawitz, LightSecAgg, SecAggPlus, Work, circle_of


def client_bytes(protocol, count):
    return sum(step.down + step.up for step in protocol.steps(count))


@pytest.mark.parametrize("count", [2, 3, 10, 100, 500])
def test_bytes_of_bonawitz_are_those_of_section_7(count):
    protocol = Bonawitz(threshold=2, size=1001, bits=20, key_bytes=32, share_bytes=48)
    assert client_bytes(protocol, count) == 2 * count * 32 + (5 * count - 4) * 48 + math.ceil(1001 * 20 / 8)


def test_bytes_of_secagg_plus_do_not_grow_with_the_number_of_clients():
    few, many = (client_bytes(SecAggPlus(threshold=2, size=10, near=20), count) for count in (21, 10_000))
    assert few == many == client_bytes(Bonawitz(threshold=2, size=10), 21)
    assert client_bytes(SecAggPlus(threshold=2, size=10, near=20), 9) == client_bytes(Bonawitz(threshold=2, size=10), 9)


def test_bytes_of_lightsecagg_are_those_of_its_table():
    """d N / (U - T) beforehand, and d + d / (U - T) later; keys are extra."""
    count, t, colluding, size = 30, 20, 10, 1000
    protocol = LightSecAgg(threshold=t, size=size, bits=32, colluding=colluding)
    keys, shares, masked, unmask = protocol.steps(count)
    assert protocol.piece == size / (t - colluding)
    assert shares.up == masked.down == 4 * (count - 1) * protocol.piece
    assert (masked.up, unmask.up, keys.up, shares.down) == (4 * size, 4 * protocol.piece, 32, 32 * (count - 1))


@pytest.mark.parametrize("count", [2, 5, 6, 7, 13])
def test_neighbors_are_mutual_and_as_many_as_asked(count):
    protocol = SecAggPlus(threshold=2, size=10, near=4, neighbors_threshold=2)
    circle = circle_of(list(range(100, 100 + count)), np.random.default_rng(3))
    neighbors = protocol.neighbors(circle)
    of = {client: set(neighbors(place)) for place, client in enumerate(circle)}
    for client, others in of.items():
        assert client not in others
        assert len(others) == min(4, count - 1) == protocol.others(count)
        assert all(client in of[other] for other in others)


def test_a_sum_is_unmasked_if_every_secret_has_enough_shares():
    protocol = SecAggPlus(threshold=4, size=10, near=4, neighbors_threshold=3)
    circle, seen = [3, 0, 5, 1, 6, 2, 4], set()
    for count in range(8):
        for answered in itertools.combinations(range(7), count):
            secrets = [sum(circle[(place + hop) % 7] in answered for hop in (-2, -1, 1, 2)) >= 3 for place in range(7)]
            expected = count >= 4 and all(secrets)
            assert protocol.enough(circle, answered) == expected
            seen.add((count >= 4, expected))
    assert seen == {(False, False), (True, False), (True, True)}
    assert not Bonawitz(threshold=4, size=10).enough(circle, [0, 1, 2])
    assert Bonawitz(threshold=4, size=10).enough(circle, [0, 1, 2, 6])


def test_the_server_reconstructs_a_mask_for_each_survivor_and_each_pair_that_lost_one():
    work = Work(agreement_s=1.0, mask_rate=0.5, operation_s=0.0)
    circle, alive = [0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 6]
    bonawitz = Bonawitz(threshold=4, size=1, bits=8, work=work)
    assert bonawitz.server_s(circle, alive) == 3 * 4 * 1.0 + (4 + 3 * 4) * 2.0
    near = SecAggPlus(threshold=4, size=1, bits=8, work=work, near=2, neighbors_threshold=1)
    pairs = sum(other in alive for gone in (1, 4, 5) for other in (gone - 1, gone + 1))
    assert near.server_s(circle, alive) == pairs * 1.0 + (4 + pairs) * 2.0
    shares = Bonawitz(threshold=4, size=1, bits=8, work=Work(0.0, math.inf, 1.0))
    assert shares.server_s(circle, alive) == 4**2 + 7 * 4, "one set of Lagrange weights, and seven secrets"
    light = LightSecAgg(threshold=4, size=9, colluding=1, work=Work(0.0, math.inf, 1.0))
    assert light.server_s(circle, alive) == 3 * 4 * 2


def test_slow_work_of_clients_is_that_of_the_paper():
    work = Work(agreement_s=1.0, mask_rate=1.0, operation_s=100.0)
    steps = Bonawitz(threshold=3, size=2, bits=8, work=work).steps(5)
    assert [step.work_s for step in steps] == [2.0, 4.0 + 2 * 5 * 3 * 100.0, 4.0 + 5 * 2.0, 0.0]
    light = LightSecAgg(threshold=3, size=4, bits=8, colluding=1, work=work)
    assert light.encoding_s(8) == 4.0 + 2 * 8 * 3 * 100.0


@pytest.mark.parametrize(("count", "near"), [(7, 2), (8, 4), (5, 4)])
@pytest.mark.parametrize("colluding", [0, 1, 2])
def test_survivors_hide_each_other_if_their_graph_is_connected(count, near, colluding):
    """Brute force over all sets of survivors, and all sets of colluding ones among them."""
    protocol = SecAggPlus(threshold=1, size=10, near=near, neighbors_threshold=1)
    circle = circle_of(list(range(count)), np.random.default_rng(1))
    neighbors = protocol.neighbors(circle)
    graph = nx.Graph([(client, other) for place, client in enumerate(circle) for other in neighbors(place)])
    seen = set()
    for survivors in itertools.chain(*(itertools.combinations(range(count), n) for n in range(2, count + 1))):
        cuts = [
            not nx.is_connected(graph.subgraph(set(survivors) - set(told)))
            for told in itertools.combinations(survivors, min(colluding, len(survivors) - 1))
        ]
        hides = protocol.hides(circle, survivors, colluding)
        assert hides == (not any(cuts)) or (not hides and len(survivors) <= colluding + 2)
        seen.add(hides)
    assert True in seen
    assert Bonawitz(threshold=1, size=10).hides(circle, [0, 2, 4], 1)


def learns(protocol, circle, survivors, answered, told):
    """Whether masked vectors, also late ones, and what clients tell give the server a combination of honest updates.

    Linear algebra: a row for each honest client of the circle, a column for each mask that the server does not know.
    """
    neighbors, needed, count = protocol.neighbors(circle), protocol.shares_needed(len(circle)), max(circle) + 1
    holders = {client: set(neighbors(place)) for place, client in enumerate(circle)}
    for_keys = {v: told if v in survivors else told | answered for v in circle}  # clients never answer with both
    for_masks = {v: told | answered if v in survivors else told for v in circle}
    key_known, mask_known = (
        {v: v in told or len(holders[v] & shares[v]) >= needed for v in circle} for shares in (for_keys, for_masks)
    )
    honest = [v for v in circle if v not in told]
    columns = [np.eye(count)[v] for v in honest if not mask_known[v]]
    for v, other in itertools.combinations(honest, 2):
        if other in holders[v] and not key_known[v] and not key_known[other]:
            columns.append(np.eye(count)[v] - np.eye(count)[other])
    unknown = np.array(columns).reshape(-1, count)[:, honest]
    return np.linalg.matrix_rank(unknown) < len(honest) if len(columns) else bool(honest)


@pytest.mark.parametrize("colluding", [0, 1, 2])
@pytest.mark.parametrize(
    "protocol",
    [
        Bonawitz(threshold=5, size=10),
        SecAggPlus(threshold=5, size=10, near=4, neighbors_threshold=3),
        SecAggPlus(threshold=5, size=10, near=8, neighbors_threshold=5),
    ],
)
def test_a_sum_shows_something_if_answers_and_colluding_clients_have_the_shares(protocol, colluding):
    """Against linear algebra, for every choice of clients that collude. Without any, it is exact."""
    generator, seen, loose, count = np.random.default_rng(5), set(), 0, 9
    for _ in range(120):
        circle = circle_of(list(range(count)), generator)
        survivors = set(generator.permutation(count)[: generator.integers(5, count + 1)].tolist())
        answered = {client for client in survivors if generator.random() < 0.6}
        told = map(set, itertools.combinations(range(count), colluding))
        learned = any(learns(protocol, circle, survivors, answered, some) for some in told)
        counted = protocol.shows(circle, survivors, answered, colluding)
        if protocol.hides(circle, survivors, colluding):  # otherwise nothing is certified
            assert counted >= learned
            assert colluding or counted == learned
            loose += counted > learned
            seen.add(learned)
    assert seen == {False, True}
    assert loose <= 20, "seldom more than what the server learns"


def test_the_sum_is_known_by_neighbors_however_few_clients_answer():
    """Fewer than t answers abort the sum, but every secret has its shares."""
    protocol, circle = SecAggPlus(threshold=6, size=10, near=4, neighbors_threshold=2), list(range(10))
    answered = [0, 2, 4, 6, 8]
    assert not protocol.enough(circle, answered)
    assert protocol.shows(circle, circle, answered, 0)
    assert not protocol.shows(circle, circle, answered[:3], 0)


def test_a_few_colluding_clients_do_not_cover_gaps_all_around_a_large_circle():
    """Nine neighbors in a row do not answer, at two places: four colluding clients cover one of them."""
    protocol, circle = SecAggPlus(threshold=50, size=10, near=10, neighbors_threshold=6), list(range(100))
    one = [client for client in circle if not 20 <= client < 29]
    two = [client for client in one if not 60 <= client < 69]
    assert protocol.hides(circle, circle, 4)
    assert not protocol.shows(circle, circle, one, 0)
    assert protocol.shows(circle, circle, one, 4)
    assert protocol.shows(circle, circle, two, 8)
    many = [client for client in circle if client % 14 >= 9]
    assert not protocol.shows(circle, circle, many, 4)


def test_answers_of_lightsecagg_say_something_if_they_are_more_than_it_stands():
    protocol = LightSecAgg(threshold=6, size=10, colluding=3)
    assert [protocol.shows([], [], range(answers), 0) for answers in range(6)] == [False] * 4 + [True] * 2
    assert protocol.shows([], [], [0, 1], 2)
    assert not Bonawitz(threshold=6, size=10).shows([], [], range(5), 0)
    assert Bonawitz(threshold=6, size=10).shows([], [], range(2), 4)
