"""MobileNet for small images: depthwise and 1 x 1 convolutions.

Howard et al. 2017, "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications", table 1,
https://arxiv.org/abs/1704.04861. As is usual for small images, the first convolution does not halve the side.
Convolutions are followed by group instead of batch normalization (Wu and He 2018, https://arxiv.org/abs/1803.08494).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layered import AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, Depthwise, GroupNorm
from simfl.models.lazy import jax
from simfl.models.resnet import GROUP_CHANNELS, check_channels, normalized
from simfl.scenario.fields import Counts, option


@dataclass(frozen=True)
class MobileNet(AbstractImageClassifier):
    """MobileNet (version 1) with group normalization.

    It has 3,217,226 parameters for CIFAR-10. `channels` are those of the first convolution and of each stage, `blocks`
    the number of blocks of each stage. Stages after the first halve the side. Layout: the first convolution and its
    normalization; then per block the depthwise weights [in, 3, 3], their normalization, the 1 x 1 weights
    [out, in, 1, 1] and their normalization; finally the dense layer. No convolution has a bias.
    """

    channels: Counts = option(
        (32, 64, 128, 256, 512, 1024), "channels of the first convolution and of each stage, multiples of 8"
    )
    blocks: Counts = option(
        (1, 2, 2, 6, 2), "blocks of each stage: one number fewer than channels; later stages halve the side"
    )

    kind: ClassVar[str] = "mobilenet"
    summary: ClassVar[str] = "MobileNet (version 1) for CIFAR-10, with group normalization"
    max_batch: ClassVar[int] = 64
    cpu_batch: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_channels(self.kind, self.channels)
        if len(self.channels) != len(self.blocks) + 1:
            raise ValueError(
                f"mobilenet: channels: expected {len(self.blocks) + 1} numbers, for the first convolution and each of "
                f"{len(self.blocks)} stages of blocks, found {self.channels}"
            )
        if min(self.blocks) < 1:
            raise ValueError(f"mobilenet: blocks: expected integers >= 1, found {self.blocks}")

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The layers in the order of `forward`."""
        side, colors = self.image
        inputs = self.channels[0]
        layers: list[AbstractLayer] = [*normalized(colors, inputs, side)]
        for stage, (filters, count) in enumerate(zip(self.channels[1:], self.blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(Depthwise(side, inputs, inputs, kernel=3, stride=stride, padding=1, bias=False))
                side = math.ceil(side / stride)
                layers.append(GroupNorm(side, inputs, inputs // GROUP_CHANNELS))
                layers.append(Convolution(side, inputs, filters, kernel=1, bias=False))
                layers.append(GroupNorm(side, filters, filters // GROUP_CHANNELS))
                inputs = filters
        return (*layers, Dense(inputs, self.num_classes))

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        h = self.images(x)
        for _ in range(1 + 2 * sum(self.blocks)):
            h = jax.nn.relu(apply(apply(h)))
        return apply(h.mean(axis=(1, 2)))
