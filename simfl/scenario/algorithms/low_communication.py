"""Training that communicates rarely: DiLoCo."""

from __future__ import annotations

from typing import Literal

from simfl.scenario.algorithms.local_rounds import FedAvg
from simfl.scenario.fields import Positive, Settled, option, variant
from simfl.scenario.optimizers import Adam, Optimizer, ServerNesterov, ServerOptimizer
from simfl.scenario.schedules import ConstantStep, StepSize


class DiLoCo(FedAvg):
    """DiLoCo: long rounds of AdamW at the clients, Nesterov's momentum at the server."""

    kind: Literal["diloco"] = variant("diloco")  # type: ignore[assignment]
    step_size: StepSize = option(ConstantStep(value=4e-4), "step size of local steps; 0.001 for an adam of your own")
    optimizer: Optimizer = option(
        Adam(weight_decay=0.1), "the optimizer of local steps; clients keep its state between rounds by default"
    )
    weighting: Literal["data", "uniform"] = option(
        "uniform", "how the mean weighs clients: by their examples, or all alike"
    )
    server_step: Positive = option(0.7, "lr of the server's step")
    server_optimizer: Settled[ServerOptimizer] = option(
        ServerNesterov(), "the optimizer of the server's steps on minus the mean change"
    )

    @property
    def keeps_states(self) -> bool:
        """Whether clients keep the states of their optimizers, as they do by default."""
        return self.optimizer.state.rounds != "new"
