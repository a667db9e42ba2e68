import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.world.fairness import FairShare, Resource


def played(flows, changes=(), aborts=None):
    """Begin (time, resources, size, limit, perhaps weight) at their times; return when each ended, None if aborted."""
    share, ends, started = FairShare(), [None] * len(flows), {}
    events = [(flow[0], 0, i) for i, flow in enumerate(flows)]
    events += [(time, 1, i) for i, (time, _, _) in enumerate(changes)]
    events += [(time, 2, i) for i, time in (aborts or {}).items()]
    events.sort()
    while events or len(share):
        time = min(events[0][0] if events else math.inf, share.next_s)
        if time == math.inf:
            break  # what is left never moves again
        for flow in share.advance(time):
            ends[flow.payload] = time
        while events and events[0][0] == time:
            _, what, i = events.pop(0)
            if what == 0:
                _, resources, size, limit, *weight = flows[i]
                started[i] = share.begin(time, resources, size, limit, *weight, payload=i)
            elif what == 1:
                share.set_capacity(changes[i][1], changes[i][2], time)
            elif ends[i] is None and i in started:
                share.abort(started[i], time)
    return ends


def filled(flows, capacity):
    """Progressive filling: all rates rise together until they reach their cap or a full resource."""
    rates, rising = dict.fromkeys(flows, 0.0), set(flows)
    room = dict(capacity)
    while rising:
        load = {r: sum(flows[f][2] for f in rising if r in flows[f][0]) for r in room}
        steps = [room[r] / load[r] for r in room if load[r]]
        step = min([*steps, *((flows[f][1] - rates[f]) / flows[f][2] for f in rising)])
        for f in rising:
            rates[f] += flows[f][2] * step
        full = {r for r in room if load[r] and room[r] - load[r] * step <= 1e-9 * capacity[r]}
        for r in room:
            room[r] -= load[r] * step
        rising -= {f for f in rising if full & set(flows[f][0]) or rates[f] >= flows[f][1] * (1 - 1e-12)}
    return rates


def replayed(flows, capacity, changes, aborts):
    """The same by a loop that computes everything anew at every event."""
    capacity, now, alive, ends = dict(capacity), 0.0, {}, [None] * len(flows)
    events = [(flow[0], 0, i) for i, flow in enumerate(flows)]
    events += [(time, 1, i) for i, (time, _, _) in enumerate(changes)]
    events += [(time, 2, i) for i, time in aborts.items()]
    events.sort()
    while events or alive:
        rates = filled({i: (flows[i][1], flows[i][3], *(flows[i][4:] or [1.0])) for i in alive}, capacity)
        left = {i: alive[i] / rates[i] if rates[i] else math.inf for i in alive}
        time = min([events[0][0] if events else math.inf, *(now + s for s in left.values())])
        if time == math.inf:
            break
        for i in list(alive):
            alive[i] -= rates[i] * (time - now)
            if alive[i] <= 1e-9 * flows[i][2]:
                ends[i] = time
                del alive[i]
        now = time
        while events and events[0][0] == now:
            _, what, i = events.pop(0)
            if what == 0:
                alive[i] = flows[i][2]
            elif what == 1:
                capacity[changes[i][1]] = changes[i][2]
            else:
                alive.pop(i, None)
    return ends


def test_flows_in_a_parking_lot_have_their_known_rates():
    """A long flow over n equal resources, each with a short one: all have half, the textbook's example."""
    lot = [Resource(10.0) for _ in range(4)]
    flows = [(0.0, lot, 50.0, math.inf), *((0.0, [r], 50.0, math.inf) for r in lot)]
    assert played(flows) == pytest.approx([10.0] * 5)
    lot[2].capacity = 4.0  # the long one has 2 there, and so has its neighbor; the others get the rest of theirs
    share = FairShare()
    begun = [share.begin(0.0, *flow[1:3]) for flow in flows]
    assert [share.rate(flow) for flow in begun] == pytest.approx([2.0, 8.0, 8.0, 2.0, 8.0])


def test_an_empty_flow_takes_no_time_and_one_without_capacity_never_ends():
    assert played([(1.0, [], 5.0, math.inf), (2.0, [], 6.0, 3.0), (3.0, [Resource(1.0)], 0.0, 1.0)]) == [1.0, 4.0, 3.0]
    stuck = Resource(0.0)
    assert played([(0.0, [stuck], 5.0, math.inf), (0.0, [stuck], 1.0, math.inf)]) == [None, None]
    stuck = Resource(0.0)
    assert played([(0.0, [stuck], 5.0, math.inf)], [(3.0, stuck, 5.0)]) == [4.0]


def test_flows_that_end_at_one_moment_end_in_the_order_of_beginning_and_are_computed_once(monkeypatch):
    share, server = FairShare(), Resource(1e6)
    computed = []
    apply = FairShare._apply
    monkeypatch.setattr(FairShare, "_apply", lambda self, *rates: (computed.append(1), apply(self, *rates)))
    for k in range(1000):
        share.begin(0.0, [Resource(1e5), server], 1e3, payload=k)
    assert share.next_s == pytest.approx(1.0)
    assert [flow.payload for flow in share.advance(share.next_s)] == list(range(1000))
    assert len(share) == 0
    assert len(computed) == 1
    assert (server.flows, server.classes, server.wanted) == ({}, {}, 0.0)


def test_the_end_of_one_upload_of_a_thousand_touches_few_others(monkeypatch):
    """The end of one of n uploads to a server updates no other upload, unless one reaches its cap."""
    share, server, generator = FairShare(), Resource(1e6), np.random.default_rng(0)
    told = []
    say = FairShare._say
    monkeypatch.setattr(FairShare, "_say", lambda self, time, owner: (told.append(owner), say(self, time, owner)))
    for _ in range(1000):
        share.begin(0.0, [Resource(float(generator.uniform(500, 1e5))), server], float(generator.uniform(1, 2) * 1e5))
    ended = 0
    while (time := share.next_s) < math.inf:
        ended += len(share.advance(time))
    assert ended == 1000
    assert len(told) < 4 * 1000


def test_the_demand_on_a_resource_is_the_sum_of_caps_after_any_arrivals_and_ends():
    """Sums decide whether a resource is contended; a sum that drifts would let flows exceed a capacity."""
    share, busy, generator = FairShare(), Resource(0.7), np.random.default_rng(0)
    for cap in generator.uniform(0.01, 0.6, 3000).tolist():
        share.begin(share.next_s if len(share) > 4 else 0.0, [Resource(cap), busy], float(generator.uniform(0.1, 1)))
        while len(share) > 4:
            share.advance(share.next_s)
        assert busy.wanted == pytest.approx(sum(flow.cap for flow in busy.flows), rel=1e-9)
    while len(share):
        share.advance(share.next_s)
    assert busy.wanted == 0.0


rates = st.sampled_from([1.0, 2.0, 3.5, 10.0, 1000.0])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), weighted=st.booleans())
def test_times_equal_those_of_filling_again_at_every_event(data, weighted):
    resources = [Resource(data.draw(rates)) for _ in range(data.draw(st.integers(1, 5)))]
    capacity = {r: r.capacity for r in resources}
    flows = []
    for _ in range(data.draw(st.integers(1, 12))):
        crossed = data.draw(st.lists(st.sampled_from(resources), max_size=4, unique_by=id))
        limit = data.draw(st.one_of(rates, st.just(math.inf)) if crossed else rates)
        weight = data.draw(st.sampled_from([0.1, 2.5, 1000.0])) if weighted else 1.0
        flows.append((data.draw(st.integers(0, 8)) / 2, crossed, data.draw(st.integers(1, 60)) * 0.7, limit, weight))
    changes = [
        (data.draw(st.integers(0, 20)) / 3, data.draw(st.sampled_from(resources)), data.draw(rates))
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    aborts = {i: flows[i][0] + 0.4 for i in range(len(flows)) if data.draw(st.integers(0, 9)) == 0}
    expected = replayed(flows, capacity, changes, aborts)
    assert played(flows, changes, aborts) == [None if e is None else pytest.approx(e, rel=1e-6) for e in expected]


@pytest.mark.parametrize("seed", range(2))
def test_rates_are_max_min_fair_in_a_crowd(seed):
    """No capacity is exceeded, and each flow is at its cap, or crosses a full resource where none is faster."""
    generator = np.random.default_rng(seed)
    share, resources = FairShare(), [Resource(float(c)) for c in generator.uniform(1, 50, 30)]
    alive, now = [], 0.0
    for step in range(150):
        now += float(generator.exponential(0.05))
        while share.next_s <= now:
            ended = share.advance(share.next_s)
            alive = [flow for flow in alive if flow not in ended]
        share.advance(now)
        crossed = [resources[i] for i in generator.choice(30, generator.integers(1, 5), replace=False)]
        limit = float(generator.uniform(0.1, 5)) if generator.random() < 0.3 else math.inf
        alive.append(share.begin(now, crossed, float(generator.uniform(1, 30)), limit))
        if step % 10:
            continue
        got = {flow: share.rate(flow) for flow in alive}
        used = {r: sum(got[flow] for flow in alive if r in flow.resources) for r in resources}
        assert all(used[r] <= r.capacity * (1 + 1e-9) for r in resources)
        for flow in alive:
            full = [r for r in flow.resources if used[r] >= r.capacity * (1 - 1e-9)]
            fastest = [max(got[other] for other in alive if r in other.resources) for r in full]
            assert got[flow] == pytest.approx(flow.limit) or any(got[flow] >= f * (1 - 1e-9) for f in fastest)
