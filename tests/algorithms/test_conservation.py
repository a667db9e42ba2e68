"""Bytes are conserved on every link and in every algorithm: each is delivered, lost or in flight."""

import math
from collections import Counter

import pytest

from simfl.world.availability import Outage, RandomOutages
from simfl.world.cuts import Cut, Cuts
from simfl.world.flows import Flows
from simfl.world.links import LinkModel, Queues
from tests.algorithms import test_contract as endless
from tests.helpers import exponential, lognormal, make_world, run_without_numbers
from tests.papers.without_replacement import test_passing as passing

K = 6
CUTS = Cuts([Cut((frozenset({0, 1}),), 0.3, 0.5), Cut((frozenset({2, K}),), 1.0, 1.2), Cut((frozenset({4}),), 2.0)])
ROUGH = {
    "latency": exponential(4e-3),
    "bandwidth": 2e5,
    "loss": 0.2,
    "resend_timeout_s": 0.01,
    "uplink": 1e5,
    "downlink": 2e5,
    "cuts": CUTS,
}
OUTAGES = {
    1: [Outage(0.2, 0.4, crash=True)],
    3: [Outage(1.5, math.inf, crash=True)],
    5: [Outage(0.0, 0.25), Outage(0.7, 0.9)],
    K: [Outage(0.6, 0.8)],
}
END_S, DRAINED_S = 2.5, 8.0
EVERY = [*endless.EVERY, *passing.EVERY]
every = pytest.mark.parametrize(
    ("kind", "options"),
    [pytest.param(*one, marks=pytest.mark.slow) if one in endless.LOUD else one for one in EVERY],
    ids=["-".join([kind, *map(str, options.values())]) for kind, options in EVERY],
)


class Book:
    """Records the fate of every message of a world, separately from the network's own counts."""

    def __init__(self, network):
        self.network = network
        self.messages = []
        self._numbers = {}
        self.attempts, self.delivered, self.refused = Counter(), Counter(), Counter()
        self.at_once = Counter()  # (messages, bytes) that are counted without travelling, by source
        self._attempt, self._count = network._attempt, network.count
        network._attempt, network.count = self.attempt, self.count
        network.swap = lambda one, other, size, *models: [self.count(node, size) for node in (one, other)]
        network.count_all = lambda nodes, sent: [self.count(nodes[place], *what) for place, *what in sent]
        launch = network.launch

        def launched(message, begin):
            if message.deliver is None:  # a message of a modeled collective
                self.at_once[message.source, "messages"] += 1
                self.at_once[message.source, "bytes"] += message.size
            return launch(message, begin)

        network.launch = launched

    def count(self, source, size, messages=1):
        self.at_once[source, "messages"] += messages
        self.at_once[source, "bytes"] += messages * size
        self._count(source, size, messages)

    def attempt(self, message):
        number = self._numbers.setdefault(id(message), len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)  # kept, so that its id is not reused
            deliver, refused = message.deliver, message.refused
            message.deliver = lambda: (self.delivered.update([number]), deliver())
            if refused is not None:
                message.refused = lambda: (self.refused.update([number]), refused())
        before = self.network.traffic[message.source].messages
        self._attempt(message)
        self.attempts[number] += self.network.traffic[message.source].messages - before


@pytest.mark.slow(every=5)
@every
@pytest.mark.parametrize(("fifo", "carrier"), [(False, Queues), (True, Flows)])
def test_messages_arrive_exactly_once(kind, options, fifo, carrier):
    rows, books = [], []
    churn = {0: RandomOutages(exponential(0.5), exponential(0.1))}
    world = make_world(
        K,
        topology="complete",
        jitter=lognormal(0.3),
        links=LinkModel(**ROUGH, fifo=fifo),
        outages=OUTAGES,
        random_outages=churn,
        seed=8,
        on_delivery=rows.append,
        carrier=carrier,
    )
    network = world.network

    def watch(algorithm):
        books.append(Book(network))
        world.clock.call_at(END_S, lambda: setattr(network, "send", lambda *_, **__: None))  # no client sends any more

    algorithm, _ = run_without_numbers(kind, world, until=DRAINED_S, prepare=watch, **options)
    (book,) = books
    assert algorithm.updates
    stuck = network.stuck.total()
    assert network.in_flight == 0
    assert len(book.messages) == book.delivered.total() + book.refused.total() + stuck
    assert set(book.delivered.values()) | set(book.refused.values()) <= {1}
    assert not set(book.delivered) & set(book.refused)
    sent, arrived, again, gone = Counter(), Counter(), Counter(), Counter()
    for number, message in enumerate(book.messages):
        link = message.source, message.target
        sent[link] += book.attempts[number] * message.size
        if number in book.delivered:
            arrived[link] += message.size
            again[link] += message.resends * message.size
        else:
            gone[link] += book.attempts[number] * message.size
    assert sent == arrived + again + gone
    assert arrived == sum((Counter({row[2:4]: row[4]}) for row in rows), Counter())
    for node, traffic in enumerate(network.traffic):
        travelled = sum(size for (source, _), size in sent.items() if source == node)
        assert traffic.sent_bytes == travelled + book.at_once[node, "bytes"]
    if book.messages:
        assert (gone if "sums" in options.values() or kind == "asy_sonata" else again).total() > 0, "losses were met"
    else:
        assert book.at_once, "its messages are modeled"
