"""LEAF's JSON files: FEMNIST, Shakespeare and other sets with users.

Caldas et al. 2018, https://arxiv.org/abs/1812.01097; https://github.com/TalwalkarLab/leaf. A folder holds
`train/*.json` and optionally `test/*.json`, each with

    {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}

Numeric examples are features. Texts of one length are sequences of characters, labeled by the next character; the
vocabulary is the characters in the files. The user is the owner of an example (`data.partition: natural`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.data.base import Dataset, Loader, assembled, check_features, narrowed
from simfl.data.files import folder_of, once, read_content
from simfl.data.tokens import Vocabulary, sequences
from simfl.errors import DataError
from simfl.streams import Streams

_REPLACE = "write it again with LEAF's preprocess.sh"


def load_leaf(
    root: Path | None,
    streams: Streams,
    *,
    path: str | Path,
    test_fraction: float = 0.2,
    regression: bool = False,
) -> Dataset:
    """Load a folder in LEAF's layout; `path` holds `train`. See `Loader`."""
    folder = folder_of("leaf", path, root)
    parts = [_part(folder / "train")]
    if (folder / "test").is_dir():
        parts.append(_part(folder / "test"))
    if len({isinstance(x[0], str) for x, _, _ in parts}) > 1:
        raise DataError(f"{folder}: expected numbers or texts in both parts, found one of each; {_REPLACE}")
    files = tuple(sorted(folder.glob("t*/*.json")))
    fields: dict[str, Any] = {"groups": np.asarray(parts[0][2]), "test_fraction": test_fraction, "files": files}
    fields |= {"test_groups": np.asarray(parts[1][2])} if len(parts) > 1 else {}
    if not isinstance(parts[0][0][0], str):
        (x, y), *rest = (_numbers(folder, xs, ys) for xs, ys, _ in parts)
        if rest and x.shape[1:] != rest[0][0].shape[1:]:
            raise DataError(f"{folder}: test examples have shape {rest[0][0].shape[1:]}, training ones {x.shape[1:]}")
        test = rest[0] if rest else None
        return assembled(folder.name, folder, x, y, test, streams, regression=regression, **fields)
    for xs, ys, _ in parts:
        if not all(isinstance(text, str) for text in xs) or not all(isinstance(y, str) and len(y) == 1 for y in ys):
            raise DataError(f"{folder}: expected texts with the character that follows each, found others; {_REPLACE}")
    vocabulary = Vocabulary.of(text for xs, ys, _ in parts for text in (*xs, *ys))
    windows = [(vocabulary.examples(folder, xs), vocabulary.numbers(folder, "".join(ys))) for xs, ys, _ in parts]
    if len({x.shape[1] for x, _ in windows}) > 1:
        raise DataError(f"{folder}: texts of the two parts differ in length; {_REPLACE}")
    following = windows[1] if len(windows) > 1 else None
    return sequences(folder.name, windows[0], following, streams, **fields, **vocabulary.fields)


def _part(folder: Path) -> tuple[list[Any], list[Any], list[str]]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise DataError(f"{folder}: expected LEAF's .json files there, found none; {_REPLACE}")
    x: list[Any] = []
    y: list[Any] = []
    owners: list[str] = []
    file_of: dict[str, Path] = {}
    for file in files:
        for user, xs, ys in _users(file):
            if user in file_of:
                where = "twice" if file_of[user] == file else f"also in {file_of[user].name}"
                raise DataError(f"{file}: expected each user once, found {user!r} {where}; remove one")
            file_of[user] = file
            x += xs
            y += ys
            owners += [user] * len(xs)
    if not x:
        raise DataError(f"{folder}: found no examples; {_REPLACE}")
    return x, y, owners


def _users(file: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield each user of a file with examples and labels, checked against each other."""
    try:
        content = json.loads(read_content(file, _REPLACE), object_pairs_hook=once)
        users, data, counts = content["users"], content["user_data"], content["num_samples"]
        listed = list(zip(map(str, users), counts, strict=True))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:120]
        raise DataError(
            f"{file}: expected users, num_samples and user_data, found something else ({reason}); {_REPLACE}"
        ) from None
    for user, count in listed:
        entry = data.get(user) if isinstance(data, dict) else None
        xs, ys = (entry.get("x"), entry.get("y")) if isinstance(entry, dict) else (None, None)
        if not isinstance(xs, list) or not isinstance(ys, list):
            raise DataError(f"{file}: user {user!r}: expected lists x and y in user_data, found none; {_REPLACE}")
        if not len(xs) == len(ys) == count:
            raise DataError(
                f"{file}: user {user!r}: expected {count} examples, as num_samples says, found {len(xs)} x and "
                f"{len(ys)} y; {_REPLACE}"
            )
        if not xs:
            raise DataError(f"{file}: user {user!r}: found no examples; remove the user")
        yield user, xs, ys
    if unlisted := set(data) - {user for user, _ in listed}:
        raise DataError(f"{file}: expected all users of user_data in users, found no {min(unlisted)!r}; {_REPLACE}")


def _numbers(folder: Path, x: list[Any], y: list[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    try:
        features, labels = np.asarray(x), np.asarray(y)
    except ValueError:
        features = labels = np.zeros(0, object)
    if features.ndim < 2 or features.dtype.kind not in "biuf" or labels.ndim != 1 or labels.dtype.kind not in "biufU":
        raise DataError(
            f"{folder}: expected examples that are lists of numbers, all as long, or texts, and a label each, found "
            f"something else; {_REPLACE}"
        )
    features = narrowed(features)
    check_features(folder, features)
    return features, labels


LOADER = Loader("leaf", "a folder in LEAF's JSON layout (FEMNIST, Shakespeare); users are owners", load_leaf)
