"""Links that differ, against a plain reference: a loop over messages that integrates every capacity step by step."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import RunError
from simfl.streams import Streams
from simfl.world import Availability, Clock, Network, link_values
from simfl.world import links as links_module
from simfl.world.compute import Law
from simfl.world.flows import Flows
from simfl.world.link_values import Chain, LinkModel, Listed, Period, Rule, Sampled, TcpStartup, Values, finish_s
from simfl.world.steps import Steps
from tests.helpers import constant, exponential
from tests.world.test_links import deliveries

MB = 1_000_000
CLIENTS = 4


def network_of(*layers, num_clients=CLIENTS, seed=0, outages=None, rows=None, **links):
    clock, streams = Clock(), Streams(seed)
    model = LinkModel(**links, rules=layers)
    on_delivery = None if rows is None else rows.append
    return Network(clock, model, num_clients, streams, Availability(streams, outages), on_delivery)


# -- the reference ---------------------------------------------------------------------------------


@st.composite
def rules(draw):
    """A rule with constant values: its clients, its times and its values, as plain data."""
    who = draw(st.sampled_from(["all", "clients", "out", "in", "between"]))
    nodes = draw(st.sets(st.integers(0, CLIENTS - 1), min_size=1, max_size=2))
    start = draw(st.sampled_from([0.0, 0.25, 1.0]))
    length, every = draw(st.sampled_from([(math.inf, None), (0.5, None), (0.25, 0.75)]))
    values = draw(
        st.dictionaries(
            st.sampled_from(["latency", "bandwidth"] + ["uplink", "downlink"] * (who in ("all", "clients"))),
            st.sampled_from([0.5, 1.0, 2.0]),
            min_size=1,
        )
    )
    return who, frozenset(nodes), start, length, every, values


def layer(rule):
    who, nodes, start, length, every, values = rule
    rest = frozenset(range(CLIENTS)) - nodes
    ways = {
        "all": ((None, None),), "clients": ((nodes, None), (None, nodes)), "out": ((nodes, None),),
        "in": ((None, nodes),), "between": ((nodes, rest), (rest, nodes)),
    }[who]  # fmt: skip
    scaled = {name: value * (1.0 if name == "latency" else MB) for name, value in values.items()}
    window = None if start == 0.0 and math.isinf(length) else Period(start, start + length, every)
    return Rule(scaled, ways, None if who == "all" else nodes, window)


def said(rules, quantity, base, time, source, target=None):
    """The values that hold at a time, by reading all rules in turn."""
    value = base
    for who, nodes, start, length, every, values in rules:
        phase = time - start if every is None or time < start else (time - start) % every
        concerned = {
            "all": True,
            "clients": source in nodes or target in nodes,
            "out": source in nodes,
            "in": target in nodes,
            "between": target is not None and (source in nodes) != (target in nodes),
        }[who]
        if concerned and 0.0 <= phase < length and quantity in values:
            value = values[quantity] * (1.0 if quantity == "latency" else MB)
    return value


def through(size, begin, pace, step=1.0 / 64):
    """Return the time at which `size` bytes are through; the pace changes only on a grid of times."""
    left, now = float(size), begin
    while True:
        edge = (math.floor(now / step) + 1) * step
        if left <= (edge - now) * pace(now):
            return now + left / pace(now)
        left -= (edge - now) * pace(now)
        now = edge


def reference(rules, sends, base):
    """Delivery times of messages, (time, source, target, size) in order of time; nothing is lost."""
    link_free, up_free, down_free, arrived, ended = {}, {}, {}, [], {}
    for index, (time, source, target, size) in enumerate(sends):
        link = source, target
        begin = max(time, link_free.get(link, 0.0), up_free.get(source, 0.0))
        uplink = lambda t, s=source: said(rules, "uplink", base["uplink"], t, s)  # noqa: E731
        bandwidth = lambda t, s=source, d=target: said(rules, "bandwidth", base["bandwidth"], t, s, d)  # noqa: E731
        up_free[source] = through(size, begin, uplink)
        end = link_free[link] = through(size, begin, lambda t, u=uplink, b=bandwidth: min(u(t), b(t)))
        latency = said(rules, "latency", base["latency"], begin, source, target)
        arrived.append((end + latency, index, end - begin))
    for at, index, paced in sorted(arrived):
        target, size = sends[index][2:]
        begin = max(at - paced, down_free.get(target, 0.0))
        downlink = lambda t, d=target: said(rules, "downlink", base["downlink"], t, d)  # noqa: E731
        ended[index] = down_free[target] = max(through(size, begin, downlink), at)
    return ended


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    drawn=st.lists(rules(), max_size=4),
    sends=st.lists(
        st.tuples(st.integers(0, 24), st.integers(0, 3), st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=12
    ),
)
def test_delivery_times_equal_those_of_a_plain_loop(drawn, sends):
    base = {"latency": 0.125, "bandwidth": 1.5 * MB, "uplink": 3.0 * MB, "downlink": 3.0 * MB}
    # Times that differ by a little each, so that no two events fall together and their order is plain.
    sent = sorted((t / 8 + i * 1e-7, s, (s + d) % CLIENTS, k * MB // 4) for i, (t, s, d, k) in enumerate(sends))
    network = network_of(
        *[layer(rule) for rule in drawn],
        latency=constant(base["latency"]),
        bandwidth=base["bandwidth"],
        uplink=base["uplink"],
        downlink=base["downlink"],
    )
    seen = {index: time for time, index in deliveries(network, sent)}
    assert seen == pytest.approx(reference(drawn, sent, base), abs=1e-6)


def test_empty_rules_change_nothing():
    sends = [(0.01 * i, i % 4, (i * 7 + 1 + i % 4) % 4, 1000 * (i % 5)) for i in range(300)]
    sends = [send for send in sends if send[1] != send[2]]
    links = {
        "latency": exponential(0.02), "bandwidth": 5e4, "uplink": 8e4, "downlink": 8e4, "loss": 0.2, "fifo": True,
    }  # fmt: skip
    streams = Streams(3)
    equal = Network(Clock(), LinkModel(**links), CLIENTS, streams, Availability(streams))
    assert deliveries(network_of(Rule({}), seed=3, **links), sends) == deliveries(equal, sends)


# -- what is drawn ---------------------------------------------------------------------------------


def lookup(*layers, num_clients=CLIENTS, seed=0):
    return Values(LinkModel(rules=layers), Streams(seed), num_clients)


def test_a_draw_per_link_is_the_same_both_ways_in_any_order_of_lookups():
    rule = Rule({"latency": Sampled(exponential(1.0), "link", "x")})
    pairs = [(i, j) for i in range(CLIENTS) for j in range(CLIENTS) if i != j]
    one, other = lookup(rule), lookup(rule)
    forward = {pair: one.of_link("latency", *pair) for pair in pairs}
    assert forward == {pair: other.of_link("latency", *pair) for pair in reversed(pairs)}
    assert all(forward[i, j] == forward[j, i] for i, j in pairs)
    assert len(set(forward.values())) == len(pairs) / 2
    assert lookup(rule, seed=1).of_link("latency", 0, 1) != forward[0, 1]


def test_a_draw_per_client_gives_a_link_the_worse_of_its_ends():
    draws = {name: Sampled(exponential(1.0), "client", "x") for name in ("latency", "bandwidth", "uplink")}
    everybody = lookup(Rule(draws, nodes=frozenset(range(CLIENTS))))
    own = [everybody.of_node("uplink", k) for k in range(CLIENTS)]
    assert len(set(own)) == CLIENTS
    assert everybody.of_link("latency", 1, 2) == max(own[1:3]) == everybody.of_link("latency", 2, 1)
    assert everybody.of_link("bandwidth", 1, 2) == min(own[1:3])
    assert everybody.of_link("latency", 1, CLIENTS) == own[1], "a server has no luck of its own"
    some = lookup(Rule(draws, ((frozenset({1}), None), (None, frozenset({1}))), frozenset({1})))
    assert some.of_link("latency", 1, 2) == some.of_link("latency", 2, 1) == own[1], "nobody asked for client 2's"
    assert some.of_link("latency", 0, 2) is None
    assert some.of_node("uplink", 2) is None


def test_servers_have_no_draw_on_links_to_clients():
    rule = Rule({"latency": Sampled(exponential(0.1), "client", "a")})
    for seed in range(5):
        values = lookup(rule, seed=seed)
        for client in range(CLIENTS):
            own = values.of_link("latency", client, CLIENTS)
            assert own == values.of_link("latency", CLIENTS + 1, client)
            others = [values.of_link("latency", client, other) for other in range(CLIENTS) if other != client]
            assert all(other >= own for other in others), "the worse of two"
        assert values.of_link("latency", CLIENTS, CLIENTS + 1) > 0.0


def test_a_draw_per_message_follows_its_distribution():
    network = network_of(
        Rule({"latency": Sampled(exponential(0.05), "message", "x")}, ((frozenset({0}), None),)), latency=constant(1.0)
    )
    seen = {i: at - i for at, i in deliveries(network, [(float(i), i % 2, 3, 10) for i in range(2000)])}
    assert [seen[i] for i in range(1, 2000, 2)] == pytest.approx([1.0] * 1000)
    took = np.array([seen[i] for i in range(0, 2000, 2)])
    assert took.mean() == pytest.approx(0.05, rel=5 / np.sqrt(1000))
    assert took.std() == pytest.approx(0.05, rel=0.2)


def test_a_bandwidth_drawn_per_message_holds_for_the_whole_message():
    network = network_of(Rule({"bandwidth": Sampled(lambda g, n: g.uniform(1e6, 2e6, n), "message", "x")}))
    took = [at - 10.0 * i for at, i in deliveries(network, [(10.0 * i, 0, 1, 2 * MB) for i in range(200)])]
    assert len(np.unique(np.round(took, 9))) == 200
    assert 1.0 <= min(took) < 1.1
    assert 1.9 < max(took) <= 2.0


# -- matrices, edges, traces -----------------------------------------------------------------------


def test_later_rules_override_matrices_by_region_and_edges():
    matrix = Rule({"latency": Listed({(0, 0): 0.001, (0, 1): 0.040, (1, 0): 0.050}, regions={0: 0, 1: 0, 2: 1})})
    edges = Rule({"latency": Listed({(0, 1): 0.007, (1, 0): 0.007}), "bandwidth": Listed({(0, 3): 5.0})})
    base = Rule({"latency": 0.1})
    values = lookup(base, matrix, edges, Rule({"latency": 0.2}, ((frozenset({2}), None),)))
    latency = {(i, j): values.of_link("latency", i, j) for i, j in [(0, 1), (0, 2), (2, 0), (1, 2), (0, 3), (3, 0)]}
    assert latency == {(0, 1): 0.007, (0, 2): 0.040, (2, 0): 0.2, (1, 2): 0.040, (0, 3): 0.1, (3, 0): 0.1}
    assert values.of_link("bandwidth", 0, 3) == 5.0
    assert values.of_link("bandwidth", 3, 0) is None, "this edge has one direction"


def test_traces_of_clients_links_and_all_links_apply():
    steps = Steps((1.0, 2.0), (0.5, 0.25))
    assert [steps.at(t) for t in (0.0, 1.0, 1.5, 2.0, 99.0)] == [None, 0.5, 0.5, 0.25, 0.25]
    assert [steps.next_change(t) for t in (0.0, 1.0, 2.0)] == [1.0, 2.0, math.inf]
    again = Steps((0.0, 2.0), (0.5, 0.25), every_s=3.0)
    assert [again.at(t) for t in (0.0, 2.5, 3.0, 5.5)] == [0.5, 0.25, 0.5, 0.25]
    assert [again.next_change(t) for t in (0.0, 2.5, 3.5)] == [2.0, 3.0, 5.0]
    late = Steps((1.0,), (0.5,), every_s=3.0)
    assert [late.at(t) for t in (0.5, 1.0, 3.5)] == [None, 0.5, 0.5], "what was measured last goes on"
    base = Rule({"latency": 1.0})
    of_client = lookup(base, Rule({"latency": Listed({0: steps, 1: Steps((0.0,), (0.3,))})}))
    link = of_client.of_link("latency", 0, 1)
    assert [link.at(t) for t in (0.5, 1.5, 2.5)] == [0.3, 0.5, 0.3], "the worse end's"
    assert of_client.of_link("latency", 0, 2).at(0.5) == 1.0, "before the first time: as without"
    assert of_client.of_link("latency", 2, 3) == 1.0
    of_link = lookup(base, Rule({"latency": Listed({(0, 1): steps})}))
    assert of_link.of_link("latency", 0, 1).at(1.0) == 0.5
    assert of_link.of_link("latency", 1, 0) == 1.0


def test_a_message_travels_at_the_bandwidth_of_each_moment():
    rule = Rule({"uplink": 1e6}, nodes=frozenset({0}), window=Period(0.5, 1.0))
    network = network_of(rule, uplink=4e6)
    # Half a second at 4 MB/s, half a second at 1 MB/s, the rest at 4 MB/s again.
    assert deliveries(network, [(0.0, 0, 1, 5 * MB)]) == [(pytest.approx(1.625), 0)]


def test_repeated_windows_are_found_at_any_time():
    window = Period(1.0, 1.5, every_s=2.0)
    assert [window.holds(t) for t in (0.0, 1.0, 1.49, 1.5, 2.9, 3.0, 101.25)] == [
        False, True, True, False, False, True, True,
    ]  # fmt: skip
    assert [window.next_change(t) for t in (0.0, 1.0, 1.5, 3.2)] == [1.0, 1.5, 3.0, 3.5]
    for time in np.random.default_rng(0).uniform(0, 1e6, 500):
        assert time < window.next_change(time) <= time + 1.5 + 1e-9


def test_a_message_that_would_never_end_is_refused(monkeypatch):
    monkeypatch.setattr(link_values, "MOST_CHANGES", 1000)
    flicker = Rule({"bandwidth": 2.0}, window=Period(0.0, 1e-6, 2e-6))
    link = lookup(Rule({"bandwidth": 1.0}), flicker).of_link("bandwidth", 0, 1)
    with pytest.raises(RunError, match="in flight during more than 1,000 changes"):
        finish_s(10, 0.0, link)


# -- losses in bursts ------------------------------------------------------------------------------


def test_gilbert_and_elliotts_losses_come_in_bursts_of_the_right_share():
    law = Chain(good_s=3.0, bad_s=1.0, loss_good=0.0, loss_bad=1.0, how="link", purpose="bursts")
    values = lookup(Rule({"loss": law}))
    chain = values.of_link("loss", 0, 1)
    assert values.of_link("loss", 1, 0) is chain, "both directions share their states"
    step, times = 0.1, 40_000
    bad = np.array([chain.at(step * i) for i in range(times)])
    correlation = 4.0 / (1.0 - math.exp(-step * (1 / 3 + 1)))  # of neighbors, on the variance of the mean
    assert bad.mean() == pytest.approx(law.mean, abs=4 * math.sqrt(0.25 * 0.75 * correlation / times))
    ends = np.flatnonzero(np.diff(bad))
    lengths = np.diff(ends) * step
    bursts = lengths[0::2] if bad[ends[0] + 1] else lengths[1::2]
    # Looked at every `step`, a burst is geometric: P(good after bad) in one step.
    leave = (1 - law.share) * (1 - math.exp(-step * (1 / 3 + 1)))
    assert bursts.mean() == pytest.approx(step / leave, rel=5 / math.sqrt(len(bursts)))


def test_the_mean_loss_of_two_chains_draws_nothing():
    rule = Rule({"loss": Chain(3.0, 1.0, 0.0, 1.0, "client", "bursts")})
    network, other = network_of(rule), network_of(rule)
    assert network.values.mean_loss(0, 1, 0.0) == 0.25
    losses, others = ([one.values.of(0, 1).loss.at(float(i)) for i in range(100)] for one in (network, other))
    assert losses == others


# -- TCP -------------------------------------------------------------------------------------------


def test_a_server_keeps_its_capacities_unless_a_rule_names_it():
    network = network_of(Rule({"uplink": 2.0 * MB}, nodes=frozenset({0, CLIENTS})), uplink=1.0 * MB, downlink=3.0 * MB)
    servers = network.add_node(5.0 * MB, 6.0 * MB), network.add_node(7.0 * MB, None)
    nodes = (0, 1, *servers)
    assert [network.values.uplinks[node] for node in nodes] == [2.0 * MB, 1.0 * MB, 2.0 * MB, 7.0 * MB]
    assert [network.values.downlinks[node] for node in nodes] == [3.0 * MB, 3.0 * MB, 6.0 * MB, None]


@pytest.mark.parametrize(
    ("rule", "links", "repeats"),
    [
        (Rule({"latency": 0.1}), {}, True),
        (Rule({"latency": Sampled(exponential(0.1), "link", "a")}), {}, True),
        (Rule({"latency": Sampled(exponential(0.1), "message", "a")}), {}, False),
        (Rule({"latency": 0.1}, window=Period(1.0, 2.0)), {}, False),
        (Rule({"bandwidth": Listed({None: Steps((0.0,), (1.0 * MB,))})}), {}, False),
        (Rule({"loss": 0.1}), {}, False),
        (Rule({"latency": 0.1}), {"startup": TcpStartup()}, False),
        (Rule({"latency": 0.1}), {"latency": exponential(0.1)}, False),
    ],
)
def test_a_message_repeats_the_one_before_it_where_nothing_is_drawn_or_changes(rule, links, repeats):
    assert network_of(rule, **links).values.repeats is repeats


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("fifo", [False, True])
def test_dropping_the_state_of_links_changes_nothing(fair, fifo, monkeypatch):
    """Twelve clients talk in random pairs; with memory for only four pairs, values are recomputed bit for bit."""
    uniform = Law(lambda g, n: g.uniform(0.01, 0.05, n), 0.03)
    bytes_per_s = Law(lambda g, n: g.uniform(0.5 * MB, 2 * MB, n), 1.25 * MB)
    layers = (
        Rule({"latency": Sampled(uniform, "link", "a"), "bandwidth": Sampled(bytes_per_s, "link", "b"),
              "loss": Chain(0.5, 0.2, 0.0, 0.8, "link", "c"), "uplink": Sampled(bytes_per_s, "client", "d")}),
        Rule({"bandwidth": Sampled(bytes_per_s, "message", "e")}, (((frozenset({0}), None)),)),
        Rule({"latency": Sampled(uniform, "message", "f")}, ((None, frozenset({1, 2})),), window=Period(0.2, 0.5, 0.7)),
        Rule({"bandwidth": Listed({(3, 4): Steps((0.0, 0.4), (1.0 * MB, 0.2 * MB), 1.0)})}),
        Rule({"bandwidth": 0.3 * MB}, ((frozenset({5}), None),), window=Period(0.1, 0.3, 0.5)),
    )  # fmt: skip
    generator = np.random.default_rng(5)
    sends = [
        (float(at), int(one), int((one + hop) % 12), int(size))
        for at, one, hop, size in zip(
            np.sort(generator.uniform(0, 4, 400)), generator.integers(0, 12, 400), generator.integers(1, 12, 400),
            generator.integers(1_000, 60_000, 400), strict=True,
        )
    ]  # fmt: skip

    def told():
        rows, clock, streams = [], Clock(), Streams(0)
        startup = TcpStartup(window=10_000, pause_s=0.2)
        links = LinkModel(rules=layers, startup=startup, resend_timeout_s=0.03, fifo=fifo, bandwidth=3.0 * MB)
        carrier = Flows if fair else None
        network = Network(clock, links, 12, streams, Availability(streams), rows.append, carrier)
        for at, one, other, size in sends:
            clock.call_at(at, lambda to=(one, other, size): network.send(*to, lambda: None))
        clock.run()
        return rows, network

    expected, network = told()
    assert len(expected) == 400
    assert len(network.values.states) > 100
    for module, name in ((links_module, "KEPT_LINKS"), (link_values, "KEPT_LINKS"), (link_values, "KEPT_BLOCKS")):
        monkeypatch.setattr(module, name, 4)
    deliveries, network = told()
    assert deliveries == expected
    kept = [network.values.states]
    if not fair:
        kept.append(network.carrier._link_free)
    assert max(map(len, kept)) <= 24  # twice of what is in use at most
    assert len(network._connections._states) <= 48
    assert not fifo or not (network._order._sent or network._order._arrived)


def test_slow_start_takes_round_trips_only_after_a_pause():
    startup = TcpStartup(window=10_000, pause_s=5.0, round_trips=1.0)
    network = network_of(latency=constant(0.1), bandwidth=1e6, startup=startup)
    # R = 0.2 s carries 200 kB: windows of 10, 20, 40 and 80 kB wait, 150 kB needs 10 + 20 + 40 + 80.
    waits = 0.2 + sum(0.2 - window / 1e6 for window in (10e3, 20e3, 40e3))
    sends = [(0.0, 0, 1, 150_000), (2.0, 0, 1, 150_000), (2.0, 2, 1, 10_000), (60.0, 0, 1, 150_000)]
    seen = {index: at for at, index in deliveries(network, sends)}
    assert seen[0] == pytest.approx(waits + 0.15 + 0.1)
    assert seen[1] == pytest.approx(2.0 + 0.15 + 0.1), "its window is 160 kB by now"
    assert seen[2] == pytest.approx(2.0 + 0.2 + 0.01 + 0.1), "it fits into the first window"
    assert seen[3] == pytest.approx(60.0 + seen[0])


@given(size=st.integers(1, 10**7), bandwidth=st.sampled_from([None, 1e4, 1e6, 1e9]), round_trip=st.floats(0, 1))
def test_waiting_for_acknowledgements_is_a_sum_over_windows(size, bandwidth, round_trip):
    window = 14_600
    number = math.ceil(math.log2(1 + size / window) - 1e-12)
    waits = [
        max(0.0, round_trip - (window * 2**i / bandwidth if bandwidth else 0.0)) for i in range(max(0, number - 1))
    ]
    assert TcpStartup(window).wait_s(size, round_trip, bandwidth, window) == pytest.approx(sum(waits))


def test_the_expected_time_of_a_message_contains_its_connection():
    startup, times_s = TcpStartup(window=10_000, pause_s=5.0), []
    network = network_of(latency=constant(0.1), bandwidth=1e6, startup=startup)
    for size in (MB, MB, 1000):
        times_s += network.expected_s([(0, 1)], size)
        assert network.transfers_s([(0, 1)], size) == pytest.approx(times_s[-1:])
    assert times_s[0] == pytest.approx(1.1 + 0.2 + startup.wait_s(MB, 0.2, 1e6, 10_000))


def test_an_all_reduce_over_links_that_differ_waits_for_the_slowest():
    slow = Rule({"latency": 0.5}, ((frozenset({1}), frozenset({2})),))
    network = network_of(slow, latency=constant(0.1), bandwidth=1e6)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert network.values.repeats
    assert not network.steady
    assert network.transfers_s(pairs, MB) == pytest.approx([1.1, 1.5, 1.1, 1.1])
    assert network.expected_s(pairs, MB) == pytest.approx([1.1, 1.5, 1.1, 1.1])
