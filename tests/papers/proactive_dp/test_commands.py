import re

import pytest

LIBSVM = ("privacy", "proactive-dp", "--examples", 10000, "--epochs", 5)


def test_the_table_has_claimed_and_certified_epsilons(simfl_):
    out = simfl_.printed(*LIBSVM, "--epsilon", 0.0497)
    assert out.splitlines()[0] == ("Proactive DP, Theorem B.4: 10,000 examples, 50,000 gradients, delta = 0.0001")
    for label, value, note in (
        ("noise multiplier, sigma", r"19\.3038", "noise on the sum over clipping norm"),
        ("batch size, s", "31", r"expected; a larger one violates \(34\)"),
        ("rounds", "1,612", "49,972 gradients; 28 left out"),
        ("epochs, k", r"4\.9972", ""),
        ("claim of Theorem B.4", r"0\.0497", "Poisson, one example more or less"),
        ("claim of its moments", r"0\.048387", "best integer lambda of Lemma B.3"),
        ("certified, Poisson", r"0\.0114\d+", "one more or less: 23% of the claim"),
        ("certified, fixed size", r"0\.0276\d+", "one replaced: 56% of the claim"),
        (r"\(32\) T ≥ theta k/g\(sigma\)", "1,612", r"holds: needs 262\.219"),
        (r"\(33\) k ≥ eps/\(gamma h\)", r"4\.9972", r"holds: needs 0\.0210545"),
        (r"\(34\) T ≥ gamma theta² k²/eps", "1,612", r"holds: needs 1570\.43"),
        (r"\(35\) sigma ≥ main equation", r"19\.3038", r"holds: needs 19\.3038"),
        ("gamma", r"3\.12504", "fixed point of Gam"),
        ("theta", "1", "largest over mean batch"),
    ):
        assert re.search(rf"^  {label} +{value} +{note} *$", out, re.MULTILINE), label
    assert "before" not in out


def test_one_shot_gamma_gives_the_tables_of_the_paper(simfl_):
    words = "--examples 50000 --gradients 350000 --epsilon 0.5253 --gamma one-shot"
    out = simfl_.printed(f"privacy proactive-dp {words}")
    assert re.search(r"^  batch size, s +406 ", out, re.MULTILINE)
    assert re.search(r"^  gamma +9\.22475 +one-shot; ", out, re.MULTILINE)
    assert re.search(r"^  certified, Poisson +0\.1071\d* ", out, re.MULTILINE)


def test_earlier_rounds_count(simfl_):
    words = "privacy proactive-dp --examples 10000 --gradients 20000 --noise-multiplier 15 --epsilon 0.5"
    out = simfl_.printed(words, "--done", "31x1612", "--done", "20x3")
    assert re.search(r"^  batch size, s +66 ", out, re.MULTILINE)
    assert re.search(r"^  rounds +303 +and one more with a batch of 2 *$", out, re.MULTILINE)
    assert re.search(r"^  rounds altogether, T +1,919 +before: 1,612 of 31, 3 of 20 *$", out, re.MULTILINE)
    assert re.search(r"^  epochs, k +7\.0032 +of all rounds together *$", out, re.MULTILINE)
    assert re.search(r"^  theta +1\.80852 ", out, re.MULTILINE)
    assert "- Earlier rounds are counted with sigma = 15, the least noise that they may have had." in out
    without = simfl_(words)[1]
    assert re.search(r"^  epochs, k +2 *$", without, re.MULTILINE)


def test_without_epsilon_the_noise_sets_the_budget_of_all_rounds(simfl_):
    words = "privacy proactive-dp --examples 10000 --gradients 10000 --noise-multiplier 10 --done 31x1612"
    result = simfl_.result(words)
    assert result["claimed_epsilon"] == pytest.approx(0.187966, abs=5e-7)


@pytest.mark.parametrize(("words", "message"), [
    (("--epochs", 5, "--noise-multiplier", 5, "--done", "900x3"),
     r"condition \(32\) of Theorem B\.4: .*; stop participating"),
    (("--epochs", 5, "--noise-multiplier", 5, "--epsilon", 0.5),
     r"condition \(35\) of Theorem B\.4: .*; stop participating"),
    (("--epochs", 900, "--noise-multiplier", 19.3, "--epsilon", 0.05),
     r"condition \(34\) of Theorem B\.4: .*; stop partic.*"),
    (("--epochs", 900, "--epsilon", 0.05), r"condition \(34\) of Theorem B\.4: T >= .*; take more rounds .*"),
    (("--epochs", 1, "--epsilon", 3, "--gamma", "one-shot"), r"condition \(33\) of Theorem B\.4: .*"),
    (("--epochs", 1, "--noise-multiplier", 1.4), r"condition \(35\) of Theorem B\.4: .*; take more noise"),
])  # fmt: skip
def test_a_condition_that_fails_is_an_error_of_one_line(simfl_, words, message):
    err = simfl_.refused("privacy", "proactive-dp", "--examples", 10000, *words)
    assert re.fullmatch(message + r"\n", err)
