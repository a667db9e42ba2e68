"""Sequences of characters: windows of a text as tokens, and the next character.

An example is x, `length` tokens, with label y, the token after them; so the next token is known at every place t of the
window: x_{t+1} or y. Tokens and classes are numbers of characters in the order of a vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Stored, narrowed, split
from simfl.errors import DataError
from simfl.streams import Streams

Part = tuple[Stored, npt.NDArray[np.int32]]
"""Windows [n, length] and the next tokens, [n]."""


@dataclass(frozen=True)
class Vocabulary:
    """Distinct characters; a token is an index into them."""

    letters: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        """Return the sorted characters of some texts."""
        return cls(tuple(sorted(set().union(*map(set, texts)))))

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a `Dataset`."""
        return {"num_classes": len(self.letters), "labels": self.letters, "reader": self}

    def reads(self, x: Any) -> bool:
        """Return whether examples are texts."""
        return not isinstance(x, np.ndarray) and len(x) > 0 and all(isinstance(text, str) for text in x)

    def numbers(self, where: str | Path, text: str) -> npt.NDArray[np.int32]:
        """Return a text as tokens, int32 [len(text)]."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        letters = np.array([ord(letter) for letter in self.letters], np.uint32)
        order = np.argsort(letters)
        at = order[np.minimum(np.searchsorted(letters[order], codes), len(letters) - 1)]
        wrong = letters[at] != codes
        if wrong.any():
            letter = text[int(np.argmax(wrong))]
            raise DataError(f"{where}: expected a character of the vocabulary ({len(letters)}), found {letter!r}")
        return at.astype(np.int32)

    def examples(self, where: str | Path, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Return texts of one length as tokens, [n, length]."""
        lengths = sorted({len(text) for text in texts})
        if len(lengths) != 1 or not lengths[0]:
            shown = " and ".join(map(str, lengths[:3])) or "none"
            raise DataError(f"{where}: expected texts of one length, found {shown} characters")
        return narrowed(self.kept(self.numbers(where, "".join(texts)).reshape(len(texts), -1)))

    def kept(self, tokens: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return tokens in the smallest type that the vocabulary allows."""
        return tokens.astype(np.uint8 if len(self.letters) <= 256 else np.int32)


def sequences(
    name: str,
    train: Part,
    test: Part | None,
    streams: Streams,
    *,
    num_classes: int,
    test_fraction: float,
    groups: npt.NDArray[Any] | None = None,
    test_groups: npt.NDArray[Any] | None = None,
    **fields: Any,
) -> Dataset:
    """Return a set of sequences.

    Without a test part, `streams` draw ("split") `test_fraction` of the examples. `num_classes` counts the distinct
    tokens, `groups` [n] are the owners of training examples and `test_groups` those of a given test part, `fields`
    further ones of `Dataset`.
    """
    x, y = train
    if test is None:
        kept, rest = split(y, test_fraction, streams.generator("split"), stratify=True)
        x, y, test = x[kept], y[kept], (x[rest], y[rest])
        groups, test_groups = (None, None) if groups is None else (groups[kept], groups[rest])
    return Dataset(
        name, x, y, *test, num_classes=num_classes, groups=groups, test_groups=test_groups, tokens=True, **fields
    )
