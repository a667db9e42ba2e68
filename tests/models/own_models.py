"""Small models of a user's own, for tests."""

import jax
import jax.numpy as jnp
import numpy as np

from simfl.models.own import OwnModel, Same, own_model

SIZE, CLASSES = 6, 3
KEY = np.array([1, 2], dtype=np.uint32)


class Softmax:
    """Softmax regression."""

    def init(self, key):
        return {"w": 0.1 * jax.random.normal(key, (CLASSES, SIZE)), "b": jnp.zeros(CLASSES)}

    def outputs(self, params, x):
        return x @ params["w"].T + params["b"]

    def losses(self, params, x, y):
        z = self.outputs(params, x)
        return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0]

    predict = outputs


class Changed(Softmax):
    """Softmax regression with other attributes."""

    def __init__(self, **changes):
        self.__dict__.update(changes)


class Adapter:
    """A frozen matrix with a trained correction of rank 1, and a head."""

    def init(self, key):
        return {"frozen": jnp.arange(12.0).reshape(4, 3) / 12, "lora": (jnp.ones((4, 1)), jnp.zeros((1, 3)))}

    def trained(self, params):
        return {"frozen": False, "lora": True}

    def losses(self, params, x, y):
        (a, b), w = params["lora"], params["frozen"]
        z = x[:, :4] @ (w + a @ b)
        return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0]


def examples(count: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, SIZE)).astype(np.float32)
    return x, generator.integers(0, CLASSES, count).astype(np.int32)


def made(given: object, **changes) -> OwnModel:
    x, y = examples()
    told = {"name": "net", "identity": Same(given), "x": x, "y": y, "num_classes": CLASSES, "l2": 0.0, "key": KEY}
    return own_model(given, **(told | changes))
