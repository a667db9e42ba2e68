"""What all algorithms are asked: mini-batches and step sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from simfl.scenario.fields import SETTLED, Config, Count
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import ConstantStep, StepSize

if TYPE_CHECKING:
    from simfl.scenario.scenario import Scenario


class AlgorithmConfig(Config):
    """Base of all algorithms: mini-batch gradient steps."""

    # What a class adds are its algorithm's own options. Those that are `Settled[...]` the algorithm does not see: its
    # kind in `simfl.simulation.kinds` makes something else of them.

    uses_topology: ClassVar[bool] = True
    has_server: ClassVar[bool | None] = False
    """Whether there is a server; None if that is not known."""
    #: Whether models are averaged by the weights of `topology.mixing`.
    mixes: ClassVar[bool] = False
    #: Whether a run uses every example a number of times that is known beforehand.
    uses_data_up: ClassVar[bool] = False

    if TYPE_CHECKING:  # each class names itself
        kind: str

    @classmethod
    def named(cls) -> bool:
        """Whether this is an algorithm, and not only the base of some."""
        return "kind" in cls.model_fields and not cls.model_fields["kind"].is_required()

    @property
    def nodes_beside_server(self) -> int:
        """How many nodes there are that are neither clients nor the server."""
        return 0

    @property
    def follows_topology(self) -> bool:
        """Whether clients talk to their neighbors in `topology`."""
        return self.uses_topology

    @property
    def noise_of_server(self) -> bool:
        """Whether the server adds the noise of the privacy section, not each client."""
        return False

    def own_options(self) -> dict[str, Any]:
        """Return the options that the algorithm is given as they are, by name."""
        return {
            name: getattr(self, name)
            for name, field in type(self).model_fields.items()
            if name != "kind" and name not in AlgorithmConfig.model_fields and SETTLED not in field.metadata
        }

    def contradictions(self, scenario: Scenario) -> Iterator[Problem]:
        """Yield what does not fit the other sections of a scenario, each with its full key path."""
        return iter(())

    def warnings(self, scenario: Scenario) -> Iterator[str]:
        """Yield what will run beside the other sections of a scenario, but perhaps not as hoped."""
        return iter(())

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
