"""A user's own model as a flat vector: the same numbers as simfl's own, masks, micro-batches, closed forms."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.errors import ScenarioError
from simfl.models import AbstractModel, base, build_model
from simfl.models.own import Same

from .own_models import CLASSES, KEY, SIZE, Adapter, Changed, Softmax, examples, made

WEIGHT = np.array([1, 0, 1, 1, 1, 1, 0], dtype=np.float32)


def both():
    own = made(Softmax())
    ours = build_model("softmax", input_shape=(SIZE,), num_classes=CLASSES)
    params = {"w": np.random.default_rng(1).normal(size=(CLASSES, SIZE)), "b": np.arange(CLASSES)}
    flat = np.concatenate([params["w"].ravel(), params["b"]]).astype(np.float32)
    assert list(own.parts(np.zeros(own.size))) == ["b", "w"], "the pytree's order"
    return own, own.joined({name: part.astype(np.float32) for name, part in params.items()}), ours, flat


def swapped(flat: np.ndarray) -> np.ndarray:
    return np.concatenate([flat[CLASSES:], flat[:CLASSES]])


def test_an_own_model_computes_what_the_built_in_one_does():
    own, params, ours, flat = both()
    x, y = examples(7)

    def answers(model, params):
        told = model.losses(params, x, y), model.predict(params, x), model.correct(params, x, y)
        sums = [model.clipped_gradient_sum(params, x, y, WEIGHT, norm) for norm in (0.3, np.inf)]
        return *told, model.gradient_norms(params, x, y), *sums

    computed, wanted = jax.jit(partial(answers, own))(params), jax.jit(partial(answers, ours))(flat)
    for one, other in zip(computed[:4], wanted[:4], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    for one, other in zip(computed[4:], wanted[4:], strict=True):
        np.testing.assert_allclose(swapped(np.asarray(one)), other, atol=1e-5)


def test_clipped_sums_equal_those_of_jax_privacy():
    jax_privacy = pytest.importorskip("jax_privacy", reason="jax-privacy is not installed: an oracle of this test")
    own, params, _, _ = both()
    x, y = examples(7)

    def mean_loss(w, x, y):
        return jnp.mean(Softmax().losses(w, x, y))

    def both_sums(params, norm):
        oracle = jax_privacy.clipped_grad(mean_loss, l2_clip_norm=norm, batch_argnums=(1, 2))
        wanted = own.own.flat(jax.tree.leaves(oracle(own.own.tree(params), x, y)))
        return own.clipped_gradient_sum(params, x, y, np.ones(7, np.float32), norm), wanted

    norms = (0.1, 0.8, 20.0)
    for computed, wanted in jax.jit(lambda params: [both_sums(params, norm) for norm in norms])(params):
        np.testing.assert_allclose(computed, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("at_a_time", [1, 3])
def test_gradients_take_a_bounded_number_of_bytes(at_a_time, monkeypatch):
    own, params, _, _ = both()
    x, y = examples(7)

    def sums(params):
        plain = AbstractModel.clip_and_sum(own, params, x, y, WEIGHT, 0.3)
        return own.clip_and_sum(params, x, y, WEIGHT, 0.3), plain, own.gradient_norms(params, x, y)

    whole = jax.jit(sums)(params)
    monkeypatch.setattr(base, "GRADIENTS_BYTES", at_a_time * 4 * own.size)
    monkeypatch.setattr("simfl.models.own.CACHE_BYTES", at_a_time * 4 * own.size)
    program = str(jax.make_jaxpr(lambda params: sums(params))(params))
    assert base.gradients_at_a_time(own.size) == at_a_time
    assert f"f32[{at_a_time},{CLASSES},{SIZE}]" in program
    assert f"f32[7,{CLASSES},{SIZE}]" not in program, "nowhere are there more"
    parts = jax.jit(lambda params: sums(params))(params)
    for one, other in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_sum_that_is_not_finite_is_zero_and_counted():
    own = made(Changed(losses=lambda p, x, y: jnp.exp(Softmax().outputs(p, x)).sum(axis=1)))
    x = np.array([[1.0] * SIZE, [300.0] * SIZE, [2.0] * SIZE], np.float32)
    total, zeroed = jax.jit(own.clip_and_sum)(np.ones(own.size, np.float32), x, np.zeros(3, np.int32), np.ones(3), 1.0)
    alone = jax.jit(own.clip_and_sum)(
        np.ones(own.size, np.float32), x, np.zeros(3, np.int32), np.array([1.0, 0, 1]), 1.0
    )
    assert (int(zeroed), int(alone[1])) == (1, 0)
    np.testing.assert_allclose(total, alone[0])
    assert 1.9 < np.linalg.norm(total) <= 2.0 * (1 + 1e-6), "of two, almost parallel"


def test_untrained_parts_are_in_the_file_but_not_in_the_vector():
    model = made(Adapter())
    assert model.size == 4 + 3
    assert dict(model.layout) == {"frozen": (4, 3), "lora.0": (4, 1), "lora.1": (1, 3)}
    begin = np.asarray(model.init(KEY))
    np.testing.assert_array_equal(begin, [1, 1, 1, 1, 0, 0, 0])
    parts = model.parts(begin + 1)
    np.testing.assert_array_equal(parts["frozen"], Adapter().init(None)["frozen"])
    np.testing.assert_array_equal(model.joined(parts), begin + 1)
    assert list(model.parts(np.zeros((2, 7)))) == ["lora.0", "lora.1"], "of many models what differs"
    with pytest.raises(ValueError, match="expected frozen as model net has it, which does not train it, found others"):
        model.joined(parts | {"frozen": parts["frozen"] + 1})
    with pytest.raises(ValueError, match="expected frozen"):
        model.joined({"frozen": parts["frozen"]})


def test_the_gradient_of_trained_parts_is_part_of_the_whole_gradient():
    model, given = made(Adapter()), Adapter()
    x, y = examples(5)
    params = np.linspace(-1, 1, 7).astype(np.float32)
    whole = jax.jit(jax.grad(lambda tree: given.losses(tree, x, y).sum()))(model.own.tree(params))
    gradient = jax.jit(model.gradient_sum)(params, x, y, np.ones(5, np.float32))
    np.testing.assert_allclose(gradient, np.concatenate([np.ravel(leaf) for leaf in whole["lora"]]), atol=1e-5)


@pytest.mark.parametrize("mask", [{"w": True, "b": False}, lambda params: {"w": True, "b": False}])
def test_a_mask_is_a_tree_or_a_function(mask):
    assert made(Changed(trained=mask)).size == CLASSES * SIZE


@pytest.mark.parametrize(("given", "message"), [
    (3, r"expected an object with init\(key\) and losses\(params, x, y\), found a int without init; simfl"),
    (Changed(losses=None), "found a Changed without losses"),
    (Changed(init=lambda key: {}), "expected parameters that are trained, found none of 0 leaves"),
    (Changed(init=lambda key: [jnp.ones(2), jnp.arange(3)]), r"init: 1: expected floats, found int32: it cannot"),
    (Changed(init=lambda: 3), r"init raised TypeError: .* takes 0 positional arguments"),
    (Changed(trained={"w": True}), "trained: expected True or False for each part .* found another tree"),
    (Changed(trained={"w": 1, "b": True}), "trained: expected True or False .*, found 1"),
    (Changed(trained=False), "expected parameters that are trained, found none of 2 leaves"),
    (Changed(losses=lambda p, x, y: p["q"]), r"losses raised KeyError: 'q' in .*test_own\.py:\d+$"),
    (Changed(losses=lambda p, x, y: p["w"] @ x), r"losses raised TypeError: dot_general .* in .*test_own\.py:\d+$"),
    (Changed(metrics=lambda p, x, y: x), r"metrics: expected a dictionary of names"),
    (Changed(metrics=lambda p, x, y: {"a b": y}), r"metrics: expected a dictionary of names, words of letters"),
    (Changed(metrics=lambda p, x, y: {"mae": x.sum()}), r"mae: expected one .*, f32\[4\], found float32\[\]"),
])  # fmt: skip
def test_an_object_that_is_not_a_model_is_one_line(given, message):
    with pytest.raises(ScenarioError, match=rf"^model: net: .*{message}|^model: net: {message}") as caught:
        made(given)
    assert "\n" not in str(caught.value)


def test_own_metrics_and_accuracy_are_used():
    own = Changed(metrics=lambda p, x, y: {"accuracy": y * 0.5, "first": x[:, 0]})
    model = made(own)
    x, y = examples(3)
    assert model.metric_names == ("first",)
    assert model.has_accuracy
    params = model.init(KEY)
    np.testing.assert_array_equal(model.metrics(params, x, y)["first"], x[:, 0])
    np.testing.assert_array_equal(model.correct(params, x, y), y * 0.5)
    silent = made(Changed(predict=None))
    assert not silent.has_accuracy
    assert np.isnan(silent.correct(silent.init(KEY), x, y)).all()
    assert np.isnan(silent.predict(silent.init(KEY), x)).all()


def test_the_sign_of_one_output_decides_between_two_classes():
    model = made(Changed(predict=lambda p, x: x[:, :1]), num_classes=2)
    x = np.array([[1.0], [-1.0], [2.0]], np.float32) * np.ones((1, SIZE), np.float32)
    np.testing.assert_array_equal(model.correct(model.init(KEY), x, np.array([1, 1, 0])), [1, 0, 0])


def test_programs_are_shared_by_identity():
    one = made(Softmax(), identity=("m:make", (), "digest"))
    assert one == made(Softmax(), identity=("m:make", (), "digest"))
    assert hash(one) == hash(made(Softmax(), identity=("m:make", (), "digest")))
    assert one != made(Softmax(), identity=("m:make", (), "another"))
    given = Softmax()
    assert made(given) == made(given)
    assert made(given) != made(Softmax())
    assert Same(given) != given
    other = Changed(init=lambda key: {**Adapter().init(key), "frozen": jnp.zeros((4, 3))}, trained=Adapter().trained,
                    losses=Adapter().losses)  # fmt: skip
    assert made(other, identity="same") != made(Adapter(), identity="same"), "constants are part of a program"


def test_init_may_ask_for_an_example_and_uses_its_key():
    model = made(Changed(init=lambda key, x: {"w": jax.random.normal(key, (CLASSES, x.shape[1])), "b": jnp.zeros(3)}))
    begin, again = model.init(KEY), model.init(np.array([3, 4], np.uint32))
    assert begin.shape == again.shape == (CLASSES * (SIZE + 1),)
    assert not np.array_equal(begin, again)


def test_convolutions_are_detected():
    def losses(params, x, y):
        return jax.lax.conv(x[:, None, None, :], params["w"].reshape(CLASSES, 1, 1, SIZE), (1, 1), "VALID").sum(
            (1, 2, 3)
        )

    assert made(Changed(losses=losses)).convolutional
    assert not made(Softmax()).convolutional


def test_a_users_clipped_sum_is_bounded():
    def theirs(params, x, y, weight, norm):
        return jax.tree.map(lambda leaf: leaf + jnp.where(x.sum() > 1e6, jnp.inf, 1e3), params)

    model = made(Changed(clipped_gradient_sum=theirs))
    x, y = examples(3)
    total, zeroed = model.clip_and_sum(model.init(KEY), x, y, np.array([1, 1, 0], np.float32), 0.5)
    assert np.linalg.norm(total) == pytest.approx(2 * 0.5)
    assert zeroed == 0
    total, zeroed = model.clip_and_sum(model.init(KEY), x + 1e7, y, np.array([1, 1, 0], np.float32), 0.5)
    assert not total.any()
    assert zeroed == 2


def test_tokens_stay_integers():
    x = np.array([[1, 2], [3, 4]], np.int32)
    given = Changed(tokens=True, init=lambda key, x: {"e": jnp.ones((5, 2)) * (x.dtype == jnp.int32)},
                    losses=lambda p, x, y: p["e"][x].sum((1, 2)), predict=None)  # fmt: skip
    model = made(given, x=x, y=np.zeros(2, np.int32))
    params = model.init(KEY)
    assert params.sum() == 10
    total = model.clip_and_sum(params, x, np.zeros(2, np.int32), np.array([1, 0], np.float32), np.inf)[0]
    np.testing.assert_array_equal(total.reshape(5, 2)[:, 0], [0, 1, 1, 0, 0])


class Dropping(Softmax):
    """Softmax regression whose gradients drop half of the features."""

    def training_losses(self, params, x, y, key):
        return self.losses(params, jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0.0), y)


def test_gradients_of_a_model_that_draws_are_those_of_each_examples_key():
    own = made(Dropping())
    x, y = examples(7)
    keys = jax.random.split(jax.random.key(3), 7)
    params = jnp.linspace(-1, 1, own.size)
    kept = np.stack(
        [np.where(jax.random.bernoulli(key, 0.5, (1, SIZE)), 2 * one, 0) for key, one in zip(keys, x, strict=True)]
    )
    plain = made(Softmax())

    def sums(params, keyed, of_kept):
        return [
            (model.gradient_sum(params, some, labels, WEIGHT), model.clip_and_sum(params, some, labels, WEIGHT, 0.3)[0])
            for model, some, labels in ((own, x, keyed), (plain, of_kept, y), (own, x, y), (plain, x, y))
        ]

    in_training, of_kept, evaluated, without = jax.jit(sums)(
        params, base.Keyed(y, jax.random.key_data(keys)), kept[:, 0].astype(np.float32)
    )
    for one, other in zip(in_training + evaluated, of_kept + without, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert not np.allclose(in_training[0], evaluated[0], atol=1e-2)
    assert np.linalg.norm(in_training[1]) <= 0.3 * WEIGHT.sum()


def test_random_draws_and_a_closed_form_exclude_each_other():
    with pytest.raises(ScenarioError, match=r"expected training_losses or clipped_gradient_sum, .* leave one out"):
        made(Changed(training_losses=Softmax().losses, clipped_gradient_sum=len))
