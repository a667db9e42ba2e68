"""Graphs that change: which clients are linked when, in which contact, and the effect on messages."""

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.assembly.graphs import graphs_of
from simfl.errors import DataError, ScenarioError
from simfl.scenario import from_mapping
from simfl.streams import Streams
from simfl.world.changing import ContactCuts, Contacts, one_peer, sampled_peers
from simfl.world.cuts import Cut, Cuts


def graphs(count=8, algorithm="adpsgd", seed=0, **topology):
    scenario = from_mapping({"clients": {"count": count}, "topology": topology, "algorithm": algorithm})
    return graphs_of(scenario, Streams(seed))


KINDS = [
    {"kind": "regular", "degree": 3, "redraw_every": "2 s"},
    {"kind": "erdos_renyi", "probability": 0.6, "redraw_every": "2 s"},
    {"kind": "one_peer", "redraw_every": "2 s"},
    {"kind": "peer_sampling", "peers": 2, "redraw_every": "2 s"},
    {"kind": "sequence", "graphs": [{"graph": "ring"}, {"from": "2 s", "graph": "star"}], "every": "4 s"},
]


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config["kind"])
def test_at_each_moment_weights_are_doubly_stochastic_and_over_time_all_are_connected(config):
    known, changing = graphs(**config)
    seen, union = [], nx.empty_graph(8)
    for now in (0.0, 1.9, 2.0, 4.5, 6.0, 8.0):
        graph = changing.at(now)
        assert graph is changing.at(now), "the same object for as long as it is in force"
        weights = graph.mixing_matrix().toarray()
        np.testing.assert_allclose(weights.sum(axis=0), 1.0)
        np.testing.assert_array_equal(weights, weights.T)
        assert weights.min() >= 0
        for client in range(8):
            assert list(changing.neighbors(client, now)) == list(graph.neighbors(client))
            assert client not in graph.neighbors(client)
            assert set(graph.neighbors(client)) <= set(changing.acquaintances(client))
            assert changing.meets_s(client, now) == now
        seen.append(graph.edges)
        union.add_edges_from(graph.edges)
    assert seen[0] == seen[1] != seen[2]
    assert nx.is_connected(union)
    again = graphs(**config)[1]
    assert [again.at(now).edges for now in (8.0, 6.0, 4.5, 2.0, 1.9, 0.0)] == seen[::-1], "whoever asks, and when"
    assert set(known.edges) >= set(seen[0])


def test_the_first_graph_is_that_of_a_scenario_without_changes():
    for kind in ("regular", "watts_strogatz", "barabasi_albert"):
        fixed, none = graphs(kind=kind, seed=3)
        known, changing = graphs(kind=kind, seed=3, redraw_every="1 s")
        assert none is None
        assert fixed.edges == known.edges == changing.at(0.5).edges


def test_algorithms_without_neighbors_have_no_changing_graph():
    for algorithm, changes in (("sync_sgd", False), ("sgp", False), ({"kind": "sgp", "graph": "topology"}, True)):
        assert (graphs(algorithm=algorithm, **KINDS[0])[1] is not None) is changes


@given(count=st.integers(2, 40))
def test_one_peer_goes_through_the_hops_of_the_exponential_graph(count):
    hops = max(1, (count - 1).bit_length())
    union = nx.compose_all([one_peer(count, number).graph for number in range(hops)])
    assert nx.is_connected(union)
    assert one_peer(count, hops).edges == one_peer(count, 0).edges
    assert max(one_peer(count, 1).degrees) <= 2


def test_peers_are_uniform():
    counts, rng = np.zeros((6, 6)), np.random.default_rng(0)
    for _ in range(600):
        graph = sampled_peers(6, 2, rng)
        assert graph.degrees.min() >= 2
        counts += nx.to_numpy_array(graph.graph, nodelist=range(6))
    chance = 1 - (1 - 2 / 5) ** 2  # either draws the other
    off = counts[~np.eye(6, dtype=bool)] / 600
    assert off == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / 600))


spans = st.lists(
    st.tuples(st.integers(0, 18), st.integers(1, 6), st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=12
).map(lambda drawn: [(b, min(b + length, 20), one, (one + by) % 4) for b, length, one, by in drawn])


@settings(max_examples=100, deadline=None)
@given(plan=spans, every=st.sampled_from([math.inf, 20, 25]), nows=st.lists(st.integers(0, 120), max_size=6))
def test_contacts_are_those_of_the_plan(plan, every, nows):
    contacts = Contacts(4, plan, every)

    def linked(one, other, now):
        phase = now if math.isinf(every) else now % every
        return any(b <= phase < e and {one, other} == {a, c} for b, e, a, c in plan)

    for half in (n / 2 for n in nows):
        graph = contacts.at(half)
        for one in range(4):
            assert [k for k in range(4) if linked(one, k, half)] == list(contacts.neighbors(one, half))
            assert list(graph.neighbors(one)) == list(contacts.neighbors(one, half))
            for other in range(4):
                later = [half, *(n for n in range(math.ceil(half), math.ceil(half) + 60))]
                expected = next((t for t in later if linked(one, other, t)), math.inf)
                assert contacts.linked_s(one, other, half) == expected
            met = [contacts.linked_s(one, other, half) for other in range(4) if other != one]
            assert contacts.meets_s(one, half) == min(met)


def test_clients_out_of_contact_are_separated_as_by_a_partition():
    contacts = Contacts(3, [(1.0, 2.0, 0, 1), (3.0, 4.0, 1, 0), (0.0, 9.0, 1, 2)], 10.0)
    cuts = ContactCuts(Cuts([Cut((frozenset({0}),), 2.5, 3.5)]), contacts)
    assert [cuts.joined_s((0, 1), t) for t in (0.0, 1.5, 2.0, 3.2, 4.0, 11.0)] == [1.0, 1.5, 3.5, 3.5, 11.0, 11.0]
    assert cuts.joined_s((0, 2), 0.0) == math.inf
    assert cuts.joined_s((0, 3), 0.0) == 0.0, "a server is met always"
    assert cuts.hit((0, 1), 1.2, 1.8) is None
    assert (cut := cuts.hit((0, 1), 1.2, 2.2)) is not None
    assert (cut.start_s, cut.end_s) == (2.0, 3.0)
    assert cuts.hit((1, 2), 0.0, 8.9) is None
    assert cuts.hit((1, 2), 0.0, 9.5).end_s == 10.0
    assert cuts.hit((0, 3), 2.0, 3.0).start_s == 2.5, "partitions hold for it"
    apart = ContactCuts(Cuts([Cut((frozenset({0}),), 2.5, math.inf)]), contacts)
    assert apart.joined_s((0, 1), 3.0) == math.inf, "a partition that never ends"
    touching = ContactCuts(Cuts(), Contacts(2, [(0.0, 5.0, 0, 1)], 5.0))
    assert touching.hit((0, 1), 1.0, 23.0) is None


def write(folder, text):
    (folder / "plan.csv").write_text("from,until,a,b\n" + text)
    return str(folder / "plan.csv")


def test_a_plan_is_read_from_a_file(tmp_path):
    path = write(tmp_path, "0,10 s,0,1\n5,20,1,2\n")
    known, changing = graphs(3, kind="contacts", path=path, every="1 min")
    assert known.edges == ((0, 1), (1, 2))
    assert [changing.neighbors(1, t) for t in (0, 7, 15, 30, 61)] == [(0,), (0, 2), (2,), (), (0,)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,1,0,3\n", r"topology\.path: .*:2: b: expected a client below clients\.count, which is 3, found '3'"),
        ("0,1,0,x\n", r":2: b: expected a client below clients\.count"),
        ("0,1,1,1\n", r":2: b: expected another client than a, found '1'"),
        ("2,1,0,1\n", r":2: until: expected a time after 'from', which is 2 s, found '1'"),
        ("0,99,0,1\n", r":2: until: expected a time up to topology\.every, which is 60 s, found '99'"),
        ("-1,1,0,1\n", r":2: from: expected a number >= 0, found '-1'"),
        ("0,1,0,1\n", r"topology: contacts: expected a connected graph, found 2 separate parts"),
    ],
)
def test_an_invalid_contact_plan_is_refused(text, said, tmp_path):
    with pytest.raises((DataError, ScenarioError), match=said.replace("60 s", "(60 s|1 min)")) as raised:
        graphs(3, kind="contacts", path=write(tmp_path, text), every="1 min")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ({"kind": "sequence", "graphs": []}, r"topology\.graphs: expected at least one graph, found \[\]"),
        ({"kind": "sequence", "graphs": [{"from": 1, "graph": "ring"}]}, r"graphs\.0\.from: expected 0 s for the fi"),
        ({"kind": "sequence", "graphs": [{"graph": "ring"}, {"from": 0, "graph": "star"}]},
         r"graphs\.1\.from: expected a time after that of the graph before, 0 s, found 0 s; sort them"),
        ({"kind": "sequence", "graphs": [{"graph": "ring"}, {"from": 2, "graph": "star"}], "every": 2},
         r"every: expected a time after the last graph begins, at 2 s"),
        ({"kind": "sequence", "graphs": [{"graph": {"kind": "regular", "redraw_every": 1}}]},
         r"graph\.redraw_every: expected null: one graph, found 1 s"),
        ({"kind": "sequence", "graphs": [{"graph": {"kind": "regular", "degree": 9}}]}, r"graphs\.0\.graph\.degree"),
        ({"kind": "peer_sampling", "peers": 8, "redraw_every": 1}, r"topology\.peers: expected fewer than clients"),
        ({"kind": "peer_sampling"}, r"topology\.redraw_every: "),
        ({"kind": "regular", "redraw_every": 0}, r"topology\.redraw_every: expected a time > 0"),
    ],
)  # fmt: skip
def test_an_invalid_schedule_is_refused(topology, said):
    with pytest.raises(ScenarioError, match=said):
        graphs(**topology)


def test_pairing_by_senders_needs_a_constant_graph():
    with pytest.raises(ScenarioError, match=r"algorithm\.pairing: expected auto or everyone on a graph that changes"):
        graphs(algorithm={"kind": "adpsgd", "pairing": "senders"}, kind="one_peer", redraw_every=1)
