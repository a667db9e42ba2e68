"""NoLoCo: DiLoCo without an all-reduce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import states
from simfl.scenario.algorithms.local_rounds import LocalStepsConfig
from simfl.scenario.algorithms.low_communication import KeptStates
from simfl.scenario.fields import Arithmetic, Count, NonNegative, Positive, option, variant
from simfl.scenario.optimizers import Adam, Decay, Optimizer
from simfl.scenario.schedules import ConstantStep, StepSize
from simfl.scenario.seams import Uses


class NoLoCo(LocalStepsConfig):
    """NoLoCo: long rounds of AdamW, and outer steps with the means of a random group."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="two_vectors", sum="drawn", step="rounds")
    fixed: ClassVar[Mapping[str, str]] = states(
        "rounds", "crash", why="the state of an optimizer of local steps stays at its client"
    )
    kind: Literal["noloco"] = variant("noloco")
    step_size: StepSize = option(ConstantStep(value=4e-4), "step size of local steps; 0.001 for an adam of your own")
    optimizer: Optimizer = option(
        Adam(weight_decay=0.1), "the optimizer of local steps; clients keep its state between rounds by default"
    )
    group: Count = option(2, "n, the number of clients of a group, drawn anew in every round")
    outer_step: Arithmetic[Positive] = option(0.7, "beta, factor of the group's mean change in the momentum")
    momentum: Arithmetic[Decay] = option(0.5, "alpha, the fraction of the momentum that is kept")
    consensus: Arithmetic[NonNegative] = option(
        0.7, "gamma, the pull towards the group's mean model in the momentum; outer_step in the authors' program"
    )
    keeps_states = KeptStates.keeps_states
