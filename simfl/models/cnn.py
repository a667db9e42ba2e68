"""A small convolutional network: two convolutions, pooling, one dense layer.

It is from the AUDP and MAPA paper (Li, Yang, Ren and Zhao 2019, https://arxiv.org/abs/1912.07902, Section 7.1.2): 10
and 10 filters, then 160 values for 28 x 28 images (MNIST) and 10 for 16 x 16 images (USPS) into the logits. The paper
does not specify the pooling; here it is average pooling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import Array
from simfl.models.layered import ACTIVATIONS, AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, average_pool
from simfl.models.mlp import initial_of
from simfl.scenario.fields import Count, option

KERNEL = 5
SMALLEST = 16
"""Images are padded with zeros to at least this side, and to a multiple of 4, so that both poolings are even."""


@dataclass(frozen=True)
class CNN(AbstractImageClassifier):
    """Two convolutions and a dense layer; 4,380 parameters for MNIST.

    Layout: convolution filters[0] x channels x 5 x 5, convolution filters[1] x filters[0] x 5 x 5, dense; each as
    weights [out, ...] by rows, then its biases [out]. The activation functions, "relu" or "tanh", follow the poolings.
    """

    filters: tuple[Count, Count] = option((10, 10), "number of filters of each of the two 5 x 5 convolutions")
    activation: Literal["relu", "tanh"] = option("relu", "non-linearity: relu or tanh")

    kind: ClassVar[str] = "cnn"
    summary: ClassVar[str] = "the CNN of the MAPA paper, for images"
    note: ClassVar[str] = "It has two small convolutions with pooling and a dense layer."
    smallest: ClassVar[int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        filters = tuple(self.filters)
        if len(filters) != 2 or any(not isinstance(count, int) or count < 1 for count in filters):
            raise ValueError(f"cnn: filters: expected two integers > 0, found {self.filters}")
        object.__setattr__(self, "filters", filters)

    @property
    def side(self) -> int:
        """Side of the network's input."""
        return max(SMALLEST, -(-self.image[0] // 4) * 4)

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """Two convolutions and the logits."""
        init = initial_of(self.activation)
        first, second = self.filters
        after = (self.side - KERNEL + 1) // 2
        last = (after - KERNEL + 1) // 2
        return (
            Convolution(self.side, self.image[1], first, kernel=KERNEL, init_kind=init),
            Convolution(after, first, second, kernel=KERNEL, init_kind=init),
            Dense(second * last * last, self.num_classes),
        )

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        activate = ACTIVATIONS[self.activation]
        h = activate(average_pool(apply(self.images(x, self.side))))
        h = activate(average_pool(apply(h)))
        return apply(h.reshape(-1, h.shape[-1]))
