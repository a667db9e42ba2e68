"""The defaults of a user's own model."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from simfl.models import AbstractModel
from simfl.models.base import clipping_scale

from .cases import all_gradients, initial, plain_clipped_sum, plain_gradients


@dataclass(frozen=True)
class Cosine(AbstractModel):
    """A regression that no closed form knows: cos(w . x)."""

    kind: ClassVar[str] = "cosine"
    summary: ClassVar[str] = "for this test"

    @property
    def size(self) -> int:
        return self.num_features

    def init(self, key: jax.Array | np.ndarray) -> jax.Array:
        return jax.random.normal(jax.random.wrap_key_data(key, impl="threefry2x32"), (self.size,))

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.cos(x @ params)

    def losses(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return (self.predict(params, x) - y) ** 2

    def correct(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.full(x.shape[0], jnp.nan)


def test_a_users_model_needs_five_methods() -> None:
    model = Cosine(input_shape=(3,))
    generator = np.random.default_rng(0)
    x = generator.normal(size=(5, 3)).astype(np.float32)
    y = generator.normal(size=5).astype(np.float32)
    weight = np.array([1, 0, 1, 1, 1], dtype=np.float32)
    params = initial(model)
    # A hand-written gradient, so that the oracle of all the other tests is checked once, too.
    z = x @ params
    by_hand = (-2 * (np.cos(z) - y) * np.sin(z))[:, None] * x
    np.testing.assert_allclose(plain_gradients(model, params, x, y), by_hand, rtol=1e-4, atol=1e-6)
    plain, clipped, norms = all_gradients(model, params, x, y, weight, np.float32(0.5))
    np.testing.assert_allclose(norms, np.linalg.norm(by_hand, axis=1), rtol=1e-4)
    np.testing.assert_allclose(plain, weight @ by_hand, rtol=1e-4)
    np.testing.assert_allclose(clipped, plain_clipped_sum(by_hand, weight, 0.5), rtol=1e-4)
    x[1] = np.inf
    padded = all_gradients(model, params, x, y, weight, np.float32(0.5))
    np.testing.assert_array_equal(padded[0], plain)
    np.testing.assert_array_equal(padded[1], clipped)


def test_clipping_scale_is_right_at_its_limits() -> None:
    squares = jnp.array([0.0, 1.0, 16.0, jnp.inf])
    weight = jnp.array([1.0, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(clipping_scale(squares, weight, 2.0), [1.0, 1.0, 0.25, 0.0])
    np.testing.assert_array_equal(clipping_scale(squares[:3], weight[:3], jnp.inf), [1.0, 1.0, 0.5])
