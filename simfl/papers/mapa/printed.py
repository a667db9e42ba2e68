"""Line 5 of MAPA's listing as printed: the mean of a batch is clipped.

    g <- g / max(1, ||g|| / (b dS/2)),   noise of scale dS/epsilon

Two such means differ by up to b dS, so that a release costs b epsilon, 1.2 for epsilon = 0.1 and b = 12: see
`simfl.papers.mapa.theory.printed_epsilon`.
"""

from __future__ import annotations

from dataclasses import dataclass

from simfl.privacy.mechanisms import LaplaceL2RadiusOnly


@dataclass(frozen=True)
class LaplaceL2RadiusOnlyMean(LaplaceL2RadiusOnly):
    """The noise of the MAPA paper's code on a mean that is clipped as a whole.

    `epsilon_per_release` is that of the sensitivity 2C of the clipped mean: b times the paper's epsilon.
    """

    kind = "laplace_l2_radius_only_mean"
    summary = "the noise of the MAPA paper's code on a clipped mean of gradients, as its listing prints it: not private"
    unit = "client"
