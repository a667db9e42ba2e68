"""Examples from single gradients, and from those that an observer of a run can solve for."""

import math

import jax
import numpy as np
import pytest

from simfl.attacks.inversion import input_from, invert_run, labels_from, matched, search, similarity
from simfl.errors import ScenarioError
from simfl.models import build_model
from simfl.scenario import loads

TEXT = """
name: ring
seed: 1
data: {set: digits}
model: {kind: softmax}
clients: {count: 5}
topology: {kind: ring}
algorithm: {kind: decentralized_sgd, batch_size: 1, step_size: 0.1, sampling: shuffle}
stop: {updates: 30}
evaluate: {every: {updates: 30}}
execution: {width: 1}
"""


def made(kind, features=12, classes=4, **options):
    model = build_model(kind, input_shape=(features,), num_classes=classes, **options)
    return model, np.asarray(model.init(np.array([0, 3], np.uint32)))


def examples(count, features=12, classes=4):
    generator = np.random.default_rng(5)
    x = generator.uniform(0, 1, (count, features)).astype(np.float32)
    return x, np.sort(generator.permutation(classes)[:count]).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "classes", "options"), [("softmax", 4, {}), ("logistic", 2, {}), ("mlp", 4, {"hidden": (6,)})]
)
def test_one_example_follows_from_its_clipped_gradient(kind, classes, options):
    model, params = made(kind, classes=classes, **options)
    x, y = examples(1, classes=classes)
    gradient = np.asarray(model.clipped_gradient_sum(params, x, y, np.ones(1, np.float32), 0.1))
    np.testing.assert_allclose(input_from(model, gradient), x[0], atol=1e-5)
    np.testing.assert_allclose(input_from(model, -7 * gradient), x[0], atol=1e-5)
    assert labels_from(model, params, gradient, 1, 0.5) == y


def test_models_without_such_a_layer_are_refused():
    model, params = made("softmax", intercept=False)
    with pytest.raises(ScenarioError, match=r"model\.kind: expected a model whose first layer is dense, with a bias"):
        input_from(model, params)


def test_few_examples_are_reconstructed_from_their_gradient():
    model, params = made("mlp", hidden=(32,))
    x, y = examples(3)
    gradient = np.asarray(jax.jit(model.gradient_sum)(params, x, y, np.ones(3, np.float32)))
    labels = labels_from(model, params, gradient, 3, 0.5)
    np.testing.assert_array_equal(labels, y)
    reconstructed, distance = search(model, params, gradient, labels, bounds=(0.0, 1.0), image_shape=(3, 4), steps=400)
    assert distance < 1e-3
    correlations = [similarity(*pair, 1.0)[0] for pair in zip(x, matched(x, reconstructed), strict=True)]
    assert min(correlations) > 0.9
    wrong = np.random.default_rng(1).normal(size=gradient.shape).astype(np.float32)
    assert search(model, params, wrong, labels, bounds=(0.0, 1.0), image_shape=(3, 4), steps=400)[1] > 0.3


def test_reconstructions_are_matched_with_their_originals():
    x = examples(3)[0]
    np.testing.assert_array_equal(matched(x, x[[2, 0, 1]]), x)
    assert similarity(x[0], x[0], 1.0) == (pytest.approx(1.0), math.inf)
    assert similarity(x[0], x[0] + 0.1, 1.0) == (pytest.approx(1.0), pytest.approx(20.0, abs=1e-3))
    assert similarity(x[0], np.zeros(12), 1.0)[0] == 0.0


@pytest.fixture(scope="module")
def attacked():
    return invert_run(loads(TEXT), observer=1, client=0)


def test_a_neighbor_reconstructs_the_example_in_its_first_model(attacked):
    """Later models mix messages from two sides, of which the neighbor has one."""
    assert (attacked.gradients, attacked.solved, attacked.small) == (6, 1, 1)
    (batch,) = attacked.batches
    assert (batch.draw, batch.method, batch.originals.shape) == (0, "read off", (1, 64))
    np.testing.assert_allclose(batch.found, batch.originals, atol=1e-4)
    assert attacked.frame["correlation"].tolist() == pytest.approx([1.0])


def test_distant_nodes_solve_for_nothing_and_noise_hides_examples():
    assert invert_run(loads(TEXT), observer=2, client=0).solved == 0
    everything = invert_run(loads(TEXT), observer="links", client=0, count=2)
    assert (everything.solved, len(everything.batches)) == (6, 2)
    private = "privacy: {noise_multiplier: 1, clipping_norm: 1, delta: 1.0e-5}\nstop"
    noisy = invert_run(loads(TEXT.replace("stop", private, 1)), observer=1, client=0)
    assert noisy.solved == 1, "with its noise"
    assert noisy.batches[0].correlations[0] < 0.9


@pytest.mark.parametrize(("text", "options", "message"), [
    (TEXT, {"client": 5}, "--client: expected 0 to 4, found 5"),
    (TEXT, {"client": 1}, "--observer: expected another node than client 1"),
    (TEXT, {"observer": "server"}, "observer: expected a client, 0 to 4"),
    (TEXT.replace("decentralized_sgd, batch_size: 1, step_size: 0.1, sampling: shuffle", "fedavg, batch_size: 4"), {},
     "algorithm.kind: expected an algorithm whose clients send gradients, found fedavg"),
])  # fmt: skip
def test_unsupported_scenarios_are_refused(text, options, message):
    with pytest.raises(ScenarioError, match=message):
        invert_run(loads(text), **{"observer": 1, "client": 0, **options})
