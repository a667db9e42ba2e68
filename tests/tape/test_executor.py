import gc
import os
import re
import sys
import threading
import time

import jax
import numpy as np
import pytest

from simfl.errors import RunError, ScenarioError
from simfl.models import build_model
from simfl.tape import kernels
from simfl.tape.executor import automatic_width, choose_device
from simfl.tape.kernels import KEPT
from simfl.tape.tuning import tuned_interpreter
from simfl.world.links import LinkModel
from tests.helpers import (
    Lab,
    batch_gradient,
    constant,
    lognormal,
    make_problem,
    make_world,
    replace_data,
    run_algorithm,
    softmax_gradient,
)


def train(lab, *, updates=120, step_size=0.5, noise_std=0.0, seed=2, exchange="messages"):
    world = make_world(8, jitter=lognormal(0.5), links=LinkModel(latency=constant(3e-3)), seed=seed)
    training = lab.training(step_size=step_size, noise_std=noise_std)
    algorithm, _ = run_algorithm("adpsgd", world, lab.tape, training, updates=updates, exchange=exchange)
    return lab.tape.values(algorithm.models())


def softmax_loss(params, x, y):
    """Return the mean loss and the accuracy in float64."""
    weights, bias = params[:640].reshape(10, 64).astype(np.float64), params[640:].astype(np.float64)
    logits = x @ weights.T + bias
    largest = logits.max(axis=1)
    losses = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - logits[np.arange(len(y)), y]
    return losses.mean(), (logits.argmax(axis=1) == y).mean()


@pytest.mark.slow
def test_a_bank_that_grows_keeps_its_values():
    with Lab(make_problem()) as lab:
        expected = train(lab)
    with Lab(make_problem(), capacity=2, window=10) as lab:
        np.testing.assert_array_equal(train(lab), expected)
        assert lab.executor.bank.capacity > 2


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 40])
def test_other_widths_give_equal_models_up_to_rounding(width):
    with Lab(make_problem()) as lab:
        expected = train(lab)
    with Lab(make_problem(), width=width, combines=1) as lab:
        np.testing.assert_allclose(train(lab), expected, atol=2e-6)


@pytest.mark.slow
def test_a_poisson_batch_that_is_too_wide_is_not_cut():
    problem = make_problem(sampling="poisson", batch_size=4, sizes=[40] * 8)
    with Lab(problem) as lab:
        assert lab.problem.max_batch < 40
        model = lab.tape.constant(np.zeros(650))
        stepped = [lab.tape.combine((1.0, lab.tape.gradient(model, 3, 0, size))) for size in (0, 5, 21, 40)]
        nothing, some, more, everything = lab.tape.values(stepped)
    assert not nothing.any()
    np.testing.assert_allclose(some, batch_gradient(problem, np.zeros(650), 3, 0, 5), atol=1e-5)
    np.testing.assert_allclose(more, batch_gradient(problem, np.zeros(650), 3, 0, 21), atol=1e-5)
    own = problem.data.indices[problem.data.offsets[3] : problem.data.offsets[4]]
    whole = softmax_gradient(np.zeros(650), problem.data.train_x[own], problem.data.train_y[own])
    np.testing.assert_allclose(everything, whole, atol=2e-5)


def test_max_batch_leaves_room_for_most_poisson_batches():
    generator = np.random.default_rng(0)
    for batch_size, n in ((8, 100), (32, 400), (256, 5000)):
        problem = make_problem(sampling="poisson", batch_size=batch_size)
        problem = replace_data(problem, offsets=np.array([0, n]))
        wide = (generator.binomial(n, batch_size / n, 20_000) > problem.max_batch).mean()
        assert wide < 0.02
        assert problem.max_batch < 2.5 * batch_size
    assert make_problem(sampling="poisson", batch_size=8, sizes=[10] * 8).max_batch == 10
    assert make_problem(sampling="shuffle", batch_size=8).max_batch == 8


@pytest.mark.slow
@pytest.mark.parametrize("tests", [100, 1, 37])
def test_an_evaluation_measures_the_mean_model(tests):
    problem = make_problem(l2=0.01)
    problem = replace_data(problem, test_x=problem.data.test_x[:tests], test_y=problem.data.test_y[:tests])
    generator = np.random.default_rng(0)
    models = generator.standard_normal((19, 650)).astype(np.float32)  # more than one chunk of models
    with Lab(problem) as lab:
        held = [lab.tape.constant(model) for model in models]
        held[3] = lab.tape.combine((0.5, held[3]), (0.5, held[4]))
        models[3] = (models[3] + models[4]) / 2
        lab.tape.flush()
        evaluation = lab.executor.evaluate(*lab.tape.forms(held), clients=True).result()
    mean = models.mean(axis=0, dtype=np.float64)
    penalty = 0.005 * (mean @ mean)
    chosen = problem.measured.loss_examples
    train_loss, _ = softmax_loss(mean, problem.data.train_x[chosen], problem.data.train_y[chosen])
    test_loss, accuracy = softmax_loss(mean, problem.data.test_x, problem.data.test_y)
    assert evaluation.train_loss == pytest.approx(train_loss + penalty, rel=1e-5)
    assert evaluation.test_loss == pytest.approx(test_loss + penalty, rel=1e-5)
    assert evaluation.test_accuracy == pytest.approx(accuracy, abs=1e-6)
    spread = np.sqrt(((models - mean) ** 2).sum(axis=1).mean())
    assert evaluation.consensus_distance == pytest.approx(spread, rel=1e-5)
    assert evaluation.finite
    for k, model in enumerate(models.astype(np.float64)):
        loss, accuracy = softmax_loss(model, problem.data.test_x, problem.data.test_y)
        assert evaluation.client_loss[k] == pytest.approx(loss + 0.005 * (model @ model), rel=1e-5)
        assert evaluation.client_accuracy[k] == pytest.approx(accuracy, abs=1e-6)


def test_the_mean_is_current_if_a_row_reuses_the_number_of_another():
    one, other = np.random.default_rng(0).standard_normal((2, 650)).astype(np.float32)
    with Lab(make_problem()) as lab:
        held = lab.tape.constant(one)
        lab.tape.flush()
        before = lab.tape.forms([held])
        np.testing.assert_array_equal(lab.executor.mean(*before), one)
        lab.executor.evaluate(*before).result()
        np.testing.assert_array_equal(lab.executor.mean(*before), one)
        held = None
        for _ in range(2):  # a number is reused after the window in which its row died
            held = lab.tape.constant(other)
            lab.tape.flush()
        now = lab.tape.forms([held])
        np.testing.assert_array_equal(now[0], before[0])
        np.testing.assert_array_equal(lab.executor.mean(*now), other)


def test_an_evaluation_in_several_chunks_counts_every_example_once(monkeypatch):
    monkeypatch.setattr("simfl.tape.evaluation.CHUNK_EXAMPLES", 30)  # 100 test examples are three chunks and a third
    problem = make_problem()
    model = np.random.default_rng(0).standard_normal(650).astype(np.float32)
    with Lab(problem) as lab:
        held = lab.tape.constant(model)
        lab.tape.flush()
        evaluation = lab.executor.evaluate(*lab.tape.forms([held])).result()
    loss, accuracy = softmax_loss(model, problem.data.test_x, problem.data.test_y)
    assert evaluation.test_loss == pytest.approx(loss, rel=1e-5)
    assert evaluation.test_accuracy == pytest.approx(accuracy, abs=1e-6)
    assert evaluation.consensus_distance == 0.0


def test_a_loss_that_is_not_finite_is_reported():
    with Lab(make_problem()) as lab:
        held = lab.tape.constant(np.full(650, np.nan))
        lab.tape.flush()
        assert not lab.executor.evaluate(*lab.tape.forms([held])).result().finite
        assert np.isfinite(train(lab)).all(), "a model that is not finite does not leak into others"


def test_an_evaluation_sees_the_models_as_they_were():
    """An evaluation is queued between two windows and computed later."""
    with Lab(make_problem(), window=4) as lab:
        model = lab.tape.constant(np.zeros(650))
        futures = []
        for draw in range(40):
            lab.tape.flush()
            futures.append(lab.executor.evaluate(*lab.tape.forms([model])))
            model = lab.tape.combine((1.0, model), (-0.05, lab.tape.gradient(model, 0, draw, 8)))
        losses = [future.result().train_loss for future in futures]
    assert losses[0] == pytest.approx(np.log(10), rel=1e-5)
    assert len(set(losses)) == 40


def compilations(caplog, action):
    """Return the messages of JAX about programs that it compiles during an action, in any thread."""
    caplog.clear()
    jax.config.update("jax_log_compiles", True)
    try:
        with caplog.at_level("WARNING"):
            action()
    finally:
        jax.config.update("jax_log_compiles", False)
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]


@pytest.mark.slow
def test_each_kernel_shape_is_traced_once(caplog):
    def run(seed=0, clipping_norm=1.0, window=64, capacity=200, **options):
        problem = make_problem(seed=seed, sampling="poisson", clipping_norm=clipping_norm, noisy=True)
        with Lab(problem, window=window, capacity=capacity) as lab:
            train(lab, updates=60, seed=seed, **options)
            lab.executor.evaluate(*lab.tape.forms([lab.tape.constant(np.zeros(650))])).result()

    run(noise_std=0.5)
    again = compilations(
        caplog,
        lambda: [
            run(seed=5, noise_std=0.5),
            run(noise_std=3.0),
            run(noise_std=0.5, step_size=0.01),
            run(noise_std=0.5, clipping_norm=0.1),
            run(noise_std=0.5, window=11),
        ],
    )
    assert not again
    other = compilations(caplog, lambda: run(noise_std=0.5, capacity=201))
    assert any("run" in line for line in other), "a bank of another shape is another program, and this test sees it"


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.001)


def test_an_error_in_the_thread_is_raised_in_the_world():
    lab = Lab(make_problem())
    lab.executor.submit("no window at all")
    wait_for(lambda: lab.executor._failure is not None)
    model = lab.tape.constant(np.zeros(650))
    with pytest.raises(RunError, match="the executor failed: ") as caught:
        lab.tape.values([model])
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(RunError, match="the executor failed: "):
        lab.executor.close()
    assert not lab.executor._thread.is_alive()


def test_a_pending_evaluation_raises_if_the_thread_fails():
    lab = Lab(make_problem())
    gate = threading.Event()
    lab.executor._enqueue(gate.wait)
    lab.executor.submit("no window at all")
    pending = lab.executor.evaluate(np.zeros((1, 4), np.int32), np.zeros((1, 4), np.float32))  # before it fails
    gate.set()
    with pytest.raises(RunError, match="the executor failed: "):
        pending.result(timeout=120)
    with pytest.raises(RunError, match="the executor failed: "):
        lab.executor.close()


def test_closing_ends_the_thread():
    before = threading.active_count()
    with Lab(make_problem()) as lab:
        assert threading.active_count() == before + 1
        train(lab, updates=20)
    assert threading.active_count() == before


def test_a_fast_world_waits_for_a_slow_device():
    """The queue is bounded, so the memory of waiting windows is bounded too."""
    lab = Lab(make_problem())
    gate = threading.Event()
    lab.executor._enqueue(gate.wait)
    submitted = []

    def world():
        for _ in range(6):
            lab.tape.constant(np.zeros(650))
            lab.tape.flush()
            submitted.append(1)

    thread = threading.Thread(target=world)
    thread.start()
    wait_for(lambda: len(submitted) >= 2)
    time.sleep(0.05)
    assert len(submitted) <= 3
    gate.set()
    thread.join(10)
    assert len(submitted) == 6
    lab.executor.close()


@pytest.mark.parametrize(
    ("kind", "platform", "widths"),
    [
        ("softmax", "cpu", {1: 1, 3: 1, 4: 4, 11: 4, 12: 16, 256: 16}),
        ("mlp", "cpu", {3: 1, 4: 2, 11: 2, 12: 2, 256: 2}),
        ("narrow mlp", "cpu", {3: 1, 11: 4, 12: 4, 256: 4}),
        ("lenet5", "cpu", {1: 1, 256: 1}),  # convolutions are not batched on a CPU
        ("softmax", "gpu", {1: 8, 16: 16, 100: 64, 256: 256, 5000: 256}),
        ("lenet5", "gpu", {1: 8, 100: 64, 5000: 256}),
    ],
)
def test_the_automatic_width_follows_model_and_device(kind, platform, widths):
    options = {"hidden": [16]} if kind == "narrow mlp" else {}
    model = build_model(kind.split()[-1], input_shape=(28, 28), num_classes=5, **options)
    assert (model.size > 4096) == (kind != "softmax")
    assert {clients: automatic_width(model, clients, platform) for clients in widths} == widths


def test_padding_of_the_last_chunk_does_not_count():
    """The last chunk is filled up with examples of weight 0, whatever their losses are."""
    model = build_model("softmax", input_shape=(64,), num_classes=10)
    data = make_problem().data
    x, y, params = data.test_x[:7], data.test_y[:7], np.random.default_rng(0).normal(size=650).astype(np.float32)
    expected = kernels.evaluation_program((7,), model, 7)(params, x, y, np.ones(7, "f4"))
    filling = np.full((5, 64), np.inf, np.float32), np.zeros(5, np.int32)
    weight = np.repeat(np.float32([1, 0]), [7, 5])
    filled = np.concatenate((x, filling[0])), np.concatenate((y, filling[1])), weight
    sums = kernels.evaluation_program((12,), model, 4)(params, *filled)
    np.testing.assert_allclose(sums[:2], expected[:2], rtol=1e-6)
    assert sums[2] == {}, "no metrics of its own"


def test_an_unknown_device_is_named():
    assert choose_device("cpu").platform == "cpu"
    with pytest.raises(ScenarioError, match=r"^--device: found 'quantum', expected one of .*cpu"):
        choose_device("quantum")


@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_a_process_forked_after_a_computation_is_told_to_spawn():
    choose_device("cpu")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            choose_device("cpu")
        except RunError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        assert re.fullmatch(r"this process was forked from .*; start processes with .*'spawn'.*", pipe.read())
    assert choose_device("cpu").platform == "cpu", "the parent process still works"


@pytest.mark.slow
def test_a_process_keeps_programs_of_recent_shapes_only():
    device = choose_device("cpu")

    def programs_after(capacities):
        for capacity in capacities:
            with Lab(make_problem(4), capacity=capacity) as lab:
                assert lab.tape.values([lab.tape.constant(np.ones(650, np.float32))]).sum() == 650
        gc.collect()
        return len(device.client.live_executables())

    few = programs_after(range(300, 300 + KEPT))
    assert programs_after(range(400, 400 + KEPT)) <= few + 2


def test_a_closed_executor_leaves_no_array_on_the_device():
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    with Lab(make_problem(4, gradient_examples=20)) as lab:
        model = lab.tape.constant(np.ones(650, np.float32))
        lab.executor.evaluate(*lab.tape.forms([model])).result()
        assert sum(array.nbytes for array in jax.live_arrays()) > before + lab.problem.data.train_x.nbytes
    assert sum(array.nbytes for array in jax.live_arrays()) == before


def test_the_last_of_several_runs_restores_the_interpreter():
    before = sys.getswitchinterval(), gc.get_threshold()
    first, second = tuned_interpreter(), tuned_interpreter(clients=10_000)
    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert sys.getswitchinterval() == pytest.approx(1e-4), "the second run goes on"
        assert gc.get_threshold()[0] == 320_000
    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_objects_frozen_before_a_run_stay_frozen(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", gc.get_freeze_count.__wrapped__)  # tests/conftest.py caches the count
    gc.freeze()
    frozen = gc.get_freeze_count()
    with tuned_interpreter():
        assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01), "nothing else is frozen"
    assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.01)
    gc.unfreeze()
    try:
        with tuned_interpreter():
            assert gc.get_freeze_count() > 0.9 * frozen
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()
