"""Products in bfloat16: gradients whose matrix products have rounded factors.

A model of `precision` "bfloat16" computes the gradient of every example with each matrix product and convolution of
float32 rounded to a product of bfloat16 numbers, which is summed in float32; all else stays float32. A method that
returns gradients, or what gradients are made of, has the decorator `rounded`, which rewrites the program of the method,
backward pass included. So it serves a user's network as well as simfl's.

Why clipping holds: example i's rounded gradient g_i is still a function of the parameters and of example i alone.
Its norm and the sum of weight_i g_i min(1, C / ||g_i||) are computed from the same numbers, in float32 and without
rounded factors: the barrier after a rounded method makes those numbers once, so that no compiler makes them again with
other last bits. The sum therefore changes by at most C with an example, as in float32. No account uses that g_i is the
exact gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from simfl.models.lazy import jax, jnp, lax

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

Method = TypeVar("Method", bound=Callable[..., Any])

#: Digits of bfloat16: bits of the exponent and of the mantissa.
BITS = 8, 7

#: Calls whose programs are rounded where they are called, by their parameter.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr", "checkpoint": "jaxpr"}  # fmt: skip
#: Loops and choices, which stay.
_BRANCHING = ("scan", "while", "cond")


def rounded(method: Method) -> Method:
    """Decorate a method of a model, or a function of one: its `precision` counts."""

    @functools.wraps(method)
    def computed(model: Any, *arguments: Any) -> Any:
        if model.precision == "float32":
            return method(model, *arguments)
        return with_rounded_products(functools.partial(method, model), *arguments)

    return computed  # type: ignore[return-value]


def with_rounded_products(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of pytrees of arrays with products in bfloat16."""
    leaves, tree = jax.tree.flatten(arguments)
    program, shape = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(tree, flat)), return_shape=True)(*leaves)
    return lax.optimization_barrier(jax.tree.unflatten(jax.tree.structure(shape), _evaluated(program, leaves)))


def _evaluated(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    """Return the results of a program with rounded products."""
    jaxpr: Jaxpr = program.jaxpr
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*program.consts, *arguments), strict=True))
    for equation in jaxpr.eqns:
        given = [one.val if hasattr(one, "val") else values[one] for one in equation.invars]
        results = _applied(equation, given)
        values.update(zip(equation.outvars, results, strict=True))
    return [one.val if hasattr(one, "val") else values[one] for one in jaxpr.outvars]


def _applied(equation: JaxprEqn, given: list[Any]) -> Sequence[Any]:
    name, params = equation.primitive.name, dict(equation.params)
    if name in _CALLS:
        called = params[_CALLS[name]]
        return _evaluated(called if hasattr(called, "consts") else jax.extend.core.ClosedJaxpr(called, ()), given)
    if name in _BRANCHING:
        params = {key: _each_rounded(value) for key, value in params.items()}
    elif name in ("dot_general", "conv_general_dilated") and _is_float32(equation):
        # Rounded here, not by the algorithm: a CPU ignores it. CUDA's library has convolutions of bfloat16 for few
        # shapes; the default for float32 there, of 11 digits, is exact for rounded factors.
        given = [lax.reduce_precision(x, *BITS) for x in given]
        params["precision"] = lax.DotAlgorithmPreset.BF16_BF16_F32 if name == "dot_general" else None
    results = equation.primitive.bind(*given, **equation.primitive.get_bind_params(params))
    return results if equation.primitive.multiple_results else [results]


def _each_rounded(value: Any) -> Any:
    """Return a parameter of a loop or a choice, with programs in it rounded."""
    if isinstance(value, tuple):
        return tuple(map(_each_rounded, value))
    if not hasattr(value, "jaxpr"):
        return value
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype, weak_type=one.weak_type) for one in value.in_avals]
    return jax.make_jaxpr(lambda *given: _evaluated(value, given))(*shapes)


def _is_float32(equation: JaxprEqn) -> bool:
    return all(one.aval.dtype == jnp.float32 for one in (*equation.invars, *equation.outvars))
