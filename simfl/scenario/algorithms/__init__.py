"""What the clients do, one file for each family of algorithms."""

from __future__ import annotations

from typing import Annotated

from simfl.scenario.algorithms.async_fl import AsyncFl
from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.algorithms.gossip import AdPsgd, DecentralizedSgd, GossipLearning, Sgp
from simfl.scenario.algorithms.local_rounds import FedAsync, FedAvg, FedBuff, FedProx, LocalRoundsConfig
from simfl.scenario.algorithms.mapa import AsyncSgd, Audp, CentralizedSgd, Mapa, ServedSgd, WithinRadius, WithPaperSteps
from simfl.scenario.algorithms.own import ExternalAlgorithm
from simfl.scenario.algorithms.served import ServerAlgorithmConfig, StalenessBound
from simfl.scenario.algorithms.sync_sgd import SyncSgd
from simfl.scenario.algorithms.without_replacement import DeepQSgd, PassedModels, RandomWalkSgd, WithoutReplacementSgd
from simfl.scenario.fields import ByKind

Algorithm = Annotated[
    SyncSgd
    | DecentralizedSgd
    | AdPsgd
    | WithoutReplacementSgd
    | DeepQSgd
    | RandomWalkSgd
    | AsyncSgd
    | CentralizedSgd
    | Audp
    | Mapa
    | GossipLearning
    | Sgp
    | FedAsync
    | AsyncFl
    | FedAvg
    | FedProx
    | FedBuff
    | ExternalAlgorithm,
    ByKind(external=ExternalAlgorithm),
]

__all__ = [
    "AdPsgd",
    "Algorithm",
    "AlgorithmConfig",
    "AsyncFl",
    "AsyncSgd",
    "Audp",
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
