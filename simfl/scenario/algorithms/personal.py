"""Rounds with a personal model of each client: Ditto, APFL, pFedMe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.local_rounds import FedAvg, LocalRoundsConfig
from simfl.scenario.fields import Arithmetic, Count, NonNegative, Positive, Settled, Share, option, variant
from simfl.scenario.problems import Problem
from simfl.scenario.seams import Uses

_OF_SUM = replace(LocalRoundsConfig.uses, sum="personal")
_FIXED = {"optimizer": "the steps on personal models are plain steps"}


def without_privacy(self: FedAvg, scenario: Sections) -> Iterator[Problem]:
    """Yield also any privacy, which personal models do not have."""
    if scenario.privacy is None:
        yield from FedAvg.contradictions(self, scenario)
    else:
        advice = "personal models are trained without noise, and the run keeps them; use fedavg"
        yield Problem(f"null with {self.kind}", f"'{scenario.privacy.mechanism}'", advice, ("privacy",))


class Ditto(FedAvg):
    """Ditto: FedAvg, and a personal model of each client that is pulled to it."""

    uses: ClassVar[Uses] = replace(_OF_SUM, gradient="corrected")
    fixed: ClassVar[Mapping[str, str]] = _FIXED
    contradictions = without_privacy
    kind: Literal["ditto"] = variant("ditto")  # type: ignore[assignment]
    personal_pull: Arithmetic[NonNegative] = option(
        0.1, "lambda of the pull lambda (v - x) of a client's personal model v to the model x of the server"
    )


class Apfl(FedAvg):
    """APFL: FedAvg, and at each client a mixture with a model of its own."""

    uses: ClassVar[Uses] = _OF_SUM
    contradictions = without_privacy
    fixed: ClassVar[Mapping[str, str]] = {
        **_FIXED,
        "proximal": "each of its steps begins at another model; use ditto or pfedme",
    }
    kind: Literal["apfl"] = variant("apfl")  # type: ignore[assignment]
    mixture: Arithmetic[Share] = option(
        0.5, "alpha, the weight of a client's own model in its mixture with the server's"
    )


class PFedMe(FedAvg):
    """pFedMe: personal models near the server's, which moves towards them."""

    uses: ClassVar[Uses] = _OF_SUM
    fixed: ClassVar[Mapping[str, str]] = _FIXED
    contradictions = without_privacy
    kind: Literal["pfedme"] = variant("pfedme")  # type: ignore[assignment]
    proximal: Settled[Arithmetic[Positive]] = option(
        15.0, "lambda of the pull lambda (theta - w) of a client's personal model theta to its copy w of the server's"
    )
    inner_steps: Count = option(5, "K, the mini-batches by which theta is found, after which w moves")
    outer_step: Arithmetic[Positive] = option(
        0.005, "eta of w's move eta lambda (theta - w) towards the personal model"
    )
