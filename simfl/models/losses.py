"""Losses and metrics of a network's outputs by name, one number for each example.

Outputs z are f32 [b, ...], targets y [b, ...] as in the data. Several targets of an example (labels, positions of a
sequence) are averaged.
"""

from __future__ import annotations

from collections.abc import Callable

from simfl.errors import ScenarioError, nearest
from simfl.models.base import Array
from simfl.models.lazy import jax, jnp

OfOutputs = Callable[[Array, Array], Array]
"""(z, y) -> f32 [b]."""


def _mean(values: Array) -> Array:
    return values.reshape(values.shape[0], -1).mean(axis=1)


def _like(z: Array, y: Array) -> Array:
    """Return outputs in the targets' shape, if only an axis of 1 differs."""
    return z.reshape(y.shape) if z.size == y.size else z


def cross_entropy(z: Array, y: Array) -> Array:
    """Return log sum_k exp z_k - z_y: z [b, ..., c] logits, y int [b, ...] classes."""
    return _mean(-jnp.take_along_axis(jax.nn.log_softmax(z), y[..., None], axis=-1)[..., 0])


def binary(z: Array, y: Array) -> Array:
    """Return the logistic loss of logits z, y 0 or 1: [b], [b, 1] or [b, k]."""
    z = _like(z, y)
    return _mean(jnp.maximum(z, 0) - z * y + jnp.log1p(jnp.exp(-jnp.abs(z))))


def squared(z: Array, y: Array) -> Array:
    """Return half the squared error, as in model `linear`: z and y [b], or [b, k]."""
    return _mean(0.5 * (_like(z, y) - y) ** 2)


def huber(z: Array, y: Array) -> Array:
    """Return half the squared error up to an error of 1, and |error| - 1/2 beyond."""
    error = jnp.abs(_like(z, y) - y)
    return _mean(jnp.where(error < 1, 0.5 * error**2, error - 0.5))


def ranking(z: Array, y: Array) -> Array:
    """Return ListNet's loss: z [b, n] the scores of n items, y [b, n] their relevance.

    -sum_i softmax(y)_i log softmax(z)_i: Cao et al. 2007, https://doi.org/10.1145/1273496.1273513, with k = 1.
    """
    return -jnp.sum(jax.nn.softmax(y.astype(jnp.float32)) * jax.nn.log_softmax(z), axis=-1)


LOSSES: dict[str, OfOutputs] = {
    "cross_entropy": cross_entropy,
    "binary": binary,
    "multi_label": binary,
    "squared": squared,
    "huber": huber,
    "ranking": ranking,
}


def accuracy(z: Array, y: Array) -> Array:
    """Return whether the largest logit, or one logit's sign, is the label's."""
    if z.size == y.size:
        return _mean(((_like(z, y) > 0) == (y > 0)).astype(jnp.float32))
    return _mean((jnp.argmax(z, axis=-1) == y).astype(jnp.float32))


def mae(z: Array, y: Array) -> Array:
    """Return the absolute error."""
    return _mean(jnp.abs(_like(z, y) - y))


def mse(z: Array, y: Array) -> Array:
    """Return the squared error."""
    return _mean((_like(z, y) - y) ** 2)


def exact_match(z: Array, y: Array) -> Array:
    """Return whether all labels of an example are right."""
    return ((_like(z, y) > 0) == (y > 0)).reshape(len(y), -1).all(axis=1).astype(jnp.float32)


def bits(z: Array, y: Array) -> Array:
    """Return the bits per symbol, log2 of the perplexity."""
    return cross_entropy(z, y) / jnp.log(2.0)


def ndcg(z: Array, y: Array) -> Array:
    """Return the normalized discounted cumulative gain by z, gains 2^y - 1.

    0 without relevant items. Järvelin and Kekäläinen 2002, https://doi.org/10.1145/582415.582418.
    """
    gains = 2.0 ** y.astype(jnp.float32) - 1.0
    discount = 1.0 / jnp.log2(jnp.arange(y.shape[-1]) + 2.0)
    ranked = jnp.sum(jnp.take_along_axis(gains, jnp.argsort(-z, axis=-1), axis=-1) * discount, axis=-1)
    best = jnp.sum(-jnp.sort(-gains, axis=-1) * discount, axis=-1)
    return jnp.where(best > 0, ranked / jnp.where(best > 0, best, 1.0), 0.0)


METRICS: dict[str, OfOutputs] = {
    "accuracy": accuracy,
    "mae": mae,
    "mse": mse,
    "exact_match": exact_match,
    "bits": bits,
    "ndcg": ndcg,
}

USUAL = {"cross_entropy": ("accuracy",), "binary": ("accuracy",)}
"""Metrics that come with a loss."""


def named(what: str, name: str | OfOutputs, catalogue: dict[str, OfOutputs]) -> OfOutputs:
    """Return a loss or metric by name; functions are returned unchanged."""
    if not isinstance(name, str):
        return name
    if name not in catalogue:
        raise ScenarioError(
            f"{what}: expected one of {', '.join(catalogue)}, or a function of (outputs, y), found {name!r}"
            f"{nearest(name, catalogue)}"
        )
    return catalogue[name]
