"""Several tasks on the same data: batches of each pair, evaluations, probes of losses, and projection."""

import numpy as np
import pytest

from simfl.tape import Tape
from tests.algorithms.tasks import TASKS, make_task_problem, pair_examples, pair_gradient, pair_loss
from tests.helpers import Lab


def test_each_pair_draws_batches_of_its_nodes_data_and_its_own_labels():
    problem = make_task_problem(sizes=[40, 80, 64, 56])
    model = 0.1 * np.random.default_rng(0).standard_normal(64).astype(np.float32)
    pairs = [0, 3, TASKS, 2 * TASKS + 9, 3 * TASKS + 5]
    with Lab(problem) as lab:
        held = lab.tape.constant(model)
        stepped = [lab.tape.combine((1.0, held), (1.0, lab.tape.gradient(held, pair, 2, 8))) for pair in pairs]
        models = lab.tape.values(stepped)
    for pair, values in zip(pairs, models, strict=True):
        node = pair // TASKS
        own = problem.data.indices[problem.data.offsets[node] : problem.data.offsets[node + 1]]
        assert set(pair_examples(problem, pair, 2)) <= set(own)
        expected = model + 8 * pair_gradient(problem, model.astype(np.float64), pair, 2)
        assert values == pytest.approx(expected, abs=1e-5)


def test_a_probe_gives_models_and_their_losses_on_future_batches():
    problem = make_task_problem(l2=0.1)
    generator = np.random.default_rng(0)
    models = generator.standard_normal((5, 64)).astype(np.float32)
    pairs = [0, 13, 39, 13, 7]
    draws = [[-1, 0], [0, 1], [3, 4], [4, 0], [2, 2]]
    with Lab(problem) as lab:
        held = [lab.tape.constant(model) for model in models]
        held[1] = lab.tape.combine((0.5, held[1]), (0.5, held[2]))
        models[1] = (models[1] + models[2]) / 2
        probed, losses = lab.tape.probe(held, pairs, draws, lambda models, losses: (models, losses))
    assert probed == pytest.approx(models, abs=1e-6)
    for model, pair, numbers, row in zip(models.astype(np.float64), pairs, draws, losses, strict=True):
        for number, loss in zip(numbers, row, strict=True):
            expected = pair_loss(problem, model, pair, number) if number >= 0 else 0.0
            assert loss == pytest.approx(expected, rel=1e-5)


def test_evaluation_joins_the_rows_of_a_model():
    problem = make_task_problem()
    rows = np.random.default_rng(0).standard_normal((3 * TASKS, 64)).astype(np.float32)
    with Lab(problem) as lab:
        held = [lab.tape.constant(row) for row in rows]
        lab.tape.flush()
        evaluation = lab.executor.evaluate(*lab.tape.forms(held[:TASKS]), lab.tape.forms(held)).result()
        both = lab.executor.evaluate(*lab.tape.forms(held[TASKS:])).result()

    def accuracy(whole):
        return (np.argmax(problem.data.test_x @ whole.T, axis=1) == problem.data.test_y).mean()

    groups = rows.reshape(3, TASKS, 64)
    assert evaluation.test_accuracy == pytest.approx(accuracy(groups[0]))
    assert evaluation.client_accuracy == pytest.approx([accuracy(group) for group in groups])
    assert evaluation.consensus_distance == 0.0
    assert both.test_accuracy == pytest.approx(accuracy(groups[1:].mean(axis=0)))
    assert both.consensus_distance == pytest.approx(np.linalg.norm(groups[1] - groups[2]) / 2, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("width", [4, 40])
def test_a_projection_ends_every_gradient_step_and_nothing_else(width):
    problem = make_task_problem(radius=1.0)
    models = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)
    with Lab(problem, width=width) as lab:
        held = [
            lab.tape.constant(scale * model) for scale, model in zip((1, 1, 1, 0.05, 0.05, 0.0), models, strict=True)
        ]
        stepped = [lab.tape.combine((1.0, one), (-0.01, lab.tape.gradient(one, 0, 0, 8))) for one in held]
        averaged = [lab.tape.settle(lab.tape.combine((0.5, held[0]), (0.5, held[1])))]
        norms = np.linalg.norm(lab.tape.values(stepped), axis=1)
        assert norms[:3] == pytest.approx(1.0, abs=1e-6)
        assert (norms[3:] < 0.6).all()
        assert np.isfinite(norms).all()
        assert np.linalg.norm(lab.tape.values(averaged)[0]) > 2.0


@pytest.mark.slow
def test_short_calls_give_the_same_bits():
    problem = make_task_problem(clipping_norm=0.9, noisy=True)

    def run(steps):
        from simfl.tape.executor import Executor, choose_device

        executor = Executor(problem, width=4, combines=2, capacity=200, steps=steps, device=choose_device("cpu"))
        tape = Tape(executor, window=500, max_batch=8)
        model = tape.constant(np.zeros(64, np.float32))
        for number in range(200):
            model = tape.combine((1.0, model), (-0.1, tape.gradient(model, number % 40, number // 40, 8, 0.2)))
        values = tape.values([model])
        executor.close()
        return values

    assert np.array_equal(run(64), run(4))
