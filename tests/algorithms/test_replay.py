"""Each algorithm, replayed by a plain NumPy loop over the recorded order of events.

The loop knows only the papers' formulas and the recorded order of events. It keeps its own models, computes its own
gradients in float64, and must end with the same models.
"""

import dataclasses

import numpy as np
import pytest

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import Lab, batch_gradient, exponential, lognormal, make_problem, make_world, run_algorithm

K, STEP = 8, 0.5
PROBLEMS = {
    "shuffle": {},
    "poisson": {"sampling": "poisson"},
    "clipped": {"sampling": "poisson", "clipping_norm": 0.7},
    "with_replacement": {"sampling": "with_replacement"},
    "l2": {"l2": 0.05},
}
ROUGH_LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)


class Script:
    """Records events in order: reads, updates, and messages sent, delivered and refused."""

    def __init__(self, kind, problem, *, updates, outages=None, topology="ring", plans=None, **options):
        self.events = []
        self.requests = 0
        self.problem = problem
        world = make_world(K, topology=topology, jitter=lognormal(0.5), links=ROUGH_LINKS, outages=outages, seed=3)
        self.topology = world.topology
        self._spy_on(world.network)
        with Lab(problem) as lab:
            self.training = dataclasses.replace(lab.training(step_size=STEP), **(plans or {}))
            algorithm, rows = run_algorithm(
                kind, world, lab.tape, self.training, updates=updates, prepare=self._prepare, **options
            )
            self.models = lab.tape.values(algorithm.models())
            flying = list(getattr(algorithm, "in_flight", {}).values())
            self.in_flight = lab.tape.values(flying) if flying else []
        self.algorithm = algorithm
        assert len(rows) == updates

    def _prepare(self, algorithm):
        gradient, on_update, draws = algorithm.batches.gradient, algorithm.on_update, [0] * K
        again = self.problem.batches.sampling == "shuffle"  # a client that reads twice for one update has crashed

        def read(model, client):
            promised = gradient(model, client)
            self.events.append(("read", client, draws[client], promised.size))
            draws[client] += not again
            return promised

        def update(row):
            self.events.append(("update", row[1], row[2], row[3]))
            draws[row[1]] += again
            on_update(row)

        def lost(promise):
            self.events.append(("lost", promise.client))
            return forget(promise)

        forget = algorithm.batches.lost
        algorithm.batches.gradient, algorithm.on_update, algorithm.batches.lost = read, update, lost

    def _spy_on(self, network):
        send = network.send

        def spy(source, target, size, deliver, refused=None, content=None, beside=()):
            assert not beside
            request = 0
            if refused is not None:
                request = self.requests = self.requests + 1
                self.events.append(("send", source, target, request))

            def delivered():
                self.events.append(("deliver", source, target, request))
                deliver()

            def undone():
                self.events.append(("refuse", source, target, request))
                refused()

            send(source, target, size, delivered, undone if request else None)

        network.send = spy

    def gradient(self, params, client, draw, size):
        """Return the direction of a step: the mean gradient over the nominal batch plus the penalty's."""
        data = batch_gradient(self.problem, params, client, draw, size)
        return data / self.problem.batches.size + self.problem.model.l2 * np.asarray(params)

    def start(self):
        return [self.training.initial.astype(np.float64) for _ in range(K)]

    def check(self, models):
        moved = np.abs(self.models - self.training.initial).max()
        assert moved > 0.1, "the run went somewhere"
        np.testing.assert_allclose(self.models, models, rtol=0, atol=1e-5)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(("problem", "topology"), [*((one, "complete") for one in PROBLEMS), ("l2", "ring")])
def test_atomic_adpsgd_equals_a_replay_in_numpy(problem, topology):
    script = Script("adpsgd", make_problem(**PROBLEMS[problem]), updates=200, topology=topology, exchange="atomic")
    w, reads, exchanges = script.start(), {}, 0
    for event, client, *rest in script.events:
        if event == "read":
            reads[client] = (w[client].copy(), *rest)
        elif event == "update":
            peer = rest[0]
            if peer >= 0:
                exchanges += 1
                w[client] = w[peer] = (w[client] + w[peer]) / 2
            what, draw, size = reads.pop(client)
            w[client] = w[client] - STEP * script.gradient(what, client, draw, size)
    assert exchanges > 60
    script.check(w)


@pytest.mark.parametrize(("problem", "topology"), [("clipped", "ring"), ("l2", "ring"), ("l2", "complete")])
def test_adpsgd_by_messages_equals_a_replay_in_numpy(problem, topology):
    outages = {2: [Outage(0.02, 0.05)], 5: [Outage(0.03, 0.06, crash=True)]}
    script = Script(
        "adpsgd",
        make_problem(**PROBLEMS[problem]),
        updates=200,
        topology=topology,
        outages=outages,
        exchange="messages",
    )
    w, reads, flying = script.start(), {}, {}
    waiting, sent, answers = {}, {}, set()  # requests that wait for an answer, by sender; those that are an answer
    exchanges = crossings = 0
    for event, client, *rest in script.events:
        if event == "read":
            reads[client] = (w[client].copy(), *rest)
        elif event == "send":
            waiting[client], sent[client] = tuple(rest), w[client].copy()
        elif event == "refuse":
            if rest[1] not in answers:
                del waiting[client]
        elif event == "deliver":
            peer, request = rest
            if request and request not in answers:
                del waiting[client]
                crosses = peer in waiting and waiting[peer][0] == client
                flying[client] = (sent[client] - (sent[peer] if crosses else w[peer])) / 2
                w[peer] = w[peer] + flying[client]
                if crosses:
                    crossings += 1
                    answers.add(waiting.pop(peer)[1])
            else:  # the answer of `client` has arrived at `peer`
                exchanges += 1
                w[peer] = w[peer] - flying.pop(peer)
        elif event == "update":
            what, draw, size = reads.pop(client)
            w[client] = w[client] - STEP * script.gradient(what, client, draw, size)
    assert exchanges > 40
    assert (crossings > 0) == (topology == "complete")
    script.check(w)
    assert list(script.algorithm.in_flight) == list(flying)
    if flying:
        np.testing.assert_allclose(script.in_flight, list(flying.values()), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("problem", "topology"), [("clipped", "star"), ("l2", "star"), ("l2", "complete")])
def test_decentralized_sgd_equals_a_replay_in_numpy(problem, topology):
    script = Script("decentralized_sgd", make_problem(**PROBLEMS[problem]), updates=200, topology=topology)
    neighbors = [set(script.topology.neighbors(k)) for k in range(K)]
    w, history, reads = script.start(), [{} for _ in range(K)], {}
    rounds = [0] * K
    for event, client, *rest in script.events:
        if event == "read":
            history[client][rounds[client]] = w[client].copy()
            reads[client] = rest
        elif event == "update":
            r = rounds[client]
            assert rest[1] == r
            mixed, own = 0.0, 1.0
            for j in neighbors[client]:
                weight = 1 / (1 + max(len(neighbors[client]), len(neighbors[j])))
                mixed, own = mixed + weight * history[j][r], own - weight
            mixed = mixed + own * history[client][r]
            w[client] = mixed - STEP * script.gradient(history[client][r], client, *reads.pop(client))
            rounds[client] += 1
    script.check(w)


@pytest.mark.parametrize("problem", ["clipped", "l2"])
def test_sync_sgd_equals_a_replay_in_numpy(problem):
    script = Script("sync_sgd", make_problem(**PROBLEMS[problem]), updates=200)
    w, reads, updated = script.start()[0], {}, []
    for event, client, *rest in script.events:
        if event == "read":
            reads[client] = rest
        elif event == "update":
            updated.append(client)
            if len(updated) == K:
                gradients = [script.gradient(w, k, *reads.pop(k)) for k in updated]
                w = w - STEP * np.mean(gradients, axis=0)
                updated.clear()
    assert not updated
    script.check(w[None])
