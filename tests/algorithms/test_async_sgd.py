"""ASGD, AUDP, MAPA and CSGD equal the papers' server and clients in NumPy, and each other in limits."""

import jax
import networkx as nx
import numpy as np
import pytest

from simfl.papers.mapa.mapa import StageRule
from simfl.privacy.noise import laplace_l2
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from simfl.world.topology import Topology
from tests.helpers import (
    Lab,
    NullExecutor,
    batch_examples,
    exponential,
    lognormal,
    make_algorithm,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
    softmax_gradient,
)

K, STEP = 6, 0.5
UNIT_NOISE = jax.jit(laplace_l2, static_argnums=3)
ROUGH_LINKS = LinkModel(latency=exponential(4e-3), bandwidth=1e6, loss=0.2, resend_timeout_s=0.01)
OUTAGES = {2: [Outage(0.02, 0.05)], 4: [Outage(0.03, 0.06, crash=True)]}
STAGES = [StageRule(0, 2.0, 1.0, 0.5), StageRule(30, 0.7, 0.35, 0.3), StageRule(31, 0.3, 0.15, 0.2)]


class Script:
    """Records the models that the server sent, the reads with their batches, and the applied updates, in order."""

    def __init__(self, kind, problem, *, updates=120, noise=0.0, **options):
        self.events, self.problem = [], problem
        world = make_world(K, topology="complete", jitter=lognormal(0.5), links=ROUGH_LINKS, outages=OUTAGES, seed=3)
        with Lab(problem) as lab:
            self.training = lab.training(step_size=STEP, noise_std=noise)
            self.algorithm, self.rows = run_algorithm(
                kind, world, lab.tape, self.training, updates=updates, prepare=self._prepare, **options
            )
            (self.model,) = lab.tape.values(self.algorithm.models())

    def _prepare(self, algorithm):
        read, gradient_at, on_update, draws = algorithm.read, algorithm.gradient_at, algorithm.on_update, [0] * K
        again = self.problem.batches.sampling == "shuffle"  # a client that computes twice for one update has crashed

        def sent(client):
            self.events.append(("sent", client))
            return read(client)

        def computed(client, content):
            promised = gradient_at(client, content)
            self.events.append(("computed", client, draws[client], promised.size))
            draws[client] += not again
            return promised

        def updated(row):
            self.events.append(("applied", row[1]))
            draws[row[1]] += again
            on_update(row)

        algorithm.read, algorithm.gradient_at, algorithm.on_update = sent, computed, updated

    def replay(self, rule_at=None, noise=0.0):
        """Replay the server and its clients in float64; return x and the model that each client was sent last."""
        problem = self.problem
        x = self.training.initial.astype(np.float64)
        version, sent, under_way = 0, {}, {}
        for event, client, *rest in self.events:
            rule = StageRule(0, problem.clipping.norm or np.inf, 1.0, STEP) if rule_at is None else rule_at(version)
            if event == "sent":
                sent[client] = x.copy(), rule
            elif event == "computed":
                under_way[client] = (*sent[client], *rest)
            else:
                read, given, draw, size = under_way.pop(client)
                rows = batch_examples(problem, client, draw, size)
                g = softmax_gradient(read, problem.data.train_x[rows], problem.data.train_y[rows], given.clipping_norm)
                if noise:
                    unit = UNIT_NOISE(problem.keys.noise, np.int32(client), np.int32(draw), len(x))
                    g = g + noise * given.noise * np.asarray(unit, np.float64)
                x = x - rule.step_size * (g / problem.batches.size + problem.model.l2 * read)
                version += 1
        return x

    def check(self, expected):
        assert np.abs(self.model - self.training.initial).max() > 0.1, "the run went somewhere"
        np.testing.assert_allclose(self.model, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("problem", "delays"),
    [({"sampling": "poisson", "clipping_norm": 0.7}, "world"), ({"l2": 0.05}, "world"), ({"l2": 0.05}, "cyclic")],
    ids=["clipped", "l2", "cyclic"],
)
def test_async_sgd_equals_the_papers_server(problem, delays):
    script = Script("async_sgd", make_problem(K, **problem), delays=delays)
    stale = [row[4] for row in script.rows]
    assert max(stale) >= K - 1
    script.check(script.replay())


def test_steps_adapt_to_delays():
    script = Script("async_sgd", make_problem(K, sampling="poisson", clipping_norm=0.7), delay_limit=1.2)
    steps = [row[6] for row in script.rows]
    assert steps == [min(STEP, 1.2 / row[4]) if row[4] else STEP for row in script.rows]
    assert min(steps) < 0.5 * STEP
    steps.append(STEP)  # of the last reads, which are not applied
    script.check(script.replay(lambda version: StageRule(0, 0.7, 1.0, steps[version])))


def test_audp_adds_noise_of_the_right_law():
    problem = make_problem(K, sampling="without_replacement", clipping_norm=0.7, noise="laplace_l2")
    script = Script("audp", problem, noise=0.003)
    script.check(script.replay(noise=0.003))


def rule_at(version):
    return [rule for rule in STAGES if rule.first <= version][-1]


def test_mapa_uses_the_clipping_norm_of_the_server_and_the_step_of_the_stage():
    noise = 0.003
    problem = make_problem(K, sampling="poisson", clipping_norm=2.0, own_clipping=True, noise="laplace_l2")
    script = Script("mapa", problem, noise=noise, stages=STAGES)
    assert [row[6] for row in script.rows] == [rule_at(t).step_size for t in range(120)]
    script.check(script.replay(rule_at, noise))
    stds = [row[7] for row in script.rows]
    assert stds[0] == pytest.approx(noise)
    assert stds[-1] == pytest.approx(0.15 * noise)
    assert stds[30] == pytest.approx(noise), "made in one stage and applied in the next"


def alone():
    """Return a world of one client."""
    world = make_world(2)
    world.topology = Topology.from_graph(nx.empty_graph(1), kind="single")
    return world


def test_with_one_client_asgd_is_sgd_on_one_machine():
    problem = make_problem(1, sizes=[320], sampling="poisson", clipping_norm=0.7)
    models = {}
    for kind in ("async_sgd", "centralized_sgd"):
        with Lab(problem) as lab:
            algorithm, rows = run_algorithm(kind, alone(), lab.tape, lab.training(), updates=60)
            (models[kind],) = lab.tape.values(algorithm.models())
            assert [row[4] for row in rows] == [0] * 60
    np.testing.assert_allclose(models["async_sgd"], models["centralized_sgd"], atol=1e-6)


def test_stages_begin_at_their_versions_and_every_push_is_one_release():
    tape = Tape(NullExecutor(), max_batch=8, own_clipping=True)
    world = make_world(4, jitter=lognormal(0.3), links=ROUGH_LINKS)
    rows = []
    algorithm = make_algorithm("mapa", world, tape, make_training([64] * 4, noise_std=2.0), rows.append, stages=STAGES)
    algorithm.start()
    world.clock.run(1.0)
    assert algorithm.stage == 2
    assert sum(map(algorithm.releases.total, range(4))) - len(rows) in range(5)
    assert {row[6] for row in rows[:30]} == {0.5}
    assert rows[30][6] == 0.3
    assert {row[6] for row in rows[31:]} == {0.2}
    assert {row[7] for row in rows[:30]} == {2.0}


def test_a_wrong_number_of_clients_is_refused():
    with pytest.raises(ValueError, match=r"^centralized_sgd: expected 1 client, found 4$"):
        run_without_numbers("centralized_sgd", make_world(4), updates=1)
