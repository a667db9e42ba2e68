"""The robust aggregation rules, by kind."""

from simfl.robust.base import AbstractRule
from simfl.robust.rules.centered_clipping import CenteredClipping
from simfl.robust.rules.clipped_gossip import ClippedGossip
from simfl.robust.rules.geometric_median import GeometricMedian
from simfl.robust.rules.krum import Krum
from simfl.robust.rules.mean import Mean
from simfl.robust.rules.median import Median
from simfl.robust.rules.multi_krum import MultiKrum
from simfl.robust.rules.nearest_neighbor_mixing import NearestNeighborMixing
from simfl.robust.rules.trimmed_mean import TrimmedMean

RULES: dict[str, type[AbstractRule]] = {
    rule.kind: rule
    for rule in (
        Mean,
        Median,
        TrimmedMean,
        Krum,
        MultiKrum,
        GeometricMedian,
        CenteredClipping,
        NearestNeighborMixing,
        ClippedGossip,
    )
}
