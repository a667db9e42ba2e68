"""The interface of models: pure functions of one flat float32 vector.

A model is a frozen, hashable object without state. Its parameters are one vector `f32[d]`, so the executor can keep
hundreds of them as rows of one array, average them and add noise without knowing the model. Every method works under
`jax.jit` and `jax.vmap`.

A model needs only `size`, `init`, `predict`, `losses` and `correct`: the gradients and the per-example clipping below
fit all models, in micro-batches of bounded memory. The models of this folder override them with closed forms where that
is faster. `simfl.models.own` adapts a user's model.

Per-example clipping: Abadi et al. 2016, "Deep Learning with Differential Privacy", Algorithm 1,
https://arxiv.org/abs/1607.00133.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from simfl.errors import nearest
from simfl.models.lazy import jax, jnp, lax, np
from simfl.models.precision import rounded
from simfl.plugins import is_simfls

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "jax.Array"
"""An array on the device, or its tracer."""

GRADIENTS_BYTES = 2**24
"""Most bytes of per-example gradients at a time, unless one is larger, for each of the operations side by side."""

PRECISION = "highest"
"""Full float32 products: GPUs round inputs to 10 bits by default, which would break clipping bounds."""

SumOfExamples: TypeAlias = Callable[[Array, Any, Array], tuple[Any, Array]]
"""(x, y, weight) of some examples -> their parts of a sum of gradients, and of a count, int32[]."""

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""What the factors of matrix products in gradients are rounded to."""

Layout: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of the parts of a flat vector, in order, each by rows."""


class Keyed(NamedTuple):
    """Labels of a mini-batch on which a model that `draws` is trained.

    y is [b, ...], `keys` uint32 [b, 2] one for each example.
    """

    y: Array
    keys: Array


@dataclass(frozen=True)
class Declared(ABC):
    """A model before anything is computed: its options and its parameters' parts.

    `input_shape` is without the batch axis; `num_classes` is 0 for regression and for points. `l2` is the lambda >= 0
    of the penalty lambda/2 ||w||^2 over all d parameters. It belongs to `mean_loss` and never to the gradient sums: it
    does not depend on the data, so it is neither clipped nor noised. The code that takes the step adds lambda * w after
    the mean. `precision` is that of the products in gradients (`simfl.models.precision`); predictions, losses and
    metrics are float32.
    """

    input_shape: tuple[int, ...]
    num_classes: int = 0
    l2: float = 0.0
    precision: Precision = field(default="float32", kw_only=True, repr=False)

    kind: ClassVar[str]
    """Name of the model in a scenario."""
    summary: ClassVar[str]
    """One line for `simfl list`."""
    convolutional: ClassVar[bool] = False
    """Whether vmapping over parameters slows the model down on a CPU."""
    tokens: ClassVar[bool] = False
    """Whether it is a model of sequences, with x int32 [b, length]."""
    metric_names: ClassVar[tuple[str, ...]] = ()
    """Keys of `metrics`."""

    fits_targets: ClassVar[bool] = False
    """Whether `predict` returns targets, so that their errors can be measured."""
    has_accuracy: ClassVar[bool] = True
    """Whether predictions are right or wrong, for data with classes."""
    predicts: ClassVar[bool] = True
    """Whether the model has predictions and not only a loss."""
    draws: ClassVar[bool] = False
    """Whether its gradients take `Keyed` labels in training, as those of dropout do."""

    def __post_init__(self) -> None:
        shape = tuple(int(side) for side in self.input_shape)
        if not shape or any(side < 1 for side in shape):
            raise ValueError(f"{self.kind}: input_shape: expected one or more integers > 0, found {self.input_shape}")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise ValueError(f"{self.kind}: l2: expected a finite number >= 0, found {self.l2}")
        object.__setattr__(self, "input_shape", shape)
        for name, words in _choices_of(type(self)).items():
            if (word := getattr(self, name)) not in words:
                listed = [*map(str, words)]
                expected = f"expected one of {', '.join(listed)}, found {word!r}{nearest(word, listed)}"
                raise ValueError(f"{self.kind}: {name}: {expected}")

    @property
    def first_convolution(self) -> int | None:
        """Number of parameters of its first layer, if that is a convolution."""
        return None

    @property
    def num_features(self) -> int:
        """Number of values in one example, p."""
        return math.prod(self.input_shape)

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of parameters, d."""

    @property
    def layout(self) -> Layout:
        """Parts of the parameters; by default one, `parameters`."""
        return (("parameters", (self.size,)),)

    @property
    def embeddings(self) -> frozenset[str]:
        """Names of the parts that are embeddings, of tokens or of places."""
        return frozenset()

    def parts(self, params: Any) -> dict[str, Any]:
        """Return the parts of parameters [..., d] by name, each [..., *shape]."""
        parts: dict[str, Any] = {}
        start = 0
        for name, shape in self.layout:
            end = start + math.prod(shape)
            parts[name] = params[..., start:end].reshape(*params.shape[:-1], *shape)
            start = end
        return parts

    def joined(self, parts: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the parameters f32[d] from their parts; ValueError for wrong ones."""
        shapes = {name: tuple(part.shape) for name, part in parts.items()}
        if shapes != dict(self.layout):
            raise ValueError(f"expected {_show(dict(self.layout))} of model {self.kind}, found {_show(shapes)}")
        return np.concatenate([np.ravel(parts[name]).astype(np.float32) for name, _ in self.layout])

    def described(self) -> dict[str, Any]:
        """Return a user's model's entry in the manifest; empty for simfl's models."""
        return {}


@dataclass(frozen=True)
class AbstractModel(Declared):
    """A model as pure functions of its parameters, a vector f32[d]."""

    @property
    def task_models(self) -> tuple[AbstractModel, ...]:
        """The models within it that can be trained separately."""
        return (self,)

    @property
    def clipped_by(self) -> str | None:
        """Name of the function outside of simfl that clips examples; None without one.

        The general `clip_and_sum` of this class clips the gradient of every example, whatever a subclass computes.
        """
        return self.own_method("clip_and_sum", "clipped_gradient_sum", "_gradients")

    def own_method(self, *names: str) -> str | None:
        """Return the first of these methods that is not simfl's; None without one."""
        if is_simfls(type(self)):
            return None
        return next((name for name in names if getattr(type(self), name) is not getattr(AbstractModel, name)), None)

    def with_precision(self, precision: Precision) -> AbstractModel:
        """Return the model with products of another precision."""
        if precision == self.precision:
            return self
        model = copy.copy(self)  # a user's class may not be made from its fields
        object.__setattr__(model, "precision", precision)
        return model

    def program_digest(self, x: NDArray[Any], y: NDArray[Any]) -> str:
        """Return a SHA-256 of the computations for examples like these."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @abstractmethod
    def init(self, key: Array | np.ndarray) -> Array:
        """Return the initial parameters, f32[d], from a raw threefry key, uint32[2]."""

    @abstractmethod
    def predict(self, params: Array, x: Array) -> Array:
        """Return predictions for x [b, *input_shape]: logits f32[b, c], or f32[b]."""

    @abstractmethod
    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the loss of each example, f32[b], without the penalty."""

    @abstractmethod
    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return 1.0 for right and 0.0 for wrong predictions, f32[b], or NaN."""

    def metrics(self, params: Array, x: Array, y: Array) -> dict[str, Array]:
        """Return additional metrics for evaluations, f32[b], by `metric_names`."""
        del params, x, y
        return {}

    @rounded
    def gradient_sum(self, params: Array, x: Array, y: Array, weight: Array) -> Array:
        """Return sum_i weight_i g_i, f32[d], gradients of losses without penalty.

        `weight` is f32[b]; 0 marks padding, which contributes exactly 0 for any finite x. x is f32[b, *input_shape], y
        int32[b] labels or f32[b] targets.
        """
        x = masked(x, weight)
        return jax.grad(lambda w: jnp.sum(weight * self.losses(w, x, y)))(params)

    def clipped_gradient_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> Array:
        """Return sum_i weight_i g_i min(1, C / ||g_i||_2), f32[d]; see `clip_and_sum`."""
        return self.clip_and_sum(params, x, y, weight, clipping_norm)[0]

    def clip_and_sum(
        self, params: Array, x: Array, y: Array, weight: Array, clipping_norm: float | Array
    ) -> tuple[Array, Array]:
        """Return the clipped sum f32[d], and the count int32[] of gradients set to zero.

        The sum is sum_i weight_i g_i min(1, C / ||g_i||_2), C the `clipping_norm` > 0 over all parameters together,
        which may be inf (no clipping) or traced. Its norm is at most C * sum_i weight_i for all finite x and all
        parameters: a gradient whose squared norm is not a finite float32 cannot be scaled, and contributes exactly 0.
        The other arguments are as in `gradient_sum`.
        """

        def part(x: Array, y: Array, weight: Array) -> tuple[Array, Array]:
            gradients = self._gradients(params, masked(x, weight), y)
            squared_norms = jnp.sum(gradients * gradients, axis=1)
            scale = clipping_scale(squared_norms, weight, clipping_norm)
            kept = jnp.where(scale[:, None] != 0, gradients, 0.0)
            return jnp.matmul(scale, kept, precision=PRECISION), count_unbounded(squared_norms, weight)

        return sum_in_parts(part, gradients_at_a_time(self.size))(x, y, weight)

    def gradient_norms(self, params: Array, x: Array, y: Array) -> Array:
        """Return ||g_i||_2 of every example, f32[b]; a gradient of 0 may give about 1e-18."""
        b, size = x.shape[0], gradients_at_a_time(self.size)

        def norms(some: tuple[Array, Array]) -> Array:
            gradients = self._gradients(params, *some)
            return jnp.sqrt(jnp.sum(gradients * gradients, axis=1))

        if b <= size:
            return norms((x, y))
        squeezed: Array = jax.lax.map(norms, (in_parts(x, size), in_parts(y, size)))
        return squeezed.reshape(-1)[:b]

    @rounded
    def _gradients(self, params: Array, x: Array, y: Array) -> Array:
        """Return g_i of every example, f32[b, d], with b times the memory of a gradient."""

        def single(w: Array, x_i: Array, y_i: Array) -> Array:
            return self.losses(w, x_i[None], y_i[None])[0]

        return jax.vmap(jax.grad(single), in_axes=(None, 0, 0))(params, x, y)


@functools.cache
def _choices_of(model: type[AbstractModel]) -> dict[str, tuple[Any, ...]]:
    """Return the values of the options that are one of some words or numbers."""
    hints = get_type_hints(model)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _show(shapes: Mapping[str, tuple[int, ...]], most: int = 6) -> str:
    named = [f"{name} {list(shape)}" for name, shape in shapes.items()]
    return ", ".join(named[:most] + [f"{len(named) - most} more"] * (len(named) > most)) or "none"


def gradients_at_a_time(size: int) -> int:
    """Return the number of per-example gradients [size] computed together."""
    return max(1, GRADIENTS_BYTES // (4 * size))


def mean_loss(model: AbstractModel, params: Array, x: Array, y: Array, weight: Array) -> Array:
    """Return sum_i weight_i loss_i / sum_i weight_i + lambda/2 ||w||^2, f32[]."""
    losses = jnp.where(weight != 0, model.losses(params, x, y), 0.0)
    return jnp.sum(weight * losses) / jnp.sum(weight) + 0.5 * model.l2 * jnp.sum(params * params)


def masked(x: Array, weight: Array) -> Array:
    """Return x [b, ...] with zeros for weight 0, so that padding stays finite."""
    return jnp.where(weight.reshape(-1, *(1,) * (x.ndim - 1)) != 0, x, jnp.zeros((), x.dtype))


def in_parts(array: Array, size: int) -> Array:
    """Return an array [b, ...] as [ceil(b / size), size, ...], padded with zeros."""
    missing = -array.shape[0] % size
    return jnp.pad(array, ((0, missing), *((0, 0),) * (array.ndim - 1))).reshape(-1, size, *array.shape[1:])


def sum_in_parts(part: SumOfExamples, size: int) -> SumOfExamples:
    """Return a function with the same sums, over at most `size` examples at a time.

    Parts after the last example with a weight are not computed: a mini-batch of Poisson sampling uses a part of its
    lanes.
    """

    def total(x: Array, y: Any, weight: Array) -> tuple[Any, Array]:
        count = x.shape[0]
        if count <= size:
            return part(x, y, weight)
        each = -(-count // -(-count // size))
        parts = jax.tree.map(lambda array: in_parts(array, each), (x, y, weight))

        def add(k: Array, sums: Any) -> Any:
            some = jax.tree.map(lambda array: lax.dynamic_index_in_dim(array, k, keepdims=False), parts)
            return jax.tree.map(jnp.add, sums, part(*some))

        shapes = jax.eval_shape(part, *jax.tree.map(lambda array: array[0], parts))
        nothing = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
        last = jnp.max(jnp.where(weight != 0, jnp.arange(1, count + 1), 0))
        sums: tuple[Any, Array] = lax.fori_loop(0, (last + each - 1) // each, add, nothing)
        return sums

    return total


def clipping_scale(squared_norms: Array, weight: Array, clipping_norm: float | Array) -> Array:
    """Return weight_i min(1, C / ||g_i||), f32[b]; 0 if the norm is not finite.

    Callers that multiply by it have to select as well, since 0 times inf is NaN.
    """
    scale = weight * clipping_factor(squared_norms, clipping_norm)
    return jnp.where(squared_norms < jnp.inf, scale, 0.0)


def clipping_factor(squared_norm: Array, bound: float | Array) -> Array:
    """Return min(1, bound / norm); 1 for norm 0, even with bound 0 (unused lane)."""
    norm = jnp.sqrt(squared_norm)
    return jnp.where(norm > bound, bound / norm, 1.0)


def count_unbounded(squared_norms: Array, weight: Array) -> Array:
    """Return the number, int32[], of gradients with non-finite squared norm [b]."""
    return jnp.sum((weight != 0) & ~(squared_norms < jnp.inf), dtype=jnp.int32)
