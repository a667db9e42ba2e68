"""Examples on the device: floats, or integers with a scale.

A quarter of the memory, and of what a gather moves, where an image lies there as bytes. What is taken out of them is
converted at once, in the one place that gradients, evaluations and measures share.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from numpy.typing import NDArray

from simfl.data.base import Scaling
from simfl.models import AbstractModel


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Integers:
    """Integer examples [n, ...]; indexing returns the model's inputs.

    That is int32 tokens, or f32 as the scaling says. Behaves, as far as programs look at examples, like an array.
    """

    stored: Any
    scaling: Scaling
    tokens: bool = dataclasses.field(metadata={"static": True})

    def __getitem__(self, places: Any) -> jax.Array:
        taken = self.stored[places]
        converted: jax.Array = taken.astype(jnp.int32) if self.tokens else self.scaling(taken, _divide)
        return converted

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all of them."""
        shape: tuple[int, ...] = self.stored.shape
        return shape

    def __len__(self) -> int:
        return len(self.stored)

    def reshape(self, *shape: int) -> Integers:
        """Return the same examples in another shape."""
        return dataclasses.replace(self, stored=self.stored.reshape(*shape))


def _divide(x: jax.Array, divisor: jax.Array) -> jax.Array:
    """Return x / divisor, rounded as IEEE 754 says.

    XLA would multiply by 1/divisor where one divisor serves many numbers, so each gets one that looks like its own.
    """
    return x / jnp.where(x == -jnp.inf, 1.0, divisor)


Inputs: TypeAlias = "jax.Array | Integers"


def inputs_of(x: NDArray[Any], scaling: Scaling, model: AbstractModel) -> Any:
    """Return examples [n, ...] as programs take them, still on the host."""
    return x if x.dtype.kind == "f" else Integers(x, scaling, model.tokens)
