"""PrivSGP-VR: SGP with a table of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.gossip import Sgp
from simfl.scenario.fields import Count, option, variant
from simfl.scenario.problems import Problem


class PrivSgpVr(Sgp):
    """PrivSGP-VR: stochastic gradient push whose clients keep a table of gradients.

    A client draws one of its fixed mini-batches at a time.
    """

    fixed: ClassVar[Mapping[str, str]] = {
        "sampling": "each client has fixed mini-batches, of which it draws one uniformly"
    }
    kind: Literal["privsgp_vr"] = variant("privsgp_vr")  # type: ignore[assignment]
    batch_size: Count = option(
        32, "examples of a fixed mini-batch, for which a client keeps a vector as large as a model; 1 in the paper"
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also noise that has no account of tables."""
        yield from super().contradictions(scenario)
        if scenario.privacy is not None and scenario.privacy.mechanism != "gaussian":
            advice = "releases with a table of gradients have an account of Gaussian noise alone"
            found = f"'{scenario.privacy.mechanism}'"
            yield Problem("'gaussian' with 'privsgp_vr'", found, advice, ("privacy", "mechanism"))
