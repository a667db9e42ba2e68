"""Products in bfloat16: rounded factors, float32 sums, and clipping that holds."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from simfl import ScenarioError
from simfl.assembly import data
from simfl.assembly.assemble import assemble
from simfl.models import build_model, trial
from simfl.models.linear import Linear
from simfl.models.precision import with_rounded_products
from simfl.scenario import from_mapping
from tests.models.own_models import Softmax, examples, made

MODELS = {
    "softmax": ((12,), {}),
    "mlp": ((12,), {}),
    "one_vs_all": ((12,), {}),
    "lstm": ((5,), {"width": 8}),
    "transformer": ((5,), {"width": 8}),
}


#: Which take longer to compile.
LOOPS = ("lstm", "transformer")


def rounded(x):
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float32)


def problem(kind, count=6):
    """Return a model, parameters, examples and labels."""
    shape, options = MODELS[kind]
    model, generator = build_model(kind, input_shape=shape, num_classes=5, **options), np.random.default_rng(1)
    x = generator.normal(size=(count, *shape)).astype(np.float32)
    x = generator.integers(0, 5, (count, *shape)).astype(np.int32) if model.tokens else x
    params = np.asarray(model.init(np.array([0, 1], np.uint32))) + 0.3 * generator.normal(size=model.size)
    return model, params.astype(np.float32), x, generator.integers(0, 5, count).astype(np.int32)


def test_a_gradient_has_rounded_factors_and_float32_sums():
    model, params, x, y = problem("softmax")
    w, b = params[:60].reshape(5, 12), params[60:]
    z = rounded(x) @ rounded(w).T + b
    errors = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) - np.eye(5)[y]
    expected = np.concatenate([(rounded(errors).T @ rounded(x)).ravel(), errors.sum(axis=0)])
    total = jax.jit(model.with_precision("bfloat16").gradient_sum)(params, x, y, np.ones(6, np.float32))
    np.testing.assert_allclose(total, expected, rtol=1e-3, atol=1e-5)
    exact = jax.jit(model.gradient_sum)(params, x, y, np.ones(6, np.float32))
    assert 1e-4 < np.abs(np.asarray(exact) - expected).max() < 0.1


def test_loops_choices_and_calls_are_rounded_within():
    """Each product of two float32 factors is rounded once, wherever it is; others stay."""

    def network(product, w, x):
        inner = jax.checkpoint(jax.jit(lambda h: jax.nn.relu(product(h, w))))
        h = jax.lax.scan(lambda h, _: (0.5 * inner(h), None), x, length=2)[0]
        h = jax.lax.cond(x[0, 0] > 0, lambda h: product(h, w), lambda h: h, h)
        return jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, product(s[1], w)), (0, h))[1]

    def by_hand(a, b):
        return jnp.matmul(*(jax.lax.reduce_precision(one, 8, 7) for one in (a, b)))

    generator = np.random.default_rng(0)
    w, x = (np.abs(generator.normal(size=shape)).astype(np.float32) for shape in ((4, 4), (3, 4)))
    got = jax.jit(lambda w, x: with_rounded_products(lambda w, x: network(jnp.matmul, w, x), w, x))(w, x)
    np.testing.assert_allclose(got, jax.jit(lambda w, x: network(by_hand, w, x))(w, x), rtol=1e-6)
    assert np.abs(np.asarray(got) - network(jnp.matmul, w, x)).max() > 1e-4
    image, kernel = generator.normal(size=(1, 1, 6, 6)).astype(np.float32), np.full((1, 1, 3, 3), 1 / 3, np.float32)
    got = with_rounded_products(lambda a, b: jax.lax.conv(a, b, (1, 1), "VALID"), image, kernel)
    np.testing.assert_allclose(got, jax.lax.conv(rounded(image), rounded(kernel), (1, 1), "VALID"), rtol=1e-5)


@pytest.mark.parametrize(
    "kind", ["softmax", "mlp", "one_vs_all", "own", *(pytest.param(one, marks=pytest.mark.slow) for one in LOOPS)]
)
def test_clipping_bounds_what_an_example_adds(kind):
    """The norm and the sum are of the same numbers: no example adds more than C, and 0 with a weight of 0."""
    if kind == "own":
        model, (x, y) = made(Softmax()), examples()
        params = np.random.default_rng(0).normal(size=model.size).astype(np.float32)
    else:
        model, params, x, y = problem(kind)
    model, count = model.with_precision("bfloat16"), len(x)
    norms = np.asarray(jax.jit(model.gradient_norms)(params, x, y))
    norm = np.float32(0.5 * norms.min())
    sums = jax.jit(jax.vmap(model.clip_and_sum, (None, None, None, 0, None)))
    weights = np.concatenate([np.eye(count), np.ones((1, count)), np.zeros((1, count))]).astype(np.float32)
    totals = np.asarray(sums(params, x, y, weights, norm)[0], dtype=np.float64)
    np.testing.assert_allclose(np.linalg.norm(totals[:count], axis=1), norm, rtol=2e-6)
    np.testing.assert_allclose(totals[:count].sum(axis=0), totals[count], rtol=1e-3, atol=1e-5 * norm)
    assert not totals[-1].any()


def test_float32_is_the_program_without_the_option_and_predictions_are_float32():
    model, params, x, y = problem("mlp")
    low = model.with_precision("bfloat16")
    assert model.with_precision("float32") is model
    assert repr(low) == repr(model)
    assert low != model
    given = params, x, y, np.ones(6, np.float32)
    assert "reduce_precision" not in str(jax.make_jaxpr(model.gradient_sum)(*given))
    assert "reduce_precision" in str(jax.make_jaxpr(low.gradient_sum)(*given))
    for method in ("losses", "correct"):
        np.testing.assert_array_equal(getattr(low, method)(*given[:3]), getattr(model, method)(*given[:3]))
    whole = dataclasses.replace(problem("one_vs_all")[0], precision="bfloat16")
    assert {task.precision for task in whole.task_models} == {"bfloat16"}


def scenario(model="mlp", precision="bfloat16"):
    return from_mapping(
        {
            "name": "low",
            "data": {"set": "digits"},
            "clients": {"count": 4},
            "model": {"kind": model},
            "algorithm": {"kind": "adpsgd", "batch_size": 8},
            "stop": {"updates": 40},
            "execution": {"precision": precision},
        }
    )


class Wide(Softmax):
    """Softmax regression on digits."""

    def init(self, key):
        return {"w": jnp.zeros((10, 64)), "b": jnp.zeros(10)}


class Closed(Wide):
    def clipped_gradient_sum(self, params, x, y, weight, norm):
        return {"w": jnp.zeros((10, 64)), "b": jnp.zeros(10)}


class Own(Linear):
    """A subclass that is not simfl's."""

    def gradient_sum(self, params, x, y, weight):
        return 2.0 * super().gradient_sum(params, x, y, weight)


def test_the_model_that_is_trained_has_the_precision():
    setup = assemble(scenario())
    assert setup.problem.operation.model.precision == setup.model.precision == "bfloat16"
    assert assemble(scenario(precision="float32")).model.precision == "float32"
    with pytest.raises(ScenarioError, match=r"execution\.precision: expected float32 or bfloat16, found 'half'"):
        scenario(precision="half")


def test_a_model_with_gradients_of_its_own_is_refused_in_one_line(monkeypatch):
    assert Own((64,)).own_method("gradient_sum") == "gradient_sum"
    monkeypatch.setattr(data, "own_model_of", lambda *given: Own((64,)))
    with pytest.raises(ScenarioError, match=r"^execution\.precision: expected float32 for model 'linear', whose "):
        data.model_of(scenario("tests.models.test_precision:Wide"), None)
    monkeypatch.undo()
    assert assemble(scenario(f"{__name__}:Wide")).model.precision == "bfloat16"
    monkeypatch.setattr(trial, "_check_closed_form", lambda *given: None)
    with pytest.raises(ScenarioError, match=r"'.*Closed', whose clipped_gradient_sum .*, found bfloat16; leave"):
        assemble(scenario(f"{__name__}:Closed"))
