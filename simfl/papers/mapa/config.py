"""AUDP, MAPA and the noise of its code: the sections of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.served import ServedSgd
from simfl.scenario.fields import Count, Flag, NonNegative, OpenShare, Positive, PositiveEach, Settled, option, variant
from simfl.scenario.privacy import FixedNorm, MechanismConfig, Neighbors, NoiseOn
from simfl.scenario.problems import Problem
from simfl.scenario.schedules import StepSize
from simfl.scenario.seams import Uses

_REASON = "its step sizes are made for plain SGD; use async_sgd with server_optimizer"
_PLAIN = {"optimizer": _REASON, "server_optimizer": _REASON}


class LaplaceL2RadiusOnly(MechanismConfig):
    """The noise of the MAPA paper's code: not private, never certified.

    Its norm has a one-dimensional distribution.
    """

    each = ("epsilon_per_release",)
    second_moment = "paper"
    mechanism: Literal["laplace_l2_radius_only"] = variant("laplace_l2_radius_only")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon that the paper claims for one release, one for all clients or one for each"
    )
    neighbors: Neighbors = option("replace_one", "the neighboring relation of the claim")
    noise_on: NoiseOn = "all"


class LaplaceL2RadiusOnlyMean(LaplaceL2RadiusOnly):
    """Noise of the MAPA paper's code on a clipped mean: not private, not certified.

    The listing prints the clip like this.
    """

    protects = "client"
    mechanism: Literal["laplace_l2_radius_only_mean"] = variant("laplace_l2_radius_only_mean")  # type: ignore[assignment]
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of the mean gradient of a mini-batch")
    epsilon_per_release: PositiveEach = option(
        1.0,
        "epsilon of the sensitivity 2C of the mean, one for all clients or one for each: batch_size times the paper's",
    )


class Audp(ServedSgd):
    """AUDP: asynchronous SGD with noise.

    If step_size is null, 1/gamma = L (tau+1) + sqrt(Delta_b + 1) sqrt(t).
    """

    fixed: ClassVar[Mapping[str, str]] = {"small_clients": "its theory is of batches of one size", **_PLAIN}

    kind: Literal["audp"] = variant("audp")
    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size of a mini-batch; null: the paper's (10)",
    )
    sampling_std: Settled[NonNegative] = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    second_moment: Settled[Literal["exact", "paper"]] = Field(
        default="exact",
        description="the noise in Delta_b: exact, that of all noisy parameters; paper, that of one dimension, as "
        "the paper assumes",
    )
    without_logarithm: Settled[Flag] = Field(
        default=False, description="step sizes by (11), whose bound has no ln T, instead of (10)"
    )


class Mapa(ServedSgd):
    """MAPA: AUDP in stages of falling clipping norm, noise and step size.

    It needs Laplace noise.
    """

    uses: ClassVar[Uses] = replace(ServedSgd.uses, gradient="own_norm")
    fixed: ClassVar[Mapping[str, str]] = {"small_clients": "its stages are of batches of one size", **_PLAIN}

    kind: Literal["mapa"] = variant("mapa")
    step_size: StepSize | None = Field(default=None, description="null: the stages decide")  # type: ignore[assignment]
    sampling_std: Settled[NonNegative] = Field(
        default=30.0, description="sigma of the paper's formulas: sigma² is the variance of an example's gradient"
    )
    reduction: Settled[OpenShare] = Field(
        default=0.5, description="theta, the factor by which the clipping norm falls from stage to stage"
    )
    failure_probability: Settled[OpenShare | None] = Field(
        default=None,
        description="delta of Theorem 3, which gives the first clipping norm; null: the first is privacy.clipping_norm",
    )
    initial_gap: Settled[Positive] = Field(default=50.0, description="f(x_1) - f*, which gives the length of stages")
    second_moment: Settled[Literal["auto", "exact", "paper"]] = Field(
        default="auto",
        description="second moment of the noise, from which stages are computed: exact, d (d+1) (dS/epsilon)²; paper, "
        "2 (dS/epsilon)²; auto, that of the noise which the mechanism adds",
    )
    rule: Settled[Literal["algorithm1", "text", "table2"]] = Field(
        default="algorithm1",
        description="the next stage's clipping norm: theta times this one's (algorithm1), or as the text or "
        "Table 2 of the paper prints it",
    )
    stages: Settled[Count | None] = Field(
        default=None, description="largest number of stages; the last one has no end; null: no limit"
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield conflicts: stages need noise drawn by its norm, and no step size."""
        yield from super().contradictions(scenario)
        if self.step_size is not None:
            advice = "remove it, or use algorithm kind: audp"
            yield Problem("null, because the stages of mapa decide", "a step size", advice, ("algorithm", "step_size"))
        privacy = scenario.privacy
        if privacy is None or privacy.second_moment is None:
            found = "nothing" if privacy is None else repr(privacy.mechanism)
            advice = "its stages follow from that noise; use it"
            yield Problem(f"laplace_l2 for algorithm '{self.kind}'", found, advice, ("privacy", "mechanism"))
        elif privacy.neighbors != "replace_one":
            advice = "its sensitivity is for an example that is replaced; use it"
            expected = f"replace_one for algorithm '{self.kind}'"
            yield Problem(expected, repr(privacy.neighbors), advice, ("privacy", "neighbors"))
