"""Noise that is correlated between neighbours or over time: against NumPy loops, and what it costs."""

import dataclasses
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from simfl.audits.audit import Audit
from simfl.errors import ScenarioError
from simfl.privacy.correlated import Pairwise, noise_terms
from simfl.privacy.noise import gaussian
from simfl.privacy.releases import Releases
from simfl.scenario import loads
from simfl.simulation.assembly import assemble
from simfl.tape.problem import Noise
from simfl.world.availability import Outage
from tests.helpers import Lab, make_problem, make_world, run_algorithm

D = 650
KEY = np.array([7, 11], np.uint32)
SCALES = [1.0, 2.0, 0.5, 1.0, 1.0, 3.0]
#: A ring of five and a client behind it, so that degrees differ.
EDGES = [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4), (5, 0)]
PAIR_STD = 1.5


def pairwise_problem(scales=SCALES):
    """Clients whose gradients are as good as nothing, so that what they release is their noise."""
    problem = make_problem(6, sampling="poisson", clipping_norm=1e-12, noisy=True, sizes=[50] * 6)
    return dataclasses.replace(
        problem,
        noise=Noise("gaussian", form="pairwise"),
        correlation=Pairwise.over(EDGES, PAIR_STD, scales, KEY),
    )


def normal(key, who, draw):
    return np.asarray(gaussian(jnp.asarray(key), jnp.int32(who), jnp.int32(draw), D), np.float64)


def test_pairwise_noise_is_what_a_plain_loop_adds_and_cancels_in_the_sum():
    problem = pairwise_problem()
    with Lab(problem, capacity=200) as lab:
        model = lab.tape.constant(np.zeros(D, np.float32))
        draws = (0, 3)
        promised = [
            lab.tape.combine((1.0, lab.tape.gradient(model, client, draw, 8, SCALES[client])))
            for draw in draws
            for client in range(6)
        ]
        found = lab.tape.values(promised).astype(np.float64).reshape(2, 6, D)
    for row, draw in zip(found, draws, strict=True):
        own = np.stack([SCALES[client] * normal(problem.keys.noise, client, draw) for client in range(6)])
        expected = own.copy()
        for number, (one, other) in enumerate(EDGES):
            shared = PAIR_STD * normal(KEY, number, draw)
            expected[min(one, other)] += shared
            expected[max(one, other)] -= shared
        np.testing.assert_allclose(row, expected, atol=2e-5)
        np.testing.assert_allclose(row.sum(axis=0), own.sum(axis=0), atol=1e-4)  # what is shared cancels
        for client in range(6):
            of = {"own": problem.keys.noise, "pair": KEY}
            terms = noise_terms(problem.correlation, client, draw)
            told = sum(one.coefficient * normal(of[one.stream], one.owner, one.draw) for one in terms)
            np.testing.assert_allclose(SCALES[client] * told, expected[client], atol=2e-5)
            size = np.sqrt(sum(one.coefficient**2 for one in terms))
            assert problem.correlation.stretch(client) == pytest.approx(size, rel=1e-6)


def test_after_crashes_the_sum_keeps_the_noise_whose_other_end_was_lost():
    """Asynchronous clients that crash: the sum of all models has the variance of own noise and of edges cut in two."""
    scales = [1.0] * 6
    problem = pairwise_problem(scales)
    with Lab(problem, capacity=200) as lab:
        training = dataclasses.replace(lab.training(step_size=8.0), noise_std=1.0, initial=np.zeros(D, np.float32))
        world = make_world(
            6,
            outages={1: [Outage(0.02, 0.05, crash=True)], 3: [Outage(0.03, 0.2, crash=True)]},
            speeds=[1.0, 1.0, 2.0, 1.0, 1.0, 1.0],
        )
        released = []
        record = lab.tape._record

        def listening(rows, coefs, gradient, *rest):
            released.append((gradient.client, gradient.draw))
            return record(rows, coefs, gradient, *rest)

        lab.tape._record = listening
        algorithm, _ = run_algorithm("adpsgd", world, lab.tape, training, updates=60, exchange="atomic")
        total = lab.tape.values(algorithm.models()).astype(np.float64).sum(axis=0)
    made = Counter(client for client, _ in released)
    assert made[3] < made[0], "a client lost gradients"
    names = Counter()
    for client, draw in released:
        for one in noise_terms(problem.correlation, client, draw):
            names[one[:3]] += one.coefficient
    left = {name: coefficient for name, coefficient in names.items() if abs(coefficient) > 1e-6}
    pairs = [name for name in left if name[0] == "pair"]
    halves = [
        (edge, draw)
        for edge, ends in enumerate(EDGES)
        for draw in range(60)
        if sum((end, draw) in released for end in ends) == 1
    ]
    assert len(halves) > 3
    assert {(name[1], name[2]) for name in pairs} == set(halves)
    variance = len(released) + PAIR_STD**2 * len(halves)
    assert sum(coefficient**2 for coefficient in left.values()) == pytest.approx(variance, rel=1e-6)
    of = {"own": problem.keys.noise, "pair": KEY}
    expected = -sum(coefficient * normal(of[stream], who, draw) for (stream, who, draw), coefficient in left.items())
    np.testing.assert_allclose(total, expected, atol=5e-4)
    assert np.var(total) == pytest.approx(variance, rel=5 * np.sqrt(2 / D))


SCENARIO = (
    "name: test\ndata: digits\nclients: {{count: 8}}\nstop: {{updates: 400}}\ntopology: {topology}\n"
    "algorithm: {{batch_size: 16, {algorithm}}}\nprivacy: {{{privacy}}}\n"
)


def scenario(privacy, algorithm="kind: decentralized_sgd", topology="ring"):
    return loads(SCENARIO.format(privacy=privacy, algorithm=algorithm, topology=topology), "s.yaml")


def test_the_account_of_pairwise_noise_counts_own_noise_alone():
    setup = assemble(
        scenario("noise_multiplier: 2, clipping_norm: 0.5, noise: {correlated: pairwise, pair_multiplier: 6}")
    )
    plain = assemble(scenario("noise_multiplier: 2, clipping_norm: 0.5"))
    assert plain.problem.correlation is None
    assert plain.problem.noise == Noise("gaussian")
    assert setup.problem.noise == Noise("gaussian", form="pairwise")
    made = Releases([50] * 8)
    np.testing.assert_array_equal(setup.ledger.final_epsilon(made), plain.ledger.final_epsilon(made))
    assert setup.training.noise_scale == plain.training.noise_scale == [1.0] * 8
    np.testing.assert_allclose(setup.training.noise_std, np.sqrt(1.0 + 2 * 3.0**2))
    assert "own noise alone: all neighbours may tell what they share" in setup.ledger.statement
    for client in range(8):
        terms = noise_terms(setup.problem.correlation, client, 5)[1:]
        ends = sorted(setup.topology.neighbors(client))
        assert len(terms) == len(ends) == 2
        for other in ends:
            (same,) = {one.owner for one in noise_terms(setup.problem.correlation, other, 5)[1:]} & {
                one.owner for one in terms
            }
            here, there = (
                next(one.coefficient for one in noise_terms(setup.problem.correlation, k, 5)[1:] if one.owner == same)
                for k in (client, other)
            )
            assert here == -there == (6.0 * 0.5 if client < other else -6.0 * 0.5)


@pytest.mark.parametrize(
    ("privacy", "algorithm", "topology", "message"),
    [
        ("noise: pairwise", "kind: sync_sgd", "ring", "have no neighbours in topology"),
        ("noise: pairwise", "kind: sgp", "ring", "sgp with graph: topology"),
        (
            "noise: pairwise",
            "kind: async_fl, sizes: {kind: constant, value: 4}",
            "ring",
            "between releases of single mini-batches",
        ),
        ("noise: pairwise", "kind: adpsgd", "{kind: one_peer, redraw_every: 1 s}", "edges that stay"),
        ("noise: pairwise, noise_multiplier: 0", "kind: adpsgd", "ring", "expected more than 0"),
        ("noise: pairwise, quantise: true", "kind: adpsgd", "ring", r"privacy\.quantise: expected false beside noise"),
        ("noise: pairwise, view: global_hidden", "kind: adpsgd", "ring", r"privacy\.view: expected local_transcript"),
        ("noise: pairwise, mechanism: laplace", "kind: adpsgd", "ring", r"privacy\.noise"),
        ("noise: {correlated: backwards}", "kind: adpsgd", "ring", r"privacy\.noise\.correlated"),
        ("noise: {correlated: pairwise, pair_multiplier: 0}", "kind: adpsgd", "ring", "a number > 0"),
    ],
)
def test_what_correlated_noise_is_not_for_is_refused(privacy, algorithm, topology, message):
    with pytest.raises(ScenarioError, match=message) as refused:
        assemble(scenario(privacy, algorithm, topology))
    assert "\n" not in str(refused.value)


def test_an_audit_of_correlated_noise_is_refused():
    with pytest.raises(ScenarioError, match=r"privacy\.noise: expected null, found pairwise"):
        Audit(scenario("noise: pairwise"))
