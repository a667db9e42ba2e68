"""LeNet-5: two 5 x 5 convolutions with pooling, dense layers of 120 and 84.

LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition", section II.B,
http://yann.lecun.com/exdb/publis/pdf/lecun-98.pdf. As in most later uses, the second convolution sees all six maps,
pooling has no weights, and the outputs are logits with cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import Array
from simfl.models.layered import ACTIVATIONS, AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, average_pool
from simfl.models.mlp import initial_of
from simfl.scenario.fields import option

SIDE = 32
"""Side of the network's input; smaller images are padded with zeros, as in the paper."""


@dataclass(frozen=True)
class LeNet5(AbstractImageClassifier):
    """LeNet-5, 61,706 parameters for 28 x 28 gray images and 10 classes.

    Layout: convolution 6 x channels x 5 x 5, convolution 16 x 6 x 5 x 5, dense 120 x 400, 84 x 120, c x 84; each as
    weights [out, ...] by rows, then its biases [out]. `activation` is "relu" or "tanh" (the paper's).
    """

    activation: Literal["relu", "tanh"] = option("relu", "non-linearity: relu or tanh (the paper's)")

    kind: ClassVar[str] = "lenet5"
    summary: ClassVar[str] = "LeNet-5, a small convolutional network for images"
    largest: ClassVar[int | None] = SIDE

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """Two convolutions and three dense layers."""
        init = initial_of(self.activation)
        return (
            Convolution(SIDE, self.image[1], 6, kernel=5, init_kind=init),
            Convolution(14, 6, 16, kernel=5, init_kind=init),
            Dense(400, 120, init_kind=init),
            Dense(120, 84, init_kind=init),
            Dense(84, self.num_classes),
        )

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        activate = ACTIVATIONS[self.activation]
        h = average_pool(activate(apply(self.images(x, SIDE))))
        h = average_pool(activate(apply(h)))
        h = activate(apply(h.reshape(400, -1)))
        h = activate(apply(h))
        return apply(h)
