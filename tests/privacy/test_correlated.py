"""Noise that is correlated between neighbors or over time: against NumPy loops, and its cost."""

import dataclasses
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from simfl import run
from simfl.accounts.check import recorded
from simfl.accounts.network import network
from simfl.assembly.assemble import assemble
from simfl.attacks.audit import Audit
from simfl.errors import ScenarioError
from simfl.privacy.correlated import InTime, Pairwise
from simfl.privacy.in_time import InTimeLedger, noising_coefficients
from simfl.privacy.noise import gaussian
from simfl.privacy.releases import Releases
from simfl.scenario import from_mapping, loads
from simfl.tape.draws import batch_positions
from simfl.tape.problem import Batches, Noise
from simfl.world.availability import Outage
from tests.helpers import Lab, RunWithoutNumbers, make_problem, make_world, run_algorithm

D = 650
KEY = np.array([7, 11], np.uint32)
SCALES = [1.0, 2.0, 0.5, 1.0, 1.0, 3.0]
#: A ring of five and a client behind it, so that degrees differ.
EDGES = [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4), (5, 0)]
PAIR_STD = 1.5


def pairwise_problem(scales=SCALES):
    """Clients with negligible gradients, so that their releases are their noise."""
    problem = make_problem(6, sampling="poisson", clipping_norm=1e-12, noisy=True, sizes=[50] * 6)
    return dataclasses.replace(
        problem, noise=Noise("gaussian", form="pairwise"), correlation=Pairwise.over(EDGES, PAIR_STD, scales, KEY)
    )


def normal(key, who, draw):
    return np.asarray(gaussian(jnp.asarray(key), jnp.int32(who), jnp.int32(draw), D), np.float64)


@pytest.mark.slow
def test_pairwise_noise_equals_a_plain_loop_and_cancels_in_the_sum():
    problem = pairwise_problem()
    with Lab(problem, capacity=200) as lab:
        model = lab.tape.constant(np.zeros(D, np.float32))
        draws = (0, 3)
        promised = [
            lab.tape.combine((1.0, lab.tape.gradient(model, client, draw, 8, SCALES[client])))
            for draw in draws
            for client in range(6)
        ]
        rows = lab.tape.values(promised).astype(np.float64).reshape(2, 6, D)
    for row, draw in zip(rows, draws, strict=True):
        own = np.stack([SCALES[client] * normal(problem.keys.noise, client, draw) for client in range(6)])
        expected = own.copy()
        for number, (one, other) in enumerate(EDGES):
            shared = PAIR_STD * normal(KEY, number, draw)
            expected[min(one, other)] += shared
            expected[max(one, other)] -= shared
        np.testing.assert_allclose(row, expected, atol=2e-5)
        np.testing.assert_allclose(row.sum(axis=0), own.sum(axis=0), atol=1e-4)  # shared noise cancels
        for client in range(6):
            of = {"own": problem.keys.noise, "pair": KEY}
            terms = problem.correlation.terms(client, draw)
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
        for one in problem.correlation.terms(client, draw):
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


def test_noise_in_time_equals_a_plain_loop():
    weights = (1.0, -0.5, -0.125, 0.25)
    problem = dataclasses.replace(
        make_problem(6, sampling="poisson", clipping_norm=1e-12, noisy=True, sizes=[50] * 6),
        noise=Noise("gaussian", form="in_time"),
        correlation=InTime(weights),
    )
    draws = (0, 2, 3, 9)
    with Lab(problem, capacity=200) as lab:
        model = lab.tape.constant(np.zeros(D, np.float32))
        promised = [
            lab.tape.combine((1.0, lab.tape.gradient(model, client, draw, 8, SCALES[client])))
            for draw in draws
            for client in (1, 4)
        ]
        in_two = lab.tape.combine((1.0, lab.tape.gradient(model, 1, 3, 2 * problem.max_batch, SCALES[1])))
        *rows, of_two = lab.tape.values([*promised, in_two]).astype(np.float64)
    np.testing.assert_allclose(of_two, rows[4], atol=1e-6)  # the noise is added once
    for row, (draw, client) in zip(rows, ((draw, client) for draw in draws for client in (1, 4)), strict=True):
        expected = np.zeros(D)
        for back, weight in enumerate(weights):
            if draw - back >= 0:
                expected += weight * SCALES[client] * normal(problem.keys.noise, client, draw - back)
        np.testing.assert_allclose(row, expected, atol=2e-5)
        terms = problem.correlation.terms(client, draw)
        assert terms == [("own", client, draw - back, weights[back]) for back in range(min(4, draw + 1))]
    assert problem.correlation.stretch(0) == pytest.approx(np.sqrt(1 + 0.25 + 1 / 64 + 1 / 16))


def test_every_pass_has_the_same_order():
    keys, client, n = jnp.array([3, 4], jnp.uint32), jnp.int32(1), jnp.int32(23)
    take = lambda draw: batch_positions("same_order", keys, client, jnp.int32(draw), jnp.int32(0), 5, 5, n)  # noqa: E731
    stream = np.concatenate([take(draw) for draw in range(10)])
    assert sorted(stream[:23]) == list(range(23))
    np.testing.assert_array_equal(stream[23:46], stream[:23])
    assert list(stream[:23]) != list(range(23))


SCENARIO = (
    "name: test\ndata: digits\nclients: {{count: 8}}\nstop: {{updates: 400}}\ntopology: {topology}\n"
    "algorithm: {{batch_size: 16, {algorithm}}}\nprivacy: {{{privacy}}}\n"
)


def scenario(privacy, algorithm="kind: decentralized_sgd", topology="ring"):
    return loads(SCENARIO.format(privacy=privacy, algorithm=algorithm, topology=topology), "s.yaml")


def test_the_account_of_pairwise_noise_counts_only_own_noise():
    setup = assemble(
        scenario("noise_multiplier: 2, clipping_norm: 0.5, noise: {correlated: pairwise, pair_multiplier: 6}")
    )
    plain = assemble(scenario("noise_multiplier: 2, clipping_norm: 0.5"))
    assert plain.problem.correlation is None
    assert plain.problem.noise == Noise("gaussian")
    assert setup.problem.noise == Noise("gaussian", form="pairwise")
    made = Releases([50] * 8)
    np.testing.assert_array_equal(setup.ledger.final_epsilon(made), plain.ledger.final_epsilon(made))
    hidden = setup.ledger.final_epsilon(made, "global_hidden")
    np.testing.assert_array_equal(hidden, setup.ledger.final_epsilon(made))  # seeds identify the sender of an update
    assert (plain.ledger.final_epsilon(made, "global_hidden") < hidden).all()
    assert setup.training.noise_scale == plain.training.noise_scale == [1.0] * 8
    np.testing.assert_allclose(setup.training.noise_std, np.sqrt(1.0 + 2 * 3.0**2))
    assert "own noise alone: all neighbors may tell what they share" in setup.ledger.statement
    for client in range(8):
        terms = setup.problem.correlation.terms(client, 5)[1:]
        ends = sorted(setup.topology.neighbors(client))
        assert len(terms) == len(ends) == 2
        for other in ends:
            (same,) = {one.owner for one in setup.problem.correlation.terms(other, 5)[1:]} & {
                one.owner for one in terms
            }
            here, there = (
                next(one.coefficient for one in setup.problem.correlation.terms(k, 5)[1:] if one.owner == same)
                for k in (client, other)
            )
            assert here == -there == (6.0 * 0.5 if client < other else -6.0 * 0.5)


@pytest.mark.parametrize(("privacy", "algorithm", "topology", "message"), [
    ("noise: pairwise", "kind: sync_sgd", "ring", "have no neighbors in topology"),
    ("noise: pairwise", "kind: sgp", "ring", "sgp with graph: topology"),
    ("noise: pairwise", "kind: async_fl, sizes: {kind: constant, value: 4}", "ring",
     "between releases of single mini-batches"),
    ("noise: pairwise", "kind: adpsgd", "{kind: one_peer, redraw_every: 1 s}", "edges that stay"),
    ("noise: pairwise, noise_multiplier: 0", "kind: adpsgd", "ring", "expected more than 0"),
    ("noise: pairwise, view: global_hidden", "kind: adpsgd", "ring", r"privacy\.view: expected local_transcript"),
    ("noise: pairwise, mechanism: laplace", "kind: adpsgd", "ring", r"privacy\.noise"),
    ("noise: in_time, claim: {kind: adp2sgd}", "kind: adpsgd", "ring", r"privacy\.claim\.kind: expected stated"),
    ("noise: in_time", "kind: async_fl, sizes: {kind: constant, value: 4}", "ring",
     "between releases of single mini-batches"),
    ("noise: {correlated: in_time, window: 0}", "kind: adpsgd", "ring", "an integer >= 1 and <= 1000"),
    ("noise: {correlated: backwards}", "kind: adpsgd", "ring", r"privacy\.noise\.correlated"),
    ("noise: {correlated: pairwise, pair_multiplier: 0}", "kind: adpsgd", "ring", "a number > 0"),
])  # fmt: skip
def test_unsupported_uses_of_correlated_noise_are_refused(privacy, algorithm, topology, message):
    with pytest.raises(ScenarioError, match=message) as refused:
        assemble(scenario(privacy, algorithm, topology))
    assert "\n" not in str(refused.value)


IN_TIME = "neighbors: replace_one, noise: {correlated: in_time, window: 8}"
SHUFFLED = "kind: adpsgd, sampling: shuffle"


def test_a_scenario_with_noise_in_time_runs_and_is_certified():
    setup = assemble(scenario(f"noise_multiplier: 2, {IN_TIME}", SHUFFLED))
    assert setup.problem.noise == Noise("gaussian", form="in_time")
    assert setup.problem.batches == Batches("same_order", 16)
    assert setup.training.sampling == setup.ledger.sampling == "shuffle"
    assert isinstance(setup.ledger, InTimeLedger)
    weights = setup.problem.correlation.coefficients
    assert setup.ledger.noising == weights == noising_coefficients("square_root", 8)
    assert setup.training.noise_scale == [2.0] * 8
    np.testing.assert_allclose(setup.training.noise_std, 2.0 * np.linalg.norm(weights))
    assert not any("accounted as if every example" in line for line in setup.warnings)
    poisson = assemble(scenario("noise: in_time"))
    assert poisson.problem.batches == Batches("poisson", 16)
    assert any("accounted as if every example" in line for line in poisson.warnings)


def test_noise_in_time_is_calibrated_by_its_own_account():
    setup = assemble(scenario(f"epsilon: 8, {IN_TIME}", SHUFFLED))
    planned = setup.ledger.final_epsilon(setup.kind.planned(setup))
    assert planned.max() <= 8.0 < planned.max() * 1.001
    assert min(setup.training.allowances) >= 50
    (tight,) = {level for level, n in zip(setup.ledger.levels, setup.sizes, strict=True) if n == setup.sizes.min()}
    plain = assemble(scenario("epsilon: 8, neighbors: replace_one", SHUFFLED))
    assert tight > max(plain.ledger.levels), "the noise of a release is larger; only that of the sum is smaller"


def test_budgets_hold_in_runs_that_crash(tmp_path, monkeypatch):
    """Release numbers that a crash skipped count; a client without numbers left stops before its budget is spent."""
    monkeypatch.setattr("simfl.runs.context.Executor", RunWithoutNumbers)
    text = SCENARIO.format(
        privacy="epsilon: 12, noise_multiplier: 4, noise: {correlated: in_time, window: 8}",
        algorithm="kind: adpsgd",
        topology="ring",
    )
    faults = (
        "availability:\n- {clients: [1, 3], every: 4 ms, crash: [{at: 2.5 ms, back: 2.8 ms}]}\n"
        "- {clients: [5], crash: [{at: 16.5 ms, back: 16.6 ms}]}\n"  # with its last number
    )
    scenario = loads(text + faults, "s.yaml")
    result = run(scenario, out=tmp_path)
    setup = assemble(scenario)
    allowed, ledger = setup.training.allowances, setup.ledger
    assert result.clients["epsilon"].max() <= 12.0
    counted, made = result.releases["count"].to_numpy(), result.clients["updates"].to_numpy()
    assert (counted <= allowed).all()
    assert result.clients["exhausted_s"].notna().all()
    assert (made[[1, 3]] < counted[[1, 3]]).all(), "numbers were skipped"
    assert made[5] == counted[5] == allowed[5] - 1
    assert (made[[0, 2]] == counted[[0, 2]]).all()
    np.testing.assert_array_equal(ledger.final_epsilon(recorded(ledger, result)), result.clients["epsilon"])


def known(privacy, sampling, **observers):
    """The mu of client 1 for each observer of a ring of six, and the local epsilon."""
    text = scenario(f"noise_multiplier: 2, neighbors: replace_one, {privacy}", f"kind: adpsgd, sampling: {sampling}")
    account = network(from_mapping({**text.resolved(), "clients": {"count": 6}, "stop": {"updates": 60}}), **observers)
    pairs = account.pairs[account.pairs.client == 1]
    return dict(zip(pairs.observer, pairs.itertuples(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_pairwise_noise_hides_from_observers_without_the_seeds(sampling):
    """Knowing the seeds of both edges removes the pairs' noise; knowing fewer does not."""
    asked = {"observers": [0, "links"], "coalition": [0, 2]}
    plain = known("noise: null", sampling, **asked)
    shared = known("noise: {correlated: pairwise, pair_multiplier: 8}", sampling, **asked)
    assert shared["0+2"].pairwise_mu == pytest.approx(plain["0+2"].pairwise_mu)
    for name in ("0", "links"):
        assert shared[name].pairwise_mu < 0.6 * plain[name].pairwise_mu
        assert shared[name].epsilon == shared[name].pairwise < shared[name].local
    in_time = known("noise: {correlated: in_time, window: 4}", sampling, **asked)
    ledger = assemble(
        scenario(f"noise_multiplier: 2, {IN_TIME.replace('8', '4')}", f"kind: adpsgd, sampling: {sampling}")
    ).ledger
    # All but the last of eleven releases were in messages: for these the observer has the mu of the ledger.
    assert in_time["links"].pairwise_mu == pytest.approx(ledger.mu(240, 2.0, 10), rel=1e-6)
    assert in_time["0"].pairwise_mu <= in_time["links"].pairwise_mu <= ledger.mu(240, 2.0, 11)


def test_an_audit_of_correlated_noise_is_refused():
    with pytest.raises(ScenarioError, match=r"privacy\.noise: expected null, found pairwise"):
        Audit(scenario("noise: pairwise"))
