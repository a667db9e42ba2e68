"""SGD on one machine and with a server, AUDP and MAPA: the algorithms of the AUDP and MAPA paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.algorithms.staleness import ServerAlgorithmConfig
from simfl.scenario.fields import (
    Count,
    Flag,
    Index,
    NonNegative,
    OpenShare,
    Positive,
    Settled,
    variant,
)
from simfl.scenario.optimizers import USUAL_SERVER_STEPS, ServerSgd, Sgd, usual_step
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import ConstantStep, StepSize

if TYPE_CHECKING:
    from simfl.scenario.scenario import Scenario


_PLAIN = "its step sizes are made for plain SGD; use async_sgd with server_optimizer"


class WithPaperSteps(AlgorithmConfig):
    """Base of the algorithms whose step sizes Table 2 of the AUDP and MAPA paper states."""

    uses_topology: ClassVar[bool] = False

    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=ConstantStep(value=0.4),
        description="step size on the mean gradient of a mini-batch: a number or a schedule; null: Table 2's",
    )

    def warnings(self, scenario: Scenario) -> Iterator[str]:
        """Step sizes of a theorem about plain SGD."""
        yield from super().warnings(scenario)
        if self.step_size is None and (
            self.optimizer != Sgd() or getattr(self, "server_optimizer", ServerSgd()) != ServerSgd()
        ):
            yield (
                "algorithm.step_size: Table 2's step sizes, and the bounds behind them, are those of plain SGD, not of "
                "an optimizer; give one"
            )

    smoothness: Settled[Positive] = Field(default=10.0, description="L of the paper's step sizes, of the gradient")
    sampling_std: Settled[NonNegative] = Field(
        default=5.0, description="sigma of the paper's step sizes: sigma² is the variance of an example's gradient"
    )


class WithinRadius(WithPaperSteps):
    """Base of those whose step sizes know how far from the optimum models get."""

    radius: Settled[Positive] = Field(
        default=50.0, description="R of the paper's step sizes: how far from the optimum models get"
    )


class CentralizedSgd(WithinRadius):
    """CSGD: SGD on one machine with all the data; 1/gamma = L + sqrt(t+1) sigma/(R sqrt(b)) where step_size is null."""

    states: ClassVar[tuple[str, ...]] = ("crash",)

    kind: Literal["centralized_sgd"] = variant("centralized_sgd")

    def contradictions(self, scenario: Scenario) -> Iterator[Problem]:
        """One machine is one client."""
        if (count := scenario.clients.count) != 1:
            yield Problem("1, the machine that has all the data", str(count), "set it to 1", ("clients", "count"))


class ServedSgd(WithPaperSteps, ServerAlgorithmConfig):
    """Base of the algorithms whose server applies each gradient as it comes."""

    delays: Literal["world", "cyclic"] = Field(
        default="world",
        description="staleness of updates: as speeds and links make it (world), or clients take turns (cyclic), so "
        "that it is clients.count - 1 whatever their speeds",
    )
    largest_staleness: Settled[Index | None] = Field(
        default=None, description="tau of the paper's step sizes; null: clients.count, as in the paper"
    )

    def contradictions(self, scenario: Scenario) -> Iterator[Problem]:
        """Clients that take turns have the staleness that follows from that."""
        if self.delays == "cyclic" and self.staleness_bound is not None:
            advice = "remove it, or use delays: world"
            yield Problem("no bound with delays 'cyclic'", "a bound", advice, ("algorithm", "staleness_bound"))


class AsyncSgd(WithinRadius, ServedSgd):
    """ASGD: a server applies gradients as they come; 1/gamma = L (tau+1)² + sqrt(t+1) sigma/(R sqrt(b)), if null."""

    no_optimizer: ClassVar[str] = "its clients send gradients and take no step; use server_optimizer"

    kind: Literal["async_sgd"] = variant("async_sgd")

    @model_validator(mode="before")
    @classmethod
    def _usual_server_step(cls, data: Any) -> Any:
        """The server's optimiser has a step size that fits it, where nothing is said."""
        if not isinstance(data, Mapping) or "step_size" in data:
            return data
        usual = usual_step(data.get("server_optimizer"), USUAL_SERVER_STEPS)
        return data if usual is None else {**data, "step_size": usual}


class Audp(ServedSgd):
    """AUDP: asynchronous SGD with noise; 1/gamma = L (tau+1) + sqrt(Delta_b + 1) sqrt(t) where step_size is null."""

    no_optimizer: ClassVar[str] = _PLAIN
    no_server_optimizer: ClassVar[str] = _PLAIN

    kind: Literal["audp"] = variant("audp")
    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size on the mean gradient of a mini-batch: a number or a schedule; null: the paper's (10)",
    )
    sampling_std: Settled[NonNegative] = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    second_moment: Settled[Literal["exact", "paper"]] = Field(
        default="exact",
        description="the noise in Delta_b: as it is, or as in one dimension, which the paper counts with",
    )
    without_logarithm: Settled[Flag] = Field(
        default=False, description="steps by (11), whose bound has no ln T, instead of (10)"
    )


class Mapa(ServedSgd):
    """MAPA: asynchronous SGD in stages of falling clipping norm, noise and step size; needs Laplace noise."""

    no_optimizer: ClassVar[str] = _PLAIN
    no_server_optimizer: ClassVar[str] = _PLAIN

    kind: Literal["mapa"] = variant("mapa")
    step_size: StepSize | None = Field(default=None, description="null: the stages decide")  # type: ignore[assignment]
    sampling_std: Settled[NonNegative] = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    reduction: Settled[OpenShare] = Field(
        default=0.5, description="theta, by which the clipping norm falls from stage to stage"
    )
    failure_probability: Settled[OpenShare | None] = Field(
        default=None,
        description="delta of Theorem 3, from which the first clipping norm follows; null: it is privacy.clipping_norm",
    )
    initial_gap: Settled[Positive] = Field(
        default=50.0, description="f(x_1) - f*, from which the length of stages follows"
    )
    second_moment: Settled[Literal["auto", "exact", "paper"]] = Field(
        default="auto",
        description="the noise that the stages are made for: exact, d (d+1) (dS/epsilon)², paper, 2 (dS/epsilon)², or "
        "auto: what the mechanism adds",
    )
    rule: Settled[Literal["algorithm1", "text", "table2"]] = Field(
        default="algorithm1",
        description="the next stage's clipping norm: theta times this one's (algorithm1), or as the text or "
        "Table 2 of the paper prints it",
    )
    stages: Settled[Count | None] = Field(
        default=None, description="largest number of stages, the last of which has no end"
    )

    def contradictions(self, scenario: Scenario) -> Iterator[Problem]:
        """The stages follow from noise by norm."""
        yield from super().contradictions(scenario)
        if self.step_size is not None:
            advice = "remove it, or use algorithm kind: audp"
            yield Problem("null, because the stages of mapa decide", "a step size", advice, ("algorithm", "step_size"))
        privacy = scenario.privacy
        if privacy is None or privacy.second_moment is None:
            found = "nothing" if privacy is None else repr(privacy.mechanism)
            advice = "its stages follow from that noise; use it"
            yield Problem(f"laplace_l2 for algorithm '{self.kind}'", found, advice, ("privacy", "mechanism"))
        elif privacy.neighbors != "replace_one":
            advice = "its sensitivity is for an example that is replaced; use it"
            expected = f"replace_one for algorithm '{self.kind}'"
            yield Problem(expected, repr(privacy.neighbors), advice, ("privacy", "neighbors"))
