"""`simfl bench --widths`: all widths are measured, and the table marks the fastest beside that of `auto`."""

import tempfile

import pytest

from simfl.bench import cases, measuring, widths
from simfl.bench.cases import CASES, MODELS, scenario_of
from simfl.errors import RunError
from simfl.runs.runner import prepare
from simfl.tape.executor import automatic_width


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
def test_every_width_and_number_of_workers_is_measured(monkeypatch):
    monkeypatch.setattr(widths, "WORKERS", (4,))
    rows = widths.measure_widths("digits-softmax-adpsgd-16", "cpu", (1, 8), seconds=0.001)
    assert [(row["case"], row["workers"], row["device"]) for row in rows] == [
        ("digits-softmax-adpsgd-16", 4, "cpu"),
        ("digits-softmax-adpsgd-16", 16, "cpu"),
    ]
    model = prepare(scenario_of("digits-softmax-adpsgd-16", 10)).problem.model
    for row in rows:
        assert row["automatic"] == automatic_width(model, row["workers"], "cpu")
        assert set(row["updates_per_s"]) == {"1", "8"}
        assert all(rate > 0 for rate in row["updates_per_s"].values())


def test_a_case_takes_the_given_width():
    assert scenario_of("digits-softmax-adpsgd", 10, 4, 32).execution.width == 32
    assert scenario_of("digits-softmax-adpsgd").execution.width == "auto"


@pytest.mark.slow
def test_a_process_that_fails_is_an_error_of_one_line():
    with pytest.raises(RunError, match=r"^bench: digits-softmax-sync failed: .*'no-device'") as caught:
        measuring.run_widths(["digits-softmax-sync"], "no-device")
    assert "\n" not in str(caught.value)


def test_the_table_marks_the_fastest(simfl_, monkeypatch):
    measured = []

    def run_widths(names, device, echo):
        measured.extend(names)
        rates = {"1": 1000.0, "8": 20_000.0, "16": 19_999.0}
        return [{"case": names[0], "workers": 16, "device": "cpu", "automatic": 16, "updates_per_s": rates}]

    monkeypatch.setattr(measuring, "run_widths", run_widths)
    out = simfl_.printed("bench", "--widths")
    assert measured == list(MODELS)
    assert "1,000" in out
    assert "20,000*" in out
    assert "19,999*" not in out
    assert {CASES[name].sections["model"]["kind"] for name in MODELS} == {"softmax", "mlp", "lenet5"}


@pytest.mark.parametrize(("words", "message"), [
    (("--widths", "--quick"), "expected one of --quick and --widths, found both"),
    (("peers", "--widths"), "expected neither --quick nor --widths"),
])  # fmt: skip
def test_widths_exclude_quick_and_peers(simfl_, words, message):
    err = simfl_.refused("bench", *words)
    assert message in err


@pytest.mark.slow(but=["mnist"])
@pytest.mark.parametrize("data", cases.FILES)
def test_a_case_runs_without_the_files_of_its_data(data, monkeypatch, tmp_path):
    name = next(name for name, own in CASES.items() if own.sections["data"]["set"] == data)
    pattern, shape = cases.FILES[data]
    monkeypatch.setattr(cases, "FILES", {data: (pattern, (400, *shape[1:]))})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    problem = prepare(scenario_of(name, 10, 4)).problem
    assert problem.model.kind == CASES[name].sections["model"]["kind"]
    assert problem.data.train_x.shape == (400, *shape[1:])
    assert [file.name for file in tmp_path.iterdir()] == [f"simfl-bench-{data}-shape.npz"]
