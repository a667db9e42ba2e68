"""A user's own algorithm."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.problems import InvalidValueError, Problem, show

_EXTERNAL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _external_name(value: object) -> str:
    if not isinstance(value, str) or not _EXTERNAL.fullmatch(value):
        raise InvalidValueError(Problem("a name like my_module:MyAlgorithm", show(value), "write module, colon, class"))
    return value


def _frozen(options: dict[str, Any]) -> dict[str, Any]:
    return {key: _frozen_value(value) for key, value in options.items()}


def _frozen_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_frozen_value(item) for item in value)
    return _frozen(value) if isinstance(value, dict) else value


def _hashed(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _hashed(item)) for key, item in value.items())
    return tuple(_hashed(item) for item in value) if isinstance(value, tuple) else value


class ExternalAlgorithm(AlgorithmConfig):
    """An algorithm of your own, from an importable module."""

    has_server: ClassVar[bool | None] = None

    kind: Annotated[str, BeforeValidator(_external_name)] = Field(
        description="module and class of the algorithm, as in my_module:MyAlgorithm"
    )
    options: Annotated[dict[str, Any], AfterValidator(_frozen)] = Field(
        default={}, description="what the class is given, by keyword; checked by the class itself"
    )

    def own_options(self) -> dict[str, Any]:
        """As `options` says."""
        return dict(self.options)

    def __hash__(self) -> int:
        return hash((self.kind, self.step_size, self.batch_size, self.sampling, _hashed(self.options)))
