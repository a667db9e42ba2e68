import json

import pytest

pytestmark = pytest.mark.usefixtures("made_up_strategies")

WORDS = ("privacy", "strategies", "--epsilon", 4, "--delta", 1e-3, "--releases", 40, "--min-separation", 5)


@pytest.mark.slow
def test_a_table_and_json_have_the_same_numbers(simfl_):
    out = simfl_.printed(*WORDS, "--at-most", 4, "--fraction", 0.6)
    result = simfl_.result(*WORDS, "--at-most", 4, "--fraction", 0.6)
    assert (result["at_most"], result["releases"]) == (4, 40)
    names = [plan["name"] for plan in result["strategies"]]
    for name in ("independent", "independent, drawn", "tree", "tree, restart_every: 5", "square_root, bands: 5"):
        assert name in names
    for plan in result["strategies"]:
        assert f"{plan['noise_multiplier']:.6g}" in out
        assert f"{plan['rmse']:.4g}" in out
    assert "only if the server draws users secretly" in out


def test_noise_in_bands_needs_a_separation(simfl_):
    words = ("privacy", "strategies", "--epsilon", 4, "--releases", 30, "--json")
    names = [plan["name"] for plan in json.loads(simfl_(*words)[1])["result"]["strategies"]]
    assert not any("bands" in name for name in names)


@pytest.mark.parametrize(("words", "message"), [
    (("--bands", 6), "privacy strategies: bands: expected an integer from 1 to 5, found 6"),
    (("--releases", 0), "privacy strategies: releases: expected an integer from 1 to 10000, found 0"),
])  # fmt: skip
def test_wrong_options_give_one_line(simfl_, words, message):
    err = simfl_.refused(*WORDS, *words)
    assert message in err
