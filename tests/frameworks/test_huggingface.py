"""Hugging Face's sets: Parquet files and the folders of `save_to_disk`, written here without the library.

`make test-torch` compares with the library itself.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from simfl import run
from simfl.data import Dataset, load_dataset
from simfl.errors import DataError, ScenarioError
from simfl.scenario import from_mapping
from simfl.streams import Streams

RANDOM = np.random.default_rng(5)
PIXELS = RANDOM.integers(0, 256, (8, 4, 4, 3), dtype=np.uint8)
LABELS = [2, 0, 2, 0, 0, 2, 0, 2]
SITES = list("baabbaba")
CLASSES = {"label": {"names": ["cat", "cow", "dog"], "_type": "ClassLabel"}}


def load(path: Path, **options: Any) -> Dataset:
    return load_dataset("huggingface", root=None, streams=Streams(0), path=path, **options)


def encoded(pixels: np.ndarray) -> dict[str, Any]:
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "png")
    return {"bytes": held.getvalue(), "path": None}


def table(columns: dict[str, Any], features: Any = CLASSES) -> pa.Table:
    made = pa.table(columns)
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def images(rows: slice = slice(None)) -> pa.Table:
    pixels = [encoded(one) for one in PIXELS[rows]]
    return table({"image": pixels, "label": LABELS[rows], "site": SITES[rows]})


def saved(folder: Path, held: pa.Table, split: str | None = None) -> Path:
    folder.mkdir(parents=True)
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", held.schema) as stream:
        stream.write_table(held)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": split}
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def test_a_saved_folder_and_parquet_files_hold_the_same_images(tmp_path: Path) -> None:
    saved(tmp_path / "dict" / "train", images(slice(6)))
    saved(tmp_path / "dict" / "test", images(slice(6, 8)))
    (tmp_path / "files" / "data").mkdir(parents=True)
    for name, rows in (
        ("train-00000-of-00002", slice(3)),
        ("train-00001-of-00002", slice(3, 6)),
        ("test", slice(6, 8)),
    ):
        pq.write_table(images(rows), tmp_path / "files" / "data" / f"{name}.parquet")
    for place in ("dict", "files"):
        data = load(tmp_path / place, features=["image"], group="site")
        np.testing.assert_array_equal(data.train_x, PIXELS[:6])
        np.testing.assert_array_equal(data.test_x, PIXELS[6:])
        np.testing.assert_array_equal(data.floats().train_x, PIXELS[:6].astype(np.float32) / np.float32(255))
        assert (data.image_shape, data.train_y.tolist()) == ((4, 4, 3), [1, 0, 1, 0, 0, 1])
        assert (data.labels, data.groups.tolist()) == (("cat", "dog"), SITES[:6])
        assert {file.suffix for file in data.files} == {".arrow" if place == "dict" else ".parquet"}
    one = load(saved(tmp_path / "one", images(), "validation"), split="validation", group="site", test_fraction=0.25)
    assert (len(one.train_x), len(one.test_x)) == (6, 2)


def test_lists_tables_and_texts_are_read(tmp_path: Path) -> None:
    file = tmp_path / "set.parquet"
    vectors = pa.array([[1.0, k] for k in range(8)], pa.list_(pa.float32(), 2))
    grids = pa.array([[[k, 1], [2, 3]] for k in range(8)], pa.list_(pa.list_(pa.uint8())))
    words = ["to be or not ", "that is ", "the question ", "whether it "] * 2
    columns = {"vector": vectors, "grid": grids, "age": range(8), "sex": list("fm") * 4, "text": words, "site": SITES}
    pq.write_table(table(columns | {"label": LABELS}), file)
    data = load(file, features=["vector"], test_fraction=0.25)
    assert (data.train_x.shape, data.train_x.dtype, data.labels) == ((6, 2), np.float32, ("cat", "dog"))
    grid = load(file, features=["grid"], test_fraction=0.25, scale=0.5)
    assert (grid.train_x.shape, grid.train_x.dtype, grid.floats().train_x[0, 1].tolist()) == (
        (6, 2, 2),
        np.uint8,
        [1, 1.5],
    )
    frame = load(file, features=["age", "sex"], group="site", test_fraction=0.25)
    assert (frame.train_x.shape, set(frame.groups)) == ((6, 3), {"a", "b"})
    text = load(file, features=["text"], label=None, length=4, group="site")
    letters = text.class_labels
    owned = "\n".join(word for word, site in zip(words, SITES, strict=True) if site == "a")
    assert "".join(str(letters[token]) for token in text.train_x[0]) == owned[:4]
    assert (text.tokens, letters[text.train_y[0]], set(text.groups)) == (True, owned[4], {"a", "b"})


@pytest.mark.parametrize(("options", "message"), [
    ({"split": "tset"}, r"data\.split: expected one of train, found 'tset'"),
    ({"label": "lable"}, "expected a column 'lable', found image, label, site; did you mean 'label'"),
    ({}, "expected one column of images or lists beside label, found image, site; name it in data.features"),
    ({"label": None}, "expected one column of texts, found image, label, site; name it in data.features"),
    ({"features": ["site"], "scale": 0.5}, r"data\.scale is of arrays of integers, found a table"),
    ({"features": ["label"], "label": None}, "expected one column of texts, found label"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    pq.write_table(images(), tmp_path / "train.parquet")
    with pytest.raises((DataError, ScenarioError), match=message):
        load(tmp_path / "train.parquet", **options)


@pytest.mark.parametrize(("held", "message"), [
    ({"x": [[1], [1, 2]] * 4}, r"x: expected lists of one length, found lengths \[1, 2\]; cut or fill them"),
    ({"x": [[1], None] * 4}, "x: example 1: expected a value, found none; remove the example"),
    ({"x": [{"bytes": b"", "path": None}] * 8}, "x: example 0: expected an image, found another value, or"),
    ({"x": [encoded(PIXELS[0]), encoded(PIXELS[0][:2])] * 4}, r"expected images of one size, found \[\(2, 4, 3\)"),
    ({"x": [[1]] * 8, "label": [0, 1, -1, 1] * 2}, "label: found -1, which means that labels are missing"),
])  # fmt: skip
def test_broken_columns_are_one_line(held: dict[str, Any], message: str, tmp_path: Path) -> None:
    pq.write_table(table({"label": LABELS, **held}), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=message):
        load(tmp_path / "train.parquet")


def test_damaged_files_and_an_absent_library_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"a\.parquet: not a Parquet or Arrow file, or damaged"):
        load(tmp_path / "a.parquet")
    (tmp_path / "state.json").write_text("[]")
    with pytest.raises(DataError, match=r"state\.json: not written by save_to_disk, or damaged"):
        load(tmp_path)
    with pytest.raises(DataError, match="expected a folder of save_to_disk, or Parquet files, found none"):
        load(tmp_path / "nothing")
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(
        DataError, match=r"data\.name: expected the library datasets .*pip install 'simfl\[huggingface\]'"
    ):
        load_dataset("huggingface", root=None, streams=Streams(0), name="ylecun/mnist")


def test_a_scenario_trains_on_owners_of_a_saved_set(tmp_path: Path) -> None:
    saved(tmp_path / "set", images())
    scenario = {
        "data": {"set": "huggingface", "path": str(tmp_path / "set"), "owner": "site", "partition": "natural"},
        "clients": {"count": 2}, "model": "softmax", "algorithm": {"kind": "fedavg", "batch_size": 2},
        "stop": {"updates": 4},
    }  # fmt: skip
    assert len(run(scenario).updates) >= 4
    for change in ({"name": "mnist"}, {"path": None}, {"revision": "main"}):
        with pytest.raises(ScenarioError, match=r"data\.(name|revision): expected"):
            run({**scenario, "data": scenario["data"] | change})


def test_files_that_the_library_writes_are_read_as_it_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install 'simfl[huggingface]'")
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "cow", "dog"]),
             "grid": datasets.Array2D((2, 2), "uint8")}  # fmt: skip
    columns = {"image": list(PIXELS), "label": LABELS, "grid": [[[1, 2], [3, 4]]] * 8}
    whole = datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))
    datasets.DatasetDict({"train": whole.select(range(1, 7)), "test": whole.select([0, 7])}).save_to_disk(
        tmp_path / "set"
    )
    whole.to_parquet(tmp_path / "set.parquet")
    data = load(tmp_path / "set", features=["image"])
    np.testing.assert_array_equal(data.train_x, PIXELS[1:7])
    np.testing.assert_array_equal(data.test_x, PIXELS[[0, 7]])
    assert data.labels == ("cat", "dog")
    assert load(tmp_path / "set.parquet", features=["grid"]).train_x.shape[1:] == (2, 2)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    whole.to_parquet(tmp_path / "hub" / "train.parquet")
    by_name = {"root": None, "streams": Streams(0), "name": str(tmp_path / "hub"), "features": ["image"]}
    hub, file = load_dataset("huggingface", **by_name), load(tmp_path / "set.parquet", features=["image"])
    assert (hub.labels, hub.files) == (("cat", "dog"), ())
    np.testing.assert_array_equal(hub.train_x, file.train_x)
    with pytest.raises(DataError, match=r"data\.name: .*nowhere: cannot be loaded"):
        load_dataset("huggingface", **by_name | {"name": str(tmp_path / "nowhere")})


def test_a_named_split_is_the_validation_part_of_its_own(tmp_path: Path) -> None:
    for part, rows in {"train": slice(4), "test": slice(4, 6), "validation": slice(6, 7), "dev": slice(5, 8)}.items():
        pq.write_table(images(rows), tmp_path / f"{part}.parquet")
    data = load(tmp_path, group="site", validation="own")
    assert data.validation is not None
    assert data.validation[0].tolist() == PIXELS[6:7].tolist()
    assert data.test_x.tolist() == PIXELS[4:6].tolist()
    assert data.test_groups is not None
    assert data.test_groups.tolist() == SITES[4:6]
    assert [file.stem for file in data.files] == ["train", "test", "validation"]
    named = load(tmp_path, group="site", validation="own", validation_split="dev")
    assert named.validation is not None
    assert [named.class_labels[label] for label in named.validation[1]] == ["dog", "cat", "dog"]
    assert load(tmp_path, group="site").validation is None
    with pytest.raises(DataError, match=r"data\.validation_split: expected one of .*dev.*, found 'deb'; did you mean"):
        load(tmp_path, group="site", validation="own", validation_split="deb")
    for wrong in ({"test_split": "validation"}, {"validation_split": "train"}, {"label": None}):
        with pytest.raises(DataError, match=r"^data\.validation: own: expected labels, and different parts for train"):
            load(tmp_path, **{"group": "site", "validation": "own"} | wrong)
    other = table({"image": [encoded(PIXELS[0])], "label": ["dog"], "site": ["a"]})
    pq.write_table(other, tmp_path / "dev.parquet")
    with pytest.raises(DataError, match="expected test and validation parts of the same columns"):
        load(tmp_path, group="site", validation="own", validation_split="dev")


def test_a_split_is_named_for_nothing_else() -> None:
    data = {"set": "huggingface", "path": "x", "validation_split": "dev"}
    with pytest.raises(ScenarioError, match=r"data\.validation_split: expected validation: own beside it"):
        from_mapping({"algorithm": "adpsgd", "data": data})
