"""What a client sends is a function of the releases that its account has, in drawn worlds with faults.

A model has a coordinate for the change of each of a client's gradients by an example, and one for each of its noises.
All other clients react to the models that they get, without noise. So the rows of all that is sent say what an
adversary knows that sees everything, and the epsilon of these Gaussian views is computed here, without the ledger.
"""

import math

import numpy as np
import pytest

from simfl.privacy.ledger import Ledger
from simfl.privacy.tables import TableLedger
from simfl.privacy.terms import Terms
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import (
    LOCAL,
    NumpyExecutor,
    exponential,
    lognormal,
    make_training,
    make_world,
    recorded,
    run_algorithm,
)
from tests.privacy.test_product import gaussian

DELTA, UPDATES, MOST = 1e-5, 40, 90
KINDS = ("privsgp_vr", "sgp", "multi_walk", "adsgd", "swift", "noloco", "gasloc")


class Ears:
    """A network's witness that keeps what is sent."""

    def __init__(self):
        self.contents = []

    def sent(self, source, target, content, deliver):
        self.contents.append(content)
        return deliver

    beside = sent

    def shown(self, source, target, content):
        self.contents.append(content)

    def merged(self, node, content):
        """Do nothing: all that a node gets is sent."""


def drawn_world(rng, clients):
    """Crashes, absences, a late join and a client that leaves; or losses; or none."""
    outages, links = {}, LinkModel(latency=exponential(4e-3), bandwidth=1e5)
    fault = rng.integers(4)
    if fault in (1, 3):
        begins = np.arange(rng.uniform(0.005, 0.03), 2.0, rng.uniform(0.015, 0.05))
        outages[0] = [Outage(at, at + 0.002, crash=True) for at in begins]
        outages[1] = [Outage(0.0, 0.05)]
        outages[clients - 1] = [Outage(rng.uniform(0.05, 0.3), math.inf, crash=bool(rng.integers(2)))]
    if fault in (2, 3):
        links = LinkModel(latency=exponential(2e-3), bandwidth=1e5, loss=0.3, resend_timeout_s=0.02)
    return make_world(
        clients, topology=str(rng.choice(["ring", "complete", "star"])), jitter=lognormal(0.4), links=links,
        outages=outages, speeds=rng.uniform(0.5, 3.0, clients).tolist(), seed=int(rng.integers(999)),
    )  # fmt: skip


def options_of(kind, rng, clients):
    """Return drawn options of an algorithm."""
    push = {
        "graph": str(rng.choice(["one_peer", "exponential", "ring", "topology"])),
        "overlap": int(rng.integers(3)),
        "lost": str(rng.choice(["resend", "sums"])),
    }
    rounds = {"group": 2, "momentum": 0.5, "steps": rng.integers(1, 4, clients).tolist()}
    return {
        "privsgp_vr": push,
        "sgp": push,
        "multi_walk": {"walks": int(rng.integers(1, 5))},
        "adsgd": {},
        "swift": {"skip": int(rng.integers(3)), "gradient_s": rng.uniform(0.5, 2.0, clients).tolist()},
        "noloco": {**rounds, "outer_step": 0.7, "consensus": 0.7},
        "gasloc": {**rounds, "outer_step": 1.0, "consensus": 1.0},
    }[kind]


def view_of(kind, rng):
    """Return the client, its examples, batch and noise; rows of changes and noises; ledger and account of a run."""
    clients, batch = int(rng.integers(3, 6)), int(rng.integers(1, 9))
    sizes, levels = rng.integers(3, 30, clients).tolist(), rng.uniform(0.5, 4.0, clients).tolist()
    client, reactions, rounds = int(rng.integers(clients)), rng.uniform(-1.5, 1.5, clients), kind in LOCAL
    n, size = sizes[client], min(batch, sizes[client])
    place, unit = int(rng.integers(n)), np.eye(2 * MOST)

    def gradient(params, k, draw, first, count, *_):
        holds = k == client and (rounds or place in (np.arange(count) + draw * size + first) % n)
        return reactions[k] * params + (unit[draw] if holds else 0.0)

    def noise(k, draw):
        return unit[MOST + draw] * (k == client)

    world = drawn_world(rng, clients)
    tape = Tape(NumpyExecutor(2 * MOST, gradient, noise), window=50, max_batch=batch, **recorded(kind))
    mechanism, of = ("gaussian_update", "client") if rounds else ("gaussian", "example")
    terms = Terms(mechanism, DELTA, 1.0, "replace_one", unit=of, accountant="renyi")
    ledger = (TableLedger if kind == "privsgp_vr" else Ledger)(terms, np.array(sizes), batch, "shuffle", levels)
    training = make_training(sizes, d=2 * MOST, batch_size=batch, step_size=float(rng.uniform(0.05, 0.5)))
    training = type(training)(**{**vars(training), "noise_std": levels})
    tape.releases = ledger.counted_by(ledger, levels, 1.0, tape.local)
    ears = world.network.witness = Ears()
    algorithm, _ = run_algorithm(
        kind, world, tape, training, updates=UPDATES, until=2.0, **options_of(kind, rng, clients)
    )
    rows = np.array(tape.values([*ears.contents, *algorithm.models()]))
    return client, n, size, levels[client], rows[:, :MOST], rows[:, MOST:], ledger, algorithm.releases


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_an_adversary_that_sees_everything_knows_no_more_than_the_account(kind, seed):
    client, n, size, level, changes, noises, ledger, account = view_of(
        kind, np.random.default_rng([seed, *kind.encode()])
    )
    assert account.refusal is None
    used = np.flatnonzero(np.any(changes != 0.0, axis=0))
    released = np.count_nonzero(np.any(noises != 0.0, axis=0))
    assert released <= account.total(client)
    if kind == "privsgp_vr":  # two successive gradients of a mini-batch may change in opposite directions
        signs = np.zeros(MOST)
        signs[used] = np.resize([2.0, -2.0], len(used))
        hidden, *_ = np.linalg.lstsq(noises, changes @ signs, rcond=1e-10)
        np.testing.assert_allclose(noises @ hidden, changes @ signs, atol=1e-6, err_msg="something has no noise")
        rows, again = -(-n // size), max(0, len(used) - 1)
        counted = 1.0 + again * (2.0 - 1.0 / rows) ** 2 + (account.total(client) - again - 1) / rows**2
        assert hidden @ hidden <= (2.0 / level) ** 2 * counted * (1.0 + 1e-6)
        return
    np.testing.assert_allclose(changes[:, used] * level, noises[:, used], atol=1e-6, err_msg="noise of its own")
    assert ledger.final_epsilon(account)[client] >= gaussian(2.0 * math.sqrt(len(used)) / level) * (1.0 - 1e-6)
