"""Columns of Arrow tables, in Parquet files or in those of `save_to_disk`.

The library `datasets` is not needed: images are stored as encoded bytes, arrays as lists, and the names of classes in
the metadata of the table.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simfl.data.base import MEMORY_LIMIT_BYTES
from simfl.errors import DataError

INSTALL = "pip install 'simfl[huggingface]'"
"""What to do if a library is missing."""


def read_arrow(files: Sequence[Path]) -> Any:
    """Return the Arrow table in some files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file, tables = files[0], []
    try:
        for file in files:
            if file.stat().st_size > MEMORY_LIMIT_BYTES:
                raise ValueError(f"larger than {MEMORY_LIMIT_BYTES >> 30} GiB")
            with pa.OSFile(str(file)) as stream:
                is_parquet = file.suffix == ".parquet"
                tables.append(pq.ParquetFile(stream).read() if is_parquet else pa.ipc.open_stream(stream).read_all())
        return pa.concat_tables(tables)
    except (OSError, ValueError, MemoryError) as error:  # ArrowInvalid is a ValueError
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{file}: not a Parquet or Arrow file, or damaged ({reason}); write it again") from None


class ArrowColumns:
    """An Arrow table as `simfl.data.arrays` reads a Hugging Face set."""

    def __init__(self, where: str, table: Any) -> None:
        self.where, self.table, self.column_names = where, table, table.column_names

    def of_type(self, *kinds: str) -> bool:
        """Return whether a column is of one of these kinds of Arrow types."""
        return any(kind in str(one).partition("<")[0] for one in self.table.schema.types for kind in kinds)

    @property
    def has_arrays(self) -> bool:
        """Whether a column is of images or lists."""
        return self.of_type("struct", "list", "extension")

    def to_pandas(self) -> Any:
        """Return the table as a frame."""
        return self.table.to_pandas()

    def classes(self, column: str) -> list[str]:
        """Return the names of classes, as the library stores them beside the columns."""
        stored = json.loads((self.table.schema.metadata or {}).get(b"huggingface", b"{}"))
        kind = stored.get("info", {}).get("features", {}).get(column, {})
        return kind.get("names", []) if isinstance(kind, dict) else []

    def texts(self, owner: str | None) -> dict[str, str]:
        """Return the texts of each owner, joined; without owners, all under ''."""
        inputs = [one for one in self.column_names if one != owner]
        if len(inputs) != 1 or "string" not in str(self.table.schema.field(inputs[0]).type):
            advice = "name it in data.features, or name data.label"
            raise DataError(f"{self.where}: expected one column of texts, found {', '.join(inputs)}; {advice}")
        texts: dict[str, list[str]] = {}
        owners = self.table[owner].to_pylist() if owner in self.column_names else [""] * len(self.table)
        for whose, text in zip(owners, self.table[inputs[0]].to_pylist(), strict=True):
            texts.setdefault(str(whose), []).append(text or "")
        return {whose: "\n".join(some) for whose, some in sorted(texts.items())}

    def array(self, column: str) -> Any:
        """Return a column of images, lists of one length or values as [n, ...]."""
        import pyarrow.compute as pc

        held, at = self.table[column].combine_chunks(), f"{self.where}: {column}"
        if held.null_count:
            row = held.is_null().to_pylist().index(True)
            raise DataError(f"{at}: example {row}: expected a value, found none; remove the example")
        if str(held.type).startswith("struct"):
            images = [_image(f"{at}: example {row}", one) for row, one in enumerate(held.to_pylist())]
            shapes = {image.shape for image in images}
            if len(shapes) > 1:
                raise DataError(f"{at}: expected images of one size, found {sorted(shapes)}; resize them")
            return np.stack(images)
        shape, held = [len(held)], getattr(held, "storage", held)
        while "list" in str(held.type).partition("<")[0]:
            lengths = pc.unique(pc.list_value_length(held)).to_pylist()
            if len(lengths) != 1:
                raise DataError(f"{at}: expected lists of one length, found lengths {lengths[:3]}; cut or fill them")
            shape, held = [*shape, lengths[0]], held.flatten()
        values = held.to_numpy(zero_copy_only=False).reshape(shape)
        return values.astype(str) if values.dtype == object else values


def _image(where: str, stored: Any) -> Any:
    """Return an image, uint8 [height, width] or [height, width, 3]."""
    try:
        from PIL import Image

        with Image.open(io.BytesIO(stored["bytes"]) if stored["bytes"] else stored["path"]) as image:
            return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    except ImportError as error:
        raise DataError(f"{where}: expected Pillow ({error}); {INSTALL}") from None
    except Exception as error:  # another structure, or whatever a damaged image raises
        raise DataError(f"{where}: expected an image, found another value, or a damaged one ({error})") from None
