import re

import pytest

WORDS = ("privacy", "adp2sgd", "--clients", 16, "--examples", 3125, "--batch-size", 256)


@pytest.mark.slow
def test_claim_and_accountant_stand_side_by_side(simfl_):
    out = simfl_.printed(*WORDS, "--epsilon", 10, "--epochs", 300)
    assert "T = 58,594" in out.splitlines()[0]
    assert re.search(r"noise on the mean, sigma +0\.0174464 ", out)
    assert re.search(r"noise on the sum, B sigma +4\.46628 ", out)
    certified, _, hidden = out.partition("Certified: ")[2].partition("Not certified: ")
    assert re.search(r"delta at epsilon = 10 +0\.00036", hidden)
    assert re.search(
        r"epsilon, one example replaced +14\.21\d+ +above the claim; batches of fixed size, q = 0\.0819", certified
    )
    assert re.search(r"epsilon, one more or less +5\.04\d+ +within the claim; Poisson", certified)
    assert re.search(r"epsilon, one example replaced +2\.80\d* +within the claim", hidden)
    assert "refuted, whether or not senders are hidden: on some data, delta at epsilon = 10 is at least 0.00036" in out
    assert "256 times too little" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "examples", "words"),
    [(8, 6250, "The claim holds even for"), (11, 4545, "The claim is neither certified nor refuted")],
)
def test_a_claim_is_refuted_by_a_lower_bound_alone(simfl_, clients, examples, words):
    """Certified is an epsilon above the claim for 11 workers: that refutes nothing."""
    setting = ("--clients", clients, "--examples", examples, "--batch-size", 256, "--steps", 58594)
    _, out, _ = simfl_("privacy", "adp2sgd", *setting, "--epsilon", 10)
    assert words in out


def test_convergence_is_shown_on_request(simfl_):
    words = (*WORDS, "--epsilon", 10, "--epochs", 300)
    assert "Convergence" not in simfl_(*words)[1]
    out = simfl_.printed(*words, "--dimension", 1000, "--mixing", "random_pair", "--staleness", 0)
    assert re.search(r"rho-bar +1589\.53 ", out)
    assert re.search(r"bound of Theorem 1 +\S+ +claim, after T steps", out)


def test_violated_conditions_are_one_line(simfl_):
    err = simfl_.refused(*WORDS, "--epsilon", 8, "--epochs", 300)
    assert re.fullmatch(r"Theorem 2: condition \(7\) holds for no mu .*; expected at least epsilon = 8\.344; .*\n", err)
