"""Augmentation, against NumPy that draws the keys again: integers, so the images must have equal bits."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from simfl import prepare, run
from simfl.assembly.data import augmentation_of
from simfl.attacks.audit import Audit
from simfl.data.base import Dataset, Scaling
from simfl.errors import ScenarioError
from simfl.models.own import own_model
from simfl.scenario import from_mapping
from simfl.streams import Streams
from simfl.tape.augment import Augmentation, keys_of
from simfl.tape.draws import batch_positions
from simfl.tape.kernels import change_of_round, gradient_of_batch
from tests.helpers import make_problem

KEY = Streams(3).key("augment")
SCENARIO = {
    "data": {"set": "digits", "augment": {"crop": 1, "flip": True}},
    "clients": {"count": 2},
    "model": "softmax",
    "algorithm": {"kind": "adpsgd", "batch_size": 8, "step_size": 0.1},
    "stop": {"updates": 20},
}


def hashed(h: int) -> int:
    """Wellons's lowbias32, with Python's integers."""
    h = (h ^ h >> 16) * 0x7FEB352D % 2**32
    h = (h ^ h >> 15) * 0x846CA68B % 2**32
    return h ^ h >> 16


def below(bits: int, n: int) -> int:
    return min(int(np.float32(bits >> 8) * np.float32(2.0**-24) * np.float32(n)), n - 1)


def expected_keys(client: int, draw: int, entry: int) -> tuple[int, int]:
    low, high = (hashed((hashed(client ^ int(half)) + draw) % 2**32) for half in KEY)
    return hashed((low + entry) % 2**32), hashed(high ^ entry)


def expected(image: NDArray[np.float32], keys: tuple[int, int], one: Augmentation) -> NDArray[np.float32]:
    """The image, out of one that is padded on each side, and mirrored."""
    crop, (height, width) = one.crop, one.shape[:2]
    padded = np.empty((height + 2 * crop, width + 2 * crop, *image.shape[2:]), np.float32)
    padded[...] = one.padding if image.ndim > 2 else one.padding[0]
    padded[crop : crop + height, crop : crop + width] = image
    down, right = (below(key, 2 * crop + 1) for key in keys)
    cut = padded[down : down + height, right : right + width]
    return cut[:, ::-1] if one.flip and hashed(keys[0] ^ hashed(keys[1])) >> 31 else cut


@pytest.mark.parametrize(("one", "flat"), [
    (Augmentation((8, 8), 1, True), True), (Augmentation((5, 7, 3), 4, True, (-1.5, 0.25, 2.0)), False),
    (Augmentation((6, 6), 2), False), (Augmentation((4, 4, 2), 0, True, (0.0, 0.0)), True),
])  # fmt: skip
def test_images_have_the_bits_of_another_program(one: Augmentation, flat: bool) -> None:
    images = np.random.default_rng(0).normal(size=(40, *one.shape)).astype(np.float32)
    client, draw, first = 5, 2**20 + 7, 16
    x = images.reshape(40, -1) if flat else images
    if flat:
        x = np.concatenate([x, np.arange(40, dtype=np.float32)[:, None]], axis=1)  # as the code of a canary
    made = np.asarray(jax.jit(lambda x: one(x, keys_of(KEY, *map(jnp.int32, (client, draw, first)), 40)))(x))
    own = [expected(images[k], expected_keys(client, draw, first + k), one) for k in range(40)]
    np.testing.assert_array_equal(made[:, : images[0].size].reshape(images.shape) if flat else made, own)
    assert not flat or made[:, -1].tolist() == list(range(40))
    assert len({np.asarray(image).tobytes() for image in own}) > 30
    moves = {tuple(below(key, 3) for key in expected_keys(k, 0, 0)) for k in range(100)}
    assert len(moves) == 9, "all moves by one pixel happen"


def test_gradients_and_rounds_are_those_of_the_changed_examples() -> None:
    one = Augmentation((8, 8), 1, True)
    problem = make_problem(2, sampling="without_replacement", batch_size=8, clipping_norm=0.5)
    problem = dataclasses.replace(problem, keys=dataclasses.replace(problem.keys, augment=KEY), augment=one)
    data, model = problem.arrays(), problem.model
    w = np.random.default_rng(1).normal(size=model.size).astype(np.float32)

    def batch(draw: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        numbers = [jnp.int32(one) for one in (1, draw, 0)]
        at = batch_positions("without_replacement", problem.keys.data, *numbers, 8, 8, jnp.int32(160))
        rows = problem.data.indices[160 + np.asarray(at)]
        images = problem.data.train_x[rows].reshape(-1, 8, 8)
        keys = [expected_keys(1, draw, k) for k in range(8)]
        changed = [expected(image, key, one).ravel() for image, key in zip(images, keys, strict=True)]
        return np.stack(changed), problem.data.train_y[rows]

    ints, positions = (
        np.array([1, 9, 0, 8], np.int32),
        batch_positions(
            "without_replacement", problem.keys.data, jnp.int32(1), jnp.int32(9), jnp.int32(0), 8, 8, jnp.int32(160)
        ),
    )
    total, _ = jax.jit(gradient_of_batch(problem.operation))(w, data, ints, positions, np.float32(0))
    own = model.clipped_gradient_sum(w, *batch(9), jnp.ones(8), 0.5)
    np.testing.assert_allclose(total, own, atol=1e-6)
    local = dataclasses.replace(problem, rounds=make_problem(2, local=True).rounds)
    change = jax.jit(change_of_round(local.operation))
    moved, _ = change(w, local.arrays(), ints[[0, 1, 1, 3]] * [1, 1, 0, 1] + np.array([0, 0, 2, 0], np.int32),
                      np.array([0, 0.5, 0, 0, 0], np.float32), np.int32(2))  # fmt: skip
    v = w
    for draw in (9, 10):
        v = v - 0.5 / 8 * np.asarray(model.clipped_gradient_sum(v, *batch(draw), jnp.ones(8), 0.5))
    np.testing.assert_allclose(moved, v - w, atol=1e-6)


class Drawing:
    """A number whose gradient in training is uniform, whatever the example."""

    def init(self, key: jax.Array) -> jax.Array:
        return jnp.zeros(1)

    def losses(self, w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return 0.0 * w[0] * x[:, 0]

    def training_losses(self, w: jax.Array, x: jax.Array, y: jax.Array, key: jax.Array) -> jax.Array:
        return w * jax.random.uniform(key)


def test_draws_of_a_model_have_a_key_of_client_mini_batch_and_entry() -> None:
    x, y = np.ones((4, 64), np.float32), np.zeros(4, np.int32)
    own = own_model(Drawing(), name="m", identity="m", x=x, y=y, num_classes=10, l2=0.0, key=np.zeros(2, np.uint32))
    problem = make_problem(2, sampling="without_replacement", batch_size=8)
    problem = dataclasses.replace(problem, keys=dataclasses.replace(problem.keys, dropout=KEY), model=own)
    local = dataclasses.replace(problem, rounds=make_problem(2, local=True).rounds)

    def drawn(draw: int, first: int) -> float:
        keys = np.array([expected_keys(1, draw, first + k) for k in range(8)], np.uint32)
        return float(sum(jax.random.uniform(jax.random.wrap_key_data(key)) for key in keys))

    assert len({round(drawn(draw, first), 5) for draw in (9, 10) for first in (0, 8)}) == 4
    data, positions, w = problem.arrays(), jnp.arange(8), np.zeros(1, np.float32)
    gradient = jax.jit(gradient_of_batch(problem.operation))
    for draw, first in ((9, 0), (9, 8), (10, 0)):
        total, _ = gradient(w, data, np.array([1, draw, first, 8], np.int32), positions, np.float32(0))
        np.testing.assert_allclose(total, drawn(draw, first), rtol=1e-6)
    floats = np.array([0, 0.5, 0, 0, 0], np.float32)
    change = jax.jit(change_of_round(local.operation))
    moved, _ = change(w, local.arrays(), np.array([1, 9, 2, 8], np.int32), floats, np.int32(2))
    np.testing.assert_allclose(moved, -0.5 / 8 * (drawn(9, 0) + drawn(10, 0)), rtol=1e-6)


def test_a_function_of_your_own_changes_each_image_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_changes.py").write_text(
        "import jax\n"
        "def blurred(image, key): return image + jax.random.normal(key, image.shape)\n"
        "def cut(image, key): return image[1:]\n"
        "def pair(image, key): return image, key\n"
        "def wrong(image): return image\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    of = prepare({**SCENARIO, "data": {"set": "digits", "augment": "my_changes:blurred"}}).problem.augment
    keys = np.array([expected_keys(0, 0, k) for k in range(2)], np.uint32)
    made = np.asarray(of(jnp.zeros((2, 64)), jnp.asarray(keys)))
    for key, image in zip(keys, made, strict=True):
        np.testing.assert_array_equal(image, jax.random.normal(jax.random.wrap_key_data(key), (8, 8)).ravel())
    for name, message in (
        ("cut", r"data\.augment: 'my_changes:cut': expected an image, float32 \[8, 8\], found float32 \[7, 8\]"),
        ("pair", r"expected an image, float32 \[8, 8\], found tuple"),
        ("wrong", r"data\.augment: 'my_changes:wrong' raised TypeError: .*positional argument"),
    ):
        with pytest.raises(ScenarioError, match=message):
            prepare({**SCENARIO, "data": {"set": "digits", "augment": f"my_changes:{name}"}})


@pytest.mark.parametrize(("data", "message"), [
    ({"set": "digits", "augment": {"crop": 8}}, r"data\.augment\.crop: expected less than 8, the size of the images"),
    ({"set": "digits", "pca": 5, "augment": "cifar"}, r"data\.augment: expected images, found .* changed by"),
    ({"set": "table", "path": "a.csv", "augment": "cifar"}, r"data\.augment: expected null with set table"),
])  # fmt: skip
def test_what_has_no_images_is_one_line(data: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        prepare({**SCENARIO, "data": data})


def test_accounts_do_not_change(without_numbers: object) -> None:
    privacy = {"mechanism": "gaussian", "noise_multiplier": 2.0, "clipping_norm": 1.0}
    given = {**SCENARIO, "privacy": privacy}
    plain, changed = (run({**given, "data": {"set": "digits", "augment": one}}) for one in (None, {"crop": 1}))
    assert plain.metrics["epsilon"].tolist() == changed.metrics["epsilon"].tolist()
    assert plain.metrics["epsilon"].iloc[-1] > 0


def test_black_fills_what_becomes_empty() -> None:
    x, y = np.full((4, 8, 8, 3), 200, np.uint8), np.array([0, 1, 0, 1], np.int32)
    scaling = Scaling(np.float32(255), np.array([0.5, 0.25, 0.5], np.float32), np.array([0.5, 1, 2], np.float32))
    colored = Dataset("colored", x, y, x, y, 2, image_shape=(8, 8, 3), scaling=scaling)
    scenario = from_mapping({**SCENARIO, "data": {"set": "digits", "augment": "cifar"}})
    assert augmentation_of(scenario, colored) == Augmentation((8, 8, 3), 4, True, (-1.0, -0.25, -0.25))
    normal = colored.through(lambda floats: floats)
    assert augmentation_of(scenario, normal).padding == (0, 0, 0), "the mean, since black is not known"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gradient", "input"])
def test_an_audit_of_an_augmented_run_does_not_refute_it(kind: str) -> None:
    privacy = {"mechanism": "gaussian", "noise_multiplier": 1.0, "clipping_norm": 1.0}
    audited = from_mapping({**SCENARIO, "privacy": privacy, "stop": {"updates": 60}})
    report = Audit(audited, canaries=200, kind=kind).run()
    assert not report.refuted
    assert report.lower_bound < report.certified
