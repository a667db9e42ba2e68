"""A user's own algorithm."""

from __future__ import annotations

from typing import Any, ClassVar

from simfl.assembly.setup import Kind, Setup
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.algorithms.own import ExternalAlgorithm
from simfl.scenario.optimizers import Sgd
from simfl.tape.problem import LocalRounds


class OwnKind(Kind[ExternalAlgorithm]):
    """An algorithm whose class says whether it plays rounds of local steps."""

    sections: ClassVar[tuple[type[AlgorithmConfig], ...]] = (ExternalAlgorithm,)

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Let rounds be operations, where no step has noise, or an optimizer."""
        config, plain = self.config, self.scenario.privacy is None and self.sampling != "poisson"
        if not (plain and getattr(setup.algorithm, "plays_rounds", False)):
            return {}
        if config.optimizer != Sgd() or config.gradient_noise or config.uses.gradient not in ("plain", "corrected"):
            return {}
        return {"rounds": LocalRounds(corrected=config.uses.gradient == "corrected", own_pull=True)}
