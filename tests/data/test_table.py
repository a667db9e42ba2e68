"""Tables: CSV and Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simfl.data import Dataset, load_dataset
from simfl.data.table import MOST_WORDS, read_examples
from simfl.errors import DataError
from simfl.streams import Streams

TABLE = """\
age,hospital,pressure,label
50,north,1.25,sick
31,south,0.5,well
44,north,0.1,well
62,west,2e1,sick
39,south,-3,sick
57,west,1e-3,well
"""


def load(folder: Path, text: str = TABLE, **options: object) -> Dataset:
    (folder / "file.csv").write_text(text, encoding="utf-8")
    chosen: dict[str, object] = {"path": folder / "file.csv", "target": "label", "drop": ("hospital",), **options}
    chosen = {"test_fraction": 1 / 3, **chosen}
    return load_dataset("table", root=None, streams=Streams(0), **chosen)


def test_columns_become_features_and_classes(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert (data.name, data.num_classes, data.class_labels) == ("file", 2, ("sick", "well"))
    assert (data.train_x.shape, data.test_x.shape) == ((4, 2), (2, 2))
    rows = {tuple(x): y for x, y in zip(data.train_x.tolist(), data.train_y.tolist(), strict=True)}
    rows |= {tuple(x): y for x, y in zip(data.test_x.tolist(), data.test_y.tolist(), strict=True)}
    assert rows[50, 1.25] == rows[62, 20] == 0
    assert rows[44, np.float32(0.1)] == rows[57, np.float32(1e-3)] == 1


def test_a_column_names_the_owner_of_each_example(tmp_path: Path) -> None:
    data = load(tmp_path, drop=(), group="hospital")
    whose = {50: "north", 31: "south", 44: "north", 62: "west", 39: "south", 57: "west"}
    assert data.groups is not None
    assert data.groups.tolist() == [whose[int(x[0])] for x in data.train_x]
    # What takes training examples away takes their groups away.
    public = load(tmp_path, drop=(), group="hospital", normalize="standard", fit_on={"public": 2})
    assert public.groups is not None
    assert len(public.groups) == len(public.train_x) == 2


def test_a_test_part_of_its_own_and_a_regression(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("x,y\n3,0.5\n", encoding="utf-8")
    data = load(tmp_path, "x,y\n1,1.5\n2,-2\n", drop=(), target="y", test_path=tmp_path / "test.csv", regression=True)
    assert (data.train_y.tolist(), data.test_y.tolist(), data.num_classes) == ([1.5, -2.0], [0.5], 0)
    (tmp_path / "test.csv").write_text("z,y\n3,0.5\n", encoding="utf-8")
    with pytest.raises(DataError, match="expected the features x in this order, found z"):
        load(tmp_path, "x,y\n1,1.5\n2,-2\n", drop=(), target="y", test_path=tmp_path / "test.csv", regression=True)


def test_other_examples_are_read_unchanged(tmp_path: Path) -> None:
    load(tmp_path)
    file, x, y = read_examples(tmp_path / "file.csv", None, drop=("hospital", "not there"))
    assert (file, x.shape, y[:2].tolist()) == (tmp_path / "file.csv", (6, 2), ["sick", "well"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (TABLE, {"target": "lable"}, "expected a column 'lable', which data.target names, found age, .* mean 'label'"),
        (TABLE, {"drop": ("clinic",)}, "expected a column 'clinic', which data.drop names"),
        (TABLE, {"group": "clinic"}, "expected a column 'clinic', which data.owner or data.partition.column names"),
        (TABLE + "1,,2,well\n", {"group": "hospital"}, "hospital: example 6: found no value"),
        (TABLE + "1,west,2,\n", {}, "label: example 6: found no value"),
        (TABLE + "1,west,,well\n", {}, "example 6: features must be finite"),
        (TABLE + "1,west,inf,well\n", {}, "example 6: features must be finite"),
        (TABLE, {"regression": True}, "label: expected numbers, the targets of a regression, found words"),
        ("a,label\n", {"drop": ()}, "found no examples"),
        ("", {}, "not a CSV file in UTF-8, or damaged"),
        ("\0\0", {}, "found no examples|not a CSV"),
        ("a,label\n1,x\n2,x\n", {"drop": ()}, "at least two classes, found the single label 'x'"),
        ('a,label\n"1,2\n', {}, "not a CSV file in UTF-8, or damaged"),
        ("label\n1\n2\n", {"drop": ()}, "no examples with features"),
    ],
)
def test_bad_contents_are_refused(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(tmp_path, text, **options)
    assert str(refused.value).startswith(str(tmp_path / "file.csv"))
    assert "\n" not in str(refused.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^data\.path: .*nothing\.csv: no such file"):
        load_dataset("table", root=None, streams=Streams(0), path=tmp_path / "nothing.csv")
    (tmp_path / "file.csv").write_bytes(b"a,label\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not a CSV file in UTF-8"):
        load_dataset("table", root=None, streams=Streams(0), path=tmp_path / "file.csv", target="label")


FRAME = pd.DataFrame(
    {
        "age": [50, 31, 44, 62, 39, 57],
        "ward": pd.Categorical(["b", "a", "b", "c", "a", "c"]),
        "smokes": [True, False, False, True, True, False],
        "site": ["north", "south", "north", "west", "south", "west"],
        "outcome": ["sick", "well", "well", "sick", "sick", "well"],
    }
)


def load_table(folder: Path, frame: pd.DataFrame = FRAME, ending: str = "parquet", **options: object) -> Dataset:
    path = folder / f"file.{ending}"
    frame.to_parquet(path) if ending == "parquet" else frame.to_csv(path, index=False)
    chosen: dict[str, object] = {"path": path, "target": "outcome", "test_fraction": 1 / 3, **options}
    return load_dataset("table", root=None, streams=Streams(0), **chosen)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_words_become_features_and_a_column_names_owners(tmp_path: Path, ending: str) -> None:
    data = load_table(tmp_path, ending=ending, group="site")
    rows = {int(x[0]): x[1:].tolist() for x in np.concatenate([data.train_x, data.test_x])}
    assert rows == {
        50: [0, 1, 0, 1],
        31: [1, 0, 0, 0],
        44: [0, 1, 0, 0],
        62: [0, 0, 1, 1],
        39: [1, 0, 0, 1],
        57: [0, 0, 1, 0],
    }
    assert data.reader is not None
    assert data.reader.features == ["age", "ward=a", "ward=b", "ward=c", "smokes"]  # type: ignore[union-attr]
    owners = dict(zip(FRAME["age"], FRAME["site"], strict=True))
    assert data.groups is not None
    assert data.groups.tolist() == [owners[int(x[0])] for x in data.train_x]
    assert data.class_labels == ("sick", "well")


def test_other_tables_are_read_alike_and_new_words_are_zero(tmp_path: Path) -> None:
    data = load_table(tmp_path, drop=("site",))
    other = pd.DataFrame({"outcome": ["well", "sick"], "smokes": [False, True], "ward": ["z", "c"], "age": [20, 30]})
    np.testing.assert_array_equal(data.prepared(other), [[20, 0, 0, 0, 0], [30, 0, 0, 1, 1]])
    other.to_csv(tmp_path / "other.csv", index=False)
    _, x, y = read_examples(tmp_path / "other.csv", None, "outcome", columns=data.reader)  # type: ignore[arg-type]
    np.testing.assert_array_equal(x, data.prepared(other))
    assert y.tolist() == ["well", "sick"]
    with pytest.raises(DataError, match=r"^x: expected the features age, ward, smokes, found no age"):
        data.prepared(other.drop(columns="age"))


def test_a_bare_name_is_searched_in_the_folders_table_and_csv(tmp_path: Path) -> None:
    for folder in ("csv", "table"):  # that of `table` comes first
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.csv").write_text(TABLE, encoding="utf-8")
        file, _, _ = read_examples("mine", tmp_path, drop=("hospital",))
        assert file == tmp_path / folder / "mine.csv"


def test_other_examples_of_words_are_refused_where_the_features_are_numbers(tmp_path: Path) -> None:
    load(tmp_path)
    with pytest.raises(DataError, match=r"hospital: expected numbers, found words; encode it, or add it to"):
        read_examples(tmp_path / "file.csv", None)


@pytest.mark.parametrize(
    ("column", "options", "message"),
    [
        (["a", None, "b", "c", "a", "b"], {}, r"file\.parquet: extra: example 1: expected a word, found no value"),
        (pd.to_datetime(["2026-01-01"] * 6), {}, r"extra: expected numbers or words, found datetime64"),
        ([[1], [2], [3], [4], [5], [6]], {}, r"extra: example 0: expected a word, found \w+ "),
        ([1, None, 2, 3, 4, 5], {}, "example 1: features must be finite"),
        ([0] * 6, {"target": "outcom"}, "expected a column 'outcom', which data.target names.*did you mean 'outcome'"),
        ([0] * 6, {"group": "sit"}, "expected a column 'sit', which data.owner or data.partition.column names"),
    ],
)
def test_bad_columns_are_refused(tmp_path: Path, column: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load_table(tmp_path, FRAME.assign(extra=column), **options)
    assert "\n" not in str(refused.value)


def test_columns_of_names_and_damaged_files_are_refused(tmp_path: Path) -> None:
    many = pd.DataFrame({"name": [f"n{k}" for k in range(MOST_WORDS + 1)], "outcome": np.arange(MOST_WORDS + 1) % 2})
    with pytest.raises(DataError, match=f"name: expected at most {MOST_WORDS} different words, found {MOST_WORDS + 1}"):
        load_table(tmp_path, many)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"bad\.parquet: not a Parquet file, or damaged"):
        load_dataset("table", root=None, streams=Streams(0), path=tmp_path / "bad.parquet")
