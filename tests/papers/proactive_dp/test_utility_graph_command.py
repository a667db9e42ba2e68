import csv
import json
import re

import pytest

from simfl.papers.proactive_dp.utility import UtilityRow

DIGITS = "clients: {count: 1}\nalgorithm: {kind: sync_sgd}\nstop: {epochs: 10}\n"
QUICK = ("digits.yaml", "--epochs", 3, "--clipping-norms", "0.5,1", "--noise-multipliers", "1.5,2,3", "--draws", 4)


@pytest.fixture(autouse=True)
def digits(tmp_path):
    (tmp_path / "digits.yaml").write_text(DIGITS)


def test_the_command_prints_the_frontier_and_writes_table_and_figures(simfl_, tmp_path):
    out = simfl_.printed("privacy", "utility-graph", *QUICK, "--out", "graph", "--target-loss", 0.2)
    assert out.startswith("Utility graph (Proactive DP): digits, softmax, 3 epochs\n")
    assert "costs at most 20 % of the accuracy" in out
    assert len(re.findall(r"^  C = (?:0\.5|1) +\S.*$", out, re.MULTILINE)) == 4
    assert "noise of all planned rounds" in out
    assert "no epsilon accounts for that" in out
    first, *lines = (tmp_path / "graph" / "utility-graph.csv").read_text().splitlines()
    about = json.loads(first.removeprefix("# "))
    assert about["epochs"] == 3
    assert about["noise"] == "all"
    assert about["gradients"] == pytest.approx(3 * 1438, abs=32)
    names, *rows = csv.reader(lines)
    assert names == list(UtilityRow._fields)
    assert [row[:2] for row in rows] == [[c, s] for c in ("0.5", "1") for s in ("1.5", "2", "3")]
    assert all(0.0 < float(row[3]) < 1.2 for row in rows)
    assert (tmp_path / "graph" / "utility-graph.png").stat().st_size > 10_000
    assert (tmp_path / "graph" / "utility-graph.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
def test_json_is_repeatable_and_files_have_a_default_folder(simfl_, tmp_path):
    words = ("privacy", "utility-graph", *QUICK, "--noise", "figure", "--set", "name=mine", "--json")
    out = simfl_.printed(*words)
    result = json.loads(out)["result"]
    assert result["graph"]["noise_factors"] == [1.0, 1.0, 1.0]
    assert [point["clipping_norm"] for point in result["frontier"]] == [0.5, 1.0]
    assert result["reference"] >= max(result["graph"]["accuracies"])
    assert (tmp_path / "results" / "utility-mine" / "utility-graph.csv").is_file()
    assert simfl_(*words)[1] == out  # the same seed, the same graph


@pytest.mark.parametrize(("words", "message"), [
    (("--clipping-norms", "0"),
     "privacy utility-graph: --clipping-norms: expected one or more different numbers > 0, found 0"),
    (("--noise-multipliers", "a"), "--noise-multipliers: expected numbers with commas between them, found 'a'"),
    (("--epochs", 0), "epochs: expected a finite number > 0, found 0"),
    (("--delta", 2), "delta: expected a number in (0, 1), found 2"),
    (("--target-loss", 1.5), "target_loss: expected a number in (0, 1), found 1.5"),
    (("--set", "data.set=nothing"), "data.set: expected"),
    (("no.yaml",), "no.yaml: expected a scenario file, found nothing there"),
])  # fmt: skip
def test_bad_input_is_an_error_of_one_line(simfl_, words, message):
    err = simfl_.refused("privacy", "utility-graph", *words, *([] if "no.yaml" in words else ["digits.yaml"]))
    assert message in err


def test_a_model_without_accuracy_is_rejected(simfl_):
    words = ("digits.yaml", "--set", "data={set: linear}", "--set", "model=linear")
    assert simfl_("privacy", "utility-graph", *words)[2].startswith(
        "privacy utility-graph: model linear has no accuracy"
    )
