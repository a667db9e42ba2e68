import json
import re

import numpy as np
import pandas as pd
import pytest
import yaml

from simfl.accounts.network import Network
from simfl.scenario import load
from tests.accounts.test_network import scenario


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(yaml.safe_dump(scenario(updates=24)))
    return file


def test_epsilons_are_printed_by_distance_or_by_pair(simfl_, path, tmp_path):
    out = simfl_.printed("privacy", "network", path)
    assert out.startswith("seen: what 6 observers know of 6 clients at delta = 0.0001\n")
    assert re.search(r"distance 1 +0\.\d+ +0 to 0\.\d+ over 12 pairs, by .*; as published 0\.\d+", out)
    assert re.search(r"distance 3 +0 +0 to 0\.\d+ over 6 pairs, by pairwise; as published 0", out)
    assert "as published (not certified)" in out
    out = simfl_.printed("privacy", "network", path, "--coalition", "1, 2")
    assert out.startswith("seen: what observer 1+2 knows of 4 clients")
    assert re.search(r"\n +3 for 1\+2 +0\.\d+ +by (local|pairwise); as published 0\.\d+, distance 1", out)


@pytest.mark.slow
def test_tables_and_json_have_the_values_of_the_python_function(simfl_, path, tmp_path):
    words = ("privacy", "network", path, "--observer", 0, "--observer", "links", "--times", 2)
    out = simfl_.printed(*words, "--json", "--out", tmp_path / "out")
    result = json.loads(out)["result"]
    assert result["gradients"] >= 24
    assert "its view with nobody" in result["assumptions"]["observer"]
    assert [one["observer"] for one in result["pairs"]] == 2 * (["0"] * 5 + ["links"] * 6)
    lines = (tmp_path / "out" / "pair_epsilon.csv").read_text().splitlines()
    assert lines[0].split(",") == list(result["pairs"][0])
    assert len(lines) == 1 + len(result["pairs"])
    figures = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    assert figures == ["by-distance.png", "graph.png", "over-time.png", "pairs.png"]


def test_messages_are_written_with_their_coefficients(simfl_, path, tmp_path):
    out = tmp_path / "out"
    simfl_.printed("privacy", "network", path, "--reconstruct", "--messages", "--out", out)
    messages, gradients = (pd.read_parquet(out / f"knowledge_{name}.parquet") for name in ("messages", "gradients"))
    network = Network(load(path))
    assert len(messages) == len(network.knowledge.messages) == 24
    assert len(gradients) == len(network.knowledge.batches)
    assert gradients["noise_std"].to_numpy() == pytest.approx(2.0)
    a, _ = network.knowledge.matrices([one.row for one in network.knowledge.messages])
    expected = {
        (one.sent_s, one.source, one.target): row for one, row in zip(network.knowledge.messages, a, strict=True)
    }
    assert len(expected) == 24
    for one in messages.itertuples():
        row = np.zeros(a.shape[1])
        row[one.gradients] = one.coefficients
        np.testing.assert_array_equal(row, expected[one.sent_s, one.source, one.target])


@pytest.mark.parametrize(("words", "message"), [
    (("--observer", 6), "observer: expected a client, 0 to 5, or \"links\", found '6'"),
    (("--coalition", ""), "observer: expected a client, 0 to 5, or \"links\", found ''"),
    (("--observer", "²"), "observer: expected a client, 0 to 5, or \"links\", found '²'"),
    (("--coalition", "0,1,2,3,4,5"),
     "observer: expected at least one client that is not an observer, found all clients"),
    (("--set", "algorithm.optimizer=adam"), "algorithm.optimizer: expected none, found one"),
    (("--set", "stop.accuracy=0.5"), "stop.accuracy: expected a run that ends at a time"),
    (("--messages",), "--messages: expected --out FOLDER with it, found none"),
    (("--set", "privacy=null"), "privacy: expected a mechanism to account for, found none"),
])  # fmt: skip
def test_bad_input_gives_one_line(simfl_, path, words, message):
    err = simfl_.refused("privacy", "network", path, *words)
    assert err.startswith(message) or f" {message}" in err
    assert len(err.splitlines()) == 1


def test_reconstruct_prints_clients_whose_gradients_are_solved_for(simfl_, path, tmp_path):
    out = simfl_.printed("privacy", "network", path, "--set", "privacy=null", "--reconstruct", "--out", tmp_path)
    assert out.startswith("seen: whose gradients 6 observers can solve for, of ")
    table = pd.read_csv(tmp_path / "reconstruction.csv")
    near = table[table["distance"] == 1]
    assert re.search(rf"each by itself\n +distance 1 +{(near['recovered'] > 0).mean():.4g} +of 12 pairs", out)
    assert re.search(rf"are one\n +distance 1 +{near['slow_recovered'].mean():.4g} +of 12 pairs", out)
    assert "epsilon" not in out
