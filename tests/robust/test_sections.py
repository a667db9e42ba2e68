"""The sections `aggregation` and `attackers`: statements, draws, measurements, records, refusals and resumed runs."""

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from simfl.accounts.network import network
from simfl.assembly.robust import attackers_of
from simfl.attacks.membership import infer_membership
from simfl.errors import ScenarioError
from simfl.live.support import check as check_live
from simfl.robust.base import AbstractAttack, AbstractRule
from simfl.robust.rules.centered_clipping import CenteredClipping
from simfl.robust.rules.nearest_neighbor_mixing import NearestNeighborMixing
from simfl.robust.rules.trimmed_mean import TrimmedMean
from simfl.runs.checkpoint import read as read_checkpoint
from simfl.runs.runner import prepare, run
from simfl.scenario import from_mapping
from simfl.scenario.fields import Count, Share, option
from simfl.streams import Streams
from tests.helpers import RunOfOperations, run_until

GOSSIP = {"kind": "decentralized_sgd", "batch_size": 8}
SERVED = {"kind": "fedavg", "batch_size": 8, "local_steps": 2}


def scenario(algorithm=GOSSIP, **sections):
    return from_mapping(
        {
            "data": {"set": "logistic", "samples": 240, "dimension": 6},
            "model": "logistic",
            "clients": 6,
            "algorithm": algorithm,
            "stop": {"updates": 48},
            "evaluate": {"every": {"updates": 12}},
            **sections,
        }
    )


def refused(algorithm=GOSSIP, **sections):
    with pytest.raises(ScenarioError) as raised:
        prepare(scenario(algorithm, **sections))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_section_is_a_rule_or_an_attack_of_training():
    rule = {"kind": "centered_clipping", "tau": 2, "steps": 3}
    attack = {"kind": "gaussian", "std": 3, "clients": [2, 5], "from": "10 ms"}
    training = prepare(scenario(aggregation=rule, attackers=attack)).training
    assert training.rule == CenteredClipping(2.0, 3)
    assert (training.hostility.clients, training.hostility.from_s) == ({2, 5}, 0.01)
    assert (training.hostility.attack.kind, training.hostility.attack.std) == ("gaussian", 3.0)
    assert training.planned_updates == 48
    assert prepare(scenario(SERVED, aggregation=rule)).training.rule == CenteredClipping(2.0, 3, from_own=False)
    mixed = {"kind": "trimmed_mean", "f": 2, "before": "nearest_neighbor_mixing"}
    assert prepare(scenario(aggregation=mixed)).training.rule == NearestNeighborMixing(1, TrimmedMean(2))
    assert prepare(scenario()).training.rule is prepare(scenario()).training.hostility is None


def test_a_share_is_drawn_by_the_seed_and_nothing_else_changes():
    def drawn(seed, **sections):
        given = scenario(seed=seed, attackers={"kind": "ipm", "share": 0.34}, **sections)
        return attackers_of(given, Streams(seed))

    assert drawn(1) == drawn(1, aggregation={"kind": "median"}, topology="complete")
    assert {len(drawn(seed)) for seed in range(9)} == {2}
    assert len({drawn(seed) for seed in range(9)}) > 3
    assert prepare(scenario(seed=1, attackers={"kind": "ipm", "share": 0.34})).training.hostility.clients == drawn(1)


class First(AbstractRule):
    """The own model."""

    kind = "first"

    def aggregate(self, models, present, weights, progress):
        return models[0]


@dataclass(frozen=True)
class Tilted(AbstractRule):
    """The own model times a number."""

    kind = "tilted"
    lean: Share = option(0.5, "factor")
    count: Count = option(1, "number of steps")
    free: str = "unchecked"

    def aggregate(self, models, present, weights, progress):
        return self.lean * models[0]


class Forgotten(Tilted):
    """A class without the decorator."""

    more: Count = option(1, "a number")


def test_options_of_an_own_class_are_checked_and_completed_as_those_of_simfl():
    def own(**options):
        return {"kind": "tests.robust.test_sections:Tilted", "options": options}

    rule = prepare(scenario(aggregation=own(lean=1, free="x"))).training.rule
    assert (type(rule).__name__, rule.lean, rule.count, rule.free) == ("Tilted", 1.0, 1, "x")
    assert type(rule.lean) is float
    assert refused(aggregation=own(lean=-1)) == (
        "aggregation.options.lean: expected a number > 0 and <= 1, found -1; choose a value in this range"
    )
    assert refused(aggregation=own(cuont=2)).endswith("did you mean 'count'?")
    forgotten = "tests.robust.test_sections:Forgotten"
    assert refused(aggregation={"kind": forgotten}) == (
        f"aggregation.kind: expected @dataclass(frozen=True) on {forgotten!r}, which has options"
    )


def test_a_section_that_is_made_of_a_class_is_pickled():
    sections = {"aggregation": {"kind": "median", "before": {"kind": "nearest_neighbor_mixing", "f": 2}}}
    given = scenario(**sections, attackers={"kind": "ipm", "tau": 3, "share": 0.34})
    again = pickle.loads(pickle.dumps(given))
    assert again == given
    assert again.resolved() == given.resolved()


class Push(AbstractAttack):
    """Twice the own model."""

    kind = "push"
    knows = "own"

    def __call__(self, rows, given):
        return 2.0 * rows[0]


@pytest.mark.slow
def test_own_classes_are_named_as_elsewhere(tmp_path):
    here = "tests.robust.test_sections"
    sections = {"aggregation": {"kind": f"{here}:First"}, "attackers": {"kind": f"{here}:Push", "clients": [0]}}
    table = run(scenario(**sections), out=tmp_path).aggregation
    assert table["accepted"].isna().all(), "the rule does not say"
    assert table["messages"].sum() == 48 * 2
    assert refused(aggregation={"kind": f"{here}:Push"}) == (
        "aggregation.kind: expected an object of simfl.robust.base.AbstractRule from "
        "'tests.robust.test_sections:Push', found Push"
    )


@pytest.mark.parametrize(
    ("algorithm", "sections", "line"),
    [
        ({"kind": "async_sgd"}, {"aggregation": {"kind": "median"}},
         "aggregation.kind: expected null with 'async_sgd', found 'median', which needs a server with rounds"),
        ({"kind": "fedasync"}, {"aggregation": {"kind": "centered_clipping"}},
         "aggregation.kind: expected balance or clipped_gossip with 'fedasync', found 'centered_clipping', which"),
        ({"kind": "fedasync"}, {"attackers": {"kind": "dissensus", "clients": [0]}},
         "attackers.kind: expected alie, gaussian, ipm, label_flip, mimic or sign_flip with 'fedasync', found 'dissen"),
        ({"kind": "sync_sgd"}, {"aggregation": {"kind": "balance"}},
         "aggregation.kind: expected centered_clipping, geometric_median, krum, mean, median, multi_krum or trimmed_m"),
        ({"kind": "adpsgd"}, {"aggregation": {"kind": "krum"}},
         "aggregation.kind: expected balance or clipped_gossip with 'adpsgd', found 'krum', which needs a server"),
        (SERVED, {"aggregation": {"kind": "balance"}},
         "aggregation.kind: expected centered_clipping, geometric_median, krum, mean, median, multi_krum or"),
        (SERVED, {"attackers": {"kind": "dissensus", "clients": [0]}},
         "attackers.kind: expected alie, gaussian, ipm, label_flip, mimic or sign_flip with 'fedavg'"),
        ({"kind": "sgp"}, {"attackers": {"kind": "ipm", "clients": [0]}},
         "attackers.kind: expected label_flip with 'sgp', found 'ipm', which needs an algorithm that combines"),
        (GOSSIP, {"attackers": {"kind": "ipm", "share": 0.99}},
         "attackers.share: expected an honest client among 6, found 0.99; lower it"),
        (SERVED, {"attackers": {"kind": "label_flip", "clients": [0]}, "data": {"set": "linear"}, "model": "linear"},
         "attackers.kind: expected data with a class for each example for 'label_flip', found data set 'linear'"),
        (SERVED, {"attackers": {"kind": "label_flip", "clients": [0]},
                  "data": {"set": "logistic", "samples": 90, "partition": {"kind": "resample", "size": 60}}},
         "attackers.kind: expected clients without common examples for 'label_flip', found an attacker's example that"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line(algorithm, sections, line):
    assert refused(algorithm, **sections).startswith(line)


@pytest.mark.parametrize(
    ("sections", "line"),
    [
        ({"attackers": {"kind": "ipm"}}, "attackers: expected exactly one of clients and share, found none of them"),
        ({"attackers": {"kind": "ipm", "clients": [9]}},
         "attackers.clients.0: expected a client below clients.count, which is 6, found 9"),
        ({"attackers": {"kind": "ipm", "clients": [0, 1, 2, 3, 4, 5]}},
         "attackers: expected fewer attackers than clients.count, which is 6, found 6; leave an honest client"),
        ({"attackers": {"kind": "label_flip", "clients": [0], "from": "1 s"}},
         "attackers.from: expected 0 s with 'label_flip', found 1 s; labels are flipped from the start"),
        ({"attackers": {"kind": "ipm", "clients": [0]}, "privacy": {"view": "global_hidden"}},
         "privacy.view: expected local_transcript with attackers, found 'global_hidden'; hidden senders protect only"),
        ({"aggregation": {"kind": "nearest_neighbor_mixing"}}, "aggregation.kind: expected mean, median,"),
        ({"aggregation": {"kind": "trimmed_mean", "tau": 1}}, "aggregation.tau: "),
        ({"aggregation": {"kind": "median"}, "compression": {"kind": "top_k"}},
         "aggregation: expected null beside compressed gossip, found 'median'; neighbors average estimates that all of "
         "them keep, which a rule would end: leave one out, or use a server"),
        ({"aggregation": {"kind": "median"},
          "algorithm": {**GOSSIP, "optimizer": {"kind": "momentum", "state": {"average": True}}}},
         "algorithm.optimizer.state.average: expected false with aggregation or attackers, found true"),
    ],
)  # fmt: skip
def test_contradictions_are_found_in_the_scenario(sections, line):
    with pytest.raises(ScenarioError) as raised:
        scenario(**sections)
    assert str(raised.value).removeprefix("scenario: ").startswith(line)


def test_accounts_of_messages_and_live_runs_refuse_attackers():
    attackers = {"attackers": {"kind": "ipm", "clients": [0]}}
    private = scenario(**attackers, privacy={"noise_multiplier": 2})
    with pytest.raises(ScenarioError, match=r"attackers: expected null, found 'ipm': an attacker may know more than"):
        network(private)
    with pytest.raises(ScenarioError, match=r"attackers: expected null, found 'ipm': an observer hears what clients"):
        infer_membership(private)
    with pytest.raises(ScenarioError, match=r"attackers: live: expected null, found 'ipm'; use simfl run"):
        check_live(prepare(scenario({"kind": "adpsgd"}, **attackers)))
    with pytest.raises(ScenarioError, match=r"aggregation: live: expected null, found 'balance'; use simfl run"):
        check_live(prepare(scenario({"kind": "adpsgd"}, aggregation={"kind": "balance"})))


def test_flipped_labels_are_those_of_attackers_alone():
    attackers = {"kind": "label_flip", "clients": [1, 4]}
    honest, hostile = prepare(scenario(SERVED)), prepare(scenario(SERVED, attackers=attackers))
    theirs = np.concatenate([honest.partition.of(1), honest.partition.of(4)])
    flipped = honest.dataset.train_y != hostile.dataset.train_y
    np.testing.assert_array_equal(np.flatnonzero(flipped), np.sort(theirs))
    np.testing.assert_array_equal(hostile.dataset.train_y[theirs], 1 - honest.dataset.train_y[theirs])
    np.testing.assert_array_equal(hostile.dataset.test_y, honest.dataset.test_y)
    assert not np.isin(hostile.problem.measured.loss_examples, theirs).any()
    assert hostile.training.hostility.attack is None


def test_honest_models_alone_are_measured_and_a_table_says_what_counted(tmp_path):
    attackers = {"kind": "gaussian", "std": 50, "clients": [2]}
    result = run(scenario(aggregation={"kind": "clipped_gossip", "tau": 0.05}, attackers=attackers), out=tmp_path)
    table = result.aggregation
    assert result.clients["attacker"].tolist() == [False, False, True, False, False, False]
    assert result.metrics["consensus_distance"].max() < 5.0
    assert table["time_s"].isin(result.metrics["time_s"]).all()
    assert table["messages"].sum() == 48 * 2
    accepted = table.groupby("sender")["accepted"].mean()
    assert accepted[2] < 0.01 < accepted.drop(2).min()
    assert set(zip(table["receiver"], table["sender"], strict=True)) == {
        (k, (k + step) % 6) for k in range(6) for step in (1, 5)
    }


@pytest.mark.slow
def test_epsilon_is_that_of_honest_clients_and_a_line_says_so(tmp_path):
    private = {"privacy": {"noise_multiplier": 2}}
    plain = run(scenario(**private), out=tmp_path)
    attackers = {"kind": "alie", "clients": [0]}
    attacked = run(scenario(**private, attackers=attackers, aggregation={"kind": "median"}), out=tmp_path)
    epsilon = attacked.clients["epsilon"].to_numpy()
    assert np.isnan(epsilon[0])
    np.testing.assert_array_equal(epsilon[1:], plain.clients["epsilon"].to_numpy()[1:])
    assert attacked.metrics["epsilon"].iloc[-1] == epsilon[1:].max()
    assert attacked.manifest.extra["privacy"].endswith(
        "; for honest clients, whatever the attackers send; the attackers themselves have no epsilon"
    )
    assert "attackers" not in plain.manifest.extra["privacy"]


def test_an_account_of_a_network_follows_rules():
    private = {"privacy": {"noise_multiplier": 2}, "stop": {"updates": 18}}
    plain, robust = (network(scenario(**private, **more)).pairs for more in ({}, {"aggregation": {"kind": "median"}}))
    assert (robust["epsilon"] >= plain["epsilon"] - 1e-9).all()


@pytest.mark.slow
def test_a_rule_ends_what_secure_sums_of_sync_protect():
    private = {"algorithm": {"kind": "sync_sgd", "batch_size": 8}, "privacy": {"noise_multiplier": 2}}
    private["stop"] = {"updates": 18}
    rule = {"aggregation": {"kind": "median"}}
    summed, robust, single = (
        network(scenario(**private, **more), sees=sees).pairs["epsilon"].to_numpy()
        for more, sees in (({}, "neighbor_sums"), (rule, "neighbor_sums"), ({}, "messages"))
    )
    assert (summed < 0.6 * single).all()
    np.testing.assert_allclose(robust, single)


SECTIONS = {
    "gossip": (GOSSIP, "clipped_gossip", "dissensus"),
    "pairs": ({"kind": "adpsgd", "batch_size": 8}, "balance", "gaussian"),
    "rounds": (SERVED, "trimmed_mean", "alie"),
    "gradients": ({"kind": "sync_sgd", "batch_size": 8}, "centered_clipping", "alie"),
    "arrivals": ({"kind": "fedasync", "batch_size": 8, "local_steps": 2}, "clipped_gossip", "ipm"),
    "buffer": ({"kind": "fedbuff", "batch_size": 8, "local_steps": 2, "buffer_size": 3}, "multi_krum", "mimic"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_digests_are_equal_over_windows_and_after_a_resume(name, tmp_path, monkeypatch):
    if name not in ("gossip", "rounds"):
        monkeypatch.setattr("simfl.runs.context.Executor", RunOfOperations)
    algorithm, rule, attack = SECTIONS[name]
    sections = {
        "aggregation": {"kind": rule},
        "attackers": {"kind": attack, "clients": [1], "from": "4 ms"},
        "clients": {"count": 6, "jitter": {"kind": "lognormal", "sigma": 0.4}},
        "links": {"latency": {"kind": "exponential", "mean": "2 ms"}, "loss": 0.1, "resend_timeout": "5 ms"},
        "availability": [{"clients": [3], "crash": [{"at": "6 ms", "back": "20 ms"}]}],
    }
    setup = prepare(scenario(algorithm, **sections))
    whole, events = run_until(setup, math.inf, tmp_path)
    small = prepare(scenario(algorithm, **sections, execution={"window": 7}))
    assert run_until(small, math.inf, tmp_path)[0].manifest.digest == whole.manifest.digest
    cut, _ = run_until(prepare(scenario(algorithm, **sections)), events // 2, tmp_path)
    since = read_checkpoint(cut.folder / "checkpoint.npz")
    again, _ = run_until(prepare(scenario(algorithm, **sections)), math.inf, tmp_path, since=since, folder=cut.folder)
    assert again.manifest.digest == whole.manifest.digest
    assert len(whole.aggregation) > 0
