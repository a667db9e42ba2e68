"""Compressed messages in runs: numbers, times, bytes, windows, interruptions, epsilons and accounts of networks."""

import jax
import numpy as np
import pytest

from simfl.accounts.network import network
from simfl.runs.runner import prepare, run
from simfl.scenario import loads
from tests.compression.helpers import compressed
from tests.helpers import batch_examples, softmax_gradient

SCENARIO = """
name: short
seed: 1
data: {set: digits, partition: {kind: dirichlet, alpha: 2.0}}
clients: {count: 6, seconds_per_example: 100 us}
topology: {kind: ring}
links: {latency: 1 ms, bandwidth: 1 Mbit/s}
algorithm: {kind: decentralized_sgd, step_size: 0.3, batch_size: 16}
stop: {updates: 96}
evaluate: {every: {updates: 48}}
record: {client_models: true}
"""
PRIVATE = "privacy={mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 1.0}"


def scenario(*changes):
    return loads(SCENARIO, "short", overrides=changes)


@pytest.mark.slow(but=["qsgd"])
@pytest.mark.parametrize("compression", ["{kind: qsgd, gamma: 0.3}", "{kind: random_k, share: 0.1, gamma: 0.2}"])
def test_a_run_computes_the_listing_with_the_keys_of_its_seed(compression, tmp_path):
    setup = prepare(scenario(f"compression={compression}"))
    problem, plan, count = setup.problem, setup.training.compression, 6
    weights = setup.topology.mixing_matrix().toarray()
    seed = jax.random.wrap_key_data(np.asarray(problem.keys.maps), impl="threefry2x32")
    models = np.tile(np.asarray(setup.training.initial, np.float64), (count, 1))
    estimates = models.copy()
    for draw in range(16):
        for i in range(count):
            key = jax.random.fold_in(jax.random.fold_in(seed, i), draw)
            estimates[i] += compressed(plan.compressor, models[i] - estimates[i], key)
        gradients = []
        for i in range(count):
            examples = batch_examples(problem, i, draw, 16)
            x, y = problem.data.train_x[examples], problem.data.train_y[examples]
            gradients.append(softmax_gradient(models[i], x / 16.0 if x.dtype.kind != "f" else x, y) / 16)
        models = models + plan.gamma * (weights - np.eye(count)) @ estimates - 0.3 * np.array(gradients)
    made = run(setup, out=tmp_path)
    with np.load(made.folder / "client_models.npz") as file:
        values = np.concatenate([file[name].reshape(count, -1) for name in file.files], axis=1)
    np.testing.assert_allclose(values, models, atol=2e-5)


def test_bytes_are_those_of_the_compressor_and_times_follow(tmp_path):
    plain, short = run(scenario(), out=tmp_path), run(scenario("compression={kind: top_k, share: 0.05}"), out=tmp_path)
    compute_s, latency_s = 16 * 100e-6, 1e-3
    for one, message_bytes in ((plain, 4 * 650), (short, 32 * (32 + 10) // 8)):  # 5 % of 650 coordinates
        assert one.metrics["bytes_sent"].iloc[-1] == 6 * 2 * 17 * message_bytes, "the last round has begun"
        round_s = max(compute_s, latency_s + 8 * message_bytes / 1e6)
        assert one.metrics["time_s"].iloc[-1] == pytest.approx(16 * round_s, rel=1e-6)


@pytest.mark.slow
def test_compression_leaves_every_epsilon_as_it_is(tmp_path):
    plain = run(scenario(PRIVATE), out=tmp_path)
    for compression in ("{kind: sign, gamma: 0.1}", "{kind: random_k, scheme: deep_squeeze, gamma: 0.1}"):
        short = run(scenario(PRIVATE, f"compression={compression}"), out=tmp_path)
        epsilons = np.asarray(short.clients["epsilon"], float)
        assert np.isfinite(epsilons).all()
        np.testing.assert_array_equal(epsilons, np.asarray(plain.clients["epsilon"], float))
        assert short.releases.equals(plain.releases)


@pytest.mark.parametrize(
    "compression", ["{kind: top_k}", "{kind: sign, scheme: deep_squeeze, gamma: 0.1}", "{kind: qsgd, scheme: dcd}"]
)
def test_an_observer_of_a_message_is_charged_for_what_it_was_made_of(compression):
    changes = [PRIVATE, "record.client_models=false", "stop={updates: 36}", "privacy.accountant=renyi"]
    plain = network(scenario(*changes)).pairs
    short = network(scenario(*changes, f"compression={compression}")).pairs
    names = ["observer", "client"]
    both = plain.merge(short, on=names, suffixes=("", "_short"))
    assert len(both) == len(plain) == len(short) > 0
    assert (both["pairwise_mu_short"] >= both["pairwise_mu"] * (1 - 1e-9)).all()
    assert (both["pairwise_mu_short"] <= both["local_mu_short"] * (1 + 1e-9)).all()
    np.testing.assert_allclose(both["local"], both["local_short"])
