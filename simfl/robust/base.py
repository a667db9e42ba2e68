"""The base classes of robust rules and attacks, and what they share.

Both are frozen dataclasses that `Tape.map` calls with `pads=True`: rows f32 [n, d] of which `given.present` bool [n]
are models. A rule returns one model f32 [d]; row 0 is the client's own. An attack returns the model that an attacker
sends; its rows are the honest models that it knows. A coordinate that is not finite never reaches the result of a
rule that drops outliers, as long as no more than f models have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.tape.layout import padded_size

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class AbstractRule(ABC):
    """Makes one model of several."""

    kind: ClassVar[str]
    summary: ClassVar[str]

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the aggregate, f32 [d]."""
        rows = jnp.asarray(rows)
        return self.aggregate(rows, given.present, weights_of(rows, given))

    @abstractmethod
    def aggregate(self, models: jax.Array, present: jax.Array, weights: jax.Array) -> jax.Array:
        """Return the aggregate of the models that are present, f32 [d].

        Args:
            models: f32 [n, d]; row 0 is the client's own.
            present: bool [n].
            weights: f32 [n], which sum to 1.
        """


@dataclass(frozen=True)
class AbstractAttack(ABC):
    """Makes the model that an attacker sends."""

    kind: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the sent model, f32 [d], made of the honest models in `rows`."""


def padded(weights: Sequence[float]) -> list[float]:
    """Return weights as the scalars of a call that pads: zeros up to a power of 2."""
    return [*weights, *[0.0] * (padded_size(len(weights)) - len(weights))]


def weights_of(rows: jax.Array, given: Given) -> jax.Array:
    """Return the weights of rows: the scalars of the call, or equal ones."""
    if given.scalars.shape[0]:
        weights = jnp.where(given.present, given.scalars, 0.0)
    else:
        weights = given.present / given.present.sum()
    return weights.astype(rows.dtype)


def tolerated(f: int, present: jax.Array) -> jax.Array:
    """Return f, or the largest number below half the models if that is less."""
    return jnp.minimum(f, (present.sum() - 1) // 2)


def mean_where(models: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mean over the first axis where the mask is true, or 0."""
    mask = mask.reshape(mask.shape + (1,) * (models.ndim - mask.ndim))
    total = jnp.where(mask, models, 0.0).sum(axis=0)
    return total / jnp.maximum(mask.sum(axis=0), 1)


def distances(models: jax.Array, present: jax.Array) -> jax.Array:
    """Return squared distances f32 [n, n].

    They are infinite to rows that are absent or not finite, and 0 from a row to itself.
    """
    squares = jax.lax.map(lambda one: jnp.square(models - one).sum(axis=1), models)
    known = jnp.where(present & jnp.isfinite(squares), squares, jnp.inf)
    return jnp.where(jnp.eye(len(models), dtype=bool), 0.0, known)


def ranks(values: jax.Array) -> jax.Array:
    """Return the place of each value along the last axis, from 0; ties keep order."""
    return jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)


def clipped(differences: jax.Array, tau: float) -> jax.Array:
    """Return rows scaled down to an L2 norm of at most tau; not finite ones are 0."""
    norms = jnp.linalg.norm(differences, axis=1, keepdims=True)
    scaled = differences * jnp.minimum(1.0, tau / jnp.maximum(norms, 1e-30))
    return jnp.where(jnp.isfinite(norms), scaled, 0.0)
