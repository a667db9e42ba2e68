import dataclasses

import numpy as np
import pytest

from simfl.algorithms.training import OptimizerPlan
from simfl.robust.rules.median import Median
from simfl.world.availability import Outage
from simfl.world.collectives import ALL_REDUCES
from simfl.world.compute import Slowdown
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    batch_gradient,
    constant,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
)


def test_a_learner_that_left_no_longer_counts_and_one_that_crashed_computes_again():
    outages = {3: [Outage(0.012, float("inf"), crash=True)], 5: [Outage(0.018, 0.05, crash=True)]}
    problem = make_problem()
    world = make_world(8, outages=outages)
    with Lab(problem) as lab:
        training = lab.training()
        algorithm, rows = run_algorithm("sync_sgd", world, lab.tape, training, until=0.07)
        final = lab.tape.values(algorithm.models())[0]
    by_round = [[row[1] for row in rows if row[3] == r] for r in range(3)]
    others = [0, 1, 2, 4, 5, 6, 7]
    assert by_round == [list(range(8)), others, others]
    ends = sorted({row[0] for row in rows})
    assert ends == pytest.approx([0.008, 0.016, 0.058, 0.066])
    w, draws = training.initial.astype(np.float64), [0] * 8
    for r in range(4):
        members = list(range(8)) if r == 0 else others
        gradients = []
        for k in range(8):
            if r < 2 or k != 3:  # its draw of round 1 was made and lost
                if k in members:
                    gradients.append(batch_gradient(problem, w, k, draws[k], 8))
                draws[k] += 1
        w = w - 0.5 * np.mean(gradients, axis=0) / 8
    np.testing.assert_allclose(final, w, rtol=0, atol=1e-5)


def test_the_all_reduce_is_the_fastest_for_the_size_of_the_model():
    for latency, expected in ((1e-3, "doubling"), (1e-8, "halving")):
        world = make_world(8, links=LinkModel(latency=constant(latency), bandwidth=1e6))
        algorithm, _ = run_without_numbers("sync_sgd", world, updates=8)
        size = algorithm.training.model_bytes
        assert [step.size for step in algorithm.plan(list(range(8)))] == [
            step.size for step in ALL_REDUCES[expected](8, size)
        ]


def test_a_rule_needs_every_gradient_so_that_an_all_gather_takes_the_place_of_the_all_reduce():
    world = make_world(8, links=LinkModel(latency=constant(1e-3), bandwidth=1e6))
    training = dataclasses.replace(make_training([40] * 8), rule=Median())
    _, rows = run_without_numbers("sync_sgd", world, training=training, updates=80)
    size = training.model_bytes
    assert world.network.bytes_sent == 10 * 8 * 7 * size
    assert rows[-1][0] == pytest.approx(10 * (0.008 + 3 * 1e-3 + 7 * size / 1e6))


def test_all_reduce_counts_its_bytes_and_the_slowest_link_decides():
    links = LinkModel(latency=lambda g, n: g.exponential(1e-3, n), bandwidth=1e6)
    world = make_world(4, links=links, slowdowns=[Slowdown(2.0, frozenset({1}))])
    algorithm, rows = run_without_numbers("sync_sgd", world, updates=400, all_reduce="ideal")
    size = round(2 * 3 / 4 * algorithm.training.model_bytes)
    assert world.network.bytes_sent == 400 * size
    assert world.network.messages == 400
    gaps = np.diff([0.0, *sorted({row[0] for row in rows})]) - 0.016
    assert gaps.min() >= size / 1e6
    # The largest of four exponentials with mean 1 ms has mean 1 + 1/2 + 1/3 + 1/4 ms.
    assert gaps.mean() - size / 1e6 == pytest.approx(25 / 12 * 1e-3, rel=5 * 0.6 / np.sqrt(100))


@pytest.mark.parametrize(("momentum", "rows_sent"), [(0.0, 1), (0.9, 2)])
def test_a_learner_that_joins_late_is_sent_the_model_and_the_others_wait_for_it(momentum, rows_sent):
    problem, delivered = make_problem(4), []
    links = LinkModel(latency=constant(1e-3), bandwidth=1e6)
    world = make_world(4, links=links, outages={2: [Outage(0.0, 0.02)]}, on_delivery=delivered.append)
    with Lab(problem) as lab:
        plan = OptimizerPlan(momentum=momentum) if momentum else None
        training = dataclasses.replace(lab.training(), optimizer=plan)
        algorithm, rows = run_algorithm("sync_sgd", world, lab.tape, training, until=0.08)
        final = lab.tape.values(algorithm.models())[0]
    members = [[row[1] for row in rows if row[3] == r] for r in range(algorithm.rounds)]
    first = next(r for r, present in enumerate(members) if 2 in present)
    assert first > 0
    ends = sorted({row[0] for row in rows})
    size = rows_sent * 4 * len(training.initial)
    assert delivered == [pytest.approx((ends[first - 1], ends[first - 1] + 1e-3 + size / 1e6, 0, 2, size, 0))]
    assert ends[first] - ends[first - 1] >= 1e-3 + size / 1e6 + 8e-3
    w, velocity, draws = training.initial.astype(np.float64), 0.0, [0] * 4
    for present in members:
        gradients = [batch_gradient(problem, w, k, draws[k], 8) for k in present]
        velocity = momentum * velocity + np.mean(gradients, axis=0) / 8
        w = w - 0.5 * velocity
        for k in present:
            draws[k] += 1
    np.testing.assert_allclose(final, w, rtol=0, atol=1e-5)


def test_a_learner_starts_from_the_initial_model_if_no_other_has_the_current_one():
    problem, delivered = make_problem(4), []
    outages = {k: [Outage(0.02, float("inf"), crash=True)] for k in range(3)} | {3: [Outage(0.0, 0.05)]}
    world = make_world(4, outages=outages, on_delivery=delivered.append)
    with Lab(problem) as lab:
        training = lab.training()
        algorithm, rows = run_algorithm("sync_sgd", world, lab.tape, training, until=0.06)
        final = lab.tape.values(algorithm.models())[0]
    assert [row[1] for row in rows] == [0, 1, 2, 0, 1, 2, 3]
    assert not delivered
    expected = training.initial - 0.5 * batch_gradient(problem, training.initial, 3, 0, 8) / 8
    np.testing.assert_allclose(final, expected, rtol=0, atol=1e-5)


def test_learners_do_not_wait_for_one_that_leaves_before_it_gets_the_model():
    outages = {3: [Outage(0.0, 0.02), Outage(0.03, float("inf"))]}
    world = make_world(4, links=LinkModel(latency=constant(0.05)), outages=outages)
    algorithm, rows = run_without_numbers("sync_sgd", world, until=2.0, all_reduce="ideal")
    assert {row[1] for row in rows} == {0, 1, 2}
    assert rows[-1][0] > 1.9
    assert algorithm.times.communicated_s(3) <= 0.01
