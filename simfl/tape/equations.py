"""The size of a model's loss as a program, and its work, before it is compiled."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from simfl.models import AbstractModel
from simfl.models.layered import AbstractNetwork
from simfl.models.lazy import start_jax
from simfl.scenario.own_code import in_one_line
from simfl.tape.problem import LearningProblem

#: Products of a mini-batch's losses from which on a gradient takes a millisecond or so: longer than to hand it over.
LEAST_PRODUCTS = 2**22


def equations_of(problem: LearningProblem) -> tuple[int, int]:
    """Return the number of equations of a batch's losses, and their bytes."""
    batch, model = problem.max_batch, problem.model
    if isinstance(model, AbstractNetwork):  # computed in parts
        batch = min(batch, model.cpu_batch, model.max_batch)
    return _counted(_losses_of(problem, batch))


def worth_a_core(problem: LearningProblem) -> bool:
    """Return whether a mini-batch takes so long that another core may be given it."""
    return _products(_losses_of(problem, problem.max_batch)) >= LEAST_PRODUCTS


def _losses_of(problem: LearningProblem, batch: int) -> Any:
    """Return the losses of a batch as a program."""
    start_jax()
    model, data = problem.model, problem.data
    x = jax.ShapeDtypeStruct((batch, *data.train_x.shape[1:]), jnp.int32 if model.tokens else jnp.float32)
    y = jax.ShapeDtypeStruct((batch, *data.train_y.shape[1:]), data.train_y.dtype)
    return _traced(model, x, y)


@functools.lru_cache(maxsize=4)
def _traced(model: AbstractModel, x: jax.ShapeDtypeStruct, y: jax.ShapeDtypeStruct) -> Any:
    """Return the losses of a batch; validation, a run and further runs ask."""
    with in_one_line("model", f"{model.kind}: losses of {len(x)} examples"):
        return jax.make_jaxpr(model.losses)(jax.ShapeDtypeStruct((model.size,), jnp.float32), x, y).jaxpr


def _counted(program: Any) -> tuple[int, int]:
    """Return the number of equations, inner ones too, and their bytes."""
    count = size = 0
    for equation in program.eqns:
        counts = [_counted(each) for each in _inner(equation)]
        count += 1 + sum(each for each, _ in counts)
        size += sum(each for _, each in counts) or sum(4 * math.prod(one.aval.shape) for one in equation.outvars)
    return count, size


def _products(program: Any) -> int:
    """Return the number of products in matrix products and convolutions."""
    total = 0
    for equation in program.eqns:
        name, sizes = equation.primitive.name, [one.aval.shape for one in equation.invars]
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(sizes[0][k] for k in contracted)
        elif name == "conv_general_dilated":
            kernel, (outputs, *_) = sizes[1], equation.params["dimension_numbers"].rhs_spec
            total += math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) // kernel[outputs]
        total += int(equation.params.get("length", 1)) * sum(map(_products, _inner(equation)))
    return total


def _inner(equation: Any) -> list[Any]:
    """Return the programs within an equation."""
    listed = [each if isinstance(each, tuple) else (each,) for each in equation.params.values()]
    programs = [getattr(each, "jaxpr", each) for values in listed for each in values]
    return [each for each in programs if hasattr(each, "eqns")]
