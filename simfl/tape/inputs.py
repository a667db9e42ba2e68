"""Examples on the device: floats, or integers with a scale.

An image that is stored as bytes takes a quarter of the memory, and a gather moves a quarter of the data. Examples are
converted as soon as they are taken out, in one place that gradients, evaluations and measures share.
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

    The inputs are int32 tokens, or f32 numbers converted by the scaling. For programs, it behaves like an array.
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
        """The shape of all examples."""
        shape: tuple[int, ...] = self.stored.shape
        return shape

    def __len__(self) -> int:
        return len(self.stored)

    def reshape(self, *shape: int) -> Integers:
        """Return the same examples in another shape."""
        return dataclasses.replace(self, stored=self.stored.reshape(*shape))


def taken(x: Inputs, places: jax.Array) -> Inputs:
    """Return some of the examples, as they are stored."""
    return dataclasses.replace(x, stored=x.stored[places]) if isinstance(x, Integers) else x[places]


def _divide(x: jax.Array, divisor: jax.Array) -> jax.Array:
    """Return x / divisor, rounded as IEEE 754 says.

    XLA would multiply by 1/divisor if many numbers had one divisor. So the divisor is written as one that depends on x.
    """
    return x / jnp.where(x == -jnp.inf, 1.0, divisor)


Inputs: TypeAlias = "jax.Array | Integers"


def inputs_of(x: NDArray[Any], scaling: Scaling, model: AbstractModel) -> Any:
    """Return examples [n, ...] as the inputs of programs, still on the host."""
    return x if x.dtype.kind == "f" else Integers(x, scaling, model.tokens)
