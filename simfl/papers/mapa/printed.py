"""The noise of the MAPA paper's code, on clipped gradients and on a clipped mean.

Line 5 of the listing as printed clips the mean of a batch:

    g <- g / max(1, ||g|| / (b dS/2)),   noise of scale dS/epsilon

Two such means differ by up to b dS, so that a release costs b epsilon, 1.2 for epsilon = 0.1 and b = 12: see
`simfl.papers.mapa.theory.printed_epsilon`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simfl.privacy.accounting import Neighbors
from simfl.privacy.mechanisms import PureLaplace


@dataclass(frozen=True)
class LaplaceL2RadiusOnly(PureLaplace):
    """The noise of the MAPA paper's code: an exponential norm, a random direction.

    It is not private for more than one parameter; see `simfl.privacy.noise.laplace_l2_radius_only` and
    `simfl.papers.mapa.theory.radius_only_delta`. `neighbors` and `epsilon_per_release` are those of the paper's claim.
    """

    neighbors: Neighbors = "replace_one"

    kind = "laplace_l2_radius_only"
    summary = "the noise of the MAPA paper's code, whose norm is one-dimensional: not private, never certified"
    sampler = "laplace_l2_radius_only"
    refusal = (
        "noise with a one-dimensional norm is not private for more than one parameter: its density has no bound at the "
        "true gradient; use mechanism: laplace_l2"
    )


@dataclass(frozen=True)
class LaplaceL2RadiusOnlyMean(LaplaceL2RadiusOnly):
    """The noise of the MAPA paper's code on a mean that is clipped as a whole.

    `epsilon_per_release` is that of the sensitivity 2C of the clipped mean: b times the paper's epsilon.
    """

    kind = "laplace_l2_radius_only_mean"
    summary = "the noise of the MAPA paper's code on a clipped mean of gradients, as its listing prints it: not private"
    unit = "client"
