"""Adapter for a user's own model: pure functions on a pytree of parameters.

The contract is what JAX's libraries have in common:

    init(key) -> params                             a pytree of arrays; also init(key, x), x [1, ...] an example
    losses(params, x, y) -> f32[b]                  one loss per example
    training_losses(params, x, y, key) -> f32[1]    of one example, in training, with random draws; optional
    predict(params, x) -> f32[b, ...]               predictions; optional
    metrics(params, x, y) -> {name: f32[b]}         metrics that evaluations average besides the loss; optional
    clipped_gradient_sum(params, x, y, weight, norm) -> a pytree like params; optional, for a closed form
    trained                                         a pytree of bools, or a function params -> one; optional
    tokens                                          True: x are integers and stay so; optional

Trained parameters are raveled once, leaf by leaf in the pytree's order. Others are constants outside of the vector that
is sent, clipped and noised. `simfl.models.trial` tries a model out before a run.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError, nearest
from simfl.models import base
from simfl.models.base import AbstractModel, Array, Layout
from simfl.models.lazy import jax, jnp
from simfl.models.precision import rounded
from simfl.scenario.own_code import in_one_line

CACHE_BYTES = 2**18
"""Most bytes of per-example gradients at a time on a CPU: they are reread at once, and more would leave the cache."""

NEEDED = ("init", "losses")


class Same:
    """Equal only to itself: the identity of an object from Python."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


@dataclass(frozen=True, eq=False)
class Parameters:
    """A pytree of parameters, some of which are trained.

    `names` are the paths of its leaves, `leaves` their initial values; those that are not `trained` keep them.
    """

    structure: jax.tree_util.PyTreeDef
    names: tuple[str, ...]
    leaves: tuple[NDArray[Any], ...]
    trained: tuple[bool, ...]

    @property
    def size(self) -> int:
        """Number of trained values, d."""
        return sum(leaf.size for leaf, is_trained in zip(self.leaves, self.trained, strict=True) if is_trained)

    def tree(self, flat: Array) -> Any:
        """Return the pytree from its trained parameters f32[d]; leaves keep their types."""
        return self.filled(self.cut(flat))

    def cut(self, flat: Array) -> list[Array]:
        """Return the trained leaves from f32[d]."""
        leaves, start = [], 0
        for leaf, is_trained in zip(self.leaves, self.trained, strict=True):
            if is_trained:
                leaves.append(flat[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
                start += leaf.size
        return leaves

    def filled(self, trained: Sequence[Array]) -> Any:
        """Return the pytree from its trained leaves."""
        rest, pairs = iter(trained), zip(self.leaves, self.trained, strict=True)
        leaves = [next(rest) if is_trained else jnp.asarray(leaf) for leaf, is_trained in pairs]
        return jax.tree.unflatten(self.structure, leaves)

    def joined(self, trained: Sequence[Array]) -> Array:
        """Return the trained leaves as one vector, f32[d]."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in trained])

    def flat(self, leaves: Sequence[Any]) -> Array:
        """Return the trained ones of all leaves as one vector, f32[d]."""
        pairs = zip(leaves, self.trained, strict=True)
        return self.joined([jnp.asarray(leaf) for leaf, is_trained in pairs if is_trained])

    def digest(self) -> str:
        """Return the SHA-256 of names, shapes, types and untrained values."""
        digest = hashlib.sha256(str(self.structure).encode())
        for name, leaf, is_trained in zip(self.names, self.leaves, self.trained, strict=True):
            digest.update(f"{name}:{leaf.shape}:{leaf.dtype}:{is_trained};".encode())
            if not is_trained:
                digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class OwnModel(AbstractModel):
    """A user's own model.

    Models are equal, and share compiled programs, if their identities and untrained values are: module, options and
    source of a module, or the object itself without one. `all_metrics` are the keys of its `metrics`; `says_targets`:
    there are no classes, and as many predictions as targets; `own` are the parameters, drawn with `key`, uint32[2].
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
        predicts = callable(getattr(self.given, "predict", None))
        attributes = {
            "kind": self.name,
            "metric_names": tuple(name for name in self.all_metrics if name != "accuracy"),
            "convolutional": self.has_convolutions,
            "fits_targets": self.says_targets,
            "tokens": _takes_tokens(self.given),
            "has_accuracy": "accuracy" in self.all_metrics or (predicts and self.num_classes > 0),
            "predicts": predicts,
            "draws": callable(getattr(self.given, "training_losses", None)),
        }
        for attribute, value in attributes.items():  # class attributes of other models
            object.__setattr__(self, attribute, value)
        super().__post_init__()

    @property
    def size(self) -> int:
        """Number of trained parameters."""
        return self.own.size

    @property
    def clipped_by(self) -> str | None:
        """The user's `clipped_gradient_sum`; None without one."""
        return "clipped_gradient_sum" if callable(getattr(self.given, "clipped_gradient_sum", None)) else None

    @property
    def layout(self) -> Layout:
        """All leaves of the pytree by path, untrained ones included."""
        return tuple((name, leaf.shape) for name, leaf in zip(self.own.names, self.own.leaves, strict=True))

    @property
    def embeddings(self) -> frozenset[str]:
        """The leaves whose names contain "embed"."""
        return frozenset(name for name in self.own.names if "embed" in name.lower())

    def parts(self, params: Any) -> dict[str, Any]:
        """Return the leaves by name; only the trained ones of several models [k, d]."""
        parts, start = {}, 0
        for name, leaf, is_trained in zip(self.own.names, self.own.leaves, self.own.trained, strict=True):
            if is_trained:
                parts[name] = params[..., start : start + leaf.size].reshape(*params.shape[:-1], *leaf.shape)
                start += leaf.size
            elif params.ndim == 1:
                parts[name] = leaf
        return parts

    def joined(self, parts: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the trained parameters f32[d] from leaves; ValueError if wrong.

        Untrained leaves must have this model's values.
        """
        super().joined(parts)
        for name, leaf, is_trained in zip(self.own.names, self.own.leaves, self.own.trained, strict=True):
            if not is_trained and not np.array_equal(leaf.astype(np.float32), parts[name].astype(np.float32)):
                raise ValueError(f"expected {name} as model {self.name} has it, which does not train it, found others")
        pairs = zip(self.own.names, self.own.trained, strict=True)
        return np.concatenate([np.ravel(parts[name]) for name, is_trained in pairs if is_trained]).astype(np.float32)

    def init(self, key: Array | np.ndarray) -> Array:
        """Return the initial trained parameters, f32[d]."""
        if np.array_equal(np.asarray(key), self.key):
            return self.own.flat(self.own.leaves)
        return self.own.flat(jax.tree.leaves(_drawn(self.given, key, self.input_shape, self.name)))

    def predict(self, params: Array, x: Array) -> Array:
        """Return the user's predictions, f32[b, ...]; NaN without any."""
        if not self.predicts:
            return jnp.full(x.shape[0], jnp.nan)
        return jnp.asarray(self.given.predict(self.own.tree(params), x)).astype(jnp.float32)

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the user's losses, f32[b]."""
        return jnp.asarray(self.given.losses(self.own.tree(params), x, y)).astype(jnp.float32)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return the metric `accuracy`, or whether the largest output is right, f32[b].

        One output above 0 means class 1. NaN without classes or outputs.
        """
        if "accuracy" in self.all_metrics:
            return jnp.asarray(self.given.metrics(self.own.tree(params), x, y)["accuracy"]).astype(jnp.float32)
        if not (self.has_accuracy and y.ndim == 1):
            return jnp.full(x.shape[0], jnp.nan)
        z = self.predict(params, x).reshape(x.shape[0], -1)
        predicted = (z[:, 0] > 0).astype(jnp.int32) if z.shape[1] == 1 else jnp.argmax(z, axis=1)
        return jnp.where(predicted == y, 1.0, 0.0)

    def metrics(self, params: Array, x: Array, y: Array) -> dict[str, Array]:
        """Return the user's metrics except `accuracy`, f32[b] each."""
        if not self.metric_names:
            return {}
        metrics = self.given.metrics(self.own.tree(params), x, y)
        return {name: jnp.asarray(metrics[name]).astype(jnp.float32) for name in self.metric_names}

    @rounded
    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i g_i, f32[d], joined from leaves without padding."""
        x = base.masked(x, weight)

        def total(leaves: list[Array]) -> Array:
            return jnp.sum(weight * self._losses(leaves, x, y))

        return self.own.joined(jax.grad(total)(self.own.cut(params)))

    def _losses(self, leaves: list[Array], x: Array, y: Array | base.Keyed) -> Array:
        """Return losses, f32[b], from trained leaves; of keyed labels, those of training."""
        tree = self.own.filled(leaves)
        if not isinstance(y, base.Keyed):
            return jnp.asarray(self.given.losses(tree, x, y)).astype(jnp.float32)

        def single(x: Array, y: Array, key: Array) -> Array:
            loss = self.given.training_losses(tree, x[None], y[None], jax.random.wrap_key_data(key))
            return jnp.asarray(loss)[0].astype(jnp.float32)

        losses: Array = jax.vmap(single)(x, *y)
        return losses

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Return the user's `clipped_gradient_sum`, or clip each gradient.

        Micro-batches hold gradients of at most `GRADIENTS_BYTES`, or `CACHE_BYTES` on a CPU. The user's sum is clipped
        to a norm of C * sum_i weight_i, which bounds it in any case, and counts as zero if it is not finite.
        """
        if self.clipped_by is None:
            return self._clip_each(params, x, y, weight, clipping_norm)
        tree = self.given.clipped_gradient_sum(self.own.tree(params), base.masked(x, weight), y, weight, clipping_norm)
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

        def loss(leaves: list[Array], one_x: Array, one_y: Any) -> Array:
            return self._losses(leaves, one_x[None], jax.tree.map(lambda one: one[None], one_y))[0]

        @rounded
        def each(model: OwnModel, leaves: list[Array], x: Array, y: Any) -> list[Array]:
            del model
            gradients: list[Array] = jax.vmap(jax.grad(loss), (None, 0, 0))(leaves, x, y)
            return gradients

        def part(x: Array, y: Array, weight: Array) -> tuple[list[Array], Array]:
            gradients = each(self, leaves, base.masked(x, weight), y)
            wide = [gradient.astype(jnp.float32) for gradient in gradients]
            squared = sum((jnp.sum(one.reshape(len(x), -1) ** 2, axis=1) for one in wide), jnp.zeros(len(x)))
            scale = base.clipping_scale(squared, weight, clipping_norm)

            def total(gradient: Array) -> Array:
                at = scale.reshape(-1, *(1,) * (gradient.ndim - 1))
                # Selected, since 0 times a non-finite number would be NaN.
                kept = jnp.where(at != 0, gradient, 0.0)
                return kept[0] * scale[0] if len(x) == 1 else jnp.tensordot(scale, kept, 1, precision=base.PRECISION)

            return [total(gradient) for gradient in wide], base.count_unbounded(squared, weight)

        cpu, default = (
            base.sum_in_parts(part, max(1, most // (4 * self.size))) for most in (CACHE_BYTES, base.GRADIENTS_BYTES)
        )
        sums: tuple[list[Array], Array] = jax.lax.platform_dependent(x, y, weight, cpu=cpu, default=default)
        return self.own.joined(sums[0]), sums[1]

    def described(self) -> dict[str, Any]:
        """Return the number of parts and the digest of the initial values."""
        return {"parameters": len(self.layout), "digest": self.own.digest()}

    def program_digest(self, x: NDArray[Any], y: NDArray[Any]) -> str:
        """Return the SHA-256 of the user's computations, as JAX traces them.

        It covers untrained values, but not names, comments and the place of the code.
        """

        def everything(params: Array, x: Array, y: Array, weight: Array) -> Any:
            gradient = self.clip_and_sum(params, x, y, weight, 1.0) if self.clipped_by else ()
            if self.draws:
                gradient = self.gradient_sum(params, x, base.Keyed(y, jnp.zeros((len(x), 2), jnp.uint32)), weight)
            return self.losses(params, x, y), self.correct(params, x, y), self.metrics(params, x, y), gradient

        text = jax.jit(everything).lower(jnp.zeros(self.size), x, y, jnp.ones(len(x))).as_text()
        return hashlib.sha256((self.own.digest() + text).encode()).hexdigest()


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
    """Return a user's object as a model; an `AbstractModel` is returned as it is.

    `name` is for messages, `identity` as in `OwnModel`; x and y are some examples; `num_classes` is 0 for targets;
    `key`, uint32[2], draws the initial parameters. ScenarioError if it violates the contract, as far as that shows
    without data, or if its code raised.
    """
    if isinstance(given, AbstractModel):
        return given
    for method in NEEDED:
        if not callable(getattr(given, method, None)):
            has = [one for one in dir(given) if not one.startswith("_") and one != method]
            raise ScenarioError(
                f"model: {name}: expected an object with init(key) and losses(params, x, y), found a "
                f"{type(given).__name__} without {method}{nearest(method, has)}; simfl.from_torch, from_flax, "
                "from_equinox and from_haiku make one of a network"
            )
    drawing, closed = (callable(getattr(given, method, None)) for method in ("training_losses", "clipped_gradient_sum"))
    if drawing and closed:
        raise ScenarioError(
            f"model: {name}: expected training_losses or clipped_gradient_sum, which has no key for random draws, "
            "found both; leave one out"
        )
    tree = _drawn(given, key, x.shape[1:], name)
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = tuple(
        jax.tree_util.keystr(tuple(path), simple=True, separator=".").replace("/", ".") or "parameters"
        for path, _ in paths
    )
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
    if not callable(getattr(given, "predict", None)):
        return 0
    with in_one_line("model", f"{name}: predict"):
        return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(given.predict, tree, x)))


def _takes_tokens(given: Any) -> bool:
    return bool(getattr(given, "tokens", False))


def _metrics(given: Any, tree: Any, x: NDArray[Any], y: NDArray[Any], name: str) -> tuple[str, ...]:
    if not callable(getattr(given, "metrics", None)):
        return ()
    with in_one_line("model", f"{name}: metrics"):
        shapes = jax.eval_shape(given.metrics, tree, x, y)
    if not isinstance(shapes, Mapping) or not all(isinstance(one, str) and one.isidentifier() for one in shapes):
        raise ScenarioError(
            f"model: {name}: metrics: expected a dictionary of names, words of letters, digits and _, found {shapes}"
        )
    for metric, value in shapes.items():
        if getattr(value, "shape", None) != (len(x),):
            raise ScenarioError(
                f"model: {name}: metrics: {metric}: expected one number for each example, f32[{len(x)}], found "
                f"{described(value)}"
            )
    return tuple(shapes)


def described(value: Any) -> str:
    """Return type and shape of a user's result."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return type(value).__name__ if shape is None else f"{dtype}{list(shape)}"


def _drawn(given: Any, key: Array | np.ndarray, input_shape: Sequence[int], name: str) -> Any:
    typed = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
    with in_one_line("model", f"{name}: init"):
        required = [
            one
            for one in inspect.signature(given.init).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
        if len(required) < 2:
            return given.init(typed)
        kind = jnp.int32 if _takes_tokens(given) else jnp.float32
        return given.init(typed, jnp.zeros((1, *input_shape), kind))


def _trained(given: Any, tree: Any, name: str) -> tuple[bool, ...]:
    mask = getattr(given, "trained", None)
    if mask is None:
        return (True,) * len(jax.tree.leaves(tree))
    with in_one_line("model", f"{name}: trained"):
        mask = mask(tree) if callable(mask) else mask
    try:
        whole = jax.tree.map(lambda is_trained, branch: jax.tree.map(lambda _: is_trained, branch), mask, tree)
        trained = jax.tree.leaves(whole)
        wrong = next((value for value in trained if not isinstance(value, bool | np.bool_)), None)
        if wrong is None and len(trained) == len(jax.tree.leaves(tree)):
            return tuple(map(bool, trained))
        reason = f"found {wrong!r}"
    except (ValueError, TypeError, KeyError) as error:
        reason = f"found another tree ({' '.join(str(error).split())[:120]})"
    raise ScenarioError(
        f"model: {name}: trained: expected True or False for each part of what init returns, or for a branch of it, "
        f"{reason}"
    )
