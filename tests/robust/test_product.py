"""Every algorithm x rule x attack x mechanism runs, or is refused in one line that names the section."""

import itertools

import numpy as np
import pytest

from simfl.algorithms import ALGORITHMS
from simfl.errors import ScenarioError
from simfl.robust.attacks import ATTACKS
from simfl.robust.rules import RULES
from simfl.runs.runner import prepare, run
from simfl.scenario import from_mapping
from tests.helpers import uses_of

pytestmark = pytest.mark.usefixtures("without_numbers")

#: What scenarios say of an algorithm that differs from the others.
OPTIONS = {
    "adpsgd": {"exchange": "messages"},
    "audp": {"smoothness": 10, "sampling_std": 3},
    "mapa": {"smoothness": 10, "sampling_std": 3, "initial_gap": 1},
    "async_fl": {"sizes": 100, "sizes_of": "each", "step_size": 0.001},
    "random_walk_sgd": {"visits": 2},
    "fedavg": {"local_steps": 2},
    "fedbuff": {"buffer_size": 3},
}
ONE_PASS = {"mechanism": "one_pass_gaussian", "epsilon": 4}
REPLACED = {"mechanism": "laplace_l2", "clipping_norm": 0.5, "epsilon_per_release": 0.5, "neighbors": "replace_one"}
MECHANISMS = {
    "none": None,
    "gaussian": {"noise_multiplier": 2},
    "laplace": {"mechanism": "laplace_l2", "epsilon_per_release": 0.5},
    "update": {"mechanism": "gaussian_update", "noise_multiplier": 2},
    "hidden": {"noise_multiplier": 2, "view": "global_hidden"},
    "pairwise": {"noise_multiplier": 2, "noise": {"correlated": "pairwise", "shared_multiplier": 1}},
    "in time": {"noise_multiplier": 2, "noise": {"correlated": "in_time", "strategy": "tree"}},
    "one pass": ONE_PASS,
}
NEEDED = {"without_replacement_sgd": ONE_PASS, "random_walk_sgd": ONE_PASS, "mapa": REPLACED}
KINDS = [kind for kind in ALGORITHMS if kind != "deep_q_sgd"]


def scenario(kind, rule=None, attack=None, mechanism=None, options=None):
    sections = {"privacy": mechanism and {"delta": 1e-3, **mechanism}}
    if rule is not None:
        sections["aggregation"] = {"kind": rule}
    if attack is not None:
        sections["attackers"] = {"clients": [1], "kind": attack}
    return from_mapping(
        {
            "data": {"set": "logistic", "samples": 160, "dimension": 4},
            "model": "logistic",
            "clients": 1 if kind == "centralized_sgd" else 4,
            "algorithm": {"kind": kind, "batch_size": 8, **OPTIONS.get(kind, {}), **(options or {})},
            "stop": {"updates": 12, "time": 5},
            **sections,
        }
    )


def outcome(tmp_path, *said, runs=True, **options):
    """Return the run, or its setup, or the line that refuses it."""
    try:
        setup = prepare(scenario(*said, **options))
        return run(setup, out=tmp_path, checkpoint_every=None) if runs else setup
    except ScenarioError as refusal:
        problems = str(refusal).splitlines()  # each problem is one line
        assert len(problems) == 1 or all(problem.startswith("scenario: ") for problem in problems), problems
        return str(refusal)


def expected(kind, rule, attack):
    """Return the sections that the algorithm cannot use."""
    taken, attacked = uses_of(kind).summing.rules, uses_of(kind).summing.attacks
    wrong = ["aggregation"] if rule is not None and RULES[rule].among not in taken else []
    replaces = attack is not None and not ATTACKS[attack].on_data
    untaken = replaces and (not attacked or ATTACKS[attack].among not in {None, *attacked})
    return wrong + ["attackers"] * untaken


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rules_and_attacks_run_with_the_algorithms_that_take_them(kind, tmp_path):
    needed = NEEDED.get(kind)
    if kind == "centralized_sgd":
        with pytest.raises(ScenarioError, match=r"attackers: expected fewer attackers than clients.count, which is 1"):
            scenario(kind, attack="sign_flip")
        return
    rules = [None, *(rule for rule in RULES if RULES[rule].among != "before")]
    for (i, rule), (j, attack) in itertools.product(enumerate(rules), enumerate([None, *ATTACKS])):
        if (i - j) % 4:  # each rule meets a quarter of the attacks, and each attack a quarter of the rules
            continue
        runs = (i - j) % 8 == 0  # the others are built only
        result = outcome(tmp_path, kind, rule, attack, needed, runs=runs)
        wrong = expected(kind, rule, attack)
        if wrong:
            assert any(result.startswith(f"{section}.kind: expected") for section in wrong), result
        elif runs:
            assert result.status == "done", (rule, attack)
            assert ("attacker" in result.clients) == (attack is not None)
        else:
            assert not isinstance(result, str), result


@pytest.mark.slow(but=["fedavg-gaussian", "decentralized_sgd-gaussian"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if uses_of(kind).summing.rules])
def test_mechanisms_run_with_rules_and_attackers_as_without(kind, mechanism, tmp_path):
    privacy = MECHANISMS[mechanism]
    plain = outcome(tmp_path, kind, mechanism=privacy)
    runs_alone = not isinstance(plain, str)
    rule = "trimmed_mean" if "many" in uses_of(kind).summing.rules else "balance"
    for attack in (None, "ipm", "label_flip"):
        result = outcome(tmp_path, kind, rule, attack, privacy)
        if attack is not None and mechanism == "hidden" and runs_alone:
            assert "expected local_transcript with attackers" in result
            continue
        assert runs_alone != isinstance(result, str), result
        if runs_alone and privacy is not None:
            epsilon = result.clients["epsilon"].to_numpy()
            hostile = (attack is not None) & (np.arange(4) == 1)
            np.testing.assert_array_equal(np.isnan(epsilon), plain.clients["epsilon"].isna().to_numpy() | hostile)


def test_noise_of_a_server_covers_neither_rules_nor_attackers(tmp_path):
    privacy, server = MECHANISMS["update"], {"noise": "server"}
    assert not isinstance(outcome(tmp_path, "fedbuff", mechanism=privacy, options=server), str)
    refused = outcome(tmp_path, "fedbuff", "median", None, privacy, options=server)
    assert refused == (
        "scenario: aggregation: expected null with noise of the server, found 'median'; a rule sees single updates, of "
        "which the server's noise protects only the sum; use noise: client"
    )
    refused = outcome(tmp_path, "fedbuff", None, "alie", privacy, options=server)
    assert "attackers: expected null with noise of the server, found 'alie'; an attacker reads single" in refused
    assert not isinstance(outcome(tmp_path, "fedbuff", None, "label_flip", privacy, options=server), str)
