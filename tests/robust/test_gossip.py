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


def accuracy(tmp_path, options):
    said = f"algorithm.options={{attack: ipm, attack_options: {{tau: 4.0}}, attackers: [1, 4], {options}}}"
    return run(scenario(said), out=tmp_path).metrics["test_accuracy"].iloc[-1]


@pytest.mark.slow
def test_robust_rules_learn_among_attackers_and_the_mean_does_not(tmp_path):
    rules = ["mean", "median", "trimmed_mean, rule_options: {f: 2}", "multi_krum, rule_options: {f: 2}"]
    mean, *robust = [accuracy(tmp_path, f"rule: {rule}") for rule in rules]
    assert min(robust) > 0.75
    assert mean < 0.5


@pytest.mark.slow
def test_an_epsilon_is_that_of_the_same_run_without_attackers_and_runs_repeat_themselves(tmp_path):
    private = ["privacy={noise_multiplier: 2.0}", "stop.epochs=2"]
    runs = [run(scenario(*private, *more), out=tmp_path) for more in ([], [], ["algorithm.options={rule: mean}"])]
    epsilons = [np.asarray(one.clients["epsilon"], dtype=float) for one in runs]
    assert np.isfinite(epsilons[0]).all()
    np.testing.assert_array_equal(epsilons[0], epsilons[2])
    np.testing.assert_array_equal(runs[0].metrics["test_loss"], runs[1].metrics["test_loss"])
