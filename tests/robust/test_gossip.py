"""Rules and attacks in a run: notebooks/own_algorithm/robust_gossip.py."""

from pathlib import Path

import numpy as np
import pytest

from simfl.runs.runner import run
from simfl.scenario import load
from simfl.scenario.own_code import look_beside

FILE = Path(__file__).parents[2] / "notebooks" / "own_algorithm" / "robust_gossip.yaml"


def scenario(*changes):
    look_beside([FILE])
    return load(FILE, [*changes])


@pytest.mark.slow
def test_without_attackers_the_mean_rule_is_decentralized_sgd(tmp_path):
    short = ["topology={kind: ring}", "stop.epochs=3"]
    robust = run(scenario("algorithm.options={rule: mean}", *short), out=tmp_path)
    plain = run(scenario("algorithm={kind: decentralized_sgd, step_size: 0.3, batch_size: 16}", *short), out=tmp_path)
    for column in ("test_loss", "train_loss", "consensus_distance"):
        np.testing.assert_allclose(robust.metrics[column], plain.metrics[column], rtol=1e-4, atol=1e-6)
