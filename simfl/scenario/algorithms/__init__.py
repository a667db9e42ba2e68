"""Sections of the algorithms that come with the core, one file for each family.

The files are the catalogue: a class that gives `kind` a value is one of the algorithms that a scenario may name. Those
of plugins are added in `simfl.scenario.catalogues`.
"""

from simfl.scenario.algorithms.base import AlgorithmConfig, BoundedConfig, ServerAlgorithmConfig, StalenessBound
from simfl.scenario.algorithms.gossip import (
    AdPsgd,
    AsySonata,
    CorrectedGossip,
    DecentralizedSgd,
    GossipLearning,
    KGt,
    Plexus,
    Sgp,
    Swift,
)
from simfl.scenario.algorithms.late import MindFlayer, MSyncSgd, Rennala, Ringleader, Ringmaster
from simfl.scenario.algorithms.local_rounds import (
    ACE,
    CA2FL,
    FADAS,
    Ditto,
    FedAsync,
    FedAvg,
    FedBuff,
    FedDyn,
    FedNova,
    FedProx,
    LocalRoundsConfig,
    LocalStepsConfig,
    Scaffold,
)
from simfl.scenario.algorithms.means import AREA, FAVAS, FedAT
from simfl.scenario.algorithms.own import ExternalAlgorithm
from simfl.scenario.algorithms.served import AsyncSgd, CentralizedSgd, ServedSgd, WithinRadius, WithPaperSteps
from simfl.scenario.algorithms.sync_sgd import SyncSgd

__all__ = [
    "ACE",
    "AREA",
    "CA2FL",
    "FADAS",
    "FAVAS",
    "AdPsgd",
    "AlgorithmConfig",
    "AsySonata",
    "AsyncSgd",
    "BoundedConfig",
    "CentralizedSgd",
    "CorrectedGossip",
    "DecentralizedSgd",
    "Ditto",
    "ExternalAlgorithm",
    "FedAT",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedDyn",
    "FedNova",
    "FedProx",
    "GossipLearning",
    "KGt",
    "LocalRoundsConfig",
    "LocalStepsConfig",
    "MSyncSgd",
    "MindFlayer",
    "Plexus",
    "Rennala",
    "Ringleader",
    "Ringmaster",
    "Scaffold",
    "ServedSgd",
    "ServerAlgorithmConfig",
    "Sgp",
    "StalenessBound",
    "Swift",
    "SyncSgd",
    "WithPaperSteps",
    "WithinRadius",
]
