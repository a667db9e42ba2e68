"""Data sets of Hugging Face, by name or from files.

Files need neither the library nor a network. They are those of the library's `save_to_disk`, or Parquet: one file, or a
folder of files named after their part, such as `train-00000-of-00002.parquet`. The library keeps what it downloads in
its own cache.

A column of images (decoded to uint8) or of lists of one length gives arrays. Without a label, a column of texts gives
windows of characters (`simfl.data.text`). Other columns are a table (`simfl.data.table`).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simfl.data.arrays import TESTS, from_object
from simfl.data.base import Dataset, Loader
from simfl.data.files import candidates
from simfl.data.text import of_owners
from simfl.errors import DataError, nearest
from simfl.frameworks.arrow import INSTALL, ArrowColumns, read_arrow
from simfl.streams import Streams


def load_huggingface(
    root: Path | None,
    streams: Streams,
    *,
    name: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    path: str | Path | None = None,
    split: str = "train",
    test_split: str | None = None,
    validation_split: str | None = None,
    own_validation: bool = False,
    features: Sequence[str] = (),
    label: str | None = "label",
    length: int = 32,
    scale: float | None = None,
    test_fraction: float = 0.2,
    regression: bool = False,
    group: str | None = None,
) -> Dataset:
    """Load a set by its `name`, `config` and `revision` on the hub, or from `path`.

    `split` is the training part, `test_split` the test part; None: the one called test or validation, else a share is
    set aside. With `own_validation`, `validation_split` is that part; None: the one called validation. `features` are
    columns, none: all but `label` and `group`. A `label` of None makes windows of `length` characters of a column of
    texts. `scale` is the factor of integers, None: 1/255 for images. See `Loader`.
    """
    place = next((one for one in candidates(path, root, "huggingface") if one.exists()), Path(path)) if path else None
    where = f"data.name: {name}" if place is None else str(place)
    parts: dict[str, Any] = _of_hub(str(name), config, revision) if place is None else _files_of(place)
    aside = [validation_split or "validation"] if own_validation else []
    tests = [one for one in TESTS if one in parts and one not in (split, *aside)][:1]
    tests = tests if test_split is None else [test_split]
    if own_validation and (label is None or len({split, *tests, *aside}) < 3):
        has = "texts without a label" if label is None else ", ".join(parts)
        expected = "labels, and different parts for training, test and validation"
        raise DataError(f"data.validation: own: expected {expected}, found {has}; name them, or use a share")
    keys = ("split", *["test_split"] * len(tests), "validation_split")
    for key, part in zip(keys, (split, *tests, *aside), strict=False):
        if part not in parts:
            raise DataError(f"data.{key}: expected one of {', '.join(parts)}, found {part!r}{nearest(part, parts)}")
    tables = [parts[part] if place is None else read_arrow(parts[part]) for part in (split, *tests, *aside)]
    apart, known = [column for column in (label, group) if column is not None], tables[0].column_names
    names = [*(features or (column for column in known if column not in apart)), *apart]
    for column in names:
        if column not in known:
            columns = f"{', '.join(known)}{nearest(column, known)}"
            raise DataError(f"{where}: expected a column {column!r}, found {columns}")
    num_aside = len(tables[-1]) if aside else 0
    tables[1:] = [_joined(where, tables[1:], names)] if aside else tables[1:]
    sets = [ArrowColumns(where, table.select([one for one in names if one in table.column_names])) for table in tables]
    called = Path(path or str(name)).stem
    if label is None:
        texts = [table.texts(group) for table in sets]
        owned, test = group is not None, texts[1] if tests else None
        data = of_owners(where, called, texts[0], test, streams, None, length, length, test_fraction, owned)
    else:
        given = sets[0] if not tests else {"train": sets[0], "test": sets[1]}
        scale = 1 / 255 if scale is None and sets[0].of_type("struct") else scale
        shared: dict[str, Any] = {"regression": regression, "test_fraction": test_fraction, "scale": scale}
        data = from_object(given, where, called, streams, target=label, owner=group, **shared)
        classes = sets[0].classes(label)
        if classes and data.labels and not regression:
            if min(data.labels) == -1:
                raise DataError(f"{where}: {label}: found -1, which means that labels are missing; use another split")
            data = dataclasses.replace(data, labels=tuple(classes[int(number)] for number in data.labels))
    files = () if place is None else tuple(file for part in (split, *tests, *aside) for file in parts[part])
    return dataclasses.replace(data, files=files, own_validation=num_aside)


def _joined(where: str, tables: Sequence[Any], names: Sequence[str]) -> Any:
    """Return the rows of the test part and of the validation part."""
    import pyarrow as pa

    both = [name for name in names if all(name in table.column_names for table in tables)]
    try:
        return pa.concat_tables([table.select(both) for table in tables])
    except pa.ArrowInvalid as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{where}: expected test and validation parts of the same columns ({reason})") from None


def _of_hub(name: str, config: str | None, revision: str | None) -> dict[str, Any]:
    """Return the Arrow table of each part of a set on the hub."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(f"data.name: expected the library datasets ({error}); {INSTALL}, or give data.path") from None
    try:
        parts = datasets.load_dataset(name, config, revision=revision)
    except Exception as error:  # whatever the library and the network raise
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"data.name: {name}: cannot be loaded ({reason}); correct it, or give data.path") from None
    metadata = {part: one.features.arrow_schema.metadata for part, one in parts.items()}
    return {str(part): one.data.table.replace_schema_metadata(metadata[part]) for part, one in parts.items()}


def _files_of(place: Path) -> dict[str, list[Path]]:
    """Return the files of each part of a set on disk."""
    if place.is_file():
        return {"train": [place]}
    files: dict[str, list[Path]] = {}
    for state in sorted([*place.glob("state.json"), *place.glob("*/state.json")]):
        try:
            content = json.loads(state.read_text("utf-8"))
            part = (content.get("_split") or "train") if state.parent == place else state.parent.name
            files[part] = [state.parent / one["filename"] for one in content["_data_files"]]
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise DataError(f"{state}: not written by save_to_disk, or damaged ({error}); write it again") from None
    for file in sorted(place.glob("**/*.parquet")) if not files else ():
        files.setdefault(re.sub(r"(-\d+)?(-of-\d+)?$", "", file.stem), []).append(file)
    if not files:
        raise DataError(f"data.path: {place}: expected a folder of save_to_disk, or Parquet files, found none")
    return files


LOADER = Loader(
    "huggingface", "a set of Hugging Face by name or in files: images, lists, texts, tables", load_huggingface
)
