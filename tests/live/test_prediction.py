"""A measurement and its prediction: quantities, notes, the table and the command line."""

import json
import math

import pytest
from rich.console import Console

from simfl import signals
from simfl.cli.console import show_runs
from simfl.live import launching
from simfl.live.prediction import Quantity, show_prediction
from simfl.records import read
from simfl.runs.runner import run
from simfl.scenario import loads

SCENARIO = """\
data: {set: digits}
model: {kind: softmax}
clients: {count: 4, seconds_per_example: 1 ms}
algorithm: {kind: adpsgd, batch_size: 32}
stop: {updates: 12}
"""


@pytest.fixture
def measured_twice_as_slow(tmp_path, monkeypatch):
    """Replace `launch` by a simulation whose clients are twice as slow, written as a live run."""
    monkeypatch.setattr(launching, "check_mpi", lambda: "mpirun")

    def launch(jobs, processes):
        (job,) = jobs
        slow = run(loads(job["scenario"], "a", overrides=["clients.seconds_per_example=2 ms"]), out=job["out"])
        path = slow.folder / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["extra"]["live"] = {"compute": job["compute"], "processes": processes, "late_s": 0.0}
        manifest["extra"]["warnings"] = []
        path.write_text(json.dumps(manifest))
        return [str(slow.folder)]

    monkeypatch.setattr(launching, "launch", launch)
    (tmp_path / "a.yaml").write_text(SCENARIO)


def test_live_shows_the_prediction_beside_the_measurement(simfl_, measured_twice_as_slow):
    code, output, _ = simfl_("live", "a.yaml", "-n", "2", "-q")
    assert code == 0
    duration = next(line for line in output.splitlines() if line.startswith("duration"))
    assert duration.split("│")[-1].strip() == "-50.0 %"
    assert "clients: 2 instead of the 4 of the scenario, in both" in output
    assert "computing: slept" in output
    assert "predicted: virtual time of a simulation with 2 clients. measured: wall time of 3 processes" in output


def test_json_has_all_quantities_of_both_runs(simfl_, measured_twice_as_slow):
    code, output, _ = simfl_("live", "a.yaml", "--compute", "real", "--json", "-")
    assert code == 0
    result = json.loads(output)
    errors = {one["name"]: one["error"] for one in result["quantities"]}
    assert errors["updates"] == 0.0
    assert errors["duration"] == pytest.approx(-0.5, rel=0.02)
    assert errors["updates per second"] == pytest.approx(1.0, rel=0.05)
    assert {"data sent", "messages", "mean staleness", "test accuracy"} <= set(errors)
    assert any(line.startswith("computing: real") for line in result["notes"])
    assert not any(line.startswith("clients:") for line in result["notes"])
    assert result["predicted"]["folder"] != result["measured"]["folder"]


def test_a_live_run_is_always_shown_with_wall_time(simfl_, measured_twice_as_slow, capsys):
    _, output, _ = simfl_("live", "a.yaml", "--json", "-")
    predicted, measured = (read(json.loads(output)[name]["folder"]) for name in ("predicted", "measured"))
    assert "virtual time" in repr(predicted)
    assert "wall time" in repr(measured)
    from simfl.plots import label_runs, plot

    assert label_runs([predicted, measured]) == ["AD-PSGD, simulated", "AD-PSGD, live"]
    assert plot(measured).get_xlabel().startswith("wall time")
    assert plot([predicted, measured]).get_xlabel().startswith("virtual and wall time")
    show_runs([measured], Console(width=100))
    shown = capsys.readouterr().out
    assert "virtual time" not in shown
    assert "wall time of the run" in shown


def test_an_interrupted_run_is_not_compared(simfl_, measured_twice_as_slow, monkeypatch):
    launch = launching.launch

    def interrupted(jobs, processes):
        (folder,) = launch(jobs, processes)
        path = read(folder).folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "interrupted"}))
        return [folder]

    monkeypatch.setattr(launching, "launch", interrupted)
    code, output, errors = simfl_("live", "a.yaml", "-q")
    assert code == signals.exit_code()
    assert errors == "the run was interrupted: it is not compared with a prediction\n"
    assert "predicted" not in output


@pytest.mark.parametrize("width", [50, 80])
def test_the_table_fits_the_terminal_and_keeps_all_numbers(width):
    rows = [
        Quantity("waiting and communicating, per client", "s", 0.0, 17.14e-3),
        Quantity("data sent", "bytes", 525.2e9, 530.4e9),
        Quantity("largest staleness", "count", 3, 0),
    ]
    terminal = Console(width=width, record=True)
    show_prediction(rows, ["a note that is longer than the terminal is wide " * 3], terminal)
    lines = terminal.export_text().splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("525.2 GB", "530.4 GB", "-1.0 %", "17.14 ms", "-100.0 %"):
        assert number in text


def test_the_relative_error_of_measured_zero_is_undefined():
    assert math.isnan(Quantity("updates", "count", 1.0, 0.0).error)
    assert Quantity("updates", "count", 0.0, 0.0).error == 0.0
