"""A mistake in a user's own model is reported in one line before a run begins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.models.trial import try_out

from .own_models import CLASSES, SIZE, Adapter, Changed, Softmax, examples, made

GOOD = Softmax()


def normalized(x):
    return (x - x.mean(0)) / (1e-3 + x.std(0))


def own_sum(params, x, y, weight, norm):
    def one(x, y):
        gradient = jax.grad(lambda tree: GOOD.losses(tree, x[None], y[None])[0])(params)
        size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
        return jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, norm / size), gradient)

    return jax.tree.map(lambda leaf: jnp.tensordot(weight, leaf, 1), jax.vmap(one)(x, y))


def noisy(params, x, y, key):
    return GOOD.losses(params, x + jax.random.normal(key, x.shape), y)


GLOBAL = np.random.default_rng(0)


@pytest.mark.slow(but=["given3"])
@pytest.mark.parametrize(
    "given",
    [GOOD, Adapter(), Changed(clipped_gradient_sum=own_sum), Changed(predict=None), Changed(training_losses=noisy)],
)
def test_good_models_pass(given):
    try_out(made(given), *examples())


def remembering():
    calls = []

    def losses(params, x, y):
        calls.append(0)
        return GOOD.losses(params, x, y) * (2.0 if len(calls) > 3 else 1.0)

    return losses


def plus(further):
    return lambda params, x, y: GOOD.losses(params, x, y) + further(x, y)


def unclipped(params, x, y, weight, norm):
    return own_sum(params, x, y, weight, 1e9)


LOSSES = {
    "a mean": (lambda p, x, y: GOOD.losses(p, x, y).mean(), r"f32\[4\], found float32\[\]; return a loss per example"),
    "another shape": (lambda p, x, y: GOOD.predict(p, x), r"f32\[4\], found float32\[4, 3\]$"),
    "a list": (lambda p, x, y: [*GOOD.losses(p, x, y)], r"losses: expected one .*, found list$"),
    "integers": (lambda p, x, y: y, r"losses: expected floats, found int32"),
    "a share": (lambda p, x, y: GOOD.losses(p, x, y) / len(x), r"example \d has .* in a batch of 4 and .* by itself"),
    "batch normalization": (lambda p, x, y: GOOD.losses(p, normalized(x), y), "use GroupNorm or LayerNorm in"),
    "a neighbor": (plus(lambda x, y: 1e-5 * (jnp.roll(x, 1, 0) - x)[:, 0]), "depends on another example of the batch"),
    "its label": (plus(lambda x, y: 2e-5 * (jnp.roll(y, 1) - y)), "depends on another example of the batch"),
    "NaN": (lambda p, x, y: jnp.log(x[:, 0]), r"expected finite numbers, found nan for example \d"),
    "no gradient": (lambda p, x, y: jnp.sqrt(0 * GOOD.losses(p, x, y)), "their gradient in b is NaN or infinite"),
    "draws": (plus(lambda x, y: np.random.rand()), "two calls gave different numbers"),
    "remembers": (remembering(), r"as they are, \[.*\] under jax\.jit; use jax\.numpy"),
    "NumPy": (lambda p, x, y: np.asarray(x)[:, 0] + 0 * y, r"raised TracerArrayConversionError.*test_trial\.py:\d+$"),
}

OTHERS = {
    "NaN in init": (
        {"init": lambda key: {"w": jnp.full((CLASSES, SIZE), jnp.nan), "b": jnp.zeros(CLASSES)}},
        "init: w: expected finite numbers, found NaN or infinity",
    ),
    "few outputs": ({"predict": lambda p, x: x[:, :2]}, "predict: expected 3 outputs, one for each class, found 2"),
    "one prediction": ({"predict": lambda p, x: p["b"]}, r"predict: expected \[4, \.{3}\] .*, found float32\[3\]"),
    "predict raises": ({"predict": lambda p, x: p["c"]}, r"predict raised KeyError: 'c' in .*test_trial\.py:\d+$"),
    "no clipping": ({"clipped_gradient_sum": unclipped}, "it differs from the sum of single clipped gradients by"),
    "training of a mean": (
        {"training_losses": lambda p, x, y, key: jnp.sum(x)},
        r"expected f32\[1\] .*, found float32",
    ),
    "another generator": (
        {"training_losses": lambda p, x, y, key: GOOD.losses(p, GLOBAL.normal() * x, y)},
        "one key gave different gradients; draw from the key alone",
    ),
    "another tree": ({"clipped_gradient_sum": lambda p, *given: p["w"]}, "expected a pytree like the parameters"),
}

BROKEN = {name: ({"losses": losses}, message) for name, (losses, message) in LOSSES.items()} | OTHERS


@pytest.mark.slow(but=["another shape"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_one_line(name):
    changes, message = BROKEN[name]
    with pytest.raises(ScenarioError, match=rf"^model: net: .*{message}") as caught:
        try_out(made(Changed(**changes)), *examples())
    assert "\n" not in str(caught.value)
