"""GASLoC: gossip as the outer optimizer of rounds of local steps."""

from __future__ import annotations

from typing import ClassVar, Literal

from simfl.scenario.algorithms.noloco import NoLoCo
from simfl.scenario.fields import Arithmetic, NonNegative, Positive, option, variant
from simfl.scenario.optimizers import Decay
from simfl.scenario.seams import Uses


class GASLoC(NoLoCo):
    """GASLoC: long rounds of AdamW, and accelerated averages of a random group."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="sampled", sum="drawn", step="rounds")
    kind: Literal["gasloc"] = variant("gasloc")  # type: ignore[assignment]
    outer_step: Arithmetic[Positive] = option(1.0, "eta, factor of a client's change")
    momentum: Arithmetic[Decay] = option(
        0.5, "gamma, the part of the last change of a model that it makes again; above 0.7, pairs may drift apart"
    )
    consensus: Arithmetic[NonNegative] = option(1.0, "alpha, the pull towards the group's mean; 1: the mean itself")
