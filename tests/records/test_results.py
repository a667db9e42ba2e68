import base64
import math
import re
import shutil

import pytest

import simfl
from simfl.errors import DataError
from simfl.records import UPDATES, TableWriter, common_accuracy, read, summaries, time_to_accuracy

PRIVACY = {
    "mechanism": "gaussian",
    "clipping_norm": 1.0,
    "noise_multiplier": 2.0,
    "delta": 1e-5,
    "view": "local_transcript",
}


def test_a_run_reads_its_tables_on_first_use(make_run):
    run = simfl.read(make_run(privacy=PRIVACY))
    assert isinstance(run, simfl.Run)
    assert (run.name, run.algorithm, run.status) == ("demo", "adpsgd", "done")
    assert run.privacy == PRIVACY
    assert len(run.metrics) == 41
    assert len(run.updates) == 50
    assert run.updates is run.updates
    assert run.clients["epsilon"].tolist() == [2.5] * 4
    assert run.epsilon_and_delta() == (2.5, 1e-5)


def test_the_summary_is_one_row_of_last_values(make_run):
    row = read(make_run()).summary()
    assert len(row) == 1
    values = row.iloc[0].to_dict()
    assert values["algorithm"] == "adpsgd"
    assert values["test_accuracy"] == pytest.approx(0.95 - 0.85 * math.exp(-10))
    assert values["bytes_sent"] == 160_000_000
    assert values["updates_per_s"] == 2000
    assert math.isnan(values["epsilon"])
    assert math.isnan(values["delta"])


def test_a_run_shows_its_name_status_and_measures(make_run):
    folder = make_run()
    shown = repr(read(folder))
    assert "demo (adpsgd): done, 4,000 updates in 10 s of virtual time, test accuracy 95.00%" in shown
    assert str(folder) in shown
    assert "virtual time, test loss 1.05; " in repr(read(make_run(accuracy=False)))
    html = read(folder)._repr_html_()
    assert "<table" in html
    assert "adpsgd" in html
    picture = base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', html)[1])
    assert picture.startswith(b"\x89PNG")
    assert picture == simfl.thumbnail(read(folder))


def test_a_missing_table_says_how_to_record_it(make_run):
    run = read(make_run())
    with pytest.raises(DataError, match=r"recorded no table of messages; set record\.messages: true"):
        _ = run.messages
    with pytest.raises(DataError, match=r"no table of client metrics; set evaluate\.clients: true"):
        _ = run.client_metrics


def test_folders_without_a_run_are_refused(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(DataError, match="expected the folder of a run, found nothing there"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected the folder of a run, found a file"):
        read(folder / "manifest.json")
    with pytest.raises(DataError, match=r"found no manifest\.json in it; name a run in it: 001$"):
        read(folder.parent)
    for number in range(2, 9):
        (folder.parent / f"{number:03}").mkdir()
        shutil.copy(folder / "manifest.json", folder.parent / f"{number:03}")
    with pytest.raises(DataError, match=r"name a run in it: 001, 002, \.\.\., 008$"):
        read(folder.parent)


def test_damaged_folders_are_refused(make_run):
    folder = make_run()
    (folder / "metrics.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"metrics\.parquet: cannot read the table: ") as caught:
        _ = read(folder).metrics
    assert "\n" not in str(caught.value)
    with TableWriter(folder / "metrics.parquet", UPDATES):
        pass
    with pytest.raises(DataError, match=r"metrics\.parquet: the table lacks the columns updates, epochs, "):
        _ = read(folder).metrics
    for text in ("- a list\n", "a: [\n"):
        (folder / "scenario.yaml").write_text(text)
        with pytest.raises(DataError, match=r"scenario\.yaml: expected the scenario of a run"):
            read(folder)


def test_the_common_accuracy_is_the_best_that_all_reached(make_run):
    slow, fast = read(make_run(rate=0.1)), read(make_run(rate=1.0))
    common = common_accuracy([fast, slow])
    assert common == pytest.approx(0.95 - 0.85 * math.exp(-1.0))
    assert time_to_accuracy(slow, common) == 10
    assert time_to_accuracy(fast, common) == pytest.approx(1, abs=0.01)
    assert math.isnan(time_to_accuracy(fast, 0.99))
    table = summaries([fast, slow])
    assert table["time_to_common_s"].tolist() == [1, 10]
    assert table["run"].tolist() == ["002", "001"]


def test_without_accuracies_there_is_no_common_one(make_run):
    table = summaries([read(make_run(accuracy=False)), read(make_run())])
    assert table["common_accuracy"].isna().all()
    assert table["time_to_common_s"].isna().all()
    with pytest.raises(ValueError, match="expected at least one run"):
        summaries([])
