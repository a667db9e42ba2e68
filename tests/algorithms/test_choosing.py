"""Servers ask one selector which clients take part, and accounts of privacy know it."""

import math

import numpy as np
import pytest

import simfl
from simfl.errors import RunError, ScenarioError
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.runs.runner import prepare, resume
from simfl.scenario import from_mapping
from simfl.scenario.catalogues import Algorithm
from simfl.scenario.fields import kind_of, members_of
from simfl.selection.base import AbstractSelector
from simfl.selection.selectors import SELECTORS
from tests.helpers import run_until

LOSSES = ("oort", "power_of_choice")
FEDAVG = {"kind": "fedavg", "fraction": 0.3}
FEDBUFF = {"kind": "fedbuff", "concurrency": 3, "buffer_size": 2}


def section(kind):
    return {"kind": kind, "within": "8 ms"} if kind == "deadline" else {"kind": kind}


def scenario(kind, algorithm=FEDAVG, **sections):
    return from_mapping(
        {
            "name": "chosen",
            "data": {"set": "logistic", "samples": 200, "dimension": 4},
            "model": "logistic",
            "clients": {"count": 10, "seconds_per_example": "1 ms", "speed": {"kind": "lognormal", "sigma": 0.5}},
            "algorithm": {"local_steps": 2, "batch_size": 4, **algorithm},
            "stop": {"updates": 60},
            **({} if kind is None else {"selection": section(kind)}),
            **sections,
        }
    )


def digest(given, out):
    return simfl.run(given, out=out).manifest.digest


@pytest.mark.parametrize(
    "algorithm", [FEDAVG, FEDBUFF, {"kind": "favas", "period": "5 ms"}], ids=lambda one: one["kind"]
)
def test_uniform_is_the_draw_without_the_section(algorithm, without_numbers, tmp_path):
    assert digest(scenario("uniform", algorithm), tmp_path) == digest(scenario(None, algorithm), tmp_path)


PRODUCTS = {
    "deadline": {"algorithm": {**FEDAVG, "deadline": "15 ms"}},
    "secure": {"algorithm": {**FEDAVG, "fraction": 0.5, "secure_sum": {"kind": "bonawitz", "threshold": 2}}},
    "churn": {
        "availability": [
            {"all": True, "random": {"up": "40 ms", "down": "20 ms"}},
            {"clients": [1], "crash": [{"at": "30 ms", "back": "50 ms"}]},
        ]
    },
    "buffer": {"algorithm": FEDBUFF},
    "tiers": {"algorithm": {"kind": "fedat", "fraction": 0.5}},
    "compressed": {"compression": {"kind": "top_k", "share": 0.5}},
    "faults": {"links": {"latency": "2 ms", "loss": 0.2, "resend_timeout": "5 ms"}},
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_selector_makes_all_updates_beside_another_feature(product, without_numbers, tmp_path):
    for kind in SELECTORS:
        run = simfl.run(scenario(kind, **PRODUCTS[product]), out=tmp_path)
        assert run.manifest.status == "done", kind
        assert run.clients["updates"].sum() >= 60, kind


def test_fastest_chooses_by_the_times_of_the_world_and_fair_by_turns(without_numbers, tmp_path):
    fast = simfl.run(scenario("fastest"), out=tmp_path).clients
    fair = simfl.run(scenario("fair"), out=tmp_path).clients
    assert fair["updates"].between(5, 7).all()
    seconds = (fair["compute_s"] / fair["updates"]).sort_values()
    assert {*fast.index[fast["updates"] > 0]} == {*seconds.index[:3]}


@pytest.mark.parametrize("algorithm", [{"kind": "fedavg", "fraction": 1.0}, FEDBUFF], ids=lambda one: one["kind"])
def test_reported_losses_are_those_of_the_model_that_a_client_received(algorithm, tmp_path, monkeypatch):
    seen = []

    class Spy(AbstractSelector):
        reads = "losses"

        def choose(self, candidates, size, clients):
            seen.append({k: list(losses) for k, losses in clients.losses.items()})
            return list(candidates)[:size]

    monkeypatch.setattr("simfl.assembly.selection.made", lambda *arguments: Spy())
    given = {**algorithm, "local_steps": 1, "batch_size": 20}  # all that a client has
    run = simfl.run(scenario("oort", given, evaluate={"every": {"updates": 10}}), out=tmp_path)
    assert seen[0] == {}
    assert np.allclose([*next(filter(None, seen)).values()], math.log(2)), "of the initial model, which is 0"
    if algorithm["kind"] == "fedavg":  # all clients, in each round
        means = [np.mean([*losses.values()]) for losses in seen[1:]]
        assert means == pytest.approx(run.metrics["train_loss"][: len(means)].tolist(), rel=1e-4)
        assert len(means) == 6


def test_a_resumed_run_chooses_as_it_did(tmp_path):
    given = scenario("oort")
    whole, events = run_until(prepare(given), math.inf, tmp_path)
    cut, _ = run_until(prepare(given), events // 2, tmp_path)
    assert cut.status == "interrupted"
    assert resume(cut.folder).manifest.digest == whole.manifest.digest


@pytest.mark.parametrize("algorithm", [FEDAVG, FEDBUFF], ids=lambda one: one["kind"])
@pytest.mark.parametrize("kind", [kind for kind in SELECTORS if kind not in (*LOSSES, "data_size")])
def test_an_epsilon_is_never_smaller_than_that_of_full_participation(kind, algorithm, without_numbers, tmp_path):
    private = {"unit": "user", "noise_multiplier": 3.0, "clipping_norm": 1.0, "delta": 1e-3}
    given = scenario(kind, {"weighting": "uniform", **algorithm} if algorithm is FEDAVG else algorithm, privacy=private)
    run = simfl.run(given, out=tmp_path)
    counts = (
        run.cohorts.groupby("client")["updates"]
        .agg(lambda updates: (updates**2).sum())
        .reindex(range(10), fill_value=0)
    )
    full = [gaussian_epsilon(1e-3, math.sqrt(count) / 3.0) for count in counts]
    assert run.clients["epsilon"].tolist() == pytest.approx(full, rel=1e-9)
    reason = "q = 1: " if kind == "uniform" else f"q = 1: selection {kind}"
    assert reason in run.manifest.extra["privacy"]


def test_planned_epsilons_are_those_of_a_client_in_every_sum():
    planned = {}
    for kind in ("uniform", "fastest"):
        setup = prepare(
            scenario(kind, {**FEDAVG, "weighting": "uniform"}, privacy={"unit": "user", "noise_multiplier": 3.0})
        )
        planned[kind] = setup.kind.planned_releases(setup.sizes.tolist())
    assert planned == {"uniform": 6, "fastest": 20}


USERS = {"unit": "user", "noise_multiplier": 3.0}


@pytest.mark.parametrize(
    ("kind", "algorithm", "privacy", "message"),
    [
        ("fair", FEDAVG, {**USERS, "cohorts": "poisson"}, "privacy.cohorts: expected algorithm beside selection"),
        ("data_size", FEDAVG, USERS, "selection: expected one that reads no numbers of examples with unit: user"),
        ("oort", FEDBUFF, {"mechanism": "gaussian_update", "noise_multiplier": 3.0},
         "selection: expected one that reads no losses beside privacy"),
        ("power_of_choice", FEDAVG, USERS, "selection: expected one that reads no losses beside privacy"),
        ("fair", {"kind": "adpsgd"}, None, "selection: expected null with algorithm 'adpsgd'"),
    ],
)  # fmt: skip
def test_what_no_account_or_no_server_knows_is_refused(kind, algorithm, privacy, message):
    content = scenario(None).given() | {"selection": section(kind), "algorithm": algorithm, "privacy": privacy}
    with pytest.raises(ScenarioError, match=message):
        from_mapping(content)


def test_uniform_keeps_the_amplification_of_poisson_draws(without_numbers, tmp_path):
    private = {**USERS, "cohorts": "poisson", "releases": 8}
    runs = [
        simfl.run(scenario(kind, {**FEDAVG, "weighting": "uniform"}, privacy=private), out=tmp_path)
        for kind in ("uniform", None)
    ]
    assert runs[0].manifest.extra["privacy"] == runs[1].manifest.extra["privacy"]
    assert "with probability 0.3" in runs[0].manifest.extra["privacy"]


OWN = """
from dataclasses import dataclass

from simfl.scenario.fields import Count, option
from simfl.selection.base import AbstractSelector


@dataclass(frozen=True)
class Every(AbstractSelector):
    step: Count = option(2, "every step-th client")

    def choose(self, candidates, size, clients):
        assert not any(clients.examples) and not clients.losses, "it reads the world alone"
        return [k for k in candidates if k % self.step == 0][:size] or [candidates[0]]


class Twice(AbstractSelector):
    def choose(self, candidates, size, clients):
        return [candidates[0], candidates[0]]


class Losses(AbstractSelector):
    reads = "losses"

    def choose(self, candidates, size, clients):
        return [max(candidates, key=lambda k: clients.losses.get(k, [9.0])[0])]
"""


def test_a_users_own_selector_has_options_and_is_checked(tmp_path, monkeypatch, without_numbers):
    (tmp_path / "my_selectors.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = {"selection": {"kind": "my_selectors:Every", "options": {"step": 4}}}
    run = simfl.run(scenario(None, **own), out=tmp_path)
    assert run.clients.index[run.clients["updates"] > 0].tolist() == [0, 4, 8]
    with pytest.raises(ScenarioError, match=r"selection.options.step: expected .*, found 0"):
        prepare(scenario(None, selection={"kind": "my_selectors:Every", "options": {"step": 0}}))
    with pytest.raises(RunError, match=r"Twice.choose: expected 1 to 3 different clients"):
        simfl.run(scenario(None, selection={"kind": "my_selectors:Twice"}), out=tmp_path)
    with pytest.raises(ScenarioError, match="selection: expected one that reads no losses beside privacy"):
        scenario(None, selection={"kind": "my_selectors:Losses"}, privacy=USERS)
    with pytest.raises(ScenarioError, match=r"selection.kind: expected an object of simfl.selection.base.Abstract"):
        prepare(scenario(None, selection={"kind": "collections:OrderedDict"}))


def test_algorithms_that_take_a_selection_ask_it():
    from simfl.algorithms import ALGORITHMS

    for one in members_of(Algorithm):
        kind = kind_of(one, "kind")
        if kind in ALGORITHMS and one.model_fields.keys() >= {"fraction"}:
            assert getattr(ALGORITHMS[kind], "selects", False), kind
