"""Faults, for every algorithm: outcomes equal those in the table of docs/faults.md.

Four clients, all linked with each other, in a world of rough links: a mini-batch takes some 30 ms, a message some 10.
The fault lasts from 0.5 s to 1.5 s, or begins at 0.5 s and does not end.
"""

import dataclasses
import itertools
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from simfl.algorithms import ALGORITHMS
from simfl.algorithms.server import ServerAlgorithm
from simfl.papers.mapa.mapa import StageRule
from simfl.papers.without_replacement.passing import PassedModels
from simfl.runs.endings import why_over
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import ALONE, EVERY, NEEDED, RELATIVES
from tests.helpers import (
    NullExecutor,
    constant,
    exponential,
    lognormal,
    make_algorithm,
    make_training,
    make_world,
    recorded,
)
from tests.papers.without_replacement import test_passing

PAGE = Path(__file__).parents[2] / "docs/faults.md"
CLIENTS, SERVER = 4, 4
BEGIN, END, OVER = 0.5, 1.5, 2.5
LINKS = LinkModel(latency=exponential(5e-3), bandwidth=1e6, resend_timeout_s=0.02)
APART = (frozenset({0, 1}), frozenset({2, 3, SERVER}))
ROWS = [*EVERY, *((kind, {}) for kind in ALONE), *test_passing.EVERY]
ROWS += [("deep_q_sgd", {}), ("deep_q_sgd", {"order": "fewest"}), ("deep_q_sgd", {"order": "random"})]
ROWS += [
    ("fedavg", {"deadline": 0.1}),
    ("fedbuff", {"buffer_size": 3, "after_update": "wait"}),
    ("m_sync_sgd", {"wait_for": 3, "late": "stop"}),
]


class Blind(NullExecutor):
    """Computes nothing; all values are zeros."""

    def probe(self, rows, coefs, clients, draws, decide):
        return decide(np.zeros((len(rows), 4), np.float32), np.zeros(draws.shape, np.float32))


def cut(end):
    return {"links": dataclasses.replace(LINKS, cuts=Cuts([Cut(APART, BEGIN, end)]))}


def away(node, end, crash=False):
    return {"outages": {node: [Outage(BEGIN, end, crash)]}}


#: The faults in the columns of the table, as arguments of a world.
FAULTS = {
    "messages overtake": {"links": LinkModel(latency=exponential(30e-3), resend_timeout_s=0.02)},
    "messages lost": {"links": dataclasses.replace(LINKS, loss=0.3)},
    "a client crashes, returns": away(1, END, crash=True),
    "a client leaves": away(1, math.inf, crash=True),
    "partition": cut(END),
    "lasting partition": cut(math.inf),
    "server away": away(SERVER, END),
    "server gone": away(SERVER, math.inf),
}


class Life:
    """A run: the updates before, during and after the fault, and all counts."""

    def __init__(self, kind, options, *, until=OVER, **world):
        alone = kind in ALONE
        self.until = until
        count, self.messages, self.rows, self.ends = 1 if alone else CLIENTS, [], [], []
        self.world = make_world(
            count, topology="complete", jitter=lognormal(0.3), seed=2, on_delivery=self.messages.append,
            **{"seconds_per_example": 4e-3, "links": LINKS, **world},
        )  # fmt: skip
        passed = issubclass(ALGORITHMS[kind], PassedModels)
        training = make_training([4000 if passed else 64] * count)
        self.tape = Tape(Blind(), window=500, max_batch=8, **recorded(kind))
        if kind == "deep_q_sgd":
            options = {"hidden": 4, "memory": 4, "replay": 2, **options}
        if kind == "mapa":
            options = {"stages": [StageRule(0, 1.0, 1.0, 0.4)], **options}
        self.algorithm = make_algorithm(kind, self.world, self.tape, training, self.rows.append, **options)
        network = self.world.network
        begin = "_carry" if network._at_once else "_attempt"
        attempt = getattr(network, begin)
        setattr(network, begin, lambda message, *now: (self.ends.append(message.target), attempt(message, *now)))
        self.algorithm.start()
        self.world.clock.run(until)

    def made_by(self, clients, begin, end):
        return sum(row[1] in clients and begin < row[0] <= end for row in self.rows)

    def overtaken(self):
        """Return the number of messages that arrived after one that was sent later over the same link."""
        links = {}
        for sent_s, _, *link, _, _ in self.messages:  # in the order in which they came
            links.setdefault(tuple(link), []).append(sent_s)
        return sum(one > other for sent in links.values() for one, other in itertools.pairwise(sent))

    def invariants(self):
        """Check what holds in every run."""
        algorithm, world, network = self.algorithm, self.world, self.world.network
        count, now = algorithm.num_clients, world.clock.now
        assert algorithm.updates == len(self.rows) == sum(algorithm.client_updates)
        assert Counter(row[1] for row in self.rows) == +Counter(dict(enumerate(algorithm.client_updates)))
        assert all(0 <= row[0] <= now and row[4] >= 0 for row in self.rows)
        # Every attempt to send is delivered, lost or under way.
        assert network.messages == sum(traffic.messages for traffic in network.traffic)
        assert network.in_flight >= 0
        assert network.in_flight + sum(network.stuck.values()) <= max(len(self.ends), 1)
        if not (isinstance(algorithm, PassedModels) or network.delivered > len(self.messages)):
            assert network.delivered == len(self.messages)
        assert all(sent <= came for sent, came, *_ in self.messages)
        if world.clock.peek() == math.inf:
            assert network.in_flight == 0, "what is under way arrives, or it is known that it does not"
        # A client's time adds up.
        for client in range(count):
            times = algorithm.times
            parts = times.computed_s(client), times.communicated_s(client), times.waited_s(client)
            assert min(parts) >= -1e-9
            assert sum(parts) + world.availability.offline_s(client, now) == pytest.approx(now)
        # What is applied was released before: no account is too small.
        released = self.tape.releases
        uncovered = ("deep_q_sgd", "privsgp_vr")  # local steps without noise, and a table that needs its own account
        assert (released.refusal is None) != (algorithm.kind in uncovered)
        for client in range(count):
            assert released.total(client) >= algorithm.client_updates[client] + algorithm.client_dropped[client]


def heading(kind, options):
    """Return the name of a row in the table."""
    shown = {name: value for name, value in options.items() if name not in NEEDED.get(kind, {})}
    return f"`{kind}`" + "".join(f", `{name}: {_yaml(value)}`" for name, value in shown.items())


def _yaml(value):
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def table():
    """Return the table as {(algorithm, column): cell}, and its algorithms. A row has all with the same outcomes."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    first = next(number for number, line in enumerate(lines) if line.startswith("| algorithms | messages overtake"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:]]
    columns, rows = cells[0][1:], [row for row in cells[1:] if row[0].startswith("`")]
    assert columns == list(FAULTS)
    assert len({tuple(row[1:]) for row in rows}) == len(rows), "algorithms with the same outcomes share a row"
    named = [(name, row[1:]) for row in rows for name in row[0].split("; ")]
    cells = {(name, column): cell for name, row in named for column, cell in zip(columns, row, strict=True)}
    return cells, [name for name, _ in named]


def happens(kind, options, fault):
    """Return the outcome of a fault, in the words of the table."""
    served, alone = issubclass(ALGORITHMS[kind], ServerAlgorithm), kind in ALONE
    if ("server" in fault and not served) or (alone and fault not in ("a client leaves", "a client crashes, returns")):
        return "-"
    world = dict(FAULTS[fault])
    if alone:
        world["outages"] = {0: world["outages"][1]}
    lasting = fault in ("a client leaves", "lasting partition", "server gone")
    walks = issubclass(ALGORITHMS[kind], PassedModels)  # one updates, the others wait for their turns
    life = Life(kind, options, until=2 * OVER if walks else OVER, **world)
    life.invariants()
    settled = BEGIN + 0.35, OVER if lasting else END - 1e-6  # by then, clients that have to wait are waiting
    if not lasting:
        late = [k for k in range(life.algorithm.num_clients) if not life.made_by({k}, END + 0.15, life.until)]
        assert not late, f"{kind}: clients {late} do not go on behind '{fault}'"
    if fault == "messages lost":
        assert life.world.network.lost > 0 or life.world.network.messages == life.world.network.delivered
        once = kind == "asy_sonata" or options.get("lost") == "sums"
        again = any(resends for *_, resends in life.messages) or not once
        return ("sent again" if again else "made up for") if life.world.network.lost else "no messages"
    if fault == "messages overtake":
        return "goes on" if life.overtaken() else "they cannot"
    if "client" in fault:
        if not alone:
            return "others go on" if life.made_by({0, 2, 3}, *settled) else "others wait"
        assert not life.made_by({0}, *settled)
        assert not lasting or why_over(life.algorithm) == "every client has left"
        return "ends" if lasting else "waits"
    sides = [life.made_by(side, *settled) > 0 for side in ({0, 1}, {2, 3})]
    if not any(sides) and lasting:
        free = Life(kind, options, until=None, **world)  # ends by itself, at once
        free.invariants()
        assert free.world.clock.now < BEGIN + 1.0
        reason = why_over(free.algorithm)
        assert re.search(r"waits for", reason), reason
        silent = kind in ("sync_sgd", "favas")  # its clients send nothing before the server asks
        assert silent or re.search(r"; messages from client \d|; messages from the server", reason), reason
        return "ends"
    return {(1, 1): "both sides go on", (0, 1): "one side goes on", (1, 0): "one side goes on", (0, 0): "waits"}[
        tuple(map(int, sides))
    ]


@pytest.mark.slow(every=6)
@pytest.mark.parametrize(("kind", "options"), ROWS, ids=[heading(*row) for row in ROWS])
def test_outcomes_of_faults_equal_those_in_the_table(kind, options):
    cells, _ = table()
    outcomes = {fault: happens(kind, options, fault) for fault in FAULTS}
    assert {fault: cells.get((heading(kind, options), fault)) for fault in FAULTS} == outcomes


def test_the_table_has_every_algorithm_once():
    _, names = table()
    assert sorted(names) == sorted(heading(*row) for row in ROWS)
    assert {name.split("`")[1] for name in names} == set(ALGORITHMS)


GONE = [Outage(BEGIN, math.inf, crash=True)]
#: Extreme worlds: (world, end of the run).
EXTREMES = {
    "links that take no time": ({"links": LinkModel()}, 0.6),
    # Batches that take long, too: else there are a million of them between two messages.
    "latencies of a million seconds": ({"links": LinkModel(latency=constant(1e6)), "seconds_per_example": 1e3}, 5.5e6),
    "one byte per second": (
        {"links": LinkModel(bandwidth=1.0, uplink=1.0, downlink=1.0), "seconds_per_example": 0.5}, 300.0,
    ),
    "one client a billion times slower": ({"speeds": [1.0, 1.0, 1.0, 1e9]}, OVER),
    "everybody leaves": ({"outages": dict.fromkeys(range(CLIENTS), GONE)}, None),
    "everybody is cut off from everybody": (
        {"links": LinkModel(cuts=Cuts([Cut(tuple(frozenset({node}) for node in range(CLIENTS)), BEGIN, END)]))}, OVER,
    ),
}  # fmt: skip


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize(("kind", "options"), ROWS, ids=[heading(*row) for row in ROWS])
def test_invariants_hold_at_the_edges_of_the_world(kind, options, extreme):
    world, until = EXTREMES[extreme]
    if kind == "gossip_learning" and "seconds_per_example" in world:
        options = {**options, "period_s": 8 * world["seconds_per_example"]}
    if kind == "favas" and "seconds_per_example" in world:
        options = {**options, "period": 8 * world["seconds_per_example"]}
    if kind in ALONE:
        world = {**world, "outages": {0: GONE} if "outages" in world else {}, "links": LINKS, "speeds": [1.0]}
    life = Life(kind, options, until=until, **world)
    life.invariants()
    if extreme == "everybody leaves":
        assert why_over(life.algorithm) == "every client has left"
        assert life.world.clock.now < 2 * END
    elif "slower" in extreme and kind not in ALONE:
        waiting = {"sync_sgd", "decentralized_sgd", "corrected_gossip", "sgp", "fedavg", "fedprox", "async_fl"}
        waiting |= {"m_sync_sgd", "mindflayer", "k_gt", "epidemic", "matcha", "plexus", "teleportation", *RELATIVES}
        waiting |= {"streaming_diloco", "fedat"}  # FedAT measures tiers first
        waiting |= {"noloco", "gasloc", "privsgp_vr", "multi_walk"}  # walks come to the slow client
        walks = issubclass(ALGORITHMS[kind], PassedModels) and options.get("contention") != "race"
        if not (
            (kind in waiting and "wait_for" not in options)
            or walks
            or options.get("delays")
            or options.get("after_update")
        ):
            assert life.made_by({0, 1, 2}, 1.0, OVER) > 0, "who does not wait goes on"
        assert not life.made_by({3}, 0.0, OVER)
    else:
        assert life.rows
