import pytest

pytestmark = pytest.mark.usefixtures("without_numbers")

TEXT = """
data: digits
clients: {count: 4}
topology: complete
algorithm: {kind: adpsgd, batch_size: 16}
privacy: {noise_multiplier: 2, delta: 1.0e-5, claim: {epsilon: 9.0, source: the abstract}}
stop: {epochs: 2}
"""


@pytest.fixture
def scenario(simfl_, tmp_path):
    (tmp_path / "s.yaml").write_text(TEXT)
    return simfl_


def test_a_claim_that_holds_exits_with_0(scenario):
    out = scenario.printed("privacy check s.yaml")
    assert "s: claim against account at delta = 1e-5, as planned" in out
    assert "one more or less; the abstract" in out
    assert "the claim holds" in out
    assert "local view (all that the client ever sent)" in " ".join(out.split())


def test_a_claim_about_hidden_senders_is_not_reported_to_hold(scenario):
    out = scenario.printed("privacy check s.yaml --set privacy.view=global_hidden")
    assert "the claim would hold if senders were hidden" in out
    assert "the claim holds" not in out


def test_an_understated_claim_exits_with_1(scenario, tmp_path):
    code, out, _ = scenario("privacy", "check", "s.yaml", "--claimed-epsilon", "0.1", "--figure", "c.png")
    assert code == 1
    assert "the claim is below the certified epsilon" in out
    assert (tmp_path / "c.png").stat().st_size > 10_000


def test_a_run_can_be_checked(scenario):
    scenario("run", "s.yaml", "-q")
    result = scenario.result("privacy check results/s/001")
    assert not result["planned"]
    assert sum(len(group["clients"]) for group in result["groups"]) == 4
    assert {entry["view"] for entry in result["groups"][0]["certified"]} == {"local_transcript", "global_hidden"}
    err = scenario.refused("privacy check results/s/001 --set clients.count=3")
    assert err.startswith("--set: expected only privacy.claim")


@pytest.mark.parametrize(("words", "message"), [
    (("s.yaml", "--set", "privacy=null"), "privacy: expected a privacy section to check, found none"),
    (("none.yaml",), "none.yaml"),
    (("s.yaml", "--claimed-epsilon", "-1"), "privacy.claim.epsilon: expected a number > 0, found -1"),
])  # fmt: skip
def test_bad_input_gives_one_line(scenario, words, message):
    assert message in scenario.refused("privacy check", *words)
