"""LeNet-5: two 5 x 5 convolutions with pooling, dense layers of 120 and 84.

LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition", section II.B,
http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf. As in most later uses, the second convolution sees all six maps,
pooling has no weights, and the outputs are logits with cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from simfl.models.base import Array, image_shape
from simfl.models.layered import ACTIVATIONS, AbstractClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, average_pool
from simfl.models.mlp import check_activation, initial_of

SIDE = 32
"""Side of the network's input; smaller images are padded with zeros, as in the paper."""


@dataclass(frozen=True)
class LeNet5(AbstractClassifier):
    """LeNet-5, 61,706 parameters for 28 x 28 gray images and 10 classes.

    Accepts images (side, side) or (side, side, channels) and flat squares (side * side,), 8 <= side <= 32. Layout:
    convolution 6 x channels x 5 x 5, convolution 16 x 6 x 5 x 5, dense 120 x 400, 84 x 120, c x 84; each as weights
    [out, ...] by rows, then its biases [out]. `activation` is "relu" or "tanh" (the paper's).
    """

    activation: str = "relu"

    kind: ClassVar[str] = "lenet5"
    summary: ClassVar[str] = "LeNet-5, convolutional, for square images up to 32 x 32"
    convolutional: ClassVar[bool] = True
    max_batch: ClassVar[int] = 128
    cpu_batch: ClassVar[int] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        image_shape(self.kind, self.input_shape, smallest=8, largest=SIDE)
        check_activation(self.kind, self.activation)

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """Two convolutions and three dense layers."""
        _, channels = image_shape(self.kind, self.input_shape, smallest=8, largest=SIDE)
        init = initial_of(self.activation)
        return (
            Convolution(SIDE, channels, 6, kernel=5, init_kind=init),
            Convolution(14, 6, 16, kernel=5, init_kind=init),
            Dense(400, 120, init_kind=init),
            Dense(120, 84, init_kind=init),
            Dense(84, self.num_classes),
        )

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        activate = ACTIVATIONS[self.activation]
        side, channels = image_shape(self.kind, self.input_shape, smallest=8, largest=SIDE)
        before = (SIDE - side) // 2
        frame = (before, SIDE - side - before)
        h = x.reshape(-1, side, side, channels).transpose(3, 1, 2, 0)
        h = jnp.pad(h, ((0, 0), frame, frame, (0, 0)))
        h = average_pool(activate(apply(h)))
        h = average_pool(activate(apply(h)))
        h = activate(apply(h.reshape(400, -1)))
        h = activate(apply(h))
        return apply(h)
