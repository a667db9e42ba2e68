"""A server's step on one fragment, as a function of clients' models on the tape.

With the server's fragment X, clients' models x_j of it and their weights w_j, sum w_j = 1:

    D_j = X - x_j,   m <- beta m + D,   X <- X - lr (D + beta m)

    mean:     D = sum_j w_j D_j
    radial:   D = (sum_j w_j |D_j|) phi(sum_j w_j phi(D_j)),   phi(v) = v / |v|,  phi(0) = 0

The radial-directional mean of orthogonal changes of one length keeps that length, whatever their number (Decoupled
DiLoCo, https://arxiv.org/abs/2604.21428). Norms are those of the fragment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
        radial: whether the mean is the radial-directional one.
    """

    cut: Fragments
    radial: bool = False

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
        if self.radial:
            lengths = jnp.linalg.norm(changes, axis=1, keepdims=True)
            ways = jnp.sum(weights * jnp.where(lengths > 0.0, changes / jnp.where(lengths > 0.0, lengths, 1.0), 0.0), 0)
            length = jnp.linalg.norm(ways)
            change = jnp.sum(weights * lengths) * jnp.where(
                length > 0.0, ways / jnp.where(length > 0.0, length, 1.0), 0.0
            )
        else:
            change = jnp.sum(weights * changes, axis=0)
        moved = momentum * rows[1] + change
        after = rows[0] - step * (change + momentum * moved)
        return jnp.where(inside, after, rows[0]), jnp.where(inside, moved, rows[1])
