"""The size of a model's loss as a program, before it is compiled."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from simfl.models.layered import AbstractNetwork
from simfl.models.lazy import start_jax
from simfl.tape.problem import LearningProblem


def equations_of(problem: LearningProblem) -> tuple[int, int]:
    """Return the number of equations of a batch's losses, and their bytes."""
    start_jax()
    model, data, batch = problem.model, problem.data, problem.max_batch
    if isinstance(model, AbstractNetwork):  # computed in parts
        batch = min(batch, model.cpu_batch, model.max_batch)
    x = jax.ShapeDtypeStruct((batch, *data.train_x.shape[1:]), jnp.int32 if model.tokens else jnp.float32)
    y = jax.ShapeDtypeStruct((batch, *data.train_y.shape[1:]), data.train_y.dtype)
    return _counted(jax.make_jaxpr(model.losses)(jax.ShapeDtypeStruct((model.size,), jnp.float32), x, y).jaxpr)


def _counted(program: Any) -> tuple[int, int]:
    """Return the number of equations, inner ones too, and their bytes."""
    count = size = 0
    for equation in program.eqns:
        listed = [each if isinstance(each, tuple) else (each,) for each in equation.params.values()]
        inner = [getattr(each, "jaxpr", each) for values in listed for each in values]
        counts = [_counted(each) for each in inner if hasattr(each, "eqns")]
        count += 1 + sum(each for each, _ in counts)
        size += sum(each for _, each in counts) or sum(4 * math.prod(one.aval.shape) for one in equation.outvars)
    return count, size
