"""Sections of the algorithms that come with the core, one file for each family.

The files are the catalogue: a class that gives `kind` a value is one of the algorithms that a scenario may name. Those
of plugins are added in `simfl.scenario.catalogues`.
"""

from simfl.scenario.algorithms.base import AlgorithmConfig, BoundedConfig
from simfl.scenario.algorithms.gossip import (
    AdPsgd,
    CorrectedGossip,
    DecentralizedSgd,
    GossipLearning,
    KGt,
    Swift,
)
from simfl.scenario.algorithms.local_rounds import (
    LocalRoundsConfig,
    LocalStepsConfig,
)
from simfl.scenario.algorithms.own import ExternalAlgorithm
from simfl.scenario.algorithms.served import AsyncSgd, CentralizedSgd, ServedSgd, WithinRadius, WithPaperSteps

__all__ = [
    "AdPsgd",
    "AlgorithmConfig",
    "AsyncSgd",
    "BoundedConfig",
    "CentralizedSgd",
    "CorrectedGossip",
    "DecentralizedSgd",
    "ExternalAlgorithm",
    "GossipLearning",
    "KGt",
    "LocalRoundsConfig",
    "LocalStepsConfig",
    "ServedSgd",
    "Swift",
    "WithPaperSteps",
    "WithinRadius",
]
