"""Windows of characters as tokens, with the next character as target.

An example is x, `length` tokens, with the label y, the token that follows them; so at every place t of the window the
next token is known, x_{t+1} or y. Tokens and classes are numbers of characters in the order of a vocabulary.
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
"""Windows [n, length] and the tokens that follow them, [n]."""


@dataclass(frozen=True)
class Vocabulary:
    """The characters, in the order of their token numbers."""

    letters: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        """Return the characters of some texts, sorted."""
        return cls(tuple(sorted(set().union(*map(set, texts)))))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a `Dataset` of this vocabulary."""
        return {"num_classes": len(self.letters), "labels": self.letters, "reader": self}

    def reads(self, x: Any) -> bool:
        """Whether examples are texts."""
        return not isinstance(x, np.ndarray) and len(x) > 0 and all(isinstance(text, str) for text in x)

    def numbers(self, where: str | Path, text: str) -> npt.NDArray[np.int32]:
        """Return a text as tokens, int32 [len(text)]."""
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        known = np.array([ord(letter) for letter in self.letters], np.uint32)
        order = np.argsort(known)
        at = order[np.minimum(np.searchsorted(known[order], codes), len(known) - 1)]
        wrong = known[at] != codes
        if wrong.any():
            character = text[int(np.argmax(wrong))]
            raise DataError(
                f"{where}: found {character!r}, which is not among the {len(known)} characters of the vocabulary"
            )
        return at.astype(np.int32)

    def examples(self, where: str | Path, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Return texts of one length as tokens, [n, length]."""
        lengths = sorted({len(text) for text in texts})
        if len(lengths) != 1 or not lengths[0]:
            shown = " and ".join(map(str, lengths[:3])) or "none"
            raise DataError(f"{where}: expected texts of one length, found {shown} characters")
        return narrowed(self.kept(self.numbers(where, "".join(texts)).reshape(len(texts), -1)))

    def kept(self, tokens: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return tokens in as few bytes as the vocabulary needs."""
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
    **fields: Any,
) -> Dataset:
    """Return a set of sequences.

    Args:
        name: of the set.
        train, test: its parts; without a test part a share of the examples is set aside.
        streams: draws what is set aside ("split").
        num_classes: how many tokens there are.
        test_fraction: that share.
        groups: whose each training example is, [n].
        fields: further ones of `Dataset`.
    """
    x, y = train
    if test is None:
        chosen, rest = split(y, test_fraction, streams.generator("split"), stratify=True)
        x, y, test = x[chosen], y[chosen], (x[rest], y[rest])
        groups = None if groups is None else groups[chosen]
    return Dataset(name, x, y, *test, num_classes=num_classes, groups=groups, tokens=True, **fields)
