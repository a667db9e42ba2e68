"""Compressed exchanges of AD-PSGD: sums that stay, memories that agree, refusals, windows and interruptions."""

import dataclasses

import numpy as np
import pytest

from simfl.compression.base import CompressionPlan
from simfl.compression.compressors.qsgd import Qsgd
from simfl.compression.compressors.top_k import TopK
from simfl.compression.schemes import PAIRWISE
from simfl.runs.runner import prepare, run
from simfl.scenario import from_mapping
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.compression.helpers import compressed
from tests.compression.test_schemes import SEED, D, key_of
from tests.helpers import NumpyExecutor, constant, make_training, make_world, run_algorithm
from tests.test_reproducibility import unchanged


def gossip(world, scheme, compressor, gamma, until, prepare=None, models=None, **options):
    """Exchanges of fixed values: no step is taken."""
    tape = Tape(NumpyExecutor(D, seed=SEED), window=50)
    training = make_training([64] * world.num_clients, d=D, step_size=0.0)
    training = dataclasses.replace(training, compression=CompressionPlan(compressor, scheme, gamma, D))
    algorithm, _ = run_algorithm(
        "adpsgd", world, tape, training, until=until, prepare=prepare, models=models, **options
    )
    return algorithm, tape


@pytest.mark.parametrize("pairing", ["senders", "everyone"])
def test_two_clients_do_what_the_listing_says(pairing):
    """Messages both ways, and each client moves by gamma / 2 of the difference shown.

    Client 0 starts every exchange, or both do, so that the two requests are one exchange.
    """
    models = np.random.default_rng(4).standard_normal((2, D))
    for scheme in PAIRWISE:
        compressor, gamma = Qsgd(8), 0.4
        world = make_world(2, links=LinkModel(latency=constant(1e-3)))
        algorithm, tape = gossip(world, scheme, compressor, gamma, until=0.083, models=models, pairing=pairing)
        x, estimate, error = models.copy(), np.zeros((2, D)), np.zeros((2, D))
        for draw in range(11):  # one more begins when the tenth update is made
            keys = [key_of(client, draw) for client in range(2)]
            if scheme == "choco":
                estimate += [compressed(compressor, x[k] - estimate[k], keys[k]) for k in range(2)]
                shown = estimate
            else:
                whole = x + error if scheme == "deep_squeeze" else x
                shown = np.array([compressed(compressor, whole[k], keys[k]) for k in range(2)])
                error = whole - shown
            x = x + gamma / 2 * (shown[::-1] - shown)
        np.testing.assert_allclose(tape.values(algorithm.model), x, rtol=1e-5, atol=1e-5)


def test_an_exchange_that_is_refused_leaves_both_memories_as_they_were():
    links = LinkModel(resend_timeout_s=0.002)  # after which the sender knows
    world = make_world(2, outages={1: [Outage(0.0201, 0.0601)]}, links=links)
    kept = {}

    def prepare(algorithm):
        def look(name):
            memory = algorithm._means._memories.of(0, 1)
            kept[name] = algorithm.tape.values([memory.shown[0], memory.shown[1]])

        world.clock.call_at(0.0202, lambda: look("before"))
        world.clock.call_at(0.0250, lambda: look("meanwhile"))
        world.clock.call_at(0.0550, lambda: look("after"))

    models = np.random.default_rng(6).standard_normal((2, D))
    gossip(world, "choco", TopK(0.25), 0.3, until=0.1, prepare=prepare, models=models)
    np.testing.assert_array_equal(kept["before"], kept["after"])
    assert (kept["meanwhile"] != kept["before"]).any()


def scenario(scheme, window="auto", compression=True):
    changes = ["algorithm={kind: adpsgd, pairing: everyone, batch_size: 8}", f"execution.window={window}"]
    changes += [f"compression={{kind: random_k, share: 0.1, scheme: {scheme}, gamma: 0.2}}"] if compression else []
    return from_mapping(unchanged("adpsgd-messages"), "rough", changes)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["choco", "deep_squeeze"])
def test_messages_are_short_and_epsilon_is_that_of_the_releases(scheme, tmp_path):
    whole = run(prepare(scenario(scheme)), out=tmp_path)
    assert set(whole.messages["bytes"]) == {prepare(scenario(scheme)).training.compression.bytes}
    ledger = prepare(scenario(scheme, compression=False)).ledger
    assert whole.manifest.extra["privacy"].startswith(ledger.statement[:40])
    assert np.isfinite(whole.clients["epsilon"].astype(float)).all()
