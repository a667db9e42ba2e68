"""SGD on one machine and with a server, AUDP and MAPA: the algorithms of the AUDP and MAPA paper."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.algorithms.served import ServerAlgorithmConfig
from simfl.scenario.fields import (
    Count,
    Flag,
    Index,
    NonNegative,
    OpenShare,
    Positive,
    variant,
)
from simfl.scenario.schedules import ConstantStep, StepSize


class WithPaperSteps(AlgorithmConfig):
    """Base of the algorithms whose step sizes Table 2 of the AUDP and MAPA paper states."""

    uses_topology: ClassVar[bool] = False

    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=ConstantStep(value=0.4),
        description="step size on the mean gradient of a mini-batch: a number or a schedule; null: Table 2's",
    )
    smoothness: Positive = Field(default=10.0, description="L of the paper's step sizes, of the gradient")
    sampling_std: NonNegative = Field(
        default=5.0, description="sigma of the paper's step sizes: sigma² is the variance of an example's gradient"
    )


class WithinRadius(WithPaperSteps):
    """Base of those whose step sizes know how far from the optimum models get."""

    radius: Positive = Field(
        default=50.0, description="R of the paper's step sizes: how far from the optimum models get"
    )


class CentralizedSgd(WithinRadius):
    """CSGD: SGD on one machine with all the data; 1/gamma = L + sqrt(t+1) sigma/(R sqrt(b)) where step_size is null."""

    kind: Literal["centralized_sgd"] = variant("centralized_sgd")


class ServedSgd(WithPaperSteps, ServerAlgorithmConfig):
    """Base of the algorithms whose server applies each gradient as it comes."""

    delays: Literal["world", "cyclic"] = Field(
        default="world",
        description="staleness of updates: as speeds and links make it (world), or clients take turns (cyclic), so "
        "that it is clients.count - 1 whatever their speeds",
    )
    largest_staleness: Index | None = Field(
        default=None, description="tau of the paper's step sizes; null: clients.count, as in the paper"
    )


class AsyncSgd(WithinRadius, ServedSgd):
    """ASGD: a server applies gradients as they come; 1/gamma = L (tau+1)² + sqrt(t+1) sigma/(R sqrt(b)), if null."""

    kind: Literal["async_sgd"] = variant("async_sgd")


class Audp(ServedSgd):
    """AUDP: asynchronous SGD with noise; 1/gamma = L (tau+1) + sqrt(Delta_b + 1) sqrt(t) where step_size is null."""

    kind: Literal["audp"] = variant("audp")
    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size on the mean gradient of a mini-batch: a number or a schedule; null: the paper's (10)",
    )
    sampling_std: NonNegative = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    second_moment: Literal["exact", "paper"] = Field(
        default="exact",
        description="the noise in Delta_b: as it is, or as in one dimension, which the paper counts with",
    )
    without_logarithm: Flag = Field(
        default=False, description="steps by (11), whose bound has no ln T, instead of (10)"
    )


class Mapa(ServedSgd):
    """MAPA: asynchronous SGD in stages of falling clipping norm, noise and step size; needs Laplace noise."""

    kind: Literal["mapa"] = variant("mapa")
    step_size: StepSize | None = Field(default=None, description="null: the stages decide")  # type: ignore[assignment]
    sampling_std: NonNegative = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    reduction: OpenShare = Field(default=0.5, description="theta, by which the clipping norm falls from stage to stage")
    failure_probability: OpenShare | None = Field(
        default=None,
        description="delta of Theorem 3, from which the first clipping norm follows; null: it is privacy.clipping_norm",
    )
    initial_gap: Positive = Field(default=50.0, description="f(x_1) - f*, from which the length of stages follows")
    second_moment: Literal["auto", "exact", "paper"] = Field(
        default="auto",
        description="the noise that the stages are made for: exact, d (d+1) (dS/epsilon)², paper, 2 (dS/epsilon)², or "
        "auto: what the mechanism adds",
    )
    rule: Literal["algorithm1", "text", "table2"] = Field(
        default="algorithm1",
        description="the next stage's clipping norm: theta times this one's (algorithm1), or as the text or "
        "Table 2 of the paper prints it",
    )
    stages: Count | None = Field(default=None, description="largest number of stages, the last of which has no end")
