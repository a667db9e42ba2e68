"""A server's step on one fragment, as a function of clients' models on the tape.

With the server's fragment X, clients' models x_j of it and their weights w_j, sum w_j = 1:

    D_j = X - x_j,   m <- beta m + D,   X <- X - lr (D + beta m)

    mean:     D = sum_j w_j D_j
    radial:   D = (sum_j w_j |D_j|) phi(sum_j w_j phi(D_j)),   phi(v) = v / |v|,  phi(0) = 0,   for each tensor

The radial-directional mean of orthogonal changes of one length keeps that length, whatever their number (Decoupled
DiLoCo, https://arxiv.org/abs/2604.21428). Changes of embeddings are not nearly orthogonal: they have the plain mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simfl.models.lazy import jax, jnp
from simfl.tape.fragments import Fragments
from simfl.tape.layout import padded_size
from simfl.tape.maps import Given
from simfl.tape.recording import Model, Tape


@dataclass(frozen=True)
class FragmentStep:
    """Nesterov's step on a fragment; a function of models by itself.

    Attributes:
        cut: the fragments.
        tensors: length of each tensor, in the order of coordinates, and whether its mean is the radial-directional one.
            Their sum is d; empty: all means are plain.
    """

    cut: Fragments
    tensors: tuple[tuple[int, bool], ...] = ()

    def take(
        self,
        tape: Tape,
        shared: Model,
        velocity: Model,
        parts: Sequence[tuple[float, Model]],
        fragment: int,
        step: float,
        momentum: float,
    ) -> tuple[Model, Model]:
        """Return X and m after the step lr with beta; `parts` are the (w_j, x_j)."""
        blanks = [0.0] * (padded_size(2 + len(parts)) - 2 - len(parts))
        total = sum(weight for weight, _ in parts)
        scalars = [step, momentum, float(fragment), 0.0, 0.0, *(weight / total for weight, _ in parts), *blanks]
        models = [shared, velocity, *(model for _, model in parts)]
        after, moved = tape.map(self, models, scalars=scalars, outputs=2, pads=True)
        return after, moved

    def __call__(self, rows: Any, given: Given) -> tuple[jax.Array, jax.Array]:
        """Return X and m of rows f32 [n, d]: X, m and the x_j.

        The scalars are lr, beta, the fragment, and the weights [n], which are 0 for X and m.
        """
        step, momentum, fragment = given.scalars[:3]
        inside = jnp.asarray(self.cut.of()) == fragment
        weights = given.scalars[3:, None]
        used = inside & (weights != 0.0)  # a blank row may hold any number
        changes = jnp.where(used, rows[0] - rows, 0.0)
        change = jnp.sum(weights * changes, axis=0)
        if any(is_radial for _, is_radial in self.tensors):
            lengths, are_radial = zip(*self.tensors, strict=True)
            tensor_of = np.repeat(np.arange(len(lengths)), lengths)

            def norms(vectors: jax.Array) -> jax.Array:  # f32 [n, d] -> f32 [n, tensors]
                each = jnp.split(vectors, np.cumsum(lengths)[:-1], axis=1)
                return jnp.stack([jnp.linalg.norm(one, axis=1) for one in each], axis=1)

            def directions(vectors: jax.Array) -> jax.Array:
                each = norms(vectors)[:, tensor_of]
                return jnp.where(each > 0.0, vectors / jnp.where(each > 0.0, each, 1.0), 0.0)

            mean_norms = jnp.sum(weights * norms(changes), axis=0)[tensor_of]
            radial = mean_norms * directions(jnp.sum(weights * directions(changes), axis=0)[None])[0]
            change = jnp.where(jnp.asarray(are_radial)[tensor_of], radial, change)
        moved = momentum * rows[1] + change
        after = rows[0] - step * (change + momentum * moved)
        return jnp.where(inside, after, rows[0]), jnp.where(inside, moved, rows[1])
