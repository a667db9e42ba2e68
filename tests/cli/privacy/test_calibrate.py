import json
import re

import pytest

from simfl.privacy.gaussian import analytic_std


def test_noise_of_every_accountant_reaches_the_epsilon(simfl_):
    words = ("privacy", "calibrate", "--epsilon", 2, "--steps", 20)
    out = simfl_.printed(*words, "--clipping-norm", 0.5)
    result = simfl_.result(*words)
    for entry in result["accountants"].values():
        assert 1.99 < entry["epsilon"] <= 2.0
        assert f"{entry['noise_multiplier']:.6g}" in out
        assert f"noise z C = {entry['noise_multiplier'] / 2:.6g}" in out
    assert result["accountants"]["tightest"]["noise_multiplier"] < result["accountants"]["renyi"]["noise_multiplier"]
    assert result["analytic"]["noise_multiplier"] == pytest.approx(20**0.5 * analytic_std(2.0, 1e-5))


def test_sampling_needs_less_noise(simfl_):
    words = ("privacy", "calibrate", "--epsilon", 2, "--steps", 20, "--accountant", "renyi", "--json")
    every, some = (
        json.loads(simfl_(*words, "--sampling-rate", rate)[1])["result"]["accountants"]["renyi"] for rate in (1, 0.02)
    )
    assert some["noise_multiplier"] < every["noise_multiplier"] / 3
    assert some["epsilon"] <= 2.0


def test_closed_forms_have_the_numbers_of_the_theory_page(simfl_):
    words = ("privacy", "calibrate", "--steps", 1, "--accountant", "tightest")
    out = simfl_.printed(*words, "--epsilon", 1, "--delta", 1 / 60000**2)
    assert re.search(r"z, analytic +5\.70504 +certified: exact", out)
    assert re.search(r"z, classical formula +6\.66743 +not proven for epsilon >= 1; really epsilon = 0\.849919", out)
    assert re.search(r"z, tightest +5\.70\d+ +certified", out)
    out = simfl_.printed(*words, "--epsilon", 10)
    assert re.search(r"z, analytic +0\.499889 ", out)
    assert re.search(r"z, classical formula +0\.484481 ", out)
    assert "The classical formula gives too little noise here." in out
    assert "proven for epsilon < 1;" in simfl_(*words, "--epsilon", 0.5)[1]


def test_one_pass_costs_one_release(simfl_):
    words = ("--sampling-rate", 0.1, "--sampling", "one_pass", "--neighbors", "replace_one", "--json")
    results = [
        json.loads(simfl_("privacy", "calibrate", "--epsilon", 1, "--steps", steps, *words)[1])["result"]
        for steps in (1, 10)
    ]
    assert results[0] == results[1]
    assert results[0]["analytic"]["noise_multiplier"] == pytest.approx(2 * analytic_std(1.0, 1e-5))
    assert results[0]["accountants"]["tightest"]["noise_multiplier"] == pytest.approx(
        2 * analytic_std(1.0, 1e-5), rel=1e-3
    )
