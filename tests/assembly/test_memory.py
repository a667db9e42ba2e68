"""The memory of a run before it runs."""

import json
import math
import os
import re
import subprocess
import sys

import pytest

import simfl
from simfl.assembly import memory
from simfl.cli.app import main
from simfl.errors import RunError, ScenarioError
from simfl.runs.runner import prepare

SMALL = {"name": "small", "algorithm": {"kind": "adpsgd", "batch_size": 8}, "clients": 4, "stop": {"updates": 40}}
LARGE = {**SMALL, "name": "large", "model": {"kind": "mlp", "hidden": [1000, 1000]}, "clients": 16}
#: `ru_maxrss` would begin with the memory of the process that started this one.
PEAK = """
import re
from simfl.cli.app import main
try:
    main()
finally:
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def called(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["simfl", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code or 0


def test_rows_of_models_are_counted_and_the_total_is_the_sum_of_all_parts():
    few, many = (memory.memory_of(prepare({**SMALL, "clients": count})) for count in (4, 40))
    assert few.parts["models"] == 4 * 650 * (2 * 4 + 64 + 1)
    assert many.parts["models"] - few.parts["models"] == 4 * 650 * 2 * 36
    assert few.total == sum(few.parts.values()) > few.loaded > 0
    assert re.fullmatch(r"433\.\d MB of memory, libraries 241\.2 MB, programs .*", str(few))


def test_rows_of_a_large_model_are_those_that_the_algorithm_has_alive(tmp_path, monkeypatch):
    setup = prepare(SMALL)
    assert memory.rows_of(setup) == 2 * 4 + 64
    usual = simfl.run(setup, out=tmp_path).manifest.digest
    monkeypatch.setattr(memory, "LARGE", 1)
    alive = {
        kind: memory._alive(prepare({**SMALL, "algorithm": {"kind": kind, "batch_size": 8}}), 64)
        for kind in ("sync_sgd", "adpsgd", "k_gt")
    }
    assert alive["sync_sgd"] < alive["adpsgd"] < alive["k_gt"] < 64
    large = prepare(SMALL)
    assert memory.rows_of(large) == alive["adpsgd"] * 9 // 8 + 2
    assert simfl.run(large, out=tmp_path).manifest.digest == usual


def test_rows_are_counted_once(tmp_path, monkeypatch):
    counts, alive = [], memory._alive
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "_alive", lambda setup, updates: counts.append(updates) or alive(setup, updates))
    setup = prepare(SMALL)
    memory.memory_of(setup)
    simfl.run(setup, out=tmp_path, progress=False)
    assert counts == [40], "the updates of the run, which are fewer than 64"


def test_rows_of_a_run_whose_times_depend_on_numbers_are_two_for_each_client(monkeypatch):
    algorithm = {"kind": "fedavg", "batch_size": 8, "fraction": 0.5}
    setup = prepare({**SMALL, "algorithm": algorithm, "selection": {"kind": "power_of_choice", "candidates": 3}})
    monkeypatch.setattr(memory, "LARGE", 1)
    assert memory.rows_of(setup) == 8 + 1 + 2


def test_an_error_of_the_algorithm_is_raised_when_rows_are_counted(monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "pack", lambda *window: 1 / 0)
    with pytest.raises(RunError, match="ZeroDivisionError"):
        memory.rows_of(prepare(SMALL))


def test_each_size_of_the_means_of_fragments_counts_as_a_program():
    few, many = (
        memory.memory_of(prepare({**SMALL, "algorithm": {"kind": "divshare", "batch_size": 8, **options}})).parts
        for options in ({"fragments": 3, "peers": 1}, {"fragments": 10, "peers": 3})
    )
    assert many["programs"] - few["programs"] == 3 * memory.OF_SIZE, "4 models against 31"


def test_runs_that_are_played_together_have_a_bank_each():
    one, eight = (memory.memory_of(prepare(SMALL), settings).parts for settings in (1, 8))
    assert eight["models"] == 8 * one["models"]


def test_rows_of_tables_are_counted():
    setup = prepare({**SMALL, "algorithm": {"kind": "privsgp_vr", "batch_size": 10}})
    rows = sum(math.ceil(n / 10) + 1 for n in setup.sizes.tolist())
    parts = memory.memory_of(setup).parts
    assert parts["tables"] == 4 * 650 * rows
    assert parts["models"] == 4 * 650 * (2 * 4 + 64 + 1)
    assert memory.rows_of(setup) == 2 * 4 + 64 + rows


def test_layers_and_activations_count():
    mlp, cnn = (memory.memory_of(prepare({**SMALL, "model": model})) for model in ("mlp", "cnn"))
    assert cnn.parts["programs"] > mlp.parts["programs"]
    assert cnn.parts["computing"] > mlp.parts["computing"]


@pytest.mark.parametrize(
    ("changes", "lower"),
    [
        ({}, "lower the number of the model's layers"),
        (LARGE, "lower algorithm.batch_size, or take a smaller model"),
        (
            {"algorithm": {"kind": "privsgp_vr", "batch_size": 1}, "model": {"kind": "mlp", "hidden": [1000]}},
            "lower the number of examples (data), raise algorithm.batch_size, or take a smaller model",
        ),
    ],
)
def test_a_run_that_does_not_fit_is_refused_in_one_line_before_it_has_a_folder(tmp_path, monkeypatch, changes, lower):
    monkeypatch.setattr(memory, "available_bytes", lambda: 5e7)
    with pytest.raises(ScenarioError, match=r"expected a run that fits into the 50 MB of memory") as refused:
        simfl.run({**SMALL, **changes}, out=tmp_path, progress=False)
    line = str(refused.value)
    assert "\n" not in line
    assert line.endswith(lower)
    assert not list(tmp_path.iterdir())


def test_the_commands_state_and_refuse(tmp_path, monkeypatch, capsys):
    path = tmp_path / "small.yaml"
    path.write_text("{algorithm: {kind: adpsgd, batch_size: 8}, clients: 4, stop: {updates: 40}}\n", encoding="utf-8")
    monkeypatch.setattr(memory, "available_bytes", lambda: 5e7)
    assert called(monkeypatch, "validate", path) == 0
    assert "; a run needs about 433." in capsys.readouterr().out
    assert called(monkeypatch, "run", path, path, "--out", tmp_path / "out") == 2
    shown = capsys.readouterr().err
    assert shown.count("expected a run that fits into the 50 MB") == 1
    assert str(path) in shown
    assert not list((tmp_path / "out").glob("small"))


def test_the_machine_says_what_is_left():
    left = memory.available_bytes()
    assert left > 0
    assert math.isfinite(left) or sys.platform != "linux"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and libraries differ")
@pytest.mark.parametrize("scenario", [SMALL, LARGE], ids=["small", "large"])
def test_the_estimate_is_near_the_measured_peak(tmp_path, scenario):
    scenario = {**scenario, "stop": {"updates": 100 if scenario is LARGE else 5_000}}
    path = tmp_path / "one.yaml"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}  # programs are compiled
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, "run", str(path), "--quiet", "--out", str(tmp_path / "out")],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    peak = int(ran.stdout.split()[-1])  # other machines need more or less than that of the page
    assert memory.memory_of(prepare(scenario)).total == pytest.approx(peak, rel=0.35)
