"""What all algorithms are asked: mini-batches and step sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from simfl.scenario.fields import (
    Config,
    Count,
)
from simfl.scenario.schedules import ConstantStep, StepSize


class AlgorithmConfig(Config):
    """Base of all algorithms: mini-batch gradient steps."""

    uses_topology: ClassVar[bool] = True

    @property
    def trains_locally(self) -> bool:
        """Whether clients run many local steps as one operation, rather than single gradients."""
        return False

    @property
    def decay_power(self) -> float:
        """How the steps within a round of local steps decay, p of eta / (1 + beta t^p)."""
        return 1.0

    @property
    def proximal_weight(self) -> float:
        """How strongly local steps are pulled back to where their round began."""
        return 0.0

    @property
    def without_proof(self) -> str | None:
        """Why nothing can be certified, whatever the mechanism; None if something can."""
        return None

    @property
    def noise_of_server(self) -> bool:
        """Whether the server adds the noise of the privacy section, not each client."""
        return False

    def round_steps(self, sizes: Sequence[int]) -> list[int] | None:
        """Return how many mini-batches make an update of each client, [K]; None: one for all."""
        return None

    def update_examples(self, sizes: Sequence[int]) -> float:
        """Return how many examples are behind an update, on average over the clients."""
        steps = self.round_steps(sizes)
        return float(self.batch_size) if steps is None else self.batch_size * sum(steps) / len(steps)

    step_size: StepSize = Field(
        default=ConstantStep(value=0.4),
        description="step size on the mean gradient of a mini-batch: a number or a schedule",
    )
    batch_size: Count = Field(default=32, description="examples per mini-batch; with sampling poisson, on average")
    sampling: Literal["auto", "poisson", "without_replacement", "shuffle", "with_replacement"] = Field(
        default="auto",
        description="how mini-batches are drawn: poisson (each example on its own), without_replacement (a fresh "
        "subset of fixed size), shuffle (each example once per pass), with_replacement, or auto: poisson with privacy, "
        "shuffle without",
    )
