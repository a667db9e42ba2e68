"""The jitted programs: one window of steps, and the evaluation of models.

Shapes and what is static are chosen so that one scenario compiles each program once, whatever the
window, and so that runs that differ in seed, noise level, step size or speeds share the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from simfl.models import AbstractModel
from simfl.tape.draws import Sampling, batch_positions, noise


def gradient_of_batch(
    model: AbstractModel,
    sampling: Sampling,
    batch_size: int,
    lanes: int,
    clipped: bool,
    noisy: bool,
) -> Callable[..., jax.Array]:
    """Return the function of one lane: the clipped and noised sum of a mini-batch's gradients, f32[d]."""

    def gradient(params: jax.Array, data: dict[str, jax.Array], ints: jax.Array, noise_std: jax.Array) -> jax.Array:
        client, draw, first, size = ints[0], ints[1], ints[2], ints[3]
        n = data["sizes"][client]
        position = batch_positions(sampling, data["data_key"], client, draw, first, batch_size, lanes, n)
        example = data["table"][data["offsets"][client] + position]
        weight = (jnp.arange(lanes, dtype=jnp.int32) < size).astype(jnp.float32)
        x, y = data["x"][example], data["y"][example]
        if clipped:
            total = model.clipped_gradient_sum(params, x, y, weight, data["clipping_norm"])
        else:
            total = model.gradient_sum(params, x, y, weight)
        if noisy:
            total = total + noise_std * noise(data["noise_key"], client, draw, model.size)
        return total

    return gradient


@functools.lru_cache(maxsize=32)
def window_program(
    model: AbstractModel,
    sampling: Sampling,
    batch_size: int,
    lanes: int,
    clipped: bool,
    noisy: bool,
    reads: int,
    width: int,
    combines: int,
) -> Any:
    """Return the program that runs a packed window: (bank, steps, arrays, data) -> bank.

    bank is f32 [places + 1, d] and donated. The body gathers once and scatters once: with two
    gathers or scatters on the carried bank XLA would copy all of it in every step.
    """
    gradient = gradient_of_batch(model, sampling, batch_size, lanes, clipped, noisy)

    def linear(coefs: jax.Array, rows: jax.Array) -> jax.Array:
        # Term by term in order, not a dot product, whose order of summation the compiler chooses.
        total = coefs[0] * rows[0]
        for j in range(1, reads):
            total = total + coefs[j] * rows[j]
        return total

    def step_lane(rows: jax.Array, ints: jax.Array, floats: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        read = linear(floats[:reads], rows)
        base = linear(floats[reads : 2 * reads], rows)
        total = gradient(read, data, ints[reads + 1 :], floats[2 * reads + 1])
        return base + floats[2 * reads] * total

    def run(
        bank: jax.Array,
        steps: jax.Array,
        g_ints: jax.Array,
        g_floats: jax.Array,
        c_ints: jax.Array,
        c_floats: jax.Array,
        data: dict[str, jax.Array],
    ) -> jax.Array:
        def body(s: jax.Array, bank: jax.Array) -> jax.Array:
            gi, gf, ci, cf = g_ints[s], g_floats[s], c_ints[s], c_floats[s]
            reading = jnp.concatenate([gi[:, :reads].reshape(-1), ci[:, :reads].reshape(-1)])
            rows = bank[reading]
            g_rows = rows[: width * reads].reshape(width, reads, -1)
            c_rows = rows[width * reads :].reshape(combines, reads, -1)
            if width == 1:  # no batch axis at all: a convolution must not see one on a CPU
                stepped = step_lane(g_rows[0], gi[0], gf[0], data)[None]
            else:
                stepped = jax.vmap(step_lane, in_axes=(0, 0, 0, None))(g_rows, gi, gf, data)
            combined = jax.vmap(linear)(cf, c_rows)
            writing = jnp.concatenate([gi[:, reads], ci[:, reads]])
            return bank.at[writing].set(jnp.concatenate([stepped, combined]))

        return jax.lax.fori_loop(0, steps, body, bank)

    return jax.jit(run, donate_argnums=0)


@functools.lru_cache(maxsize=32)
def average_program(reads: int, chunk: int) -> Any:
    """Return (bank, places [k, reads], coefs, valid [k]) -> (mean model f32[d], consensus distance f32).

    The consensus distance is the root mean square distance of the models to their mean,
    sqrt( (1/K) sum_k ||w_k - w_mean||^2 ). Clients are summed in their order, so that the result
    does not depend on where the bank holds what. k is padded to a multiple of `chunk`.
    """

    def run(bank: jax.Array, places: jax.Array, coefs: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        places, coefs = places.reshape(-1, chunk, reads), coefs.reshape(-1, chunk, reads)
        valid = valid.reshape(-1, chunk)
        count = valid.sum()

        def models(i: jax.Array) -> jax.Array:
            return jnp.einsum("kr,krd->kd", coefs[i], bank[places[i].reshape(-1)].reshape(chunk, reads, -1))

        def add(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + valid[i] @ models(i)

        mean = jax.lax.fori_loop(0, len(places), add, jnp.zeros(bank.shape[1])) / count

        def spread(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + jnp.sum(valid[i] * jnp.sum((models(i) - mean) ** 2, axis=1))

        return mean, jnp.sqrt(jax.lax.fori_loop(0, len(places), spread, jnp.float32(0.0)) / count)

    return jax.jit(run)


@functools.lru_cache(maxsize=32)
def rows_program(reads: int) -> Any:
    """Return (bank, places [k, reads], coefs [k, reads]) -> models f32 [k, d]."""

    def run(bank: jax.Array, places: jax.Array, coefs: jax.Array) -> jax.Array:
        rows = bank[places.reshape(-1)].reshape(*places.shape, -1)
        return jnp.einsum("kr,krd->kd", coefs, rows)

    return jax.jit(run)


@functools.lru_cache(maxsize=32)
def evaluation_program(model: AbstractModel, chunk: int) -> Any:
    """Return (params, x, y, weight) -> (loss, share correct) over a set padded to a multiple of `chunk`."""

    def run(params: jax.Array, x: jax.Array, y: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
        xs, ys = x.reshape(-1, chunk, *x.shape[1:]), y.reshape(-1, chunk)
        ws = weight.reshape(-1, chunk)

        def add(i: jax.Array, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            loss, correct = totals
            # where, not a product: a padded example may have a loss that is not finite
            losses = jnp.where(ws[i] > 0, model.losses(params, xs[i], ys[i]), 0.0)
            right = jnp.where(ws[i] > 0, model.correct(params, xs[i], ys[i]), 0.0)
            return loss + losses.sum(), correct + right.sum()

        loss, correct = jax.lax.fori_loop(0, len(xs), add, (jnp.float32(0.0), jnp.float32(0.0)))
        count = weight.sum()
        return loss / count + 0.5 * model.l2 * jnp.sum(params**2), correct / count

    return jax.jit(run)
