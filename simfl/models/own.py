"""A user's own model: functions of a pytree, as functions of a flat vector.

The contract is what JAX's libraries have in common:

    init(key) -> params                             a pytree of arrays; also init(key, x), x [1, ...] an example
    losses(params, x, y) -> f32[b]                  one loss per example
    predict(params, x) -> f32[b, ...]               what the model says; optional
    metrics(params, x, y) -> {name: f32[b]}         what evaluations take the mean of beside the loss; optional
    clipped_gradient_sum(params, x, y, weight, norm) -> a pytree like params; optional, for who knows a closed form
    trained                                         a pytree of bools, or a function params -> one; optional
    tokens                                          True: x are integers, which are given as they are; optional

Parameters that are trained are ravelled once, leaf by leaf in the pytree's order; those that are not are constants:
they are outside of the vector that travels, is clipped, and gets noise. `simfl.models.trial` tries a model out before a
run.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from numpy.typing import NDArray

from simfl.errors import ScenarioError, nearest
from simfl.models import base
from simfl.models.base import (
    AbstractModel,
    Array,
    Layout,
    SumOfExamples,
    clipping_scale,
    count_unbounded,
    masked,
    sum_in_parts,
)
from simfl.scenario.own_code import in_one_line

CACHE_BYTES = 2**18
"""On a CPU, per-example gradients take at most this many bytes at a time (one may take more): they are read
again at once, and more of them would have left the cache."""

NEEDED = ("init", "losses")
FURTHER = ("predict", "metrics", "clipped_gradient_sum", "trained", "tokens")


class Same:
    """Equal to itself alone: the identity of an object that was given from Python."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


@dataclass(frozen=True, eq=False)
class Parameters:
    """A pytree of parameters, of which some are trained.

    Attributes:
        structure: of the pytree.
        names: of its leaves, their paths.
        leaves: as they are in the beginning; those that are not trained stay so.
        trained: which of them are.
    """

    structure: PyTreeDef
    names: tuple[str, ...]
    leaves: tuple[NDArray[Any], ...]
    trained: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Numbers that are trained, d."""
        return sum(leaf.size for leaf, own in zip(self.leaves, self.trained, strict=True) if own)

    def tree(self, flat: Array) -> Any:
        """Return the pytree of trained parameters f32[d], with the original types."""
        return self.filled(self.cut(flat))

    def cut(self, flat: Array) -> list[Array]:
        """Return the leaves that are trained, of f32[d]."""
        pieces, start = [], 0
        for leaf, own in zip(self.leaves, self.trained, strict=True):
            if own:
                pieces.append(flat[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
                start += leaf.size
        return pieces

    def filled(self, trained: Sequence[Array]) -> Any:
        """Return the pytree, given its leaves that are trained."""
        given = iter(trained)
        leaves = [
            next(given) if own else jnp.asarray(leaf) for leaf, own in zip(self.leaves, self.trained, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)

    def joined(self, trained: Sequence[Array]) -> Array:
        """Return the leaves that are trained as one vector, f32[d]."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in trained])

    def flat(self, leaves: Sequence[Any]) -> Array:
        """Return the trained ones of some leaves as one vector, f32[d]."""
        return self.joined([jnp.asarray(leaf) for leaf, own in zip(leaves, self.trained, strict=True) if own])

    def digest(self) -> str:
        """Return the SHA-256 of names, shapes, types, and untrained values."""
        sha = hashlib.sha256(str(self.structure).encode())
        for name, leaf, own in zip(self.names, self.leaves, self.trained, strict=True):
            sha.update(f"{name}:{leaf.shape}:{leaf.dtype}:{own};".encode())
            if not own:
                sha.update(np.ascontiguousarray(leaf).tobytes())
        return sha.hexdigest()


@dataclass(frozen=True)
class OwnModel(AbstractModel):
    """A user's own model.

    Two are equal, and share compiled programs, if their identity is: the module, the options and the source where there
    is a module, the object itself where there is none; and what is not trained has the same values.

    Args:
        name: what messages call it.
        identity: as above.
        all_metrics: what its `metrics` returns.
        has_convolutions: whether there are any in its losses.
        says_targets: whether its predictions have as many numbers as the targets, and there are no classes.
        given: the user's object.
        own: its parameters.
        key: the key that they were drawn with, uint32[2].
    """

    name: str = field(kw_only=True)
    identity: Hashable = field(kw_only=True)
    all_metrics: tuple[str, ...] = field(kw_only=True)
    has_convolutions: bool = field(kw_only=True)
    says_targets: bool = field(kw_only=True)
    given: Any = field(kw_only=True, compare=False, repr=False)
    own: Parameters = field(kw_only=True, compare=False, repr=False)
    key: NDArray[np.uint32] = field(kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        named = tuple(name for name in self.all_metrics if name != "accuracy")
        of_classes = {
            "kind": self.name,
            "metric_names": named,
            "convolutional": self.has_convolutions,
            "fits_targets": self.says_targets,
            "tokens": _takes_tokens(self.given),
        }
        for attribute, value in of_classes.items():  # what is the class's with other models is this one's own
            object.__setattr__(self, attribute, value)
        super().__post_init__()

    @property
    def size(self) -> int:
        """Parameters that are trained."""
        return self.own.size

    @property
    def layout(self) -> Layout:
        """All leaves of the pytree, those that are not trained included, by their paths."""
        return tuple((name, leaf.shape) for name, leaf in zip(self.own.names, self.own.leaves, strict=True))

    def parts(self, params: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the leaves of the pytree by name; of several [k, d], the trained ones."""
        named, start, own = {}, 0, self.own
        for name, leaf, trained in zip(own.names, own.leaves, own.trained, strict=True):
            if trained:
                named[name] = params[..., start : start + leaf.size].reshape(*params.shape[:-1], *leaf.shape)
                start += leaf.size
            elif params.ndim == 1:
                named[name] = leaf
        return named

    def joined(self, parts: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return leaves of the right names and shapes as trained parameters, f32[d].

        Raises:
            ValueError: they are not those of this model, or what is not trained has other values.
        """
        super().joined(parts)
        for name, leaf, trained in zip(self.own.names, self.own.leaves, self.own.trained, strict=True):
            if not trained and not np.array_equal(leaf.astype(np.float32), parts[name].astype(np.float32)):
                raise ValueError(f"expected {name} as model {self.name} has it, which does not train it, found others")
        own = [np.ravel(parts[name]) for name, own in zip(self.own.names, self.own.trained, strict=True) if own]
        return np.concatenate(own).astype(np.float32)

    def init(self, key: Array | np.ndarray) -> Array:
        """Return the initial parameters that are trained, f32[d]."""
        if np.array_equal(np.asarray(key), self.key):
            return self.own.flat(self.own.leaves)
        return self.own.flat(jax.tree.leaves(_drawn(self.given, key, self.input_shape, self.name)))

    def predict(self, params: Array, x: Array) -> Array:
        """Return the result of the user's `predict`, f32[b, ...]; NaN without one."""
        if not self.predicts:
            return jnp.full(x.shape[0], jnp.nan)
        return jnp.asarray(self.given.predict(self.own.tree(params), x)).astype(jnp.float32)

    @property
    def has_accuracy(self) -> bool:
        """Whether an answer is right or wrong."""
        return "accuracy" in self.all_metrics or (self.predicts and self.num_classes > 0)

    @property
    def predicts(self) -> bool:
        """Whether it says anything about an example beside its loss."""
        return callable(getattr(self.given, "predict", None))

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the user's losses, f32[b]."""
        return jnp.asarray(self.given.losses(self.own.tree(params), x, y)).astype(jnp.float32)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return the user's metric `accuracy`, or whether the largest output is right.

        Of one output, whether it is above 0 for class 1. NaN without classes or outputs.
        """
        if "accuracy" in self.all_metrics:
            return jnp.asarray(self.given.metrics(self.own.tree(params), x, y)["accuracy"]).astype(jnp.float32)
        if not (self.has_accuracy and y.ndim == 1):
            return jnp.full(x.shape[0], jnp.nan)
        z = self.predict(params, x).reshape(x.shape[0], -1)
        said = (z[:, 0] > 0).astype(jnp.int32) if z.shape[1] == 1 else jnp.argmax(z, axis=1)
        return jnp.where(said == y, 1.0, 0.0)

    def metrics(self, params: Array, x: Array, y: Array) -> dict[str, Array]:
        """Return the user's metrics, f32[b] each, but for `accuracy`."""
        if not self.metric_names:
            return {}
        values = self.given.metrics(self.own.tree(params), x, y)
        return {name: jnp.asarray(values[name]).astype(jnp.float32) for name in self.metric_names}

    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i g_i, f32[d], joined from leaves."""
        x = masked(x, weight)

        def total(leaves: list[Array]) -> Array:
            losses: Array = jnp.asarray(self.given.losses(self.own.filled(leaves), x, y)).astype(jnp.float32)
            return jnp.sum(weight * losses)

        return self.own.joined(jax.grad(total)(self.own.cut(params)))

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Return the user's `clipped_gradient_sum`, or clip each gradient leaf by leaf.

        In micro-batches whose gradients take at most `GRADIENTS_BYTES`, and on a CPU fit its cache. The user's sum has
        a norm of at most C * sum_i weight_i, whatever they return: it is clipped to that, and counts as zero where it
        is not finite.
        """
        if not self.user_clips:
            return self._clip_each(params, x, y, weight, clipping_norm)
        tree = self.given.clipped_gradient_sum(self.own.tree(params), masked(x, weight), y, weight, clipping_norm)
        total = self.own.flat(jax.tree.leaves(tree))
        squared, bound = jnp.sum(total * total), clipping_norm * jnp.sum(weight)
        norm = jnp.sqrt(squared)
        bounded = jnp.where(norm > bound, total * (bound / norm), total)
        lost = jnp.where(squared < jnp.inf, 0, jnp.sum(weight != 0, dtype=jnp.int32))
        return jnp.where(squared < jnp.inf, bounded, 0.0), lost

    def _clip_each(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        leaves = self.own.cut(params)

        def loss(leaves: list[Array], one_x: Array, one_y: Array) -> Array:
            value: Array = jnp.asarray(self.given.losses(self.own.filled(leaves), one_x[None], one_y[None])[0])
            return value.astype(jnp.float32)

        def part(x: Array, y: Array, weight: Array) -> tuple[list[Array], Array]:
            gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(leaves, masked(x, weight), y)
            wide = [gradient.astype(jnp.float32) for gradient in gradients]
            squared = sum((jnp.sum(one.reshape(len(x), -1) ** 2, axis=1) for one in wide), jnp.zeros(len(x)))
            scale = clipping_scale(squared, weight, clipping_norm)

            def total(gradient: Array) -> Array:
                at = scale.reshape(-1, *(1,) * (gradient.ndim - 1))
                # Selected: 0 times what is not finite would be NaN.
                kept = jnp.where(at != 0, gradient, 0.0)
                return kept[0] * scale[0] if len(x) == 1 else jnp.tensordot(scale, kept, 1)

            return [total(gradient) for gradient in wide], count_unbounded(squared, weight)

        def with_bytes(bytes_: int) -> SumOfExamples:
            return sum_in_parts(part, max(1, bytes_ // (4 * self.size)))

        sums: tuple[list[Array], Array] = jax.lax.platform_dependent(
            x, y, weight, cpu=with_bytes(CACHE_BYTES), default=with_bytes(base.GRADIENTS_BYTES)
        )
        return self.own.joined(sums[0]), sums[1]

    def described(self) -> dict[str, Any]:
        """Return the number of parts and the digest of initial values."""
        return {"parameters": len(self.layout), "digest": self.own.digest()}

    def program_digest(self, x: NDArray[Any], y: NDArray[Any]) -> str:
        """Return the SHA-256 of the user's functions as JAX traces them.

        Values that are not trained are in it. Names, comments and the place of the code are not.
        """

        def everything(params: Array, x: Array, y: Array, weight: Array) -> Any:
            gradient = self.clip_and_sum(params, x, y, weight, 1.0) if self.user_clips else ()
            return self.losses(params, x, y), self.correct(params, x, y), self.metrics(params, x, y), gradient

        text = jax.jit(everything).lower(jnp.zeros(self.size), x, y, jnp.ones(len(x))).as_text()
        return hashlib.sha256((self.own.digest() + text).encode()).hexdigest()

    @property
    def user_clips(self) -> bool:
        """Whether the user knows how to clip."""
        return callable(getattr(self.given, "clipped_gradient_sum", None))


def own_model(
    given: Any,
    *,
    name: str,
    identity: Hashable,
    x: NDArray[Any],
    y: NDArray[Any],
    num_classes: int,
    l2: float,
    key: NDArray[np.uint32],
) -> AbstractModel:
    """Return a user's object as a model; an `AbstractModel` is unchanged.

    Args:
        given: the object.
        name: what messages call it.
        identity: see `OwnModel`.
        x, y: some examples, as they will come.
        num_classes: of the data; 0 for targets.
        l2: of the penalty.
        key: draws the initial parameters, uint32[2].

    Raises:
        ScenarioError: it does not hold the contract, as far as this can be told without data; or its code raised.
    """
    if isinstance(given, AbstractModel):
        return given
    for method in NEEDED:
        if not callable(getattr(given, method, None)):
            has = [one for one in dir(given) if not one.startswith("_") and one != method]
            raise ScenarioError(
                f"model: {name}: expected an object with init(key) and losses(params, x, y), found a "
                f"{type(given).__name__} without {method}{nearest(method, has)}; simfl.from_flax, from_equinox and "
                "from_haiku make one of a network"
            )
    tree = _drawn(given, key, x.shape[1:], name)
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = tuple(_path(path) for path, _ in paths)
    trained = _trained(given, tree, name)
    leaves = []
    for at, (_, leaf), is_trained in zip(names, paths, trained, strict=True):
        with in_one_line("model", f"{name}: init: {at}"):
            value = np.asarray(leaf)
        if is_trained and not jnp.issubdtype(value.dtype, jnp.floating):
            raise ScenarioError(
                f"model: {name}: init: {at}: expected floats, found {value.dtype}: it cannot be trained; leave it out "
                "of what init returns, or out of `trained`"
            )
        leaves.append(value.astype(np.float32) if value.dtype == np.float64 else value)
    own = Parameters(structure, names, tuple(leaves), trained)
    if not own.size:
        raise ScenarioError(f"model: {name}: expected parameters that are trained, found none of {len(names)} leaves")
    with in_one_line("model", f"{name}: losses"):
        program = str(jax.make_jaxpr(given.losses)(tree, x, y))
    return OwnModel(
        x.shape[1:],
        num_classes,
        l2,
        name=name,
        identity=(identity, own.digest()),
        all_metrics=_metrics(given, tree, x, y, name),
        has_convolutions="conv_general_dilated" in program,
        says_targets=num_classes == 0 and _predicted(given, tree, x, name) == y.size,
        given=given,
        own=own,
        key=np.asarray(key),
    )


def _predicted(given: Any, tree: Any, x: NDArray[Any], name: str) -> int:
    """Return the number of outputs of the user's `predict`, 0 without one."""
    if not callable(getattr(given, "predict", None)):
        return 0
    with in_one_line("model", f"{name}: predict"):
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(given.predict, tree, x)))


def _takes_tokens(given: Any) -> bool:
    return bool(getattr(given, "tokens", False))


def _metrics(given: Any, tree: Any, x: NDArray[Any], y: NDArray[Any], name: str) -> tuple[str, ...]:
    """Return the names of the user's metrics."""
    if not callable(getattr(given, "metrics", None)):
        return ()
    with in_one_line("model", f"{name}: metrics"):
        metrics = jax.eval_shape(given.metrics, tree, x, y)
    if not isinstance(metrics, Mapping) or not all(isinstance(one, str) and one.isidentifier() for one in metrics):
        raise ScenarioError(
            f"model: {name}: metrics: expected a dictionary of names, words of letters, digits and _, found {metrics}"
        )
    wrong = next((one for one, value in metrics.items() if getattr(value, "shape", None) != (len(x),)), None)
    if wrong is not None:
        raise ScenarioError(
            f"model: {name}: metrics: {wrong}: expected one number for each example, f32[{len(x)}], found "
            f"{described(metrics[wrong])}"
        )
    return tuple(metrics)


def described(value: Any) -> str:
    """Return type and shape of a user's result."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None else f"{dtype}{list(shape)}"


def _drawn(given: Any, key: Array | np.ndarray, input_shape: Sequence[int], name: str) -> Any:
    """Return the result of the user's `init`."""
    typed = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    with in_one_line("model", f"{name}: init"):
        wanted = [
            one
            for one in inspect.signature(given.init).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        if len(wanted) < 2:
            return given.init(typed)
        kind = jnp.int32 if _takes_tokens(given) else jnp.float32
        return given.init(typed, jnp.zeros((1, *input_shape), kind))


def _trained(given: Any, tree: Any, name: str) -> tuple[bool, ...]:
    """Return which leaves are trained."""
    mask = getattr(given, "trained", None)
    if mask is None:
        return (True,) * len(jax.tree.leaves(tree))
    with in_one_line("model", f"{name}: trained"):
        mask = mask(tree) if callable(mask) else mask
    try:
        whole = jax.tree.map(lambda own, branch: jax.tree.map(lambda _: own, branch), mask, tree)
        leaves = jax.tree.leaves(whole)
        wrong = next((own for own in leaves if not isinstance(own, bool | np.bool_)), None)
        if wrong is None and len(leaves) == len(jax.tree.leaves(tree)):
            return tuple(map(bool, leaves))
        reason = f"found {wrong!r}"
    except (ValueError, TypeError, KeyError) as error:
        reason = f"found another tree ({' '.join(str(error).split())[:120]})"
    raise ScenarioError(
        f"model: {name}: trained: expected True or False for each part of what init returns, or for a branch of it, "
        f"{reason}"
    )


def _path(path: Sequence[Any]) -> str:
    """Return the name of a leaf: its path in the pytree with points in between."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".").replace("/", ".") or "parameters"
