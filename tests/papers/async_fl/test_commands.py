import re

import pytest

EXAMPLE_3 = (
    "privacy async-fl --first-size 16 --examples 10000 --epsilon 1 --noise-multiplier 8 --epochs 2.5 --r0 1/e",
)
AS_PRINTED = ("--form", "worked", "--passes", 3, "--whole-rounds")
QUICK = ("--accountant", "renyi")


def words(first_size=16, examples=10_000, epsilon=2.0, sigma=5.0, epochs=10, *more):
    sizes = f"--first-size {first_size} --examples {examples} --epochs {epochs}"
    return (f"privacy async-fl {sizes} --epsilon {epsilon} --noise-multiplier {sigma}", *QUICK, *more)


def test_example_3_has_the_numbers_of_the_paper(simfl_):
    out = simfl_.printed(*EXAMPLE_3, *AS_PRINTED, *QUICK, "--delta", 5.5e-8)
    assert out.splitlines()[0] == "Sizes that grow like i^1, Theorem 4: 10,000 examples, 25,000 gradients"
    for line in (
        r"sizes, .* 16, 18, 19, …, 257 +25,027 gradients",
        r"slope, N q +1\.32163 +q = 0\.000132163",
        r"shift, m +12\.1062 +m/T = 0\.0620833",
        r"rounds, T +183 +the paper's formula: 195",
        r"as the paper computes it +5\.50234e-8 +claim",
        r"budget, sigma/factor +5\.78196 +factor 1\.38361, case 1",
        r"claim of Theorem 3 +2\.08797e-14 +for the sizes as they are",
        r"claim of the moments +0\.396774 ",
        r"certified +0\.1234\d* +12% of it; one more or less",
        r"sigma by Theorem 3 +5\.91608 +claim",
        r"q \(T\+m\)\^p ≤ r0/sigma +holds +0\.02737 ≤ 0\.04598 \(printed T\)",
        r"max s_i/N ≤ 1/\(e sigma\^2\) +violated +0\.0257 > 0\.005748",
        r"these sizes +108\.222 +183 rounds, 8 each",
        r"constant 16, claimed +228\.58\d +1,563 rounds, 5\.782 each",
    ):
        assert re.search(line, out), line


def test_default_form_is_corrected(simfl_):
    out = simfl_.printed(*EXAMPLE_3, *QUICK)
    assert re.search(r"claim of Theorem 4 +3\.13039e-7 +with an integer lambda", out)
    assert re.search(r"K ≤ K\^- +holds", out)
    assert out.count("q (T+m)^p ≤ r0/sigma") == 1


def test_violated_conditions_are_reported(simfl_):
    """Example 1: K <= K* does not imply q (T + m)^p <= r0 / sigma."""
    out = simfl_.printed(*words(16, 50_000, 2, 3, 100, "--form", "worked"))
    assert len(re.findall(r"q \(T\+m\)\^p ≤ r0/sigma +violated +0\.003\d+ > 0\.003663", out)) == 2
    assert "no proof here, as conditions of it are violated; --form corrected respects them" in out
    assert "The delta of the claim is above 1/N" in out
    assert "Epsilon at delta = 2e-5\n" in out
    assert "Epsilons are those at delta = 1/N." in out


def test_too_small_a_budget_claims_nothing(simfl_):
    """Example 2: m/T = 0.65 eats the budget; Theorem 3 has no such factor."""
    out = simfl_.printed(*words())
    assert re.search(r"claim of Theorem 4 +1 ", out)
    assert re.search(r"2 ≤ budget\^2 +violated +2 > 0\.1679 \(an integer lambda\)", out)
    assert re.search(r"claim of Theorem 3 +3\.77513e-11 ", out)
    assert "Theorem 4 claims nothing" in out
    assert "constant 16, claimed" not in out


@pytest.mark.slow
def test_compare_shows_noise_of_constant_sizes(simfl_):
    out = simfl_.printed(*EXAMPLE_3, *QUICK, "--compare")
    noises = [float(value) for value in re.findall(r"constant \d+, certified +([\d.]+) ", out)]
    assert noises == [pytest.approx(124.70, abs=0.05), pytest.approx(100.85, abs=0.05)]
    assert "Constant sizes of 136 need less noise in all for what is certified here." in out


def test_gate_checks_condition_3(simfl_):
    out = simfl_.printed(*EXAMPLE_3, *QUICK, "--gate", 1, "--clients", 5)
    assert re.search(r"\(3\), delay of \(14\) +violated +185 > 6\.244 updates in round 2", out)
    assert re.search(r"rounds that violate it +183 ", out)
    out = simfl_.printed(*words(1, 100_000, 2, 5, 0.1, "--power", 0, "--gate", 0))
    assert re.search(r"\(3\), delay of \(14\) +(holds|violated)", out)


@pytest.mark.slow
def test_replacement_costs_about_twice_the_epsilon_and_excess_gives_case_2(simfl_):
    both = [
        simfl_.result(*EXAMPLE_3, *QUICK, "--neighbors", relation)["certified_epsilon"]
        for relation in ("add_or_remove", "replace_one")
    ]
    assert 1.9 < both[1] / both[0] < 2.5
    out = simfl_.printed(*words(8, 100_000, 0.05, 8, 60, "--excess", 1.5))
    assert re.search(r"K\^\+ ≤ K +holds +4,000,000 ≤ 6,000,000 \(case 2\)", out)


def test_between_the_cases_nothing_is_claimed(simfl_):
    out = simfl_.printed(*words(16, 10_000, 1, 8, 2.5, "--r0", 0.36, "--excess", 1.0))
    assert re.search(r"claim of Theorem 4 +– ", out)
    assert "where Theorem 6 claims nothing" in out
