"""Optimizers in runs: scenarios, rejected options, bytes, privacy, and resumed runs."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
import yaml

from simfl.errors import ScenarioError
from simfl.runs.runner import prepare, resume, run
from simfl.scenario import from_mapping, load
from simfl.scenario.own_code import look_beside
from tests.helpers import RunOfOperations, run_until

OWN = """
import optax

def make(rate=0.01):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adabelief(rate))

def broken():
    return optax.GradientTransformation(lambda params: (), lambda g, state, params: (g / undefined, state))

def remembers():
    return optax.contrib.schedule_free_sgd(0.1)

def number():
    return 3
"""


def scenario(algorithm, **sections):
    return from_mapping(
        {
            "data": {"set": "digits"},
            "clients": {"count": 4, "seconds_per_example": "1 ms", "jitter": {"kind": "lognormal", "sigma": 0.3}},
            "links": {"latency": "3 ms", "bandwidth": "10 Mbit/s"},
            "stop": {"updates": 80},
            "evaluate": {"every": {"updates": 20}},
            "algorithm": {"batch_size": 8, **algorithm},
            **sections,
        }
    )


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write the module my_chain of a user's own optimizers."""
    (tmp_path / "my_chain.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


# -- options -----------------------------------------------------------------------------

MOMENTUM = {"kind": "momentum"}


def average(kind, **more):
    return {"kind": kind, "optimizer": {**MOMENTUM, "state": {"average": True}}, **more}


@pytest.mark.parametrize(
    ("algorithm", "line"),
    [
        ({"kind": "adpsgd", "optimizer": "adma"},
         r"algorithm\.optimizer: expected .*found 'adma'; did you mean 'adam'"),
        ({"kind": "adpsgd", "optimizer": {"kind": "adam", "beta1": 1}},
         r"optimizer\.beta1: expected a number >= 0 and"),
        ({"kind": "adpsgd", "optimizer": {"kind": "sgd", "momentum": 0.9}}, r"optimizer\.momentum"),
        ({"kind": "mapa", "optimizer": "adam"}, r"optimizer: expected sgd with 'mapa', found 'adam'.*use async_sgd"),
        ({"kind": "audp", "server_optimizer": "adam"},
         r"server_optimizer: expected sgd with 'audp'.*made for plain SGD"),
        ({"kind": "async_fl", "optimizer": MOMENTUM}, r"optimizer: expected sgd with 'async_fl'.*sums of single"),
        ({"kind": "async_sgd", "optimizer": MOMENTUM},
         r"optimizer: expected sgd.*clients send gradients.*server_optim"),
        ({"kind": "fedasync", "server_optimizer": "adam"}, r"server_optimizer: .*mixes models.*use fedbuff"),
        ({"kind": "random_walk_sgd", "optimizer": "adam"}, r"optimizer: expected sgd with 'random_walk_sgd'.*Lemma 5"),
        ({"kind": "decentralized_sgd", "server_optimizer": "adam"}, r"algorithm\.server_optimizer"),
        (average("fedavg"), r"state\.average: expected false with 'fedavg', found true.*anew with each round"),
        ({"kind": "fedavg", "optimizer": {**MOMENTUM, "state": {"crash": "lose"}}},
         r"state\.crash: expected keep with rounds: new, found 'lose'; remove it, or use rounds: keep: each round"),
        ({"kind": "fedbuff", "noise": "server", "optimizer": {**MOMENTUM, "state": {"rounds": "keep"}}},
         r"state\.rounds: expected new with noise: server, found 'keep'; use noise: client"),
        ({"kind": "adpsgd", "optimizer": {**MOMENTUM, "state": {"rounds": "keep"}}},
         r"state\.rounds: expected null with 'adpsgd', found 'keep'; remove it: its clients make no rounds"),
        (average("sync_sgd"), r"state\.average: expected false with 'sync_sgd'.*one model"),
        (average("sgp"), r"state\.average: .*push-sum"),
        ({"kind": "adpsgd", "optimizer": {"kind": "adam", "state": {"average": True, "travels": False}}},
         r"state\.travels: expected true or null where states are averaged"),
    ],
)  # fmt: skip
def test_unsupported_optimizer_is_one_line(algorithm, line):
    with pytest.raises(ScenarioError, match=line) as refused:
        from_mapping({"algorithm": algorithm})
    assert "\n" not in str(refused.value) or algorithm["kind"] in ("mapa", "audp")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("my_chain:number", r"optimizer\.kind: expected a gradient transformation .* found int"),
        ("my_chain:broken", r"optimizer\.kind: the optimizer raised NameError: .*my_chain\.py:8"),
        ("my_chain:mkae", r"optimizer\.kind: cannot load 'my_chain:mkae'.*make"),
    ],
)
def test_invalid_own_chain_is_one_line(own, name, line):
    with pytest.raises(ScenarioError, match=line) as refused:
        prepare(scenario({"kind": "adpsgd", "optimizer": name}))
    assert "\n" not in str(refused.value)


def test_unknown_options_of_an_own_chain_are_rejected(own):
    with pytest.raises(ScenarioError, match=r"algorithm\.optimizer\.options: 'my_chain:make' takes .*found rat.*rate"):
        prepare(scenario({"kind": "adpsgd", "optimizer": {"kind": "my_chain:make", "options": {"rat": 1}}}))


def test_state_of_the_parameters_cannot_be_lost(own):
    section = {"kind": "my_chain:remembers", "state": {"crash": "lose"}}
    with pytest.raises(ScenarioError, match=r"state\.crash: expected keep with 'my_chain:remembers'"):
        prepare(scenario({"kind": "adpsgd", "optimizer": section}))
    section["state"] = {}
    assert prepare(scenario({"kind": "adpsgd", "optimizer": section})).training.optimizer.rows >= 1


def test_own_algorithm_has_to_declare_that_it_takes_an_optimizer():
    algorithm = {"kind": "tests.algorithms.custom:Alone", "optimizer": "adam"}
    with pytest.raises(ScenarioError, match=r"algorithm\.optimizer: .* make its steps with self\.descent\.step"):
        prepare(scenario(algorithm))


def test_optimizers_have_default_step_sizes_and_can_be_swept(tmp_path):
    file = tmp_path / "one.yaml"
    file.write_text("algorithm: {kind: fedbuff}\n", encoding="utf-8")

    def steps(*assignments):
        algorithm = load(file, list(assignments)).algorithm
        return algorithm.step_size.simplified(), algorithm.server_step

    kinds = {kind: steps(f"algorithm.optimizer.kind={kind}") for kind in ("sgd", "momentum", "nesterov", "adam", "a:b")}
    assert kinds == {
        "sgd": (0.4, 1.0), "momentum": (0.4, 1.0), "nesterov": (0.4, 1.0), "adam": (0.001, 1.0), "a:b": (1.0, 1.0),
    }  # fmt: skip
    assert steps("algorithm.server_optimizer=yogi") == (0.4, 0.01)
    assert steps("algorithm.optimizer=adam", "algorithm.step_size=0.1")[0] == 0.1
    again = from_mapping(load(file, ["algorithm.optimizer=adam"]).resolved())
    assert again.algorithm.step_size.simplified() == 0.001


def test_theory_steps_with_an_optimizer_get_a_warning():
    algorithm = {"kind": "async_sgd", "step_size": None}
    assert not any("plain SGD" in line for line in scenario(algorithm).warnings())
    warned = scenario({**algorithm, "server_optimizer": "momentum"}).warnings()
    assert any(line.startswith("algorithm.step_size: Table 2's step sizes") for line in warned)


# -- runs without numbers ---------------------------------------------------------------

PRIVATE = {
    "example": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
    "client": {"mechanism": "gaussian_update", "clipping_norm": 1.0, "noise_multiplier": 1.0, "delta": 1e-5},
}


@pytest.mark.parametrize(
    ("algorithm", "unit"),
    [
        ({"kind": "adpsgd", "optimizer": "adam"}, "example"),
        ({"kind": "decentralized_sgd", "optimizer": {**MOMENTUM, "clip_norm": 1.0}}, "example"),
        ({"kind": "async_sgd", "server_optimizer": "adam"}, "example"),
        ({"kind": "fedavg", "optimizer": "nesterov", "server_optimizer": "momentum"}, "client"),
        ({"kind": "fedbuff", "buffer_size": 3, "noise": "server", "server_optimizer": "yogi"}, "client"),
    ],
)
def test_optimizer_changes_neither_releases_nor_epsilon(without_numbers, tmp_path, algorithm, unit):
    """Optimizers post-process noisy gradients: releases, epsilon and times of all updates are equal."""
    plain = {key: value for key, value in algorithm.items() if not key.endswith("optimizer")}
    runs = [run(scenario(one, privacy=PRIVATE[unit]), out=tmp_path) for one in (plain, algorithm)]
    tables = [(each.clients, each.releases, each.metrics.drop(columns="wall_s")) for each in runs]
    for one, other in zip(*tables, strict=True):
        assert one.equals(other)
    assert np.isfinite(runs[1].clients["epsilon"]).all()
    assert runs[0].manifest.extra["privacy"] == runs[1].manifest.extra["privacy"]
    for column in ("time_s", "client", "staleness", "noise_std"):
        assert runs[0].updates[column].equals(runs[1].updates[column])


def test_sent_states_count_in_bytes(without_numbers, tmp_path):
    def mean_bytes(**optimizer):
        result = run(scenario({"kind": "adpsgd", "optimizer": optimizer}, record={"messages": True}), out=tmp_path)
        return set(result.messages["bytes"])

    size = 4 * 650
    assert mean_bytes(kind="adam") == {size}
    assert mean_bytes(kind="adam", state={"travels": True}) == {3 * size}
    assert mean_bytes(kind="momentum", state={"average": True}) == {2 * size}
    assert mean_bytes(kind="sgd", weight_decay=0.1, state={"travels": True}) == {size}


# -- resumed runs ----------------------------------------------------------------------------------

#: Two of the four clients crash in the middle of mini-batches.
CRASHES = [{"clients": [1, 2], "crash": [{"at": "0.0301 s", "back": "0.05 s"}, {"at": "0.0703 s", "back": "0.08 s"}]}]

RESUMED = {
    "momentum in gossip": average("adpsgd"),
    "adam in gossip": {"kind": "decentralized_sgd", "optimizer": {"kind": "adam", "state": {"crash": "lose"}}},
    "rounds and a server": {"kind": "fedavg", "local_steps": 2, "optimizer": "adam", "server_optimizer": "yogi"},
    "a server": {"kind": "async_sgd", "server_optimizer": "adam"},
    "states of rounds": {
        "kind": "fedasync",
        "local_steps": 2,
        "optimizer": {"kind": "adam", "state": {"rounds": "keep", "crash": "lose"}},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESUMED)
def test_run_interrupted_anywhere_resumes_to_the_same_end(tmp_path, name, monkeypatch):
    if name not in ("momentum in gossip", "states of rounds"):
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    algorithm = RESUMED[name]
    whole, events = run_until(prepare(scenario(algorithm, availability=CRASHES)), math.inf, tmp_path)
    assert whole.status == "done"
    assert whole.clients["offline_s"].max() > 0
    cut, _ = run_until(
        prepare(scenario(algorithm, availability=CRASHES)), random.Random(name).randrange(20, events), tmp_path
    )
    assert cut.status == "interrupted"
    resumed = resume(cut.folder)
    assert resumed.manifest.digest == whole.manifest.digest
    assert resumed.manifest.extra["models"] == whole.manifest.extra["models"]


def test_the_example_of_an_own_chain_learns(tmp_path):
    """The example has at most 20 lines and lies beside its scenario; the manifest has the digest of its source."""
    file = Path(__file__).parents[2] / "notebooks" / "own_model" / "my_optimizer.yaml"
    assert len(file.with_suffix(".py").read_text(encoding="utf-8").splitlines()) <= 20
    look_beside([file])
    result = run(load(file, ["stop={epochs: 6}", "evaluate={every: {epochs: 6}}"]), out=tmp_path)
    assert result.metrics["test_accuracy"].iloc[-1] > 0.8
    assert "my_optimizer" in result.manifest.extra["own_code"]


def test_the_example_of_the_documentation_is_valid():
    page = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")
    section = page.partition("## Optimizers")[2].partition("\n## ")[0]
    from_mapping(yaml.safe_load(section.partition("```yaml")[2].partition("```")[0]))
