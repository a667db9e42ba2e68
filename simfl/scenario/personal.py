"""Personal parts of a model, which stay at their client."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from simfl.scenario.fields import Config, Index, Text, option
from simfl.scenario.problems import invalid, show


def _parts(value: object) -> object:
    """Reject anything but a list of distinct names."""
    if not isinstance(value, list | tuple) or not value or len(set(map(str, value))) < len(value):
        raise invalid("a list of different parts, such as [head]", show(value), "head is the last layer")
    return value


class Personal(Config):
    """Parts of the model that each client keeps for itself.

    Messages have the other parts alone, and only those are averaged.
    """

    parts: Annotated[tuple[Text, ...], BeforeValidator(_parts)] = Field(
        description="head, the last layer; a layer such as layer1; or a tensor such as layer1.weight, as in model.npz"
    )
    steps: Index | None = option(
        None,
        "mini-batches at the beginning of each round that train the personal parts alone; the others train the shared "
        "parts alone (FedRep). With 0 the personal parts stay as they begin (FedBABU). null: all mini-batches train "
        "all parts (FedPer)",
    )
