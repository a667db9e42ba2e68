"""What the clients do, one file for each family of algorithms.

The files are the catalogue: a class that gives `kind` a value is one of the algorithms that a scenario may name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from simfl.catalogue import classes_in
from simfl.scenario.algorithms.async_fl import AsyncFl
from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.algorithms.gossip import AdPsgd, DecentralizedSgd, GossipLearning, Sgp
from simfl.scenario.algorithms.local_rounds import FedAsync, FedAvg, FedBuff, FedProx, LocalRoundsConfig
from simfl.scenario.algorithms.mapa import AsyncSgd, Audp, CentralizedSgd, Mapa, ServedSgd, WithinRadius, WithPaperSteps
from simfl.scenario.algorithms.own import ExternalAlgorithm
from simfl.scenario.algorithms.staleness import BoundedConfig, ServerAlgorithmConfig, StalenessBound
from simfl.scenario.algorithms.sync_sgd import SyncSgd
from simfl.scenario.algorithms.without_replacement import DeepQSgd, PassedModels, RandomWalkSgd, WithoutReplacementSgd
from simfl.scenario.fields import ByKind

if TYPE_CHECKING:
    Algorithm = AlgorithmConfig
else:
    _named = [one for one in classes_in(__name__, AlgorithmConfig) if one.named()]
    Algorithm = Annotated[Union[(*_named, ExternalAlgorithm)], ByKind(external=ExternalAlgorithm)]

__all__ = [
    "AdPsgd",
    "Algorithm",
    "AlgorithmConfig",
    "AsyncFl",
    "AsyncSgd",
    "Audp",
    "BoundedConfig",
    "CentralizedSgd",
    "DecentralizedSgd",
    "DeepQSgd",
    "ExternalAlgorithm",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedProx",
    "GossipLearning",
    "LocalRoundsConfig",
    "Mapa",
    "PassedModels",
    "RandomWalkSgd",
    "ServedSgd",
    "ServerAlgorithmConfig",
    "Sgp",
    "StalenessBound",
    "SyncSgd",
    "WithPaperSteps",
    "WithinRadius",
    "WithoutReplacementSgd",
]
