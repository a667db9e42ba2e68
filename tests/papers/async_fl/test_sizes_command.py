import re

import pytest

from simfl.papers.async_fl.privacy import theorem_3, theorem_3_noise
from simfl.papers.async_fl.sizes import PolynomialSizes
from simfl.privacy.accounting import Release, epsilon_of


@pytest.mark.slow
def test_output_has_sizes_and_the_noise_of_theorem_3(simfl_):
    words = ("privacy", "sizes", "{kind: polynomial, a: 2, b: 10}", "--gradients", 5000, "--accountant", "renyi")
    out = simfl_.printed(*words, "--examples", 10_000, "--epsilon", 1)
    assert re.search(r"sizes +12, 14, 16, 18, 20, 22, …, \d+", out)
    result = simfl_.result(*words, "--examples", 10_000, "--epsilon", 1)
    sequence = PolynomialSizes(2.0, 1.0, 10.0)
    assert result["rounds"] == sequence.rounds_for(5000)
    assert result["sizes"] == sequence.first(result["rounds"])
    assert result["gradients"] == sum(result["sizes"]) >= 5000
    noise = result["noise"]
    assert noise["delta"] == 1e-4
    assert noise["sigma"] == theorem_3_noise(result["sizes"], 10_000, 1.0, 1e-4)
    assert theorem_3(result["sizes"], 10_000, 1.0, noise["sigma"] * (1 + 1e-9)).delta <= 1e-4 * (1 + 1e-9)
    composition = [(Release(noise["sigma"], size / 10_000), 1) for size in result["sizes"]]
    assert noise["certified_epsilon"] == epsilon_of(composition, 1e-4, accountant="renyi")
    assert noise["certified_epsilon"] < 1.0


@pytest.mark.parametrize(("words", "first"), [
    (("7",), [7, 7, 7]),
    (("{kind: over_log, a: 50}",), [145, 137, 145]),
    (("{kind: shifted_power, slope: 2, shift: 3, power: 2}",), [18, 32, 50]),
    (("{kind: theorem5, smoothness: 1, strong_convexity: 1, shift: 5800}",), [13, 13, 13]),
])  # fmt: skip
def test_sizes_are_written_as_in_a_scenario(simfl_, words, first):
    result = simfl_.result("privacy", "sizes", *words, "--rounds", 3)
    assert (result["sizes"], result["noise"]) == (first, None)
