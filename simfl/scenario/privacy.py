"""The noise that clients add to what they release, and what it is meant to protect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simfl.scenario.fields import ByKind, Config, NonNegative, OpenShare, Positive, variant


class Gaussian(Config):
    """Gaussian noise on the sum of per-example clipped gradients (DP-SGD)."""

    mechanism: Literal["gaussian"] = variant("gaussian")
    clipping_norm: Positive = Field(default=1.0, description="C, the bound on the L2 norm of each example's gradient")
    noise_multiplier: NonNegative = Field(
        default=1.0,
        description="z: the noise on the sum has standard deviation z * clipping_norm; 0 clips and adds none",
    )
    delta: OpenShare = Field(default=1e-5, description="delta of the (epsilon, delta) that is reported")
    neighbors: Literal["add_or_remove"] = Field(
        default="add_or_remove", description="neighboring data sets differ by one example more or less"
    )
    view: Literal["local"] = Field(
        default="local", description="the adversary sees everything that one client ever sent"
    )


class UnclippedGaussian(Config):
    """Noise of a given size on the sum of gradients that are not clipped, as some papers print it: never certified."""

    mechanism: Literal["gaussian_unclipped"] = variant("gaussian_unclipped")
    noise_std: NonNegative = Field(
        default=1.0, description="standard deviation of the noise on the sum, per coordinate"
    )
    delta: OpenShare = Field(default=1e-5, description="delta of the claim that is reported")


Privacy = Annotated[Gaussian | UnclippedGaussian, ByKind("mechanism", default="gaussian")]
