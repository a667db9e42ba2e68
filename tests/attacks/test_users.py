"""Audits of users: correct servers pass, broken ones are refuted; one scenario is one line of input."""

import json

import numpy as np
import pytest

from simfl.attacks.audit import audit
from simfl.attacks.draws import MORE
from simfl.attacks.sums import ServerScorer, listen_to_server
from simfl.attacks.users import UserAudit, UserReport
from simfl.errors import ScenarioError
from simfl.scenario import loads
from tests.attacks.broken_servers import BROKEN, CORRECT, FEDBUFF, SCENARIO, SECURE, prepared, report_of


def text(algorithm=FEDBUFF, more="", seed=0):
    return SCENARIO.format(seed=seed, algorithm=algorithm, more=more, spread=0.0, updates=200)


@pytest.mark.usefixtures("made_up_strategies")
@pytest.mark.slow(but=["fedbuff, apart"])
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_server_passes(name):
    report = report_of(name, 1)
    assert report.passed
    assert report.releases == report.accounted > 6
    assert report.amplified == ("drawn" in name)
    assert report.sees["noise halved"]
    assert report.sees["noise off"]
    assert report.draws_p_value > 1e-3
    assert (MORE in report.sees and report.sees[MORE] and report.drawn > 500) == report.amplified
    assert report.decisive or "fedavg, others replaced" in name or name == "secure sum, 10 bits"


#: What blames each broken server; "size" by default.
BLAMED = {
    "clip left out": "guesses",
    "a user twice in a sum": "count",
    "separation ignored": "participation",
    "divisor by those who came, drawn": "law",
    "divisor by those who came, late": "law",
    "three times as many drawn": "draws",
    "drawn in turn": "draws",
    "the same drawn always": "draws",
    "all drawn or none": "draws",
    "tree, noise independent": "dependence",
    "square root, noise independent": "dependence",
    "tree, separation ignored": "participation",
    "tree, clip left out": "guesses",
    "secure sum, clip left out": "guesses",
    "adaptive, clip left out": "guesses",
    "adaptive, noise of the first norm": "size",
    "secure sum, noise of one left out": "size",
}


def blames(report):
    return {
        "guesses": report.refuted,
        "size": report.noise_missing,
        "law": report.noise_of_other_law,
        "dependence": report.noise_dependent,
        "draws": report.draws_wrong,
        "count": not report.complete,
        "participation": report.participation_broken,
    }


@pytest.mark.usefixtures("made_up_strategies")
@pytest.mark.slow(but=["separation ignored"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_is_refuted(name):
    """docs/check_user_audit.py has 200 seeds."""
    report = report_of(name, 1)
    assert not report.passed
    assert blames(report)[BLAMED.get(name, "size")]


@pytest.mark.slow(but=["fedbuff"])
@pytest.mark.parametrize("name", [
    "fedbuff", "fedasync", "fedavg, drawn", "fedavg, others replaced", "tree", "banded", "secure sum",
    "fedbuff, adaptive",
])  # fmt: skip
def test_released_models_show_sums_of_updates_of_norm_c(name):
    """Without noise, a canary that is in adds C in its direction to a sum, and nothing else does."""
    checked = prepared(name, 3, updates=200)
    scenario = checked.scenario.replace(privacy__noise_multiplier=1e-4)
    checked = type(checked)(scenario, canaries=80)
    scorer, sums, norms = ServerScorer(checked), [], []

    def hear(steps, factors, adapted):
        sums.append(steps / np.array(factors)[:, None])
        norms.extend([checked.norm] * len(steps) if adapted is None else adapted)

    scorer.hear = hear
    listen_to_server(checked.setup, checked.device, scorer)
    along = -np.concatenate(sums)[:, checked.model.coordinates]
    sign = np.where(checked.included, 1.0, -1.0 if checked.replaces else 0.0)
    shares = np.array([[one.members.get(user, (0, 0.0))[1] for user in checked.chosen] for one in scorer.sums])
    assert shares.sum() > 10
    assert along == pytest.approx(np.array(norms)[:, None] * shares * sign, abs=2e-3)
    assert (len(set(norms)) == len(norms) > 1) == name.endswith("adaptive")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["lightsecagg, threshold: 14, colluding: 2", "bonawitz, threshold: 14"])
def test_an_aborted_secure_sum_that_the_server_may_learn_is_counted_but_not_heard(protocol):
    algorithm = SECURE.replace("bonawitz, threshold: 14", protocol).replace("dropout: 0.03", "dropout: 0.1")
    scenario = text(algorithm, ", where: secure_sum, colluding: 2", 1)
    report = UserAudit(loads(scenario)).run()
    assert report.passed
    assert report.accounted > report.releases > 9


def test_correlated_noise_of_very_many_releases_is_not_taken_apart():
    more = ", participation: {min_separation: 5}, releases: 5000, noise: {correlated: tree}"
    with pytest.raises(ScenarioError, match=r"privacy\.releases: expected at most 4096 in an audit of correlated"):
        audit(loads(text(more=more)))


@pytest.mark.slow
def test_the_command_prints_verdicts_and_json(simfl_, tmp_path):
    path = tmp_path / "users.yaml"
    path.write_text(text(more=", participation: {min_separation: 2}"))
    out = simfl_.printed("privacy", "audit", path, "--canaries", 60)
    assert out.startswith("audited: audit of 200 users at delta = 0.001, 60 canaries")
    for words in ("rule broken", "too little of it", "lower bound, measured", "knows who is in which sum", "--json"):
        assert words in out
    code, out, _ = simfl_("privacy", "audit", path, "--canaries", 60, "--json")
    result = json.loads(out)["result"]
    assert (code, result["canaries"], result["users"], result["releases"]) == (0, 60, 200, 10)
    assert result["assumptions"]["unit"].startswith("a user")


@pytest.mark.parametrize(("options", "message"), [
    ({"client": 3}, r"--client: expected none with unit: user"),
    ({"observer": "server"}, r"--observer: expected none with unit: user"),
    ({"in_place": True}, r"--in-place: expected none with unit: user"),
    ({"kind": "input"}, r"--kind: expected none with unit: user"),
    ({"canaries": 201}, r"canaries: expected 1 to 200, the number of users, found 201"),
])  # fmt: skip
def test_bad_options_give_one_line(options, message):
    with pytest.raises(ScenarioError, match=message):
        audit(loads(text()), **options)


def test_steps_after_the_noise_are_not_taken_apart():
    with pytest.raises(ScenarioError, match=r"algorithm\.server_optimizer: expected sgd"):
        audit(loads(text(FEDBUFF.replace("}", ", server_optimizer: adam}"))))
    with pytest.raises(ScenarioError, match=r"algorithm\.kind: expected steps along sums, found 'fadas'"):
        audit(loads(text(FEDBUFF.replace("fedbuff", "fadas"))))
    with pytest.raises(ScenarioError, match=r"model\.l2: expected 0, found 0\.1"):
        audit(loads(text().replace("{kind: softmax}", "{kind: softmax, l2: 0.1}")))


@pytest.mark.slow
def test_a_scenario_of_users_is_audited_by_users():
    assert isinstance(audit(loads(text()), canaries=30), UserReport)
