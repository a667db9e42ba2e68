"""Models as pure functions of a flat float32 vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simfl.catalogue import Items
from simfl.errors import nearest
from simfl.models.base import AbstractModel

__all__ = ["MODELS", "AbstractModel", "build_model", "model_options"]

MODELS: Mapping[str, type[AbstractModel]] = Items(__name__, AbstractModel, "models")  # type: ignore[type-abstract]
"""The models by their name in a scenario."""


def model_options(kind: str) -> tuple[str, ...]:
    """Return a model's options except `input_shape`, `num_classes` and `l2`."""
    if kind not in MODELS:
        raise ValueError(f"model: kind: expected one of {', '.join(MODELS)}, found '{kind}'{nearest(kind, MODELS)}")
    shared = {field.name for field in dataclasses.fields(AbstractModel)}
    return tuple(field.name for field in dataclasses.fields(MODELS[kind]) if field.name not in shared)


def build_model(
    kind: str, *, input_shape: Sequence[int], num_classes: int, l2: float = 0.0, **options: Any
) -> AbstractModel:
    """Build a model; ValueError if it does not suit the data or the options.

    `num_classes` is 0 for regression and for points; `options` are those of `model_options`.
    """
    valid = model_options(kind)
    for name in options:
        if name not in valid:
            takes = f"it takes {', '.join(valid)}" if valid else "it takes none"
            raise ValueError(f"model: {kind} has no option '{name}'; {takes}{nearest(name, valid)}")
    return MODELS[kind](input_shape=tuple(input_shape), num_classes=num_classes, l2=l2, **options)
