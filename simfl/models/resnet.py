"""A small residual network for color images: stages of 16, 32 and 64 channels.

He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2, https://arxiv.org/abs/1512.03385: its
networks for CIFAR-10 have 6n + 2 layers; here n = `blocks`, with projections where the shape changes, and with group
instead of batch normalization (Wu and He 2018, https://arxiv.org/abs/1803.08494), since per-example gradients are
meaningless if the examples of a batch are mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layered import AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, GroupNorm
from simfl.models.lazy import jax

STAGES = (16, 32, 64)
GROUP_CHANNELS = 8
"""Channels of a normalization group."""


@dataclass(frozen=True)
class ResNet(AbstractImageClassifier):
    """Residual network with 6 * blocks + 2 layers: 77,850 parameters for CIFAR-10.

    The side of images must be divisible by 4. Layout: a convolution of 3 x 3 and its normalization; then per block
    convolution, normalization, convolution, normalization and, where stages change, the 1 x 1 projection; finally the
    dense layer [c, 64] with biases [c]. Convolutions are [out, in, k, k] without bias, normalizations gains [channels]
    and then biases [channels]. Two blocks per stage give 175,258 parameters.
    """

    blocks: int = 1

    kind: ClassVar[str] = "resnet"
    summary: ClassVar[str] = "small residual network with group normalization, for CIFAR-10"
    max_batch: ClassVar[int] = 64
    cpu_batch: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if (side := self.image[0]) % 4:
            raise ValueError(f"resnet: input_shape: expected a side divisible by 4, found {side}; use kind: lenet5")
        if self.blocks < 1:
            raise ValueError(f"resnet: blocks: expected an integer >= 1, found {self.blocks}")

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The layers in the order of `forward`."""
        side, channels = self.image
        layers: list[AbstractLayer] = []

        def normalized(inputs: int, filters: int, side: int, stride: int) -> None:
            convolution = Convolution(side, inputs, filters, kernel=3, stride=stride, padding=1, bias=False)
            layers.append(convolution)
            layers.append(GroupNorm(convolution.output_side, filters, filters // GROUP_CHANNELS))

        normalized(channels, STAGES[0], side, stride=1)
        channels = STAGES[0]
        for filters, stride in self._strides():
            normalized(channels, filters, side, stride)
            normalized(filters, filters, side // stride, stride=1)
            if stride > 1:
                layers.append(Convolution(side, channels, filters, kernel=1, stride=stride, bias=False))
            channels, side = filters, side // stride
        return (*layers, Dense(STAGES[-1], self.num_classes))

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        h = jax.nn.relu(apply(apply(self.images(x))))
        for _, stride in self._strides():
            residual = apply(apply(jax.nn.relu(apply(apply(h)))))
            shortcut = apply(h) if stride > 1 else h
            h = jax.nn.relu(residual + shortcut)
        return apply(h.mean(axis=(1, 2)))

    def _strides(self) -> list[tuple[int, int]]:
        """Return (filters, stride) of each block; later stages begin with stride 2."""
        return [
            (filters, 2 if stage > 0 and block == 0 else 1)
            for stage, filters in enumerate(STAGES)
            for block in range(self.blocks)
        ]
