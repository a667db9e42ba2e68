"""Augmentation: each example of a mini-batch is changed at random, on its own.

A change depends on the example and a key alone. The key is named by the client, the mini-batch and the example's entry
in it, as the mini-batch itself is (`simfl.tape.draws`): neither the order of computation nor another algorithm changes
it. One example stays one example, so clipping and accounts hold as without augmentation.

With `crop` c, an image [h, w] moves by whole pixels, down and right, each uniform in -c..c; `padding` fills what
becomes empty. That is a random crop out of an image padded by c on each side. With `flip`, half of the images are
mirrored afterwards, left to right (Krizhevsky, Sutskever and Hinton 2012, section 4.1; He et al. 2016, section 4.2,
https://arxiv.org/abs/1512.03385).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from simfl.models.lazy import start_jax
from simfl.tape.draws import mix, uniform_below


@dataclass(frozen=True)
class Augmentation:
    """The change of examples; hashable.

    Attributes:
        shape: [height, width] or [height, width, channels]; examples may be flat, and have further numbers at the end,
            which do not change.
        crop, flip: see the module.
        padding: what is black, of each channel.
        own: a user's function (image f32 of `shape`, key of JAX) -> image; None: the two above.
    """

    shape: tuple[int, ...]
    crop: int = 0
    flip: bool = False
    padding: tuple[float, ...] = (0.0,)
    own: Callable[[jax.Array, jax.Array], Any] | None = None

    def __call__(self, x: jax.Array, keys: jax.Array) -> jax.Array:
        """Return the examples f32 [b, ...] of a batch, changed by `keys`, uint32 [b, 2]."""
        size, flat = math.prod(self.shape), x.reshape(len(x), -1)
        images = jax.vmap(self.changed)(flat[:, :size].reshape(-1, *self.shape), keys).reshape(len(x), -1)
        return jnp.concatenate([images, flat[:, size:]], axis=1).reshape(x.shape)

    def changed(self, image: jax.Array, key: jax.Array) -> jax.Array:
        """Return one image, f32 of `shape`, changed by a key, uint32 [2]."""
        if self.own is not None:
            mine: jax.Array = self.own(image, jax.random.wrap_key_data(key))
            return mine
        (height, width), n = self.shape[:2], jnp.int32(2 * self.crop + 1)
        rows = jnp.arange(height) + uniform_below(key[0], n) - self.crop
        columns = jnp.arange(width)
        if self.flip:
            columns = jnp.where(mix(key[0] ^ mix(key[1])) >> 31 == 1, width - 1 - columns, columns)
        columns = columns + uniform_below(key[1], n) - self.crop
        inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
        moved = image[jnp.clip(rows, 0, height - 1)[:, None], jnp.clip(columns, 0, width - 1)]
        if len(self.shape) > 2:
            return jnp.where(inside[..., None], moved, jnp.array(self.padding, jnp.float32))
        return jnp.where(inside, moved, jnp.float32(self.padding[0]))


def result_of(own: Callable[..., Any], shape: tuple[int, ...]) -> str:
    """Return what a function makes of an image, such as `float32 [32, 32, 3]`."""
    start_jax()
    made = jax.eval_shape(own, jax.ShapeDtypeStruct(shape, jnp.float32), jax.eval_shape(jax.random.key, 0))
    is_array = isinstance(made, jax.ShapeDtypeStruct)
    return f"{made.dtype} {list(made.shape)}" if is_array else f"{type(made).__name__}"


def keys_of(key: jax.Array, client: jax.Array, draw: jax.Array, first: jax.Array, lanes: int) -> jax.Array:
    """Return the keys of a mini-batch's entries first..first+lanes-1.

    They are uint32 [lanes, 2]. `key` is the stream "augment" of the run, or "dropout", uint32 [2].
    """
    entry = (first + jnp.arange(lanes, dtype=jnp.int32)).astype(jnp.uint32)
    batch = [mix(mix(client.astype(jnp.uint32) ^ half) + draw.astype(jnp.uint32)) for half in (key[0], key[1])]
    return jnp.stack([mix(batch[0] + entry), mix(batch[1] ^ entry)], axis=1)
