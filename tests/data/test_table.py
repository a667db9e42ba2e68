"""Tables: CSV and Parquet files."""

import bz2
import csv
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.data import Dataset, load_dataset
from simfl.data.table import MOST_WORDS, Columns, read, read_examples
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
    assert data.groups.tolist() == [whose[int(x[0])] for x in data.train_x]
    # What takes training examples away takes their groups away.
    public = load(tmp_path, drop=(), group="hospital", normalize="standard", fit_on={"public": 2})
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
        (
            TABLE + "1,,2,well\n",
            {"group": "hospital"},
            ":8: hospital: expected an owner, found no value; fill it in, or remove",
        ),
        (TABLE + "1,west,2,\n", {}, ":8: label: expected a label, found no value"),
        (TABLE + "1,west,,well\n", {}, ":8: pressure: expected a finite number, found no value"),
        (TABLE + "\n1,west,inf,well\n", {}, ":9: pressure: expected a finite number, found 'inf'; correct it"),
        (TABLE, {"regression": True}, "label: expected numbers, the targets of a regression, found words"),
        ("a,label\n", {"drop": ()}, "found no examples"),
        ("", {}, "not a CSV file, or damaged"),
        ("\0\0", {}, "found no examples|not a CSV"),
        ("a,label\n1,x\n2,x\n", {"drop": ()}, "at least two classes, found the single label 'x'"),
        ('a,label\n"1,2\n', {}, ":2: expected values separated by commas, found unexpected end of data"),
        ("label\n1\n2\n", {"drop": ()}, "no examples with features"),
        # pandas makes an index of the first columns where the header is short, and fills up short rows.
        ("a,label\n1,2,0\n3,4,1\n", {"drop": ()}, ":2: expected 2 values, found 3; the header in line 1 has 2 names"),
        ("\na,label\n\n1,0,\n2,1,\n", {"drop": ()}, ":4: expected 2 values, found 3; the header in line 2 has 2 names"),
        (TABLE + "1,west,2\n", {"drop": ("label",), "target": "age"}, ":8: expected 4 values, found 3; the header in"),
        (TABLE + "1,west,2,sick,9\n", {}, ":8: expected 4 values, found 5"),
        (",a,label\n0,1,0\n1,2,1\n", {"drop": ()}, "expected a name for each feature, found 'Unnamed: 0', as a saved"),
        ("a,a,label\n0,1,0\n1,2,1\n", {"drop": ()}, "expected a name of its own for each column, found 'a' twice"),
        # One value in a column of numbers, or of words, is of the other kind.
        (
            TABLE + "?,west,2,well\n",
            {},
            r":8: age: expected a number, as in other rows, .* '\?'; .* add age to data\.cat",
        ),
        (TABLE + "5k,west,2,well\n", {}, ":8: age: expected a number, as in other rows, found '5k'"),
        (TABLE + '1,west,"1,5",well\n', {}, ":8: pressure: expected a number, as in other rows, found '1,5'"),
        (TABLE + "1,7,2,well\n", {"drop": ()}, ":8: hospital: expected a word, as in other rows, found '7'"),
        (TABLE + "1,west,2,0\n", {}, ":8: label: expected a word, as in other rows, found '0'"),
        ('a,label\n"1,5",0\n"2,5",1\n', {"drop": ()}, r":2: a: expected numbers such as 1\.5, or words, found '1,5'"),
        ("a,label\n2026-01-02,0\n2026-01-03,1\n", {"drop": ()}, ":2: a: expected numbers .*, found '2026-01-02'"),
        (
            TABLE + "NA,west,2,well\n",
            {},
            ":8: age: expected a finite number, found 'NA', which means no value; fill it",
        ),
        (TABLE + "NA,west,2,well\n", {"missing": ()}, ":8: age: expected a number, as in other rows, found 'NA'"),
        (
            TABLE + "1,None,2,well\n",
            {"drop": ()},
            r":8: hospital: .* 'None', which means no value; .* data\.missing: \[\]",
        ),
        (TABLE + "1,west,2,well\n", {"drop": (), "missing": ("west",)}, ":5: hospital: expected a word, found 'west'"),
        (TABLE, {"categories": ("clinic",)}, "expected a column 'clinic', which data.categories names"),
    ],
)
def test_bad_contents_are_refused(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(tmp_path, text, **options)
    assert str(refused.value).startswith(str(tmp_path / "file.csv"))
    assert "\n" not in str(refused.value)


def test_the_breast_cancer_file_of_scikit_learn_is_refused_and_its_digits_are_read() -> None:
    folder = Path(sklearn.datasets.__file__).parent / "data"
    message = r"breast_cancer\.csv:2: expected 4 values, found 31; the header in line 1 has 4 names: name each column"
    with pytest.raises(DataError, match=message):  # before, 27 of 30 features were lost
        load_dataset("table", root=None, streams=Streams(0), path=folder / "breast_cancer.csv", target="benign")
    iris = load_dataset("table", root=None, streams=Streams(0), path=folder / "iris.csv", target="virginica")
    assert (len(iris.train_x) + len(iris.test_x), iris.input_shape, iris.num_classes) == (150, (4,), 3)


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_compressed_file_is_read(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    plain = load(tmp_path)
    (tmp_path / f"packed.csv.{ending}").write_bytes(pack(TABLE.encode()))
    for name in ("packed", "packed.csv", f"packed.csv.{ending}"):
        data = load(tmp_path, path=tmp_path / name)
        assert data.name == "packed"
        np.testing.assert_array_equal(data.train_x, plain.train_x)


def test_values_of_categories_are_words(tmp_path: Path) -> None:
    chosen = ("stage", "label")
    text = "stage,label\n" + "".join(f"{k % 3 if k % 3 else '3+'},{k % 2}\n" for k in range(9))
    data = load(tmp_path, text, drop=(), categories=chosen)
    assert data.reader.features == ["stage=1", "stage=2", "stage=3+"]  # type: ignore[union-attr]
    assert data.class_labels == ("0", "1")
    # In other files, all of a column's words may look like numbers.
    (tmp_path / "test.csv").write_text("stage,label\n1,0\n2,1\n4,1\n", encoding="utf-8")
    data = load(tmp_path, text, drop=(), categories=chosen, test_path=tmp_path / "test.csv")
    np.testing.assert_array_equal(data.test_x, [[1, 0, 0], [0, 1, 0], [0, 0, 0]])
    _, x, y = read_examples(tmp_path / "test.csv", None, columns=data.reader, categories=chosen)  # type: ignore[arg-type]
    np.testing.assert_array_equal(x, data.test_x)
    assert y.tolist() == ["0", "1", "1"]
    np.testing.assert_array_equal(data.prepared(pd.DataFrame({"stage": [2, 1]})), [[0, 1, 0], [1, 0, 0]])


def test_words_such_as_na_are_values_if_no_word_means_missing(tmp_path: Path) -> None:
    text = "code,label\n" + "".join(f"{word},{k % 2}\n" for k, word in enumerate(["NA", "EU", "None", "null"] * 2))
    data = load(tmp_path, text, drop=(), missing=())
    assert data.reader.features == ["code=EU", "code=NA", "code=None", "code=null"]  # type: ignore[union-attr]
    frame = pd.DataFrame({"code": ["?", "EU", "NA", "EU"], "outcome": [0, 1, 0, 1]})
    with pytest.raises(DataError, match=r"file\.parquet: code: example 0: expected a word, found no value"):
        load_table(tmp_path, frame, missing=("?",))


def test_labels_of_both_files_are_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("age,hospital,pressure,label\n1,west,2,0\n1,west,2,1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"test\.csv: label: expected words, as in .*file\.csv, found numbers"):
        load(tmp_path, test_path=tmp_path / "test.csv")
    (tmp_path / "test.csv").write_text("age,hospital,pressure,label\n1,7,2,sick\n1,8,2,well\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"test\.csv: hospital: expected words, as in the training file, found int64"):
        load(tmp_path, drop=(), test_path=tmp_path / "test.csv")


def test_a_saved_index_may_be_dropped(tmp_path: Path) -> None:
    text = ",a,label\n" + "".join(f"{k},{k % 5},{k % 2}\n" for k in range(9))
    assert load(tmp_path, text, drop=("Unnamed: 0",)).reader.features == ["a"]  # type: ignore[union-attr]


def test_a_dropped_column_may_have_missing_values(tmp_path: Path) -> None:
    assert load(tmp_path, TABLE + "9,,2,well\n").input_shape == (2,)


def test_owners_may_be_numbers_and_words(tmp_path: Path) -> None:
    text = "who,a,label\n" + "".join(f"{'07' if k % 2 else 'ab'},{k},{k // 2 % 2}\n" for k in range(8))
    data = load(tmp_path, text, drop=(), group="who")
    assert set(data.groups) == {"07", "ab"}


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=6)
WORDS = st.text("abcxyz ,\"';#%\n", min_size=1, max_size=5).map(lambda word: f"w{word}w")
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, WORDS, st.integers(-9, 9)), min_size=6, max_size=12), by_pandas=st.booleans())
def test_what_is_written_as_csv_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, str, int]], by_pandas: bool
) -> None:
    path = tmp_path_factory.mktemp("csv") / "file.csv"
    table = pd.DataFrame(rows, columns=["number", "word", "whole"]).assign(label=[k % 2 for k in range(len(rows))])
    if by_pandas:
        table.to_csv(path, index=False)
    else:
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([list(table), *table.values.tolist()])
    _, x, y = read_examples(path, None, columns=Columns.of("table", table.drop(columns="label")))
    words = sorted(set(table["word"]))
    np.testing.assert_allclose(x[:, 0], np.float32(table["number"]), rtol=1e-6)
    np.testing.assert_array_equal(x[:, 1:-1], [[word == other for other in words] for word in table["word"]])
    np.testing.assert_array_equal(x[:, -1], table["whole"])
    assert y.tolist() == table["label"].tolist()


@settings(max_examples=60, deadline=None)
@given(
    header=st.lists(NAMES, min_size=2, max_size=5, unique=True),
    widths=st.lists(st.integers(1, 7), min_size=1, max_size=6),
)
def test_a_row_of_another_length_than_the_header_is_refused(
    tmp_path_factory: pytest.TempPathFactory, header: list[str], widths: list[int]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "file.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *([1] * width for width in widths)])
    wrong = [line for line, width in enumerate(widths, 2) if width != len(header)]
    if not wrong:
        assert read(path, None, "data")[1].shape == (len(widths), len(header))
        return
    expected = rf":{wrong[0]}: expected {len(header)} values, found {widths[wrong[0] - 2]};"
    with pytest.raises(DataError, match=expected):
        read(path, None, "data")


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
    assert data.reader.features == ["age", "ward=a", "ward=b", "ward=c", "smokes"]  # type: ignore[union-attr]
    owners = dict(zip(FRAME["age"], FRAME["site"], strict=True))
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


@pytest.mark.parametrize(("column", "options", "message"), [
    (["a", None, "b", "c", "a", "b"], {}, r"file\.parquet: extra: example 1: expected a word, found no value"),
    (pd.to_datetime(["2026-01-01"] * 6), {}, r"extra: expected numbers or words, found datetime64"),
    ([[1], [2], [3], [4], [5], [6]], {}, r"extra: example 0: expected a word, found array"),
    ([1, None, 2, 3, 4, 5], {}, "extra: example 1: expected a finite number, found no value"),
    (pd.array(["a", None] * 3, "string"), {}, "extra: example 1: expected a word, found no value"),
    (pd.array([1, None] * 3, "Int64"), {}, "extra: example 1: expected a finite number, found no value"),
    (["1", "2", "x"] * 2, {}, "extra: example 2: expected a number, as in other rows, found 'x'"),
    ([0] * 6, {"target": "outcom"}, "expected a column 'outcom', which data.target names.*did you mean 'outcome'"),
    ([0] * 6, {"group": "sit"}, "expected a column 'sit', which data.owner or data.partition.column names"),
])  # fmt: skip
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
