"""Runs in gossipy's environment: FEATURES CLASSES NODES HIDDEN.

Asynchronous push gossip on a complete graph, as in gossipy's examples: a node merges the model that it receives, then
trains for one epoch, here a single mini-batch of 32. Rounds have 100 ticks, and every node sends once in each. Models
are evaluated on 32 examples at one node per round, the least that gossipy allows.
"""

# mypy: ignore-errors
from __future__ import annotations

import logging
import sys
import time

import numpy as np
import torch
from gossipy import LOG, set_seed
from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork
from gossipy.data import DataDispatcher
from gossipy.data.handler import ClassificationDataHandler
from gossipy.model.handler import TorchModelHandler
from gossipy.model.nn import LogisticRegression, TorchMLP
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator

BATCH = 32


class Counting(TorchModelHandler):
    """Counts its updates."""

    updates = 0

    def _update(self, data):
        Counting.updates += 1
        return super()._update(data)


def main() -> None:
    """Measure, and print."""
    features, classes, nodes, hidden = map(int, sys.argv[1:])
    LOG.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    set_seed(0)
    generator = np.random.default_rng(0)
    x = torch.tensor(generator.standard_normal((nodes * BATCH, features), dtype=np.float32))
    y = torch.tensor(generator.integers(classes, size=nodes * BATCH))
    data = DataDispatcher(ClassificationDataHandler(x, y, x[:BATCH], y[:BATCH]), n=nodes, eval_on_user=False)
    net = TorchMLP(features, classes, (hidden,)) if hidden else LogisticRegression(features, classes)
    model = Counting(
        net=net,
        optimizer=torch.optim.SGD,
        optimizer_params={"lr": 0.1},
        criterion=torch.nn.functional.cross_entropy,
        local_epochs=1,
        batch_size=BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    built = GossipNode.generate(
        data_dispatcher=data, p2p_net=StaticP2PNetwork(nodes), model_proto=model, round_len=100, sync=True
    )
    simulator = GossipSimulator(
        nodes=built, data_dispatcher=data, delta=100, protocol=AntiEntropyProtocol.PUSH, sampling_eval=1.0 / nodes
    )
    simulator.init_nodes(seed=0)
    simulator.start(n_rounds=5)
    before, began = Counting.updates, time.perf_counter()
    simulator.start(n_rounds=60 if hidden == 0 else 30)
    print((Counting.updates - before) / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
