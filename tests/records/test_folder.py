import json
import threading

import pytest

from simfl.errors import DataError, ScenarioError
from simfl.records import Manifest, RunFolder
from simfl.records.folder import versions


def test_runs_are_numbered_and_named_ones_reused(tmp_path):
    assert RunFolder.create(tmp_path, "demo").path == tmp_path / "demo" / "001"
    assert RunFolder.create(tmp_path, "demo").path == tmp_path / "demo" / "002"
    (tmp_path / "demo" / "099").mkdir()
    (tmp_path / "demo" / "notes").mkdir()
    assert RunFolder.create(tmp_path, "demo").path == tmp_path / "demo" / "100"
    named = RunFolder.create(tmp_path, "demo", "point-7")
    assert RunFolder.create(tmp_path, "demo", "point-7").path == named.path == tmp_path / "demo" / "point-7"


def test_concurrent_runs_get_different_numbers(tmp_path):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(RunFolder.create(tmp_path, "demo").path)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in paths) == [f"{number:03d}" for number in range(1, 9)]


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "../up", "a\\b", "line\nbreak", " space", "x" * 200])
def test_names_that_would_leave_the_folder_are_refused(tmp_path, name):
    with pytest.raises(ScenarioError, match="name: expected a plain folder name"):
        RunFolder.create(tmp_path, name)
    with pytest.raises(ScenarioError, match="run id: expected a plain folder name"):
        RunFolder.create(tmp_path, "demo", name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match=r"file/demo: cannot make a folder for results: .*; choose --out"):
        RunFolder.create(tmp_path / "file", "demo")


def test_the_manifest_is_read_back_and_unknown_fields_are_ignored(tmp_path):
    folder = RunFolder.create(tmp_path, "demo")
    manifest = Manifest("diverged", seed=3, device="cpu", reason="loss is nan", wall_s=2.0, updates=100, width=4)
    folder.write_manifest(manifest)
    assert folder.read_manifest() == manifest
    assert manifest.updates_per_s == 50
    assert set(manifest.versions) == {"simfl", "jax", "jaxlib", "numpy", "python", "platform"}
    assert manifest.versions == versions()
    values = json.loads(folder.manifest_path.read_text())
    folder.manifest_path.write_text(json.dumps({**values, "later": 1}))
    assert folder.read_manifest() == manifest


WRONG = [
    *('{"seed": "<script>"}', '{"seed": true}', '{"time_s": NaN}'),
    *('{"status": "fine"}', '{"extra": []}', '{"reason": 1}'),
]


@pytest.mark.parametrize("change", WRONG)
def test_a_manifest_with_wrong_types_is_refused(make_run, change):
    folder = RunFolder(make_run())
    values = json.loads(folder.manifest_path.read_text())
    folder.manifest_path.write_text(json.dumps(values | json.loads(change)))
    with pytest.raises(DataError, match=r"manifest\.json: expected the manifest of a run: .*found something else than"):
        folder.read_manifest()


@pytest.mark.parametrize("text", [None, "", "[]", "{", '{"status": "done"}'])
def test_a_damaged_manifest_is_one_line(tmp_path, text):
    folder = RunFolder(tmp_path)
    if text is not None:
        folder.manifest_path.write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json: expected the manifest of a run: .+") as caught:
        folder.read_manifest()
    assert "\n" not in str(caught.value)


def test_the_digest_covers_all_tables(make_run):
    one, two = RunFolder(make_run()), RunFolder(make_run())
    assert one.digest() == two.digest() == one.read_manifest().digest
    assert one.digests() == one.read_manifest().tables
    three = RunFolder(make_run(rate=2.0))
    assert three.digest() != one.digest()
    assert three.digests()["updates"] == one.digests()["updates"]
    one.table_path("clients").unlink()
    assert one.digest() != two.digest()
