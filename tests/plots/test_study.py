"""`simfl sweep` and `simfl compare` on the command line."""

import json

import pandas as pd
import pytest
import yaml

from simfl.comparison.comparing import compare_groups
from simfl.comparison.sweeps import open_groups
from simfl.plots.study import draw_study

BASE = {
    "seed": 3,
    "clients": {"count": 8, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "adpsgd", "batch_size": 8, "step_size": 0.5},
    "stop": {"updates": 40},
    "evaluate": {"every": {"updates": 20}, "clients": True},
}
GRID = {
    "algorithm": {"ours": {"kind": "adpsgd", "batch_size": 8}, "SYNC": {"kind": "sync_sgd", "batch_size": 8}},
    "algorithm.step_size": [0.5, 0.1],
}


@pytest.fixture
def study(tmp_path):
    def write(**content):
        (tmp_path / "small.yaml").write_text(yaml.safe_dump({"base": BASE, **content}, sort_keys=False))

    return write


@pytest.mark.slow
def test_compare_shows_the_groups_of_a_sweep(simfl_, study, tmp_path):
    study(grid=GRID, seeds=2, baseline="SYNC")
    code, shown, told = simfl_("sweep", "small.yaml", "--jobs", 1)
    assert code == 0, told
    first, second, *rest = shown.splitlines()
    assert first == "small: 8 runs: algorithm (2) x step_size (2) x seed (2)"
    assert second == "time: unknown before the first run has finished"
    assert rest[-1] == "results: results/small (8 of 8 runs, summary.csv)"
    assert len(told.splitlines()) == 8
    assert told.splitlines()[0].startswith("1/8 ours, step_size=0.5, seed 3: done ")
    assert told.splitlines()[0].endswith(" left")
    again, shown, told = simfl_("sweep", "small.yaml", "--dry-run")
    assert (again, told) == (0, "")
    assert shown.splitlines()[1] == "8 finished before, 0 to go"

    words = ["compare", "results/small", "--csv", "t.csv", "--json", "t.json", "--target", "0.3", "--out", "figures"]
    code, shown, told = simfl_(*words, "--formats", "png,svg")
    assert (code, told) == (0, "")
    assert "time to 30.00%" in shown
    assert "the baseline that is like it otherwise" in shown
    table = pd.read_csv(tmp_path / "t.csv")
    assert table["label"].tolist() == [
        "ours, step_size=0.5",
        "ours, step_size=0.1",
        "SYNC, step_size=0.5",
        "SYNC, step_size=0.1",
    ]
    assert table["baseline"].tolist() == ["SYNC, step_size=0.5", "SYNC, step_size=0.1"] * 2
    assert table["pairs"].tolist() == [2] * 4
    assert table["speedup"].tolist()[2:] == [1.0, 1.0]
    kept = json.loads((tmp_path / "t.json").read_text())
    assert [row["test_accuracy"] for row in kept] == pytest.approx(table["test_accuracy"].tolist(), rel=1e-12)
    figures = {path.name for path in (tmp_path / "figures").glob("*.png")}
    assert {"test_accuracy-by-time.png", "costs.png", "heatmap.png", "staleness.png"} <= figures
    assert {"topology-accuracy-ours-step_size=0.1.png", "clients-SYNC-step_size=0.5.png"} <= figures
    assert "topology-accuracy-SYNC-step_size=0.1.png" not in figures, "they share one model"
    assert {path.stem for path in (tmp_path / "figures").glob("*.svg")} == {name[:-4] for name in figures}
    runs = sorted((tmp_path / "results" / "small").glob("*-seed3-*"))
    code, shown, told = simfl_("compare", *runs[:2])
    assert (code, told) == (0, "")


@pytest.mark.slow
def test_figures_of_servers_single_clients_and_crowds_are_drawn(simfl_, study, tmp_path):
    lone = {"clients.count": 1, "algorithm": {"kind": "centralized_sgd", "batch_size": 8}, "evaluate.clients": False}
    cases = [
        {"label": "served", "set": {"algorithm": {"kind": "async_sgd", "batch_size": 8}}},
        {"label": "alone", "set": lone},
        {"label": "crowd", "set": {"clients.count": 45, "topology": {"kind": "regular", "degree": 4}}},
    ]
    study(list=cases)
    code, _, told = simfl_("sweep", "small.yaml", "--jobs", 1, "--quiet")
    assert (code, told) == (0, "")
    groups, _ = open_groups([tmp_path / "results" / "small"])
    paths = draw_study(groups, compare_groups(groups), tmp_path / "figures", endings=["png"])
    assert all(path.stat().st_size > 5000 for path in paths)
    assert {"topology-served.png", "clients-alone.png", "clients-crowd.png"} <= {path.name for path in paths}
    assert "topology-alone.png" not in {path.name for path in paths}


@pytest.mark.slow
def test_a_failed_run_is_listed_and_exits_with_1(simfl_, study):
    broken = {"algorithm": {"kind": "tests.algorithms.custom:Broken", "batch_size": 8}}
    study(list=[{"label": "fails", "set": broken}, {"label": "works"}])
    code, shown, told = simfl_("sweep", "small.yaml", "--jobs", 1)
    assert code == 1
    assert "fails, seed 3: failed: client " in told
    assert told.splitlines()[-1] == "1 of 2 runs failed; the same command tries them again"
    assert shown.splitlines()[-1] == "results: results/small (1 of 2 runs, summary.csv)"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("sweep", "none.yaml"), "none.yaml: expected a study file, found nothing there"),
        (("sweep", "small.yaml", "--device", "tpu"), "--device: expected cpu or gpu, found 'tpu'"),
        (("sweep", "small.yaml", "--jobs", "0"), "--jobs: expected at least 1, found 0"),
        (("sweep", "small.yaml", "--set", "clients.count=0"), "--set: clients.count: expected an integer "
            ">= 1, found 0"),
        (("compare", "nowhere"), "nowhere: expected the folder of a run, found nothing there"),
        (
            ("compare", "nowhere", "--target", "90"),
            "--target: expected a test accuracy in (0, 1], such as 0.9 for 90%, or METRIC=VALUE, such as test_loss="
            "0.3, found 90",
        ),
        (("compare", "nowhere", "--formats", "gif"), "--formats: expected some of png, pdf, svg, found 'gif'"),
    ],
)  # fmt: skip
def test_bad_input_gives_one_line(simfl_, study, words, line):
    study()
    code, _, told = simfl_(*words)
    assert code == 2
    assert told.startswith(line), told
    assert len(told.splitlines()) == 1
