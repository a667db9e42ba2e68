"""Base of models of sequences: next tokens, with a loss per sequence.

An example is x, `length` tokens, with the label y, the token after them. At place t = 1 ... length the model has seen
x_1 ... x_t and predicts the next token, x_{t+1} or, at the last place, y:

    loss = mean over the places of -log p_t(next token),

or that of the last place only. So there is one loss per example, whose gradient is clipped as a whole: the unit of
privacy is a sequence. Accuracy is the share of places whose likeliest token is right. The prediction for a sequence is
the logits of the last place.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import AbstractModel, Array, Layout
from simfl.models.lazy import jax, jnp, np
from simfl.scenario.fields import option


@dataclass(frozen=True)
class AbstractSequenceModel(AbstractModel):
    """A model of sequences of tokens; subclasses define `layout` and `logits`.

    Initial weights W [out, in] are Gaussian with Glorot's variance 2/(in + out), biases 0, gains 1; subclasses may
    override `first`. The loss covers "all" `positions`, or the "last" one.
    """

    positions: Literal["all", "last"] = option(
        "all", "whether the loss of an example is the mean over all places of its window, or that of the last one"
    )

    tasks: ClassVar[tuple[str, ...]] = ("tokens", "unknown")
    tokens: ClassVar[bool] = True
    metric_names: ClassVar[tuple[str, ...]] = ("bits_per_token",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.input_shape) != 1 or self.num_classes < 2:
            raise ValueError(
                f"{self.kind}: expected sequences of tokens, [length], of 2 or more different ones, found shape "
                f"{self.input_shape} and {self.num_classes} tokens"
            )
        for name in ("width", "layers", "heads"):
            if getattr(self, name, 1) < 1:
                raise ValueError(f"{self.kind}: {name}: expected an integer >= 1, found {getattr(self, name)}")

    @property
    def length(self) -> int:
        """Number of tokens of a sequence."""
        return self.input_shape[0]

    @property
    def size(self) -> int:
        """Sum of the sizes of the parts."""
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The parts: weights are [out, in], embeddings [token or place, width]."""

    @abstractmethod
    def logits(self, params: Array, x: Array) -> Array:
        """Return next-token logits of x int32 [b, length], f32 [b, length, tokens]."""

    def first(self, name: str, shape: tuple[int, ...], key: Array) -> Array:
        """Draw a part from a typed key."""
        kind = name.rpartition(".")[2]
        if len(shape) == 1:
            return jnp.ones(shape) if kind == "gain" else jnp.zeros(shape)
        return math.sqrt(2.0 / sum(shape)) * jax.random.normal(key, shape)

    def init(self, key: Array | np.ndarray) -> Array:
        """Draw each part from its own key."""
        drawn: Array = _drawing(self)(jnp.asarray(key))
        return drawn

    def next_tokens(self, x: Array, y: Array) -> Array:
        """Return the next token at every place, int32 [b, length]."""
        return jnp.concatenate([x[:, 1:], y[:, None]], axis=1)

    def over_places(self, values: Array) -> Array:
        """Return the mean over the counted places, [b, length] to [b]."""
        return values[:, -1] if self.positions == "last" else values.mean(axis=1)

    def predict(self, params: Array, x: Array) -> Array:
        """Return the logits of the token after the sequence, f32[b, tokens]."""
        return self.logits(params, x)[:, -1]

    def losses_of(self, logits: Array, x: Array, y: Array) -> Array:
        """Return the loss of each sequence, f32[b], from its logits."""
        is_next = self.next_tokens(x, y)[:, :, None] == jnp.arange(self.num_classes)
        right = jnp.sum(jnp.where(is_next, logits, 0.0), axis=2)
        return self.over_places(jax.nn.logsumexp(logits, axis=2) - right)

    def losses(self, params: Array, x: Array, y: Array) -> Array:
        """Return the mean cross-entropy of each sequence, in nats per token, f32[b]."""
        return self.losses_of(self.logits(params, x), x, y)

    def correct(self, params: Array, x: Array, y: Array) -> Array:
        """Return the share of places whose likeliest token is right, f32[b]."""
        right = jnp.argmax(self.logits(params, x), axis=2) == self.next_tokens(x, y)
        return self.over_places(right.astype(jnp.float32))

    def metrics(self, params: Array, x: Array, y: Array) -> dict[str, Array]:
        """Return the loss in bits; 2 to the power of its mean is the perplexity."""
        return {"bits_per_token": self.losses(params, x, y) / math.log(2.0)}


@functools.lru_cache(maxsize=16)
def _drawing(model: AbstractSequenceModel) -> Callable[[Array], Array]:
    def draw(key: Array) -> Array:
        keys = jax.random.split(jax.random.wrap_key_data(key, impl="threefry2x32"), len(model.layout))
        parts = [model.first(name, shape, keys[at]) for at, (name, shape) in enumerate(model.layout)]
        return jnp.concatenate([part.reshape(-1) for part in parts])

    drawing: Callable[[Array], Array] = jax.jit(draw)
    return drawing
