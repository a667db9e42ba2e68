import dataclasses
import functools
import json
import re

import pytest

from tests.attacks.test_audit import SCENARIO, audited


@pytest.fixture
def written(tmp_path):
    """The path of a scenario whose releases are worth one Gaussian with z = 1."""

    def write(privacy="{mechanism: gaussian, noise_multiplier: 2}"):
        path = tmp_path / "audited.yaml"
        text = SCENARIO.format(
            seed=0,
            count=1,
            algorithm="sync_sgd",
            batch_size=1438,
            sampling="auto",
            privacy=privacy,
            updates=4,
            model="softmax",
        )
        path.write_text(text)
        return path

    return write


@pytest.mark.slow
def test_a_correct_mechanism_passes(simfl_, written):
    out = simfl_.printed("privacy", "audit", written(), "--canaries", 1438, "--in-place")
    assert "audit of client 0 at delta = 1e-5, 1,438 canaries" in out.splitlines()[0]
    assert re.search(r"releases of the client +4 +4 are in the ledger", out)
    assert re.search(r"lower bound, measured +1\.\d+ +at 95 % confidence; with all guesses right it would be 4\.0", out)
    assert re.search(r"certified +4\.37\d+ +one example more or less", out)
    assert re.search(r"refuted +no +p-value below 0\.05", out)
    assert "It cannot show that a mechanism is private" in " ".join(out.split())
    assert "Even with all guesses right" not in out


def test_a_refuted_claim_exits_with_1(simfl_, written):
    privacy = "{mechanism: gaussian, noise_multiplier: 2, claim: {kind: stated, epsilon: 0.5, source: a leaflet}}"
    words = ("privacy", "audit", written(privacy), "--canaries", 1438, "--in-place")
    code, out, _ = simfl_(*words)
    assert code == 1
    assert re.search(r"claimed +0\.5 +at delta = 1e-5; a leaflet", out)
    assert re.search(r"refuted +yes +p-value below 0\.05", out)
    code, out, _ = simfl_(*words, "--json", "--confidence", 0.9, "--guesses", 100, "--guesses", 200)
    assert code == 1
    result = json.loads(out)["result"]
    assert (result["claim_refuted"], result["refuted"], result["confidence"]) == (True, False, 0.9)
    assert result["guesses"] in (100, 200)
    assert result["lower_bound"] > 0.5


def test_the_auditor_knows_the_senders(simfl_, written):
    path = written("{mechanism: gaussian, noise_multiplier: 2, view: global_hidden}")
    out = simfl_.printed("privacy", "audit", path, "--canaries", 1438, "--in-place")
    assert re.search(r"certified +4\.37\d+ ", out)
    assert "The scenario assumes that the senders of updates are hidden" in " ".join(out.split())


def test_too_few_canaries_are_reported(simfl_, written):
    words = ("privacy", "audit", written(), "--set", "privacy.noise_multiplier=0.5")
    out = simfl_.printed(*words, "--canaries", 1438, "--in-place")
    assert "Even with all guesses right this audit could not refute" in " ".join(out.split())


def test_bad_input_gives_one_line(simfl_, written):
    err = simfl_.refused("privacy", "audit", written(), "--canaries", 2000, "--in-place")
    assert "canaries: expected at most 1438 in place, the examples of client 0, found 2000" in err
    err = simfl_.refused("privacy", "audit", written(), "--confidence", 2)
    assert "privacy audit: confidence: expected a number between 0 and 1, found 2.0" in err


@pytest.mark.parametrize(("changes", "said"), [
    ({}, "This audit detects noise off, noise halved, clipping off, noise times 0.7, noise of +-1,"),
    ({"sees": {"noise off": True, "noise halved": False}},
     "detects noise off (in all of 3 audits with each fault). It may miss noise halved."),
    ({"noise_missing": True}, "Noise is missing: the releases are smaller than the declared noise alone would be."),
    ({"noise_of_other_law": True}, "Noise is not of the declared law: the numbers with noise alone"),
    ({"noise_dependent": True}, "Noise is not drawn afresh: noise of two releases, or of two coordinates of a"),
    ({"releases": 3, "complete": False}, "The audit failed: it received fewer releases than the ledger counted"),
    ({"releases": 5, "complete": False}, "The ledger counted fewer releases than the audit"),
    ({"releases": 0, "accounted": 0}, "The client released nothing"),
])  # fmt: skip
def test_every_verdict_is_printed(simfl_, written, monkeypatch, changes, said):
    report = dataclasses.replace(correct_report(), **changes)
    monkeypatch.setattr("simfl.attacks.audit.audit", lambda *words, **options: report)
    code, out, _ = simfl_("privacy", "audit", written())
    assert said in " ".join(out.split())
    assert code == (0 if report.passed else 1)
    wrong = {"noise_missing", "noise_of_other_law", "noise_dependent", "complete"}
    assert report.passed == (not wrong & set(changes))


@functools.cache
def correct_report():
    return audited()
