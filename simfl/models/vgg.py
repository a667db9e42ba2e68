"""VGG for small images: chains of small convolutions, pooled between stages.

Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition", table 1,
https://arxiv.org/abs/1409.1556. As is usual for small images, one dense layer follows the last pooling. Convolutions
are followed by group instead of batch normalization (Wu and He 2018, https://arxiv.org/abs/1803.08494).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from simfl.models.base import Array
from simfl.models.layered import AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Dense
from simfl.models.lazy import jax, jnp
from simfl.models.resnet import check_channels, normalized
from simfl.scenario.fields import FiveCounts, option

#: Convolutions of the five stages, by the number of layers that have weights in the paper.
CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


@dataclass(frozen=True)
class VGG(AbstractImageClassifier):
    """VGG with group normalization: 20,035,018 parameters for CIFAR-10 with 19 layers.

    Each stage ends with the largest of 2 x 2 places, or of what is left. Layout: per convolution its weights
    [out, in, 3, 3] without bias, then gains and biases of its normalization; finally the dense layer.
    """

    depth: Literal[11, 13, 16, 19] = option(19, "layers with weights in the paper, of which three were dense")
    channels: FiveCounts = option((64, 128, 256, 512, 512), "channels of each of the five stages, multiples of 8")

    kind: ClassVar[str] = "vgg"
    summary: ClassVar[str] = "VGG-11, 13, 16 or 19 for CIFAR-10, with group normalization and one dense layer"
    max_batch: ClassVar[int] = 64
    cpu_batch: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.channels) != 5:
            raise ValueError(f"vgg: channels: expected one number for each of 5 stages, found {self.channels}")
        check_channels(self.kind, self.channels)

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The layers in the order of `forward`."""
        side, inputs = self.image
        layers: list[AbstractLayer] = []
        for count, filters in zip(CONVOLUTIONS[self.depth], self.channels, strict=True):
            for _ in range(count):
                layers += normalized(inputs, filters, side)
                inputs = filters
            side = math.ceil(side / 2)
        return (*layers, Dense(side * side * inputs, self.num_classes))

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        h = self.images(x)
        for count in CONVOLUTIONS[self.depth]:
            for _ in range(count):
                h = jax.nn.relu(apply(apply(h)))
            h = largest_of_four(h)
        return apply(h.reshape(-1, h.shape[-1]))


def largest_of_four(h: Array) -> Array:
    """Return the largest of 2 x 2 places of [channels, side, side, b].

    An odd side has one row and one column more, which are compared with themselves. h is at least 0.
    """
    channels, side, _, b = h.shape
    if odd := side % 2:
        h = jnp.pad(h, ((0, 0), (0, odd), (0, odd), (0, 0)))
    half = h.shape[1] // 2
    h = h.reshape(channels, half, 2, 2 * half, b)
    # Selected by a comparison: the derivative of `max` asks which place equals the result, bit for bit, and a place
    # that is computed again may not.
    h = jnp.where(h[:, :, 0] >= h[:, :, 1], h[:, :, 0], h[:, :, 1]).reshape(channels, half, half, 2, b)
    return jnp.where(h[:, :, :, 0] >= h[:, :, :, 1], h[:, :, :, 0], h[:, :, :, 1])
