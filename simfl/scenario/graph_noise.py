"""Noise whose covariance over clients is chosen for the graph."""

from __future__ import annotations

from typing import Annotated, Literal

from simfl.scenario.fields import Config, Within, option, variant


class GraphNoise(Config):
    """Noise of the covariance that leaves least after a round of averages (Whisper).

    Clients share seeds of vectors; the covariance follows from the mixing matrix.
    """

    correlated: Literal["over_graph"] = variant("over_graph")
    ridge: Annotated[float, Within(at_least=1e-8, at_most=1.0)] = option(
        1e-4,
        "weight of the noise of single models beside that after a round: smaller values cancel more, by larger shared "
        "noise. It is added to the noise of noise_multiplier; epsilon counts only the latter",
    )
