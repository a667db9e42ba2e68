"""Residual networks for color images, among them ResNet-18.

He et al. 2016, "Deep Residual Learning for Image Recognition", section 4.2, https://arxiv.org/abs/1512.03385: its
networks for CIFAR-10 have 6n + 2 layers; here n = `blocks`, with projections where the shape changes, and with group
instead of batch normalization (Wu and He 2018, https://arxiv.org/abs/1803.08494), since per-example gradients are
meaningless if the examples of a batch are mixed. With `channels: [64, 128, 256, 512]` and two blocks per stage it is
ResNet-18 as it is trained on CIFAR-10: a first convolution of 3 x 3 and no pooling before the stages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simfl.models.base import Array
from simfl.models.layered import AbstractImageClassifier, Pass
from simfl.models.layers import AbstractLayer, Convolution, Dense, GroupNorm
from simfl.models.lazy import jax
from simfl.scenario.fields import Count, Counts, Flag, option

GROUP_CHANNELS = 8
"""Channels of a normalization group."""


def check_channels(kind: str, channels: tuple[int, ...]) -> None:
    """Reject numbers of channels that normalization cannot divide into groups.

    Raises:
        ValueError: one is not a positive multiple of 8.
    """
    if not channels or any(not isinstance(count, int) or count < 1 or count % GROUP_CHANNELS for count in channels):
        raise ValueError(
            f"{kind}: channels: expected one or more positive multiples of {GROUP_CHANNELS}, found {channels}"
        )


def normalized(inputs: int, filters: int, side: int, stride: int = 1) -> tuple[Convolution, GroupNorm]:
    """Return a convolution of 3 x 3 without bias, and its normalization."""
    convolution = Convolution(side, inputs, filters, kernel=3, stride=stride, padding=1, bias=False)
    return convolution, GroupNorm(convolution.output_side, filters, filters // GROUP_CHANNELS)


@dataclass(frozen=True)
class ResNet(AbstractImageClassifier):
    """Residual network with 2 * stages * blocks + 2 layers.

    Stages after the first halve the side of images, which must be divisible by 2 for each of them. Layout: a
    convolution of 3 x 3 and its normalization; then per block convolution, normalization, convolution, normalization
    and, where channels change, the 1 x 1 projection, with its normalization if `normalized_projections`; finally the
    dense layer [c, channels[-1]] with biases [c]. Convolutions are [out, in, k, k] without bias, normalizations gains
    [channels] and then biases [channels]. For CIFAR-10 the default has 77,850 parameters, ResNet-18 11,173,962.
    """

    blocks: Count = option(1, "residual blocks in each stage: 2 stages * blocks + 2 layers")
    channels: Counts = option(
        (16, 32, 64), "channels of each stage, multiples of 8; each stage after the first halves the side"
    )
    normalized_projections: Flag = option(
        False, "normalize the 1 x 1 projections between stages, too, as ResNet-18 does"
    )

    kind: ClassVar[str] = "resnet"
    summary: ClassVar[str] = "a residual convolutional network for CIFAR-10, with group normalization"
    note: ClassVar[str] = "ResNet-18 is {blocks: 2, channels: [64, 128, 256, 512], normalized_projections: true}."
    max_batch: ClassVar[int] = 64
    cpu_batch: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_channels(self.kind, self.channels)
        if (side := self.image[0]) % (parts := 2 ** (len(self.channels) - 1)):
            raise ValueError(
                f"resnet: input_shape: expected a side divisible by {parts}, found {side}; use kind: lenet5"
            )
        if self.blocks < 1:
            raise ValueError(f"resnet: blocks: expected an integer >= 1, found {self.blocks}")

    @property
    def layers(self) -> tuple[AbstractLayer, ...]:
        """The layers in the order of `forward`."""
        side, channels = self.image
        layers: list[AbstractLayer] = [*normalized(channels, self.channels[0], side)]
        channels = self.channels[0]
        for filters, stride in self._strides():
            layers += normalized(channels, filters, side, stride)
            layers += normalized(filters, filters, side // stride)
            if stride > 1:
                layers.append(Convolution(side, channels, filters, kernel=1, stride=stride, bias=False))
                if self.normalized_projections:
                    layers.append(GroupNorm(side // stride, filters, filters // GROUP_CHANNELS))
            channels, side = filters, side // stride
        return (*layers, Dense(self.channels[-1], self.num_classes))

    def forward(self, apply: Pass, x: Array) -> Array:
        """Return the logits, f32[c, b]."""
        h = jax.nn.relu(apply(apply(self.images(x))))
        for _, stride in self._strides():
            residual = apply(apply(jax.nn.relu(apply(apply(h)))))
            if stride > 1:
                h = apply(apply(h)) if self.normalized_projections else apply(h)
            h = jax.nn.relu(residual + h)
        return apply(h.mean(axis=(1, 2)))

    def _strides(self) -> list[tuple[int, int]]:
        """Return (filters, stride) of each block; later stages begin with stride 2."""
        return [
            (filters, 2 if stage > 0 and block == 0 else 1)
            for stage, filters in enumerate(self.channels)
            for block in range(self.blocks)
        ]
