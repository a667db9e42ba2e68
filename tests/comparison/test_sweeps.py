"""The folder of a sweep, written and read back."""

import pytest

from simfl.comparison.sweeps import Sweep, SweepRun, open_groups, read_sweep
from simfl.errors import DataError


def made_up(folder, make_run, statuses):
    runs = []
    for seed, status in enumerate(statuses):
        path = make_run(name="study", status="done" if status == "missing" else status)
        settings, changes = {"step_size": "0.5"}, {"algorithm.step_size": 0.5}
        runs.append(SweepRun(path.name, "step_size=0.5", settings, changes, seed, f"{seed:064x}", status))
    study = {"seeds": 2, "compare": {"target": None, "x": ["time"], "y": "test_accuracy"}}
    return Sweep(folder, "study", "why?", "0.1.0", study, {"step_size": ["0.5"]}, tuple(runs))


def test_a_sweep_is_read_as_it_was_written(make_run, tmp_path):
    sweep = made_up(tmp_path / "results" / "study", make_run, ["done", "diverged", "missing", "failed"])
    sweep.write()
    assert read_sweep(sweep.folder) == sweep
    assert [run.seed for run in sweep.finished] == [0, 1]
    assert [run.seed for run in sweep.failed] == [3]


def test_the_table_has_a_row_per_finished_run_and_no_host_times(make_run, tmp_path):
    sweep = made_up(tmp_path / "results" / "study", make_run, ["done", "missing", "done"])
    table = sweep.table()
    assert table["seed"].tolist() == [0, 2]
    assert table.columns[:3].tolist() == ["label", "step_size", "seed"]
    assert not {"wall_s", "updates_per_s"} & set(table.columns)
    path = sweep.write_table()
    assert path.read_text().splitlines()[0] == ",".join(table.columns)
    assert sweep.with_runs([]).table().empty


def test_its_groups_know_the_values_that_were_set(make_run, tmp_path):
    sweep = made_up(tmp_path / "results" / "study", make_run, ["done", "done"])
    sweep.write()
    (group,) = open_groups([sweep.folder])[0]
    assert (group.label, group.values, list(group.runs)) == ("step_size=0.5", {"step_size": 0.5}, [0, 1])
    sweep.with_runs([]).write()
    with pytest.raises(DataError, match="expected finished runs, found none of 0; simfl sweep it first"):
        open_groups([sweep.folder])


@pytest.mark.parametrize("text", ["", "{}", '{"runs": [{"seed": 1}]}', '{"runs": 3}'])
def test_a_damaged_plan_is_one_line(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(DataError, match=r"sweep\.json: expected the plan of a sweep: [^\n]+$"):
        read_sweep(tmp_path)


def test_all_evaluations_of_all_runs_are_one_frame(make_run, tmp_path):
    sweep = made_up(tmp_path / "results" / "study", make_run, ["done", "missing", "done"])
    metrics = sweep.metrics
    assert metrics.columns[:3].tolist() == ["label", "step_size", "seed"]
    assert "wall_s" not in metrics.columns
    for run in sweep.finished:
        own = metrics[metrics["seed"] == run.seed].reset_index(drop=True)
        assert own["test_loss"].tolist() == sweep.open(run).metrics["test_loss"].tolist()
        assert (own["step_size"] == run.changes["algorithm.step_size"]).all()
    assert "2 of 3 runs" in repr(sweep)
    assert "2 of 3 runs" in sweep._repr_html_()
