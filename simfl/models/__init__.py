"""Models as pure functions of a flat float32 vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from simfl.catalogue import Catalogue, items_in
from simfl.errors import nearest
from simfl.models.base import AbstractModel

__all__ = ["MODELS", "AbstractModel", "build_model", "model_options"]

MODELS: Mapping[str, type[AbstractModel]] = Catalogue(
    lambda: items_in(__name__, AbstractModel, "models")  # type: ignore[type-abstract]
)
"""The models by the word that names them in a scenario; `summary` of each is one line about it."""


def model_options(kind: str) -> tuple[str, ...]:
    """Return a model's options beside `input_shape`, `num_classes` and `l2`.

    Raises:
        ValueError: for an unknown model.
    """
    if kind not in MODELS:
        raise ValueError(f"model: kind: expected one of {', '.join(MODELS)}, found '{kind}'{nearest(kind, MODELS)}")
    shared = {field.name for field in dataclasses.fields(AbstractModel)}
    return tuple(field.name for field in dataclasses.fields(MODELS[kind]) if field.name not in shared)


def build_model(
    kind: str, *, input_shape: Sequence[int], num_classes: int, l2: float = 0.0, **options: Any
) -> AbstractModel:
    """Build a model for given data.

    Args:
        kind: a key of `MODELS`.
        input_shape: shape of one example.
        num_classes: number of labels, 0 for regression and for points.
        l2: lambda >= 0 of the penalty lambda/2 ||w||^2.
        options: those of the model, see `model_options`; left out, they take their defaults.

    Raises:
        ValueError: if the model does not exist, or does not suit the data or the options.
    """
    known = model_options(kind)
    for name in options:
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ValueError(f"model: {kind} has no option '{name}'; {takes}{nearest(name, known)}")
    return MODELS[kind](input_shape=tuple(input_shape), num_classes=num_classes, l2=l2, **options)
