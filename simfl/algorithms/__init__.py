"""The algorithms, one file each, and their registry by name."""

from __future__ import annotations

from simfl.algorithms.adpsgd import ADPSGD
from simfl.algorithms.async_fl import AsyncFL
from simfl.algorithms.async_sgd import AsyncSGD
from simfl.algorithms.audp import AUDP
from simfl.algorithms.base import Algorithm, Training
from simfl.algorithms.centralized_sgd import CentralizedSGD
from simfl.algorithms.decentralized_sgd import DecentralizedSGD
from simfl.algorithms.deep_q_sgd import DeepQSGD
from simfl.algorithms.fedasync import FedAsync
from simfl.algorithms.fedavg import FedAvg
from simfl.algorithms.fedbuff import FedBuff
from simfl.algorithms.fedprox import FedProx
from simfl.algorithms.gossip_learning import GossipLearning
from simfl.algorithms.mapa import MAPA
from simfl.algorithms.random_walk_sgd import RandomWalkSGD
from simfl.algorithms.sgp import SGP
from simfl.algorithms.sync_sgd import SyncSGD
from simfl.algorithms.without_replacement_sgd import WithoutReplacementSGD

ALGORITHMS: dict[str, type[Algorithm]] = {
    "sync_sgd": SyncSGD,
    "decentralized_sgd": DecentralizedSGD,
    "adpsgd": ADPSGD,
    "without_replacement_sgd": WithoutReplacementSGD,
    "deep_q_sgd": DeepQSGD,
    "random_walk_sgd": RandomWalkSGD,
    "async_fl": AsyncFL,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedbuff": FedBuff,
    "fedasync": FedAsync,
    "gossip_learning": GossipLearning,
    "sgp": SGP,
    "async_sgd": AsyncSGD,
    "centralized_sgd": CentralizedSGD,
    "audp": AUDP,
    "mapa": MAPA,
}


__all__ = [
    "ADPSGD",
    "ALGORITHMS",
    "AUDP",
    "MAPA",
    "SGP",
    "Algorithm",
    "AsyncFL",
    "AsyncSGD",
    "CentralizedSGD",
    "DecentralizedSGD",
    "DeepQSGD",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedProx",
    "GossipLearning",
    "RandomWalkSGD",
    "SyncSGD",
    "Training",
    "WithoutReplacementSGD",
]
