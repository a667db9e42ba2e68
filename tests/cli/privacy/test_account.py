import re

import pytest

from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.gaussian import gaussian_delta, gaussian_epsilon

WORDS = ("privacy", "account", "--noise-multiplier", 2, "--steps", 1000, "--sampling-rate", 0.01)


def test_accountants_are_printed_side_by_side(simfl_):
    out = simfl_.printed(*WORDS)
    result = simfl_.result(*WORDS)
    release = [(Release(2.0, 0.01), 1000)]
    for by, epsilon in result["epsilon"].items():
        assert epsilon == epsilon_of(release, 1e-5, accountant=by)
        assert f"{epsilon:.6g}" in out
    assert result["epsilon"]["pld"] < result["epsilon"]["renyi"]
    assert result["epsilon_without_sampling"] == pytest.approx(gaussian_epsilon(1e-5, 1000**0.5 / 2))
    assert re.search(r"epsilon by central limit +0\.601759 +not certified: an approximation, no bound", out)
    assert "Neighbors: one example more or less; Poisson sampling" in out


def test_epsilon_of_a_run_of_the_paper_is_printed(simfl_):
    words = ("-z", 4.46628, "--steps", 3662, "--sampling-rate", 0.08192, "--sampling", "without_replacement")
    result = simfl_.result("privacy", "account", *words, "--neighbors", "replace_one", "--accountant", "pld")
    assert result["epsilon"] == {"pld": pytest.approx(14.2136, abs=5e-4)}
    assert result["epsilon_by_central_limit"] is None


def test_one_gaussian_alone_is_exact(simfl_):
    out = simfl_.printed("privacy", "account", "-z", 2, "--steps", 1, "--epsilon", 1)
    assert re.search(rf"epsilon, tightest +{gaussian_epsilon(1e-5, 0.5):.6g} +certified: exact", out)
    assert f"{gaussian_delta(1.0, 0.5):.6g}" in out
    assert "For comparison" not in out


def test_above_an_epsilon_of_300_the_bound_in_place_of_distributions_is_named(simfl_):
    for rate, bound in ((0.3, "Renyi divergence"), (0.9999, "the epsilon without sampling")):
        out = simfl_.printed("privacy", "account", "-z", 1, "--steps", 3000, "--sampling-rate", rate)
        assert f"certified: by {bound}, since loss distributions are not" in " ".join(out.split())


def test_without_noise_nothing_is_certified(simfl_):
    out = simfl_.printed("privacy", "account", "-z", 0, "--steps", 3)
    assert out.count("∞  not certified: no noise protects") == 3
    assert simfl_.result("privacy", "account", "-z", 0, "--steps", 3)["epsilon"] == {
        "tightest": "inf",
        "renyi": "inf",
        "pld": "inf",
    }
