"""LEAF's JSON layout, in small files that are written by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.data import Dataset, load_dataset, partition
from simfl.errors import DataError
from simfl.streams import Streams

FEMNIST = {"f1_07": ([[0.0, 1.0], [0.5, 0.25]], [3, 61]), "f0_02": ([[1.0, 1.0]], [3])}
SHAKESPEARE = {"ROMEO": (["to be", "be or"], [" ", "!"]), "JULIET": (["o rom"], ["e"])}


def write(folder: Path, name: str, own: dict[str, Any], **changes: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(own),
        "num_samples": [len(x) for x, _ in own.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in own.items()},
    }
    (folder / name).write_text(json.dumps(content | changes))


def load(folder: Path, **options: Any) -> Dataset:
    return load_dataset("leaf", root=None, streams=Streams(0), path=folder, **options)


def test_users_own_their_examples_and_several_files_are_one_set(tmp_path: Path) -> None:
    write(tmp_path / "train", "all_data_0.json", FEMNIST)
    write(tmp_path / "train", "all_data_1.json", {"f2_11": ([[0.0, 0.0], [0.0, 0.5]], [4, 4])})
    write(tmp_path / "test", "all_data.json", {"f9_99": ([[2.0, 2.0]], [61])})
    data = load(tmp_path)
    assert data.train_x.tolist() == [[0, 1], [0.5, 0.25], [1, 1], [0, 0], [0, 0.5]]
    assert (data.class_labels, data.train_y.tolist(), data.test_y.tolist()) == ((3, 4, 61), [0, 2, 0, 1, 1], [2])
    assert data.groups.tolist() == ["f1_07", "f1_07", "f0_02", "f2_11", "f2_11"]
    shares = partition("natural", data.train_y, 3, Streams(0).generator("partition"), groups=data.groups)
    assert [shares.of(k).tolist() for k in range(3)] == [[2], [0, 1], [3, 4]]  # in sorted order of the users


def test_texts_become_tokens_labeled_by_the_next_character(tmp_path: Path) -> None:
    write(tmp_path / "train", "a.json", SHAKESPEARE)
    write(tmp_path / "test", "a.json", {"ROMEO": (["rome!"], ["z"])})
    data = load(tmp_path)
    letters = sorted(set("to be be or o rom rome! ez"))
    assert (data.class_labels, data.tokens, data.train_x.dtype) == (tuple(letters), True, np.uint8)
    assert "".join(letters[token] for token in data.train_x[1]) == "be or"
    assert [letters[y] for y in [*data.train_y, *data.test_y]] == [" ", "!", "e", "z"]
    np.testing.assert_array_equal(data.prepared(["to be", "be or"]), data.train_x[:2])
    with pytest.raises(DataError, match=r"x: expected a character of the vocabulary \(9\), found 'Q'"):
        data.prepared(["Queen"])
    with pytest.raises(DataError, match="x: expected examples of shape"):
        data.prepared(["to"])


def test_without_a_test_part_a_share_is_set_aside(tmp_path: Path) -> None:
    write(tmp_path / "train", "a.json", {"a": ([[k] for k in range(8)], [0, 1] * 4), "b": ([[9], [8]], [0, 1])})
    data = load(tmp_path, test_fraction=0.2)
    assert (len(data.train_y), len(data.test_y)) == (8, 2)
    owners = {k: "a" if k < 8 else "b" for k in range(10)} | {9: "b", 8: "b"}
    assert data.groups.tolist() == [owners[int(x[0])] for x in data.train_x]


@pytest.mark.parametrize(("users", "changes", "message"), [
    (FEMNIST, {"num_samples": [2, 2]},
     r"train/a\.json: user 'f0_02': expected 2 examples, as num_samples says, found 1 x"),
    (FEMNIST, {"num_samples": [2]}, r"a\.json: expected users, num_samples and user_data, found something else"),
    (FEMNIST, {"users": ["f1_07", "nobody"]}, r"a\.json: user 'nobody': expected lists x and y in user_data"),
    ({**FEMNIST, "empty": ([], [])}, {}, r"a\.json: user 'empty': found no examples; remove the user"),
    ({"a": ([[1.0], [1.0, 2.0]], [0, 1])}, {}, "expected examples that are lists of numbers, all as long"),
    ({"a": ([["a word"]], [0])}, {}, "expected examples that are lists of numbers"),
    ({"a": (["abc", "abcd"], ["a", "b"])}, {}, "expected texts of one length, found 3 and 4 characters"),
    ({"a": (["abc", "abd"], ["a", "bc"])}, {}, "expected texts with the character that follows each"),
    ({"a": ([[1.0], [float("nan")]], [0, 1])}, {}, "example 1: features must be finite"),
    (FEMNIST, {"users": ["f0_02", "f1_07", "f0_02"], "num_samples": [1, 2, 1]},
     r"a\.json: expected each user once, found 'f0_02' twice; remove one"),
    (FEMNIST, {"users": ["f0_02"], "num_samples": [1]},
     r"expected all users of user_data in users, found no 'f1_07'"),
])  # fmt: skip
def test_bad_files_are_refused(tmp_path: Path, users: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    write(tmp_path / "train", "a.json", users, **changes)
    with pytest.raises(DataError, match=message) as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_user_with_examples_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write(tmp_path / "train", name, FEMNIST)
    with pytest.raises(DataError, match=r"b\.json: expected each user once, found 'f1_07' also in a\.json; remove one"):
        load(tmp_path)
    (tmp_path / "train" / "b.json").write_text('{"users": ["u"], "num_samples": [1], "user_data": {"u": {}, "u": {}}}')
    with pytest.raises(DataError, match=r"b\.json: expected users, num_samples .* \('u' twice in one object\)"):
        load(tmp_path)


def test_folders_without_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train: expected LEAF's \.json files there, found none"):
        load(tmp_path)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text("{")
    with pytest.raises(DataError, match=r"a\.json: expected users, num_samples and user_data"):
        load(tmp_path)
    write(tmp_path / "train", "a.json", SHAKESPEARE)
    write(tmp_path / "test", "a.json", FEMNIST)
    with pytest.raises(DataError, match="expected numbers or texts in both parts"):
        load(tmp_path)
