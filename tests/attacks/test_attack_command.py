import json
import re

import pytest

from tests.attacks.test_inversion import TEXT as SINGLE
from tests.attacks.test_membership import TEXT


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(TEXT.replace("updates: 400", "updates: 100").replace("\nstop", PRIVATE))
    return file


PRIVATE = "\nprivacy: {noise_multiplier: 1, clipping_norm: 1, delta: 1.0e-3}\nstop"


@pytest.mark.slow
def test_membership_writes_tables_and_figures_and_prints_certified_epsilons(simfl_, path, tmp_path):
    words = ("privacy", "attack", path, "--client", 1, "--models", 4, "--out", tmp_path / "out")
    out = simfl_.printed(*words)
    assert out.startswith("ring: membership inference at delta = 0.001\n")
    assert re.search(r"client 0 on client 1, distance 1 +0\.\d+ +\[0\.\d+, 0\.\d+\], .* certified \d", out)
    assert "Assumed: a client's examples and those of the test set" in out
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"membership.csv", "roc.csv", "membership.png"}
    assert len((tmp_path / "out" / "membership.csv").read_text().splitlines()) == 1 + 2 * 3
    assert (tmp_path / "out" / "membership.png").stat().st_size > 10_000
    code, out, _ = simfl_(*words, "--observer", 3, "--observer", "links", "--json")
    result = json.loads(out)["result"]
    assert code == 0
    assert {(one["observer"], one["distance"]) for one in result["inferences"]} == {("3", 2.0), ("links", 0.0)}
    assert all(0 <= one["lower_bound"] < one["account"] for one in result["inferences"])


@pytest.mark.parametrize(("words", "message"), [
    (("--client", 7), "--client: expected 0 to 3, found 7"),
    (("--observer", "-1"), "--observer: expected 0 to 3, or links, found -1"),
    (("--models", 0), "privacy attack: models: expected an integer >= 1, found 0"),
    (("--confidence", 1), "privacy attack: confidence: expected a number between 0 and 1, found 1.0"),
    (("--client", 2, "--observer", 2), "--observer: expected an observer other than the attacked client, found"),
])  # fmt: skip
def test_bad_input_gives_one_line(simfl_, path, words, message):
    err = simfl_.refused("privacy", "attack", path, *words)
    assert err.startswith(message)


def test_set_with_the_folder_of_a_run_is_rejected(simfl_, path, tmp_path):
    err = simfl_.refused("privacy", "attack", tmp_path, "--set", "seed=2")
    assert err.startswith("--set: expected none with the folder of a run")


def test_inversion_reconstructs_examples_from_gradients(simfl_, tmp_path):
    path = tmp_path / "ring.yaml"
    path.write_text(SINGLE)
    words = ("privacy", "attack", path, "--attack", "inversion", "--client", 0)
    out = simfl_.printed(*words, "--observer", "links", "--batches", 2, "--out", tmp_path / "out")
    assert re.search(r"solved for +6 +by links", out)
    assert len(re.findall(r"mini-batch \d+ +1 +1 example, read off", out)) == 2
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"inversion.csv", "inversion.png"}
    code, out, _ = simfl_(*words, "--observer", 2, "--json")
    result = json.loads(out)["result"]
    assert (code, result["solved"], result["examples"], result["files"]) == (0, 0, [], [])
    err = simfl_.refused(*words)
    assert err == "--observer: expected one with --attack inversion, found none\n"
