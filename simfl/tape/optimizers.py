"""Optimizers as optax transformations, with their state as rows of the bank.

A `Transformation` maps a gradient, a state and parameters, all flat vectors f32[d], to the change of the parameters at
step size 1 and the next state. It is used in the steps of a local round, which starts with a new state, and in
`Tape.transform`, whose state is rows beside the model (`StateRows`).

The constants of a rule (momentum, betas) are arguments of the programs, so that runs that differ in them share the
programs, and may be played together. What Python derives from a constant, as 1 - beta, is an argument of its own: it
has the bits that Python's double precision gives.

optax is imported where a rule is made, not before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.models.lazy import jax, jnp
from simfl.tape.maps import Given

Adaptive = Literal["adam", "yogi", "adagrad"]


@dataclass(frozen=True)
class Transformation:
    """A gradient transformation; its `name` identifies compiled programs.

    Attributes:
        name: equal for rules that differ in their constants alone.
        made: constants -> init, (parameters -> state), and update, (gradient, state, parameters) -> (change of the
            parameters, state).
        constants: its own; numbers of a program take their place in a trace.
    """

    name: Hashable
    made: Callable[[Sequence[Any]], Any] = field(compare=False)
    constants: tuple[float, ...] = field(default=(), compare=False)

    def init(self, params: jax.Array, constants: Sequence[Any] | None = None) -> Any:
        """Return the first state."""
        return self.made(self.constants if constants is None else constants).init(params)

    def update(
        self, gradient: jax.Array, state: Any, params: jax.Array, constants: Sequence[Any] | None = None
    ) -> tuple[jax.Array, Any]:
        """Return the change of the parameters at step size 1, and the next state."""
        rule = self.made(self.constants if constants is None else constants)
        added, after = rule.update(gradient, state, params)
        return added, after


def constants_of(rule: Transformation | None) -> NDArray[np.float32]:
    """Return a rule's constants as an argument of programs, f32 [n]."""
    return np.array(() if rule is None else rule.constants, dtype=np.float32)


@dataclass(frozen=True)
class Core:
    """A transformation of optax as a function of its constants."""

    made: Callable[..., Any]
    constants: tuple[float, ...]


def transformation_of(
    name: Hashable, *, core: Core | None = None, clip_norm: float | None = None, weight_decay: float = 0.0
) -> Transformation:
    """Return the rule -(core(clipped gradient) + weight_decay w); plain SGD if None.

    Weight decay is decoupled (Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101).

    Args:
        name: the name of the core, without its constants.
        core: a gradient transformation of optax.
        clip_norm: bound on the L2 norm of the gradient; None for none.
        weight_decay: applied to the parameters that the step starts from.
    """
    own = () if core is None else core.constants
    clips, decays = clip_norm is not None, bool(weight_decay)

    def made(constants: Sequence[Any]) -> Any:
        import optax

        left = iter(constants)
        clip = [optax.clip_by_global_norm(next(left))] if clips else []
        decay = [optax.add_decayed_weights(next(left))] if decays else []
        steps = [] if core is None else [core.made(*left)]
        return optax.chain(*clip, *steps, *decay, optax.scale(-1.0))

    norm = () if clip_norm is None else (clip_norm,)
    return Transformation((name, clips, decays), made, (*norm, *(weight_decay,) * decays, *own))


def momentum(decay: float, nesterov: bool) -> Core:
    """Return v' = decay v + g, or Nesterov's g + decay v' (Sutskever et al. 2013)."""

    def made(decay: Any) -> Any:
        import optax

        return optax.trace(decay, nesterov=nesterov)

    return Core(made, (decay,))


def adam(beta1: float, beta2: float, eps: float) -> Core:
    """Adam with bias correction, Kingma and Ba 2015, https://arxiv.org/abs/1412.6980.

    It has the bits of `optax.scale_by_adam`, which would compute 1 - beta from a constant of single precision.
    """

    def made(beta1: Any, rest1: Any, beta2: Any, rest2: Any, eps: Any) -> Any:
        import optax

        def update(g: jax.Array, state: Any, params: jax.Array | None = None) -> tuple[jax.Array, Any]:
            del params
            count = optax.safe_increment(state.count)
            m = rest1 * g + beta1 * state.mu
            v = rest2 * (g**2) + beta2 * state.nu
            unbiased = optax.tree.bias_correction(m, beta1, count), optax.tree.bias_correction(v, beta2, count)
            return unbiased[0] / (jnp.sqrt(unbiased[1]) + eps), optax.ScaleByAdamState(count, m, v)

        return optax.GradientTransformation(optax.scale_by_adam().init, update)

    return Core(made, (beta1, 1 - beta1, beta2, 1 - beta2, eps))


def adaptive(kind: Adaptive, beta1: float, beta2: float, tau: float) -> Core:
    """The server's step of FedAdam, FedYogi and FedAdagrad, without bias correction.

    m' = beta1 m + (1 - beta1) g,
    v' = beta2 v + (1 - beta2) g²               (adam)
         v - (1 - beta2) g² sign(v - g²)        (yogi)
         v + g²                                 (adagrad)
    and the direction is m' / (sqrt(v') + tau), with m = 0 and v = tau² at first.
    Reddi et al. 2021, "Adaptive federated optimization", https://arxiv.org/abs/2003.00295, Algorithm 2.

    Args:
        kind: as above.
        beta1, beta2: the decay of the two moments.
        tau: degree of adaptivity.
    """

    def made(beta1: Any, rest1: Any, beta2: Any, rest2: Any, tau: Any, begin: Any) -> Any:
        import optax

        def init(params: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.zeros_like(params), jnp.full_like(params, begin)

        def update(
            g: jax.Array, state: tuple[jax.Array, jax.Array], params: jax.Array | None = None
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            del params
            m, v = state
            square = g * g
            m = beta1 * m + rest1 * g
            if kind == "adam":
                v = beta2 * v + rest2 * square
            elif kind == "yogi":
                v = v - rest2 * square * jnp.sign(v - square)
            else:
                v = v + square
            return m / (jnp.sqrt(v) + tau), (m, v)

        return optax.GradientTransformation(init, update)

    return Core(made, (beta1, 1 - beta1, beta2, 1 - beta2, tau, tau**2))


@dataclass(frozen=True)
class StateRows:
    """A rule's state as rows f32 [rows, d]: real numbers first, then integers.

    An integer is stored as two floats, the values of its upper and lower 16 bits, because arithmetic might change the
    bits of a float that is not a normal number. A counter (`count` in optax) that always equals the number of updates
    is not stored: the recorded operation has that number.

    Attributes:
        rule: the rule that has the state.
        size: d.
        structure: the tree structure of the state.
        leaves: dtype and shape of its leaves.
        counters: which leaves count updates.
    """

    rule: Transformation
    size: int
    structure: Any
    leaves: tuple[tuple[str, tuple[int, ...]], ...]
    counters: tuple[bool, ...]

    @property
    def reals(self) -> int:
        """Rows of real numbers, which may be averaged."""
        return self._rows([math.prod(shape) for kind, shape, counts in self._entries if not _whole(kind)])

    @property
    def wholes(self) -> int:
        """Rows of whole numbers."""
        return self._rows(
            [2 * math.prod(shape) for kind, shape, counts in self._entries if _whole(kind) and not counts]
        )

    @property
    def rows(self) -> int:
        """All rows."""
        return self.reals + self.wholes

    @property
    def _entries(self) -> list[tuple[str, tuple[int, ...], bool]]:
        return [(kind, shape, counts) for (kind, shape), counts in zip(self.leaves, self.counters, strict=True)]

    def _rows(self, counts: list[int]) -> int:
        return -(-sum(counts) // self.size)

    def begin(self, params: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the state at the beginning, f32 [rows, d]."""
        rows = [np.asarray(row) for row in self.pack(self.rule.init(jnp.asarray(params)))]
        return np.stack(rows) if rows else np.zeros((0, self.size), np.float32)

    def pack(self, state: Any) -> list[jax.Array]:
        """Return a state as rows."""
        reals, wholes = [], []
        for leaf, (kind, _, counts) in zip(jax.tree.leaves(state), self._entries, strict=True):
            if not _whole(kind):
                reals.append(jnp.ravel(leaf).astype(jnp.float32))
            elif not counts:
                bits = jnp.ravel(leaf).astype(jnp.uint32 if kind.startswith("u") else jnp.int32).astype(jnp.uint32)
                wholes += [(bits >> 16).astype(jnp.float32), (bits & 0xFFFF).astype(jnp.float32)]
        return [*self._cut(reals, self.reals), *self._cut(wholes, self.wholes)]

    def _cut(self, parts: list[jax.Array], rows: int) -> list[jax.Array]:
        """Cut concatenated parts into rows, without a copy if they are rows already."""
        if all(len(part) == self.size for part in parts):
            return parts
        flat = jnp.concatenate(parts)
        return list(jnp.pad(flat, (0, rows * self.size - len(flat))).reshape(rows, self.size))

    def unpack(self, rows: Sequence[jax.Array], count: jax.Array) -> Any:
        """Return the state in `rows` after `count` updates."""
        reals, wholes = _Reader(rows[: self.reals], self.size), _Reader(rows[self.reals :], self.size)
        leaves = []
        for kind, shape, counts in self._entries:
            length = math.prod(shape)
            if counts:
                leaf = jnp.full(shape, count)
            elif _whole(kind):
                high, low = (wholes.take(length).astype(jnp.uint32) for _ in range(2))
                bits = (high << 16) | low
                leaf = bits if kind.startswith("u") else bits.astype(jnp.int32)
            else:
                leaf = reals.take(length)
            leaves.append(leaf.reshape(shape).astype(kind))
        return jax.tree.unflatten(self.structure, leaves)

    def __call__(self, rows: Sequence[jax.Array], given: Given) -> list[jax.Array]:
        """Return params + step_size * update and the next state, as a function of models.

        Args:
            rows: the gradient, the rows of the linear form of the parameters, and the state.
            given: its scalars are the coefficients of the form and the step size, its draw is the number of updates,
                and it has the rule's constants.
        """
        *coefs, step_size = given.scalars
        params = coefs[0] * rows[1]
        for coef, row in zip(coefs[1:], rows[2:], strict=False):
            params = params + coef * row
        state = self.unpack(rows[1 + len(coefs) :], given.draw)
        added, after = self.rule.update(rows[0], state, params, given.constants)
        return [params + step_size * added, *self.pack(after)]


class _Reader:
    """Reads rows as one vector, from its beginning on."""

    def __init__(self, rows: Sequence[jax.Array], size: int) -> None:
        self._rows, self._size, self._at = rows, size, 0

    def take(self, length: int) -> jax.Array:
        """Return the next `length` numbers."""
        at, self._at = self._at, self._at + length
        if length == self._size and at % length == 0:
            return self._rows[at // length]
        flat: jax.Array = jnp.concatenate(self._rows)[at : at + length]
        return flat


def _whole(kind: str) -> bool:
    """Whether numbers of a dtype are whole."""
    return np.dtype(kind).kind in "iub" if kind != "bfloat16" else False


def state_rows(rule: Transformation, size: int) -> StateRows:
    """Return how a rule's state becomes rows of d = `size` numbers.

    Raises:
        TypeError: its state holds other objects than numbers, or `update` changes shapes.
    """
    return replace(_state_rows(rule, size), rule=rule)  # rules that are equal may have other constants


@functools.lru_cache(maxsize=64)
def _state_rows(rule: Transformation, size: int) -> StateRows:
    params = jax.ShapeDtypeStruct((size,), jnp.float32)
    state = jax.eval_shape(rule.init, params)
    added, after = jax.eval_shape(rule.update, params, state, params)
    if jax.tree.structure(added).num_leaves != 1 or getattr(added, "shape", None) != (size,):
        raise TypeError(f"expected updates of the shape of the parameters, ({size},), found {_shapes(added)}")
    if jax.tree.structure(after) != jax.tree.structure(state) or _shapes(after) != _shapes(state):
        raise TypeError(f"expected a state that keeps its shapes, {_shapes(state)}, found {_shapes(after)}")
    leaves, structure = jax.tree.flatten(state)
    for leaf in leaves:
        if not (jnp.issubdtype(leaf.dtype, jnp.number) or leaf.dtype == bool) or leaf.dtype.itemsize > 4:
            raise TypeError(f"expected a state of numbers of at most 32 bits, found {leaf.dtype}")
    counters = _counters(rule, size, len(leaves))
    return StateRows(rule, size, structure, tuple((str(leaf.dtype), leaf.shape) for leaf in leaves), counters)


def _shapes(tree: Any) -> str:
    return ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)) or "nothing"


def _counters(rule: Transformation, size: int, leaves: int) -> tuple[bool, ...]:
    """Return which leaves of the state count updates for all gradients."""
    probes = [jnp.linspace(-1.0, 1.0, size), jnp.zeros(size), jnp.full(size, jnp.nan)]

    def seen(params: jax.Array) -> list[list[Any]]:
        leaves = []
        for gradient in probes:
            state = rule.init(params)
            leaves.append(jax.tree.leaves(state))
            for _ in range(3):
                state = rule.update(gradient, state, params)[1]
                leaves.append(jax.tree.leaves(state))
        return leaves

    paths = jax.tree_util.tree_flatten_with_path(jax.eval_shape(rule.init, probes[0]))[0]
    named = [bool(path) and getattr(path[-1], "name", "") == "count" for path, _ in paths]
    if not any(named):
        return (False,) * leaves
    outputs = jax.jit(seen)(probes[1])
    return tuple(named[k] and all(_is(states[k], at % 4) for at, states in enumerate(outputs)) for k in range(leaves))


def _is(leaf: Any, value: int) -> bool:
    return np.shape(leaf) == () and np.issubdtype(np.asarray(leaf).dtype, np.integer) and int(leaf) == value


@dataclass(frozen=True)
class Amsgrad:
    """The step of AMSGrad along an update, without bias correction; see `Tape.map`.

    m' = beta1 m + (1 - beta1) D,   v' = beta2 v + (1 - beta2) D²,   u' = max(u, v'),
    w' = w + eta m' / (sqrt(u') + eps)
    Reddi, Kale, Kumar 2018, "On the convergence of Adam and beyond", https://arxiv.org/abs/1904.09237, Algorithm 2.

    It reads (D, w, m, v, u) and the scalars eta, beta1, 1 - beta1, beta2, 1 - beta2 and eps, and returns (w', m', v',
    u').
    """

    def __call__(self, rows: Sequence[jax.Array], given: Given) -> tuple[jax.Array, ...]:
        """Return the new model and the new moments, f32[d] each."""
        mean, model, m, v, largest = rows
        step_size, beta1, rest1, beta2, rest2, eps = given.scalars
        m = beta1 * m + rest1 * mean
        v = beta2 * v + rest2 * mean * mean
        largest = jnp.maximum(largest, v)
        return model + step_size * m / (jnp.sqrt(largest) + eps), m, v, largest
