"""SGD on one machine, and SGD with a server that applies each gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from simfl.scenario.algorithms.base import AlgorithmConfig, Sections, ServerAlgorithmConfig, states
from simfl.scenario.fields import Arithmetic, Index, NonNegative, Positive, Settled, option, variant
from simfl.scenario.optimizers import USUAL_SERVER_STEPS, ServerSgd, Sgd
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import ConstantStep, StepSize
from simfl.scenario.seams import Uses


class WithPaperSteps(AlgorithmConfig):
    """Base of algorithms with the step sizes of Table 2 of the MAPA paper."""

    uses: ClassVar[Uses] = Uses(graph="none")

    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=ConstantStep(value=0.4),
        description="step size of a mini-batch; null: Table 2's",
    )

    def warnings(self, scenario: Sections) -> Iterator[str]:
        """Warn of the theorem's step sizes with another optimizer than SGD."""
        yield from super().warnings(scenario)
        if self.step_size is None and (
            self.optimizer != Sgd() or getattr(self, "server_optimizer", ServerSgd()) != ServerSgd()
        ):
            yield (
                "algorithm.step_size: Table 2's step sizes, and the bounds behind them, are those of plain SGD, not of "
                "an optimizer; give one"
            )

    smoothness: Settled[Arithmetic[Positive]] = option(10.0, "L of the paper's step sizes, of the gradient")
    sampling_std: Settled[Arithmetic[NonNegative]] = option(
        5.0, "sigma of the paper's step sizes: sigma² is the variance of an example's gradient"
    )


class WithinRadius(WithPaperSteps):
    """Base of algorithms whose step sizes depend on the distance from the optimum."""

    radius: Settled[Arithmetic[Positive]] = option(
        50.0, "R of the paper's step sizes: how far from the optimum models get"
    )


class CentralizedSgd(WithinRadius):
    """CSGD: SGD on one machine with all the data.

    If step_size is null, 1/gamma = L + sqrt(t+1) sigma/(R sqrt(b)).
    """

    uses: ClassVar[Uses] = Uses(graph="none", channel="one_machine", sum="one", step="one_model")
    fixed: ClassVar[Mapping[str, str]] = states("crash")
    kind: Literal["centralized_sgd"] = variant("centralized_sgd")

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a problem unless there is one client."""
        if (count := scenario.clients.count) != 1:
            yield Problem("1, the machine that has all the data", str(count), "set it to 1", ("clients", "count"))


class ServedSgd(WithPaperSteps, ServerAlgorithmConfig):
    """Base of the algorithms whose server applies each gradient as it comes."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, channel="theory")
    delays: Literal["world", "cyclic"] = option(
        "world",
        "staleness: as speeds and links make it (world), or clients take turns (cyclic), so that it is "
        "clients.count - 1",
    )
    largest_staleness: Settled[Index | None] = option(
        None, "tau of the paper's step sizes; null: clients.count, as in the paper"
    )


class AsyncSgd(WithinRadius, ServedSgd):
    """ASGD: a server applies each gradient as it arrives.

    If step_size is null, 1/gamma = L (tau+1)² + sqrt(t+1) sigma/(R sqrt(b)).
    """

    uses: ClassVar[Uses] = ServerAlgorithmConfig.uses
    fixed: ClassVar[Mapping[str, str]] = {
        "optimizer": "its clients send gradients and take no step; use server_optimizer"
    }
    optimizer_steps = (("step_size", "server_optimizer", USUAL_SERVER_STEPS),)
    kind: Literal["async_sgd"] = variant("async_sgd")
    delay_limit: Arithmetic[Positive | None] = option(
        None,
        "c of step sizes that adapt to delays: an update of staleness tau has at most the step c / tau; papers have a "
        "constant over the smoothness; null: the step does not depend on the staleness",
    )
