"""Windows of texts, their owners, and generated text whose entropy is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.data import Dataset, load_dataset
from simfl.data.text import best_loss, stationary
from simfl.errors import DataError
from simfl.streams import Streams

PLAY = """\
A note before anybody speaks.

First Citizen:
Before we proceed.

ROMEO: But soft, what light?
It is the east: say

First Citizen:
Speak, speak.
"""


def load(folder: Path, text: str | bytes = PLAY, **options: Any) -> Dataset:
    path = folder / "play.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_dataset("text", root=None, streams=Streams(0), path=path, **{"length": 4, "stride": 1, **options})


def spelled(data: Dataset, x: Any) -> str:
    return "".join(str(data.class_labels[token]) for token in x)


def test_speakers_own_their_text_and_its_end_is_the_test_part(tmp_path: Path) -> None:
    data = load(tmp_path, test_fraction=0.25)
    said = {"First Citizen": "Before we proceed.\nSpeak, speak.", "ROMEO": "But soft, what light?\nIt is the east: say"}
    assert set(data.groups) == set(said)
    for owner, text in said.items():
        cut = len(text) - round(len(text) * 0.25)
        own = [(spelled(data, x), data.class_labels[y]) for x, y in zip(
            data.train_x[data.groups == owner], data.train_y[data.groups == owner], strict=True
        )]  # fmt: skip
        assert own == [(text[at : at + 4], text[at + 4]) for at in range(cut - 4)]
    tests = {spelled(data, x) for x in data.test_x}
    assert " say" not in tests  # nothing follows it
    assert "st: " in tests
    assert "st: " not in {spelled(data, x) for x in data.train_x}
    assert data.class_labels == tuple(sorted(set("".join(said.values()))))


def test_paragraphs_strides_and_a_given_vocabulary_are_used(tmp_path: Path) -> None:
    data = load(
        tmp_path, "abcabcabc\n\n \nbcabcabca\r\n\r\nab", owners="paragraph", stride=3, length=2, test_fraction=0.4
    )
    assert data.groups.tolist() == ["paragraph 1", "paragraph 2"]  # the third is too short
    assert [spelled(data, x) for x in data.train_x] == ["ab", "bc"]
    whole = load(tmp_path, "abcabcabcabcabca", owners="none", vocabulary="cbaz", stride=None, test_fraction=0.4)
    assert (whole.groups, whole.class_labels) == (None, ("c", "b", "a", "z"))
    assert [spelled(whole, x) for x in whole.train_x] == ["abca", "bcab"]
    assert whole.train_x.dtype == np.uint8


@pytest.mark.parametrize(("text", "options", "message"), [
    ("no names here", {}, "data.owners: expected lines that begin with 'NAME:', found none"),
    (PLAY, {"length": 90}, r"play\.txt: expected text for windows of 90 characters .* found at most 41"),
    (PLAY, {"vocabulary": "abc"}, r"play\.txt: expected a character of the vocabulary \(3\), found 'B'"),
    (b"A: \xff\xfe", {}, "expected text in UTF-8, found other bytes at 3"),
    ("aaaaaaaaaaaaaaaaa", {"owners": "none"}, "at least two different characters, found 1"),
])  # fmt: skip
def test_bad_texts_are_refused(tmp_path: Path, text: str | bytes, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        load(tmp_path, text, **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_optimal_loss_is_that_of_a_model_that_knows_the_chain(order: int) -> None:
    """The plug-in model, by counting, of a long text: its loss at each place of a window is the entropy there."""
    count, length = 3, 5
    made = {"characters": count, "order": order, "speakers": 60, "length": 1000}
    data = load_dataset("text", root=None, streams=Streams(4), length=length, generate=made, test_fraction=0.01)
    whole = np.concatenate([data.train_x, data.train_y[:, None]], axis=1).astype(np.int64)
    losses = []
    for place in range(1, length + 1):
        known = min(place, order)
        context = np.zeros(len(whole), np.int64)
        for back in range(known):
            context = context * count + whole[:, place - known + back]
        seen = np.zeros((count**known, count))
        np.add.at(seen, (context, whole[:, place]), 1)
        probability = seen / seen.sum(axis=1, keepdims=True)
        losses.append(-np.log(probability[context, whole[:, place]]).mean())
    assert data.optimal_loss == pytest.approx(np.mean(losses), rel=0.02)
    assert len(set(data.groups)) == 60


def test_a_chain_of_two_has_its_closed_forms() -> None:
    p, q = 0.2, 0.5
    chain = np.array([[1 - p, p], [q, 1 - q]])
    states = stationary(chain)
    np.testing.assert_allclose(states, [q / (p + q), p / (p + q)], rtol=1e-12)
    h = lambda a: -(a * np.log(a) + (1 - a) * np.log(1 - a))  # noqa: E731
    assert best_loss(chain, states, 7) == pytest.approx((q * h(p) + p * h(q)) / (p + q), rel=1e-12)


def test_generated_text_depends_on_the_seed_alone() -> None:
    one, same, other = (load_dataset("text", root=None, streams=Streams(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.train_x, same.train_x)
    assert (one.train_x != other.train_x).any()
    assert len(set(one.groups)) == 16  # type: ignore[arg-type]
