"""Functions of models, which `Tape.map` records, and their arguments.

A function takes rows and `Given`, and returns one row f32[d], or a sequence of rows:

    def larger(rows, given):
        return jnp.where(jnp.abs(rows[0]) >= given.scalars[0], rows[0], 0.0)

It is traced by JAX and compiled into the program of a window, so it must be pure: no side effects, and no numbers from
elsewhere that change during the run. Such numbers are passed as scalars. `rows` has the models in order, f32[d] each.
With `pads=True` it is an array f32 [n, d] whose rows are models where `given.present` is true; the other rows hold
arbitrary numbers.

In an account of a network, the result is post-processing: an observer of the result is charged as if it saw everything
that the function read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simfl.errors import RunError
from simfl.models.lazy import jax, jnp
from simfl.tape.layout import MAP_CLIENT, MAP_DRAW, Branch


@dataclass(frozen=True)
class Given:
    """The arguments of a function of models besides the models.

    Attributes:
        scalars: f32 [n], the numbers of this call.
        present: bool [k], which rows are models; all of them unless the call pads.
        client, draw: int32, the names of the random numbers; `draw` counts the client's calls from 0.
        seed: uint32 [2], the key of the run.
        constants: f32 [c], those of the optimizer whose step it is.
    """

    scalars: jax.Array
    present: jax.Array
    client: jax.Array
    draw: jax.Array
    seed: jax.Array
    constants: jax.Array | None = None

    @property
    def key(self) -> jax.Array:
        """The key of this call's random numbers, for `jax.random`.

        Each (seed, client, draw) has its own key."""
        key = jax.random.wrap_key_data(self.seed, impl="threefry2x32")
        return jax.random.fold_in(jax.random.fold_in(key, self.client), self.draw)


def called(
    branch: Branch,
    rows: Any,
    present: jax.Array,
    names: jax.Array,
    floats: jax.Array,
    seed: jax.Array,
    constants: jax.Array | None = None,
) -> Sequence[jax.Array]:
    """Return the rows that a branch makes, `branch.outputs` of f32[d].

    Raises:
        RunError: the function returns something else.
    """
    given = Given(floats[: branch.numbers], present, names[MAP_CLIENT], names[MAP_DRAW], seed, constants)
    made = branch.function(rows, given)
    size = rows[0].shape
    if isinstance(made, jax.Array) and made.ndim == 1:
        made = [made]
    made = [jnp.asarray(row) for row in made]
    shapes = [row.shape for row in made]
    if shapes != [size] * branch.outputs or any(row.dtype != jnp.float32 for row in made):
        name = getattr(branch.function, "__qualname__", None) or repr(branch.function)
        found = ", ".join(f"{row.dtype}{list(row.shape)}" for row in made) or "nothing"
        raise RunError(f"map: {name}: expected {branch.outputs} x float32{list(size)}, found {found}")
    return made
