"""SGP: mass that is conserved, its limits, a NumPy replay, overlap, and rough worlds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from simfl.world import ServerModel
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import absence, departure
from tests.algorithms.test_staleness import ROUGH_LINKS
from tests.helpers import Lab, batch_gradient, constant, exponential, lognormal, make_problem, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

K, STEP = 6, 0.4
LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)
GRAPHS = ["one_peer", "exponential", "ring", "topology"]
outage, leaves = absence(3), departure(3)


@st.composite
def rough_worlds(draw, num_clients):
    """Draw a world with slow clients, losses, overtaking, crashes and departures, without new faults after 3 s."""
    outages = {k: draw(st.lists(outage, max_size=2)) for k in range(num_clients)}
    for k in range(1, num_clients):
        if draw(st.integers(0, 4)) == 0:
            outages[k].append(draw(leaves))
    world = make_world(
        num_clients,
        topology="complete",
        speeds=[draw(st.sampled_from([0.3, 1.0, 4.0])) for _ in range(num_clients)],
        jitter=lognormal(0.4),
        links=draw(st.sampled_from([LinkModel(), ROUGH_LINKS, replace(ROUGH_LINKS, fifo=True)])),
        outages={k: rules for k, rules in outages.items() if rules},
        seed=draw(st.integers(0, 99)),
    )
    world.server = ServerModel(seconds_per_update=draw(st.sampled_from([0.0, 1e-3])))
    return world


class Script:
    """Records gradients, pushes and absorbed shares, in order."""

    def __init__(self, problem, *, updates, models=None, step=STEP, topology="star", links=LINKS, **options):
        self.events, self.problem = [], problem
        world = make_world(K, topology=topology, jitter=lognormal(0.5), links=links, seed=3)
        with Lab(problem) as lab:
            self.training = lab.training(step_size=step)
            self.algorithm, self.rows = run_algorithm(
                "sgp", world, lab.tape, self.training, updates=updates, models=models, prepare=self._prepare, **options
            )
            self.models = lab.tape.values(self.algorithm.models())

    def _prepare(self, algorithm):
        gradient, on_update = algorithm.batches.gradient, algorithm.on_update
        push, receive, absorb = algorithm.push, algorithm._receive, algorithm.absorb

        def read(model, client):
            promised = gradient(model, client)
            self.events.append(("read", client, promised.draw, promised.size))
            return promised

        def pushed(me, round_num):
            self.events.append(("push", me, round_num, list(algorithm.edges(round_num)[0][me])))
            push(me, round_num)

        def received(me, source, round_num, share):
            self.events.append(("receive", me, source, round_num))
            receive(me, source, round_num, share)

        def absorbed(me, round_num):
            self.events.append(("absorb", me, round_num))
            absorb(me, round_num)

        algorithm.batches.gradient, algorithm.push = read, pushed
        algorithm._receive, algorithm.absorb = received, absorbed
        algorithm.on_update = lambda row: (self.events.append(("update", row[1])), on_update(row))

    def replay(self, start, step=STEP):
        """Return x and w of Algorithm 1, in float64."""
        x, w = [m.copy() for m in start], [1.0] * K
        sent, inbox, reads = {}, {k: {} for k in range(K)}, {}
        self.heaviest = 0.0
        for event, client, *rest in self.events:
            if event == "read":
                at = x[client] / w[client]
                reads[client] = batch_gradient(self.problem, at, client, *rest) / self.problem.batches.size
            elif event == "update":
                x[client] = x[client] - step * reads.pop(client)
            elif event == "push":
                round_num, targets = rest
                share = 1 / (1 + len(targets))
                x[client], w[client] = share * x[client], share * w[client]
                sent[client, round_num] = x[client], w[client]
            elif event == "receive":
                source, round_num = rest
                inbox[client][round_num, source] = sent[source, round_num]
            else:
                for key in [key for key in inbox[client] if key[0] <= rest[0]]:
                    other, weight = inbox[client].pop(key)
                    x[client], w[client] = x[client] + other, w[client] + weight
                self.heaviest = max(self.heaviest, w[client])
        return np.array(x), np.array(w)


@pytest.mark.slow(but=["one_peer-3"])
@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("graph", GRAPHS)
def test_models_equal_those_of_a_numpy_loop(graph, overlap):
    script = Script(make_problem(K), updates=90, graph=graph, overlap=overlap)
    start = [script.training.initial.astype(np.float64)] * K
    x, w = script.replay(start)
    np.testing.assert_allclose(script.algorithm.weight, w, rtol=1e-12)
    assert np.abs(x / w[:, None] - start).max() > 0.1
    np.testing.assert_allclose(script.models, x / w[:, None], rtol=0, atol=1e-5)
    if graph == "topology":
        assert script.heaviest > 1.8, "on a star, weight gathers in the middle"


def test_one_peer_sends_to_each_hop_in_turn():
    algorithm, _ = run("sgp", make_world(8), updates=1)
    assert [algorithm.edges(r)[0][5] for r in range(4)] == [[6], [7], [1], [6]]
    assert [algorithm.edges(r)[1][5] for r in range(4)] == [[4], [3], [1], [4]]
    algorithm, _ = run("sgp", make_world(8), updates=1, graph="exponential")
    assert algorithm.edges(0)[0][5] == algorithm.edges(7)[0][5] == [6, 7, 1]


def test_a_ring_closes_after_a_client_leaves():
    world = make_world(5, outages={2: [Outage(0.1, float("inf"), crash=True)]})
    algorithm, rows = run("sgp", world, updates=400, graph="ring")
    out, sources = algorithm.edges(rows[-1][3])
    assert out == [[1], [3], [], [4], [0]]
    assert sources == [[4], [0], [], [1], [3]]
    assert len(algorithm._edges) < 10, "rounds gone by are forgotten"
    assert min(algorithm.weight[k] for k in (0, 1, 3, 4)) > 0.1


def test_overlap_hides_the_messages():
    """Messages of 20 ms and gradients of 8 ms: with an overlap of 3 rounds no client waits."""
    links = LinkModel(latency=constant(20e-3))
    times = []
    for overlap in (0, 1, 3):
        world = make_world(8, links=links)
        run("sgp", world, updates=8 * 30, overlap=overlap)
        times.append(world.clock.now)
    # In the last round messages do not count any more.
    assert times[0] == pytest.approx(29 * 0.028 + 0.008)
    assert times[1] == pytest.approx(15 * 0.008 + 15 * 0.020 - 0.020 + 0.008, abs=0.05)
    assert times[2] == pytest.approx(30 * 0.008)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.generate])
@given(world=rough_worlds(5), graph=st.sampled_from(GRAPHS), overlap=st.integers(0, 3))
def test_weight_is_conserved_and_no_client_waits_forever(world, graph, overlap):
    totals = []

    def watch(algorithm):
        algorithm.on_update = lambda row, on=algorithm.on_update: (
            totals.append(sum(algorithm.weight) + algorithm.flying),
            on(row),
        )

    algorithm, rows = run("sgp", world, until=6.0, graph=graph, overlap=overlap, prepare=watch)
    np.testing.assert_allclose(totals, 5.0, rtol=1e-12)
    assert min(algorithm.weight) > 0.0
    if not world.availability.trivial:
        assert algorithm.flying >= -1e-12
    assert sum(row[0] > 4.0 for row in rows) > 20
    for k in range(5):
        if not world.availability.gone(k, 6.0):
            assert any(row[0] > 4.0 and row[1] == k for row in rows), f"client {k} is stuck"
        assert [row[3] for row in rows if row[1] == k] == sorted({row[3] for row in rows if row[1] == k})


def test_x_and_w_of_a_client_that_leaves_are_lost_in_proportion():
    """Without steps, equal models stay equal, whichever clients leave and whatever is lost with them."""
    apart = np.ones((K, 650), np.float32)
    problem = make_problem(K)
    with Lab(problem) as lab:
        world = make_world(K, jitter=lognormal(0.5), links=LINKS, outages={2: [Outage(0.1, float("inf"), crash=True)]})
        algorithm, rows = run_algorithm("sgp", world, lab.tape, lab.training(step_size=0.0), updates=300, models=apart)
        values = lab.tape.values(algorithm.models())
    assert rows[-1][0] > 0.3
    here = [k for k in range(K) if k != 2]
    assert sum(algorithm.weight[k] for k in here) < 5.9
    np.testing.assert_allclose(values[here], 1.0, rtol=0, atol=1e-5)
