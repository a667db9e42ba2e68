import re

import pytest

WORDS = ("privacy", "without-replacement", "--examples", 60000, "--batch-size", 50)


def test_the_command_prints_noise_and_epsilons(simfl_):
    out = simfl_.printed(*WORDS, "--epsilon", 1, "--models", 10)
    assert "delta = 2.77778e-10" in out.splitlines()[0]
    assert re.search(r"Algorithm 1, std\(N\) +0\.266697 +claim of Theorem 2", out)
    assert re.search(r"scaled, std\(eta N\) +0\.0266697 ", out)
    assert re.search(r"DP-SGD-5, std\(N\) +1\.38092 ", out)
    assert re.search(r"Algorithm 1 +0\.849919 +certified, within the claimed 1", out)
    assert re.search(r"Algorithm 1, 10 models released +2\.85161 +certified, above the claimed 1", out)
    assert "at 1 it is still enough" in out
    assert "Convergence" not in out


def test_records_at_several_nodes_and_exact_noise_are_printed(simfl_):
    joint = simfl_.result(*WORDS[:3], 1200000, "--batch-size", 50, "--epsilon", 1, "--copies", 20)["joint"]
    assert joint == {"models": 1, "copies": 20, "epsilon": pytest.approx(4.18, abs=5e-3)}
    result = simfl_.result(*WORDS, "--epsilon", 11, "--calibration", "analytic")
    assert result["algorithm1"]["exact_epsilon"] == pytest.approx(11)
    out = simfl_.printed(*WORDS, "--epsilon", 11)
    assert "at 11 it is too little: use --calibration analytic" in out


def test_bounds_are_printed_on_request(simfl_):
    out = simfl_.printed(*WORDS, "--epsilon", 1, "--dimension", 50)
    assert re.search(r"Theorem 3, Algorithm 1 +0\.386879 +claim; start", out)
    assert "Theorem 6, Algorithm 2" in out
    result = simfl_.result(*WORDS, "--epsilon", 1, "--dimension", 50, "--as-printed")["convergence"]
    assert result["theorem3"]["bound"] == pytest.approx(0.212617, abs=5e-7)
    result = simfl_.result(*WORDS, "--epsilon", 1, "--dimension", 50, "--l2", 1e-4)
    assert list(result["convergence"]) == ["theorem4"]
    assert result["loss"] == {"lipschitz": 2.0, "smoothness": 1.0001, "strong_convexity": 1e-4}


def test_steps_of_algorithm_2_are_printed(simfl_):
    assert "0.5: fulfilled." in simfl_(*WORDS, "--epsilon", 1)[1]
    assert "which eta = 0.6 violates" in simfl_(*WORDS, "--epsilon", 1, "--step-size", 0.6)[1]
    assert "begin at 20,000" in simfl_(*WORDS, "--epsilon", 1, "--l2", 1e-4)[1]
