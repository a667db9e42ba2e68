"""Gossip over graphs that change: exchanges with current neighbors, lost messages, and no deadlock."""

import math

import numpy as np
import pytest

from simfl.runs.endings import why_over
from simfl.world.changing import ContactCuts, Contacts, Redrawn, one_peer
from simfl.world.cuts import Cuts
from simfl.world.links import LinkModel
from tests.helpers import constant, lognormal, make_world, run_without_numbers

GOSSIP = [
    ("adpsgd", {}), ("adpsgd", {"exchange": "atomic"}), ("gossip_learning", {}), ("decentralized_sgd", {}),
    ("sgp", {"graph": "topology"}), ("corrected_gossip", {"method": "tracking"}),
]  # fmt: skip
ways = pytest.mark.parametrize(
    ("kind", "options"), GOSSIP, ids=["messages", "atomic", "pushed", "d-psgd", "sgp", "corrected"]
)


def world_of(changing, latency_s=2e-3, **options):
    links = {"latency": constant(latency_s)}
    if isinstance(changing, Contacts):
        links["cuts"] = ContactCuts(Cuts(), changing)
    world = make_world(changing.num_clients, jitter=lognormal(0.3), links=LinkModel(**links), **options)
    world.topology, world.changing = changing.known(), changing
    return world


def redrawn(count=8, every_s=0.1):
    return Redrawn("one_peer", count, lambda number: one_peer(count, number), every_s)


@ways
def test_clients_exchange_with_current_neighbors(kind, options):
    sent = []
    world = world_of(redrawn(), on_delivery=sent.append)
    _, rows = run_without_numbers(kind, world, until=1.0, **options)
    pairs = {tuple(sorted(message[2:4])) for message in sent}
    if options.get("exchange") == "atomic":
        assert all(row[2] in world.changing.neighbors(row[1], row[0]) for row in rows)
        pairs = {tuple(sorted(row[1:3])) for row in rows}
    assert {(other - one) % 8 for one, other in pairs} | {(one - other) % 8 for one, other in pairs} == {1, 2, 4, 6, 7}
    assert min(np.bincount([row[1] for row in rows], minlength=8)) > 30
    again = run_without_numbers(kind, world_of(redrawn()), until=1.0, **options)[1]
    assert again == rows


@ways
def test_clients_out_of_contact_continue_or_wait_and_resume(kind, options):
    """Two pairs are in contact in turn; between 0.4 s and 1 s of every second there is no contact."""
    plan = [(0.0, 0.2, 0, 1), (0.0, 0.2, 2, 3), (0.2, 0.4, 1, 2), (0.2, 0.4, 3, 0)]
    sent = []
    world = world_of(Contacts(4, plan, 1.0), on_delivery=sent.append)
    algorithm, rows = run_without_numbers(kind, world, until=4.0, **options)
    for sent_s, delivered_s, source, target, *_ in sent:
        assert world.changing.linked_s(source, target, delivered_s - 1e-9) == delivered_s - 1e-9
        assert sent_s <= delivered_s
    assert world.network.messages == world.network.delivered + world.network.lost + world.network.in_flight
    for k in range(4):
        made = np.array([row[0] for row in rows if row[1] == k])
        assert ((made > 3.0) & (made < 3.4)).sum() > (0 if kind in ("decentralized_sgd", "corrected_gossip") else 5), (
            "in contact all go on"
        )
    assert algorithm.updates == len(rows)


def test_a_message_in_flight_when_a_contact_ends_waits_for_the_next():
    """Client 0's request arrives at 0.1 s. The answer would at 0.2 s, but the contact ends at 0.15 s until 1 s."""
    sent, both = [], [(0.0, 0.15), (1.0, 9.0)]
    plan = [(*when, *pair) for when in both for pair in ((0, 1), (1, 2))]
    world = world_of(Contacts(3, plan), latency_s=0.1, on_delivery=sent.append, seed=1)
    algorithm, rows = run_without_numbers("adpsgd", world, until=1.5)
    assert [message[2:4] for message in sent[:3]] == [(0, 1), (1, 2), (2, 1)], "client 1 begins with client 2"
    (answer,) = (message for message in sent if message[2:4] == (1, 0) and message[0] < 0.15)
    assert answer[1] == pytest.approx(1.1)
    assert answer[5] == 1
    assert min(row[0] for row in rows if row[1] == 0) >= 1.1
    assert algorithm.updates == len(rows)


def test_a_redrawn_graph_loses_no_message():
    """An answer arrives although the two are no longer neighbors: the graph decides only where requests go."""
    sent = []
    changing = redrawn(8, 0.05)
    algorithm, rows = run_without_numbers("adpsgd", world_of(changing, 0.04, on_delivery=sent.append), until=1.0)
    assert any(message[3] not in changing.neighbors(message[2], message[1]) for message in sent)
    assert algorithm.world.network.lost == 0
    assert len(rows) > 50


def test_a_run_ends_after_the_last_contact():
    world = world_of(Contacts(3, [(0.0, 0.3, 0, 1), (0.1, 0.3, 1, 2)]))
    algorithm, rows = run_without_numbers("gossip_learning", world)
    assert rows
    assert world.clock.now < 0.5
    assert why_over(algorithm) == "every client waits for a model, and will have no neighbor again"
    stuck, _ = run_without_numbers("decentralized_sgd", world_of(Contacts(2, [(0.0, 0.05, 0, 1)]), 0.04), until=9.0)
    assert math.isinf(stuck.world.changing.meets_s(0, 0.06))


def test_weights_follow_the_graph_of_the_round():
    """In every round the weights of each model add up to 1, so the sum of all models changes by gradients only."""
    world = world_of(redrawn(6, 0.03))
    algorithm, _ = run_without_numbers("decentralized_sgd", world, until=0.5)
    graphs = [algorithm._graph_of(number) for number in sorted(algorithm._graphs)]
    assert graphs
    for graph in graphs:
        weights = np.array([[graph.weights[i].get(j, 0.0) for j in range(6)] for i in range(6)])
        np.testing.assert_allclose(weights.sum(axis=0), 1.0)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)
