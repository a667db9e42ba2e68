"""Multi-layer perceptron with cross-entropy loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import Array
from simfl.models.layered import ACTIVATIONS, AbstractClassifier, Pass
from simfl.models.layers import AbstractLayer, Dense
from simfl.scenario.fields import Counts, option


@dataclass(frozen=True)
class MLP(AbstractClassifier):
    """Perceptron; layout: per layer W [out, in] by rows, then b [out].

    Initial weights are Gaussian: He's variance 2/in before relu, Glorot's 2/(in + out) elsewhere; biases 0.
    """

    hidden: Counts = option((64,), "width of each hidden layer, from the input on")
    activation: Literal["relu", "tanh"] = option("relu", "non-linearity of the hidden layers: relu or tanh")

    kind: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "a multi-layer perceptron"

    def __post_init__(self) -> None:
        super().__post_init__()
        hidden = tuple(self.hidden)
        if not hidden or any(not isinstance(units, int) or units < 1 for units in hidden):
            raise ValueError(f"mlp: hidden: expected one or more integers > 0, found {self.hidden}")
        object.__setattr__(self, "hidden", hidden)

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The hidden layers and the logits."""
        sizes = (self.num_features, *self.hidden, self.num_classes)
        inits = [initial_of(self.activation)] * len(self.hidden) + ["xavier"]
        return tuple(
            Dense(sizes[index], sizes[index + 1], init_kind=init, example_first=index == 0)
            for index, init in enumerate(inits)
        )

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        activate = ACTIVATIONS[self.activation]
        h = apply(x.reshape(x.shape[0], -1))
        for _ in self.hidden:
            h = apply(activate(h))
        return h


def initial_of(activation: str) -> str:
    """Return the initial weights: "he" before relu, "xavier" before tanh."""
    return "he" if activation == "relu" else "xavier"
