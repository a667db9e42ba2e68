import re

import pytest

WORDS = ("privacy", "mapa")


def test_stages_and_the_cost_of_a_run_match_the_paper(simfl_):
    out = simfl_.printed(*WORDS)
    assert "MAPA: epsilon = 0.1 per release, b = 12, K = 5, T = 15,000" in out.splitlines()[0]
    flat = re.sub(r"\s+", " ", out)
    assert "first sensitivity of the mean, dS 223.579 (12) at delta = 0.001" in flat
    assert "from t = 1 1 dS 223.579, clip 1341.47, Delta_b 9.99757e6, P 7.40746, gamma 0.00112499" in flat
    assert "from t = 37 102 dS 13.9737, clip 83.8421, Delta_b 39127.7, P 7.42163, gamma 0.00112284" in flat
    assert "T_s of stage 9, from t =" in flat
    assert "T_s of stage 10" not in flat
    assert "3,000 of 15,000 releases" in flat
    assert "epsilon of one release 0.1 claim" in flat
    assert "epsilon of the run, added up 300 claim" in flat
    assert "epsilon of the run, advanced 57.8339" in flat
    assert "epsilon of the run, exact 37.5446 certified" in flat
    assert "epsilon of one release, as printed 1.2 not certified" in flat
    assert "delta, published sampler 0.97913 not certified" in flat
    assert "would make it grow from 223.579 to 526.982" in flat
    assert "drawn at random" not in flat


def test_amplification_is_shown_where_the_client_has_a_size(simfl_):
    out = simfl_.printed(*WORDS, "--examples", 12_000)
    amplified = re.sub(r"\s+", " ", out).partition("drawn at random from 12,000 examples, q = 0.001")[2]
    assert "epsilon of one release 0.000105165 " in amplified
    assert "added up 0.315496 " in amplified
    assert "exact 0.0146767 certified" in amplified


def test_the_exact_second_moment_makes_the_recipe_useless(simfl_):
    out = simfl_.printed(*WORDS, "--second-moment", "exact")
    flat = re.sub(r"\s+", " ", out)
    assert "P 2.28261e8" in flat
    assert "The first stage is longer than the run (12,176,942 updates): the recipe is of no use here." in flat


def test_the_first_clip_may_be_given(simfl_):
    (first, *_) = simfl_.result(*WORDS, "--initial-clip", 200, "--clients", 100)["stages"]
    assert first["clipping_norm"] == pytest.approx(200, rel=1e-12)
    assert first["sensitivity"] == pytest.approx(400 / 12, rel=1e-12)


def test_only_the_first_twelve_stages_are_listed(simfl_):
    out = simfl_.printed(*WORDS, "--theta", 0.9)
    assert "T_s of stage 13," not in out
    assert re.search(r"stages in all +\d\d ", out)
