"""Personal parts: FedPer, FedRep and FedBABU beside float64 loops, gossip in the shared part, and bytes."""

import dataclasses

import numpy as np
import pytest

import simfl
from simfl.algorithms.personal import PersonalParts
from simfl.assembly.assemble import assemble
from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.tape.fragments import Fragments
from simfl.tape.problem import LocalRounds
from simfl.world.links import LinkModel
from tests.algorithms.test_fedavg import ETA
from tests.helpers import Lab, batch_gradient, constant, make_problem, make_world, run_algorithm

K, ROUNDS = 4, 3
STEPS = [2, 3, 4, 5]
SIZES = [30, 40, 50, 60]
OWN = np.arange(650) < 65  # the weights of one class, and one more
PARTS = PersonalParts(Fragments((585, 650), None, ((65, 1), (585, 0))))


def round_of(problem, start, client, draw, steps, head_steps):
    w = start.copy()
    for h in range(steps):
        step = ETA * batch_gradient(problem, w, client, draw + h, 8) / 8
        w -= step if head_steps is None else np.where((h < head_steps) == OWN, step, 0.0)
    return w


@pytest.mark.numbers
@pytest.mark.parametrize("head_steps", [None, 1, 0], ids=["fedper", "fedrep", "fedbabu"])
def test_rounds_equal_the_listings_in_numpy(head_steps):
    mask = OWN.astype(np.float32)
    rounds = LocalRounds() if head_steps is None else LocalRounds(personal=mask, personal_steps=head_steps)
    problem = dataclasses.replace(make_problem(K, sizes=SIZES, local=True), rounds=rounds)
    world = make_world(K, links=LinkModel(latency=constant(1e-3)))
    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=ETA), personal=PARTS)
        algorithm, _ = run_algorithm("fedavg", world, lab.tape, training, updates=ROUNDS * K, steps=STEPS)
        (x,), each = lab.tape.values(algorithm.models()), lab.tape.values(algorithm.client_models())
    shared = training.initial.astype(np.float64)
    start, own, draws, weights = shared.copy(), [shared] * K, [0] * K, np.array(SIZES) / sum(SIZES)
    for _ in range(ROUNDS):
        trained = []
        for k, steps in enumerate(STEPS):
            begun = np.where(OWN, own[k], shared)
            trained.append(round_of(problem, begun, k, draws[k], steps, head_steps))
            draws[k] += steps
        shared = np.where(OWN, start, weights @ np.array(trained))
        own = trained
    np.testing.assert_allclose(x, shared, rtol=0, atol=1e-5)
    for k in range(K):
        np.testing.assert_allclose(each[k], np.where(OWN, own[k], shared), rtol=0, atol=1e-5)
    assert np.array_equal(x[OWN], training.initial[OWN]), "the server's personal part stays as it began"
    assert (np.abs(each[0] - each[1])[OWN].max() > 0.01) == (head_steps != 0)
    sent = world.network.bytes_sent / (4 * 585)
    assert sent == pytest.approx(K * (2 * ROUNDS - 1), abs=K), "messages have the shared part"


@pytest.mark.numbers
@pytest.mark.parametrize("kind", ["decentralized_sgd", "adpsgd"])
def test_gossip_averages_the_shared_part_alone(kind):
    """With no gradient, a mean of shared parts stays, and personal parts do not move."""
    problem = make_problem(K, sizes=SIZES)
    starts = np.random.default_rng(2).normal(size=(K, 650)).astype(np.float32)
    world = make_world(K, topology="complete" if kind == "adpsgd" else "ring", links=LinkModel(latency=constant(1e-3)))
    with Lab(problem) as lab:
        training = dataclasses.replace(lab.training(step_size=0.0), personal=PARTS)
        algorithm, _ = run_algorithm(kind, world, lab.tape, training, updates=40 * K, models=starts)
        each = np.array(lab.tape.values(algorithm.models()))
    np.testing.assert_array_equal(each[:, OWN], starts[:, OWN])
    spread = np.abs(each[:, ~OWN] - starts[:, ~OWN].mean(axis=0))
    assert spread.max() < 0.5 * np.abs(starts[:, ~OWN] - starts[:, ~OWN].mean(axis=0)).max()
    if kind == "decentralized_sgd":
        assert spread.max() < 1e-3
    assert world.network.bytes_sent == 4 * 585 * world.network.messages


BASE = {
    "algorithm": {"kind": "fedavg", "local_steps": 4, "batch_size": 8},
    "model": {"kind": "mlp", "hidden": [8]},
    "clients": {"count": 4},
    "data": {"set": "digits", "partition": {"kind": "dirichlet"}},
    "personal": {"parts": ["head"]},
    "stop": {"epochs": 1},
}


def setup_of(**sections):
    return assemble(from_mapping({**BASE, **sections}))


def test_parts_are_layers_and_tensors():
    assert setup_of().personal.shared_size == 65 * 8
    assert setup_of(personal={"parts": ["layer1"]}).personal.shared_size == 9 * 10
    assert setup_of(personal={"parts": ["layer2.bias", "layer1"]}).personal.shared_size == 80
    assert setup_of().training.message_bytes == 4 * 65 * 8
    secure = {"kind": "fedavg", "local_steps": 4, "batch_size": 8, "secure_sum": {"kind": "bonawitz"}}
    assert setup_of(algorithm=secure).training.secure_sum.size == 65 * 8


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"personal": {"parts": ["heat"]}}, "personal.parts: expected head or parts of model 'mlp' .layer1, layer2"),
        ({"model": "softmax"}, "leave others to share, found all of it; use a model of several layers"),
        ({"personal": {"parts": ["head"], "steps": 4}}, "personal.steps: expected less than 4, the mini-batches"),
        ({"personal": {"parts": []}}, "personal.parts: expected a list of different parts, such as .head."),
        ({"algorithm": "fedasync"}, "personal: expected null with algorithm 'fedasync'"),
        ({"algorithm": "sgp"}, "personal: expected null with algorithm 'sgp'"),
        (
            {"algorithm": "adpsgd", "personal": {"parts": ["head"], "steps": 1}},
            "personal.steps: expected null with algorithm 'adpsgd'",
        ),
        ({"compression": "qsgd"}, "compression: expected null beside personal"),
        (
            {"algorithm": "decentralized_sgd", "aggregation": "median"},
            "aggregation: expected null beside personal without a server",
        ),
        ({"attackers": {"kind": "sign_flip", "share": 0.25}}, "attackers: expected null beside personal"),
        (
            {"privacy": {"unit": "user", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}},
            "personal: expected null with noise of the server",
        ),
        (
            {"personal": None, "evaluate": {"clients": "own", "local_steps": 2, "local_parts": "personal"}},
            "evaluate.local_parts: expected all without personal",
        ),
        ({"evaluate": {"local_steps": 2}}, "evaluate.clients: expected own with local_steps"),
        ({"evaluate": {"clients": "owns"}}, "evaluate.clients: expected true, false or own"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(sections, message):
    with pytest.raises(ScenarioError, match=message):
        setup_of(**sections)


@pytest.mark.numbers
@pytest.mark.slow
def test_the_account_is_that_of_whole_updates(tmp_path):
    """Clipping and noise are of all of a change, so leaving a part out takes nothing from the account."""
    privacy = {"mechanism": "gaussian_update", "clipping_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    runs = {}
    for name, personal in (("all", None), ("head", {"parts": ["head"]})):
        scenario = {**BASE, "name": name, "privacy": privacy, "personal": personal, "evaluate": {"clients": "own"}}
        runs[name] = simfl.run(from_mapping(scenario), out=tmp_path, progress=False)
    assert runs["all"].clients["epsilon"].tolist() == runs["head"].clients["epsilon"].tolist()
    assert runs["head"].releases.equals(runs["all"].releases)
    assert runs["head"].metrics["bytes_sent"].iloc[-1] < runs["all"].metrics["bytes_sent"].iloc[-1]
    assert "own_accuracy_worst" in runs["head"].metrics


@pytest.mark.numbers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fedbuff", "diloco", "fednova", "secure"])
def test_personal_parts_help_clients_of_unlike_data(kind, tmp_path):
    algorithm = {"kind": "fedavg" if kind == "secure" else kind, "local_steps": 4, "batch_size": 16, "step_size": 0.2}
    algorithm |= {"secure_sum": {"kind": "bonawitz"}} if kind == "secure" else {}
    data = {"set": "digits", "partition": {"kind": "shards", "shards_per_client": 2}}
    scenario = {**BASE, "algorithm": algorithm, "data": data, "clients": {"count": 10}, "stop": {"epochs": 12}}
    run = simfl.run(from_mapping({**scenario, "evaluate": {"clients": "own"}}), out=tmp_path, progress=False)
    assert run.metrics["own_accuracy"].iloc[-1] > 0.85, "the server's model has about 0.7"
    assert len(run.client_metrics["client"].unique()) == 10
