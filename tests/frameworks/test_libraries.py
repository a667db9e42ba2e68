"""Networks of other libraries as models: their parameters and gradients, and what has state is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.frameworks.libraries import Network
from tests.models.own_models import CLASSES, KEY, SIZE, examples, made


def linen(normalize=False, dropout=False, silent=True):
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            x = nn.BatchNorm(use_running_average=False)(x) if normalize else x
            x = nn.Dropout(0.5, deterministic=silent)(x) if dropout else x
            return nn.Dense(CLASSES)(x) * (2.0 if train else 1.0)

    return Net()


def nnx(normalize=False):
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.dense = nnx.Linear(SIZE, CLASSES, rngs=rngs)
            self.norm = nnx.BatchNorm(SIZE, rngs=rngs) if normalize else nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.dense(self.norm(x))

    return Net


def equinox(normalize=False):
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        dense: eqx.nn.Linear
        norm: eqx.Module

        def __init__(self, key):
            self.dense = eqx.nn.Linear(SIZE, CLASSES, key=key)
            self.norm = eqx.nn.BatchNorm(CLASSES, "batch", mode="batch") if normalize else eqx.nn.Dropout(0.5)

        def __call__(self, x):
            return self.dense(self.norm(x))

    return Net


def haiku(normalize=False, dropout=False):
    hk = pytest.importorskip("haiku")

    def net(x):
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=True) if normalize else x
        x = hk.dropout(hk.next_rng_key(), 0.5, x) if dropout else x
        return hk.Linear(CLASSES)(x)

    return net


ADAPTERS = {
    "linen": (lambda **how: simfl.from_flax(linen(**how), "cross_entropy"), "Dense_0.bias Dense_0.kernel"),
    "nnx": (lambda **how: simfl.from_flax(nnx(**how), "cross_entropy"), "dense.bias dense.kernel"),
    "equinox": (lambda **how: simfl.from_equinox(equinox(**how), "cross_entropy"), "dense.weight dense.bias"),
    "haiku": (lambda **how: simfl.from_haiku(haiku(**how), "cross_entropy"), "linear.b linear.w"),
}


@pytest.mark.slow(but=["nnx"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_dense_layer_is_a_softmax_regression_whatever_the_library(name):
    adapter, names = ADAPTERS[name]
    model = made(adapter())
    assert dict(model.layout).keys() == set(names.split())
    x, y = examples(5)
    params = model.init(KEY)
    parts = model.parts(np.asarray(params))
    weights = next(part for part in parts.values() if part.ndim == 2)
    bias = next(part for part in parts.values() if part.ndim == 1)
    weights = weights if weights.shape == (SIZE, CLASSES) else weights.T
    z = x @ weights + bias
    told = jax.jit(lambda w: (model.predict(w, x), model.losses(w, x, y), model.correct(w, x, y)))(params)
    np.testing.assert_allclose(told[0], z, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(told[1], np.log(np.exp(z).sum(axis=1)) - z[np.arange(5), y], rtol=1e-4)
    np.testing.assert_array_equal(told[2], z.argmax(axis=1) == y)
    assert not np.array_equal(params, model.init(np.array([5, 6], np.uint32))), "drawn from the seed"


@pytest.mark.parametrize("name", ADAPTERS)
def test_batch_normalization_is_refused(name):
    with pytest.raises(ScenarioError, match=r"^from_\w+: expected a network without state, found .*; use GroupNorm or"):
        made(ADAPTERS[name][0](normalize=True))


@pytest.mark.parametrize("net", [lambda: simfl.from_flax(linen(dropout=True, silent=False), "cross_entropy"),
                                 lambda: simfl.from_haiku(haiku(dropout=True), "cross_entropy")])  # fmt: skip
def test_draws_in_a_loss_are_refused_where_the_user_wrote_them(net):
    with pytest.raises(ScenarioError, match=r"losses raised \w*R[Nn][Gg]Error: .* in .*test_libraries\.py:\d+$"):
        made(net())


def test_networks_start_with_given_parameters():
    params = {"Dense_0": {"kernel": jnp.ones((SIZE, CLASSES)), "bias": jnp.zeros(CLASSES)}}
    net = simfl.from_flax(
        linen(), "cross_entropy", params=params, train=True, trained={"Dense_0": {"kernel": False, "bias": True}}
    )
    model = made(net)
    assert model.size == CLASSES
    x, _ = examples()
    np.testing.assert_allclose(
        model.predict(model.init(KEY), x), 2 * x.sum(axis=1, keepdims=True) * np.ones(CLASSES), rtol=1e-5
    )
    made_already = equinox()(jax.random.key(3))
    model = made(
        simfl.from_equinox(
            made_already, "cross_entropy", trained=lambda net: jax.tree.map(lambda leaf: leaf.ndim == 2, net)
        )
    )
    np.testing.assert_array_equal(model.init(KEY), made_already.dense.weight.ravel())


def test_metrics_by_name_and_by_function():
    net = Network(
        "net", lambda key, x: jnp.ones(SIZE), lambda w, x: x @ w, "squared", {"error": "mae", "one": lambda z, y: z}
    )
    x, _ = examples()
    model = made(net, y=x[:, 0], num_classes=0)
    assert model.metric_names == ("error", "one")
    assert model.fits_targets
    metrics = model.metrics(jnp.ones(SIZE), x, x[:, 0])
    np.testing.assert_allclose(metrics["error"], abs(x.sum(axis=1) - x[:, 0]), rtol=1e-5)
    with pytest.raises(ScenarioError, match=r"^metrics: expected one of accuracy, .*, found 'acuracy'; did you mean"):
        Network("net", None, None, "squared", ["acuracy"])
