"""Rules and attacks in algorithms, compared with whole algorithms written out in NumPy."""

import dataclasses

import numpy as np
import pytest

from simfl.algorithms.aggregation import Hostility
from simfl.algorithms.training import OptimizerPlan
from simfl.robust.attacks.alie import ALittleIsEnough
from simfl.robust.attacks.dissensus import Dissensus
from simfl.robust.attacks.ipm import InnerProductManipulation
from simfl.robust.attacks.mimic import Mimic
from simfl.robust.attacks.sign_flip import SignFlip
from simfl.robust.rules.balance import Balance
from simfl.robust.rules.clipped_gossip import ClippedGossip
from simfl.robust.rules.mean import Mean
from simfl.robust.rules.median import Median
from simfl.robust.rules.trimmed_mean import TrimmedMean
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    batch_gradient,
    constant,
    exponential,
    lognormal,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
)

K, ETA, STEPS = 7, 0.3, 3
HOSTILE = frozenset({1, 4})
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def numbers(
    kind, world, updates, prepare=None, rule=None, hostility=None, local=True, problem=None, optimizer=None, **options
):
    """Return what a run computed, its initial model, and the algorithm."""
    with Lab(problem or make_problem(world.num_clients, local=local)) as lab:
        further = {"rule": rule, "hostility": hostility, "optimizer": optimizer}
        training = dataclasses.replace(lab.training(step_size=ETA), **further)
        algorithm, _ = run_algorithm(kind, world, lab.tape, training, updates=updates, prepare=prepare, **options)
        values = lab.tape.values(algorithm.models())
        tallies = algorithm.aggregation.tallies() if rule is not None else None
        if tallies is not None:
            sums = lab.tape.values(tallies.models).ravel()[tallies.places]
            tallies = {pair[:2]: (pair[2], total) for pair, total in zip(tallies.pairs, sums, strict=True)}
    return values, training.initial.astype(np.float64), algorithm, tallies


def noting(taken):
    """Return what makes a server append (client, draw, staleness, version) of each update that it takes."""

    def watch(algorithm):
        take = algorithm.take

        def watched(update):
            taken.append((update.client, update.change.draw, update.staleness, algorithm.version))
            take(update)

        algorithm.take = watched

    return watch


def change(problem, start, client, draw, steps=STEPS):
    """w_H - w_0 of one round, f64."""
    w = start.copy()
    for h in range(steps):
        w -= ETA * batch_gradient(problem, w, client, draw + h, problem.batches.size) / problem.batches.size
    return w - start


def trimmed(x, f):
    return np.sort(x, axis=0)[f : len(x) - f].mean(axis=0)


def alie(honest, tau):
    return honest.mean(axis=0) + tau * honest.std(axis=0, ddof=1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [("fedavg", {}), ("fedat", {"tier_of": [0] * K})])
def test_rounds_with_trimmed_mean_and_alie_are_their_numpy_loop(kind, options):
    rounds, problem = 4, make_problem(K, local=True)
    hostility = Hostility(HOSTILE, ALittleIsEnough(1.5))
    values, w, algorithm, tallies = numbers(
        kind, make_world(K), rounds * K, rule=TrimmedMean(2), hostility=hostility, steps=[STEPS] * K, **options
    )
    kept = np.zeros(K)
    for made in range(rounds):
        changes = np.array([change(problem, w, k, made * STEPS) for k in range(K)])
        changes[sorted(HOSTILE)] = alie(np.delete(changes, sorted(HOSTILE), axis=0), 1.5)
        ordered = np.sort(changes, axis=0)
        kept += ((changes >= ordered[2]) & (changes <= ordered[K - 3])).mean(axis=1)
        w = w + trimmed(changes, 2)
    np.testing.assert_allclose(values[0], w, **CLOSE)
    assert tallies.keys() == {(algorithm.server, k) for k in range(K)}
    assert {count for count, _ in tallies.values()} == {rounds}
    np.testing.assert_allclose([tallies[algorithm.server, k][1] for k in range(K)], kept, atol=0.02)


def test_sync_with_trimmed_mean_and_alie_is_its_numpy_loop():
    rounds, l2, beta, velocity, kept = 6, 0.02, 0.9, 0.0, np.zeros(K)
    problem, plan = make_problem(K, l2=l2), OptimizerPlan(momentum=beta)
    hostility = Hostility(HOSTILE, ALittleIsEnough(1.5))
    values, w, _, tallies = numbers(
        "sync_sgd", make_world(K), rounds * K, None, TrimmedMean(2), hostility, False, problem=problem, optimizer=plan
    )
    for made in range(rounds):
        sent = np.array([batch_gradient(problem, w, k, made, 8) / 8 + l2 * w for k in range(K)])
        sent[sorted(HOSTILE)] = alie(np.delete(sent, sorted(HOSTILE), axis=0), 1.5)
        ordered = np.sort(sent, axis=0)
        kept += ((sent >= ordered[2]) & (sent <= ordered[K - 3])).mean(axis=1)
        velocity = beta * velocity + trimmed(sent, 2)
        w = w - ETA * velocity
    np.testing.assert_allclose(values[0], w, **CLOSE)
    assert tallies.keys() == {(-1, k) for k in range(K)}, "all learners get the same"
    honest = [k for k in range(K) if k not in HOSTILE]  # rounding decides on attackers' values that equal a bound
    np.testing.assert_allclose([tallies[-1, k][1] for k in honest], kept[honest], atol=0.02)


@pytest.mark.slow(but=["mindflayer"])
@pytest.mark.parametrize("kind", ["m_sync_sgd", "mindflayer"])
def test_a_server_of_gradients_with_trimmed_mean_and_alie_is_its_numpy_loop(kind):
    rounds, problem, hostility = 6, make_problem(K), Hostility(HOSTILE, ALittleIsEnough(1.5))
    values, w, *_ = numbers(kind, make_world(K), rounds * K, None, TrimmedMean(2), hostility, False, problem=problem)
    for made in range(rounds):
        sent = np.array([batch_gradient(problem, w, k, made, 8) / 8 for k in range(K)])
        sent[sorted(HOSTILE)] = alie(np.delete(sent, sorted(HOSTILE), axis=0), 1.5)
        w = w - ETA * trimmed(sent, 2)
    np.testing.assert_allclose(values[0], w, **CLOSE)


def test_a_rule_counts_each_gradient_of_a_fast_client():
    """Five of the seven gradients of a step of Rennala SGD are of one client, and the median is of all seven."""
    problem, taken = make_problem(2), []

    def watch(algorithm):
        mean = algorithm.sum.mean

        def watched(descent, sent, divisor):
            taken.append([(client, one.draw) for client, one in sent])
            return mean(descent, sent, divisor)

        algorithm.sum.mean = watched

    world = make_world(2, speeds=[1.0, 3.0])
    values, w, *_ = numbers("rennala", world, 7, watch, Median(), local=False, problem=problem, gradients_per_step=7)
    (sent,) = taken
    assert sorted(client for client, _ in sent).count(0) >= 5
    each = np.array([batch_gradient(problem, w, k, draw, 8) / 8 for k, draw in sent])
    np.testing.assert_allclose(values[0], w - ETA * np.median(each, axis=0), **CLOSE)


@pytest.mark.slow
def test_sync_without_a_rule_sums_what_attackers_send():
    plain, w, *_ = numbers("sync_sgd", make_world(K), K, local=False)
    flipped, *_ = numbers("sync_sgd", make_world(K), K, hostility=Hostility(HOSTILE, SignFlip()), local=False)
    problem = make_problem(K)
    theirs = sum(batch_gradient(problem, w, k, 0, 8) / 8 for k in HOSTILE)
    np.testing.assert_allclose(flipped[0], plain[0] + 2 * ETA * theirs / K, **CLOSE)


@pytest.mark.slow(but=["everything"])
@pytest.mark.parametrize("knows", ["everything", "own"])
def test_fedbuff_with_median_is_its_numpy_loop(knows):
    buffer_size, problem, taken = 5, make_problem(K, local=True), []
    attack = InnerProductManipulation(2.0) if knows == "everything" else SignFlip()

    world = make_world(K, speeds=[1.0, 1.0, 2.0, 0.5, 1.0, 3.0, 1.0], jitter=lognormal(0.4), seed=3)
    values, w, *_ = numbers(
        "fedbuff",
        world,
        30,
        noting(taken),
        Median(),
        Hostility(HOSTILE, attack),
        steps=[STEPS] * K,
        buffer_size=buffer_size,
    )
    models = [w]
    assert max(staleness for _, _, staleness, _ in taken) > 0
    for at in range(0, 30, buffer_size):
        changes = {}
        for client, draw, staleness, version in sorted(taken[at : at + buffer_size]):
            made = change(problem, models[version - staleness], client, draw)
            changes.setdefault(client, []).append(made / np.sqrt(1 + staleness))
        honest = [one for client, several in changes.items() if client not in HOSTILE for one in several]
        sent = [
            one if client not in HOSTILE else (-2.0 * np.mean(honest, axis=0) if knows == "everything" else -one)
            for client, several in changes.items()
            for one in several
        ]
        models.append(models[-1] + np.median(sent, axis=0))
    np.testing.assert_allclose(values[0], models[-1], **CLOSE)


@pytest.mark.slow(but=["everything"])
@pytest.mark.parametrize("knows", ["everything", "own"])
def test_fedasync_with_a_norm_clip_around_the_server_is_its_numpy_loop(knows):
    tau, problem, taken = 0.3, make_problem(K, local=True), []
    attack = InnerProductManipulation(2.0) if knows == "everything" else SignFlip()

    def world():
        return make_world(K, speeds=[1.0, 1.0, 2.0, 0.5, 1.0, 3.0, 1.0], jitter=lognormal(0.4), seed=3)

    rule, hostility, options = ClippedGossip(tau), Hostility(HOSTILE, attack), {"steps": [STEPS] * K}
    values, w, algorithm, tallies = numbers("fedasync", world(), 30, noting(taken), rule, hostility, **options)
    models, last, factors = [w], {}, np.zeros(K)
    assert max(staleness for _, _, staleness, _ in taken) > 3
    for client, draw, staleness, version in taken:
        start, now = models[version - staleness], models[-1]
        sent = change(problem, start, client, draw)
        if client not in HOSTILE:
            last[client] = sent
        else:
            sent = -2.0 * np.mean(list(last.values()), axis=0) if knows == "everything" and last else (
                -2.0 * sent if knows == "everything" else -sent
            )  # fmt: skip
        difference = start + sent - now
        factors[client] += min(1.0, tau / np.linalg.norm(difference))
        models.append(now + 0.6 / np.sqrt(1 + staleness) * clip(difference, tau))
    np.testing.assert_allclose(values[0], models[-1], **CLOSE)
    heard = [tallies[algorithm.server, k] for k in range(K)]
    np.testing.assert_allclose([total for _, total in heard], factors, rtol=1e-3)
    assert min(total / count for count, total in heard) < 0.9, "some are clipped"
    if knows == "own":  # a clip that never binds, once
        plain, whole = (numbers("fedasync", world(), 30, rule=one, **options)[0] for one in (None, ClippedGossip(1e6)))
        np.testing.assert_allclose(whole, plain, **CLOSE)


@pytest.mark.slow(but=["fedavg"])
@pytest.mark.parametrize("kind", ["fedavg", "fedprox", "fedbuff", "sync_sgd"])
def test_the_mean_is_what_an_algorithm_does_without_a_rule(kind):
    options = {"local": False} if kind == "sync_sgd" else {"steps": [1, 2, 3, 2, 1, 2, 3]}
    options |= {"buffer_size": 4} if kind == "fedbuff" else {}
    plain = numbers(kind, make_world(K), 28, **options)[0]
    np.testing.assert_allclose(numbers(kind, make_world(K), 28, rule=Mean(), **options)[0], plain, **CLOSE)
    mimicked = numbers(kind, make_world(K), 28, hostility=Hostility(frozenset({3}), Mimic(0)), **options)[0]
    assert np.abs(mimicked - plain).max() > 1e-3
    late = Hostility(frozenset({3}), Mimic(0), from_s=1e9)
    np.testing.assert_allclose(numbers(kind, make_world(K), 28, hostility=late, **options)[0], plain, **CLOSE)


def test_a_round_of_attackers_alone_sends_what_the_attack_makes_of_their_own_updates():
    everyone = Hostility(frozenset(range(K)), InnerProductManipulation(1.0))
    problem = make_problem(K, local=True)
    values, w, *_ = numbers("fedavg", make_world(K), K, hostility=everyone, steps=[STEPS] * K)
    changes = [change(problem, w, k, 0) for k in range(K)]
    np.testing.assert_allclose(values[0], w - np.mean(changes, axis=0), **CLOSE)


# -- clients without a server ---------------------------------------------------------------------


def clip(z, tau):
    return z * min(1.0, tau / max(np.linalg.norm(z), 1e-30))


def test_decentralized_sgd_with_clipped_gossip_and_dissensus_is_its_numpy_loop():
    count, rounds, tau, epsilon, hostile = 6, 5, 0.05, 1.5, {0, 3}
    world, problem = make_world(count, topology="torus", rows=2), make_problem(count)
    mixing = world.topology.mixing_matrix("metropolis").toarray()
    attack = Hostility(frozenset(hostile), Dissensus(epsilon))
    values, w, algorithm, tallies = numbers(
        "decentralized_sgd", world, rounds * count, rule=ClippedGossip(tau), hostility=attack, local=False
    )
    models, factors = np.tile(w, (count, 1)), {}
    for made in range(rounds):
        mixed = models.copy()
        for me in range(count):
            peers = np.flatnonzero(mixing[me] * (np.arange(count) != me))
            theirs = sum(mixing[me, j] for j in peers if j in hostile)
            pull = sum(mixing[me, j] * (models[j] - models[me]) for j in peers if j not in hostile)
            for j in peers:
                difference = -epsilon * pull / theirs if j in hostile else models[j] - models[me]
                mixed[me] += mixing[me, j] * clip(difference, tau)
                norm = np.linalg.norm(difference)
                factors[me, j] = factors.get((me, j), 0.0) + min(1.0, tau / max(norm, 1e-30))
        models = np.array([mixed[k] - ETA * batch_gradient(problem, models[k], k, made, 8) / 8 for k in range(count)])
    np.testing.assert_allclose(values, models, **CLOSE)
    assert tallies.keys() == factors.keys()
    np.testing.assert_allclose([tallies[pair][1] for pair in factors], list(factors.values()), rtol=1e-3)
    np.testing.assert_array_equal(len(algorithm.evaluated()), count - len(hostile))


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["messages", "atomic"])
def test_pairs_that_clip_nothing_are_plain_ones_and_clipped_ones_keep_the_sum(exchange):
    def ring(rule=None, hostility=None, updates=60):
        world = make_world(K, jitter=lognormal(0.4), links=LinkModel(latency=exponential(2e-3)), seed=2)
        options = {"exchange": exchange, "rule": rule, "hostility": hostility, "local": False}
        return numbers("adpsgd", world, updates, **options)

    plain = ring()[0]
    np.testing.assert_allclose(ring(ClippedGossip(1e6))[0], plain, rtol=1e-4, atol=1e-5)
    clipped, _, _, tallies = ring(ClippedGossip(1e-3))
    assert np.abs(clipped - plain).max() > 1e-3
    assert all(0.0 < total < count for count, total in tallies.values())
    kept = ring(Balance(gamma=1e-9))[0]
    alone = ring(ClippedGossip(1e-9))[0]
    np.testing.assert_allclose(kept, alone, **CLOSE)
    attacked = ring(None, Hostility(frozenset({2}), Dissensus(1.5)))[0]
    assert np.abs(attacked - plain).max() > 1e-3


@pytest.mark.parametrize("hostile", [False, True])
def test_both_clients_of_a_pair_apply_the_rule_to_requests_that_cross(hostile):
    """Equal clients that start exchanges at once; the second one may send its negated model."""
    world, problem = make_world(2, links=LinkModel(latency=constant(1e-3))), make_problem(2)
    rule, hostility = ClippedGossip(0.2), Hostility(frozenset({1}), SignFlip()) if hostile else None
    values, w, *_ = numbers("adpsgd", world, 12, None, rule, hostility, local=False, pairing="everyone")
    models = [w, w]
    for t in range(6):
        gradients = [batch_gradient(problem, models[k], k, t, 8) / 8 for k in range(2)]
        sent = [models[0], -models[1] if hostile else models[1]]
        models = [models[k] + 0.5 * clip(sent[1 - k] - models[k], 0.2) - ETA * gradients[k] for k in range(2)]
    np.testing.assert_allclose(values, models, **CLOSE)


def test_a_pair_with_an_attacker_is_its_numpy_loop():
    """Two clients, one of them hostile: every exchange of the honest one is known."""
    world, problem, taken = make_world(2, topology="complete", speeds=[1.0, 1.5]), make_problem(2), []

    def watch(algorithm):
        hear = algorithm._means.heard

        def heard(me, peer, mine, sent):
            taken.append(("hears", me))
            return hear(me, peer, mine, sent)

        updated = algorithm.updated

        def noted(client, *arguments, **more):
            taken.append(("steps", client))
            updated(client, *arguments, **more)

        algorithm._means.heard, algorithm.updated = heard, noted

    rule, hostility = ClippedGossip(0.2), Hostility(frozenset({1}), SignFlip())
    values, w, *_ = numbers("adpsgd", world, 12, watch, rule, hostility, local=False, exchange="atomic")
    models, read, draws = [w, w], [w, w], [0, 0]
    for what, me in taken:
        if what == "hears" and me == 0:  # each exchange is heard by both
            models = [
                models[0] + 0.5 * clip(-models[1] - models[0], 0.2),
                models[1] + 0.5 * clip(models[0] - models[1], 0.2),
            ]
        elif what == "steps":
            models[me] = models[me] - ETA * batch_gradient(problem, read[me], me, draws[me], 8) / 8
            draws[me] += 1
            read[me] = models[me]
    np.testing.assert_allclose(values, models, **CLOSE)


@pytest.mark.parametrize("kind", ["teleportation", "without_replacement_sgd", "swift"])
def test_only_models_that_attackers_hold_are_left_out_of_evaluations(kind):
    """Models under way, and those of tasks, belong to no client, also if there are as many as clients."""
    training = dataclasses.replace(make_training([64] * 4), hostility=Hostility(frozenset({1, 2}), None))
    training = training if kind != "without_replacement_sgd" else dataclasses.replace(training, tasks=4)
    options = {"active": 4} if kind == "teleportation" else {}
    algorithm, rows = run_without_numbers(
        kind, make_world(4, topology="complete"), training=training, updates=20, **options
    )
    assert rows
    assert len(algorithm.models()) == 4
    assert len(algorithm.evaluated()) == (2 if kind == "swift" else 4)
