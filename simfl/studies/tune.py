"""The section `tune` of a study: values to try, and the rule that chooses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.scenario.fields import Config, Index, Within, option
from simfl.scenario.overrides import path_of
from simfl.scenario.problems import InvalidValueError, Path, invalid, one_of, show
from simfl.scenario.units import parse_time

COSTS = {
    "time_to": "time_s",
    "updates_to": "updates",
    "epochs_to": "epochs",
    "rounds_to": "rounds",
    "bytes_to": "bytes_sent",
    "epsilon_to": "epsilon",
}
"""Rules by the cost of a target -> column of metrics."""
AT = ("end", "best")
WIDER = 2
"""The number of values that a border gets at a time."""


@dataclass(frozen=True)
class Values:
    """The values of a key path, by number; a range continues beyond its borders."""

    listed: tuple[Any, ...]
    factor: float | None = None

    @property
    def count(self) -> int:
        """The number of values at the beginning, from 0."""
        return len(self.listed)

    def at(self, number: int) -> Any:
        """Return a value; numbers outside of the list are those of a range."""
        return self.listed[number] if self.factor is None else _power(self.listed[0], self.factor, number)


def _power(first: float, factor: float, number: int) -> float:
    return float(f"{first * factor**number:.12g}")


def _positive(value: object, at: Path) -> float:
    try:
        return Within(above=0).number(value)
    except InvalidValueError as error:
        raise InvalidValueError(*(problem.below(at) for problem in error.problems)) from None


def _values(value: object, at: Path) -> Values:
    """Return the values of a list, or of `{from: 0.01, to: 1, by: factor 2}`."""
    match value:
        case list() | tuple() if len(value) > 1:
            return Values(tuple(value))
        case Mapping() if {"from", "to"} <= set(value) <= {"from", "to", "by"}:
            first, last = (_positive(value[name], (*at, name)) for name in ("from", "to"))
            word, _, number = str(value.get("by", "factor 2")).partition(" ")
            try:
                factor = float(number) if word == "factor" else math.nan
            except ValueError:
                factor = math.nan
            if not 1 < factor < math.inf:
                raise invalid("factor and a number above 1", show(value["by"]), "write by: factor 2", (*at, "by"))
            if not first < last:
                raise invalid("a smaller first value", show(value), "write the smaller one at from", at)
            count = math.floor(math.log(last / first, factor) + 1e-9) + 1
            if not 2 <= count <= 1000:
                raise invalid("2 to 1000 values", f"{count}", "write another factor", (*at, "by"))
            return Values(tuple(_power(first, factor, number) for number in range(count)), factor)
    raise invalid("the values to try", show(value), "write a list, or {from: 0.01, to: 1, by: factor 2}", at)


def _also(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid("a mapping of key paths", show(value), "write key.path: [value, value]")
    for key, values in value.items():
        path_of(str(key))
        if "seed" in str(key).split(".")[-1]:
            raise invalid("a key path other than a seed", show(values), "write seeds: 3 in tune", (key,))
        _values(values, tuple(str(key).split(".")))
    return dict(value)


def _rule(value: object) -> dict[str, Any]:
    """Check a rule: {time_to: 0.9}, or {metric: accuracy, at: 20 s}."""
    match value:
        case Mapping() if len(value) == 1 and next(iter(value)) in COSTS:
            return dict(value)
        case Mapping() if "metric" in value and set(value) <= {"metric", "at"} and isinstance(value["metric"], str):
            at = value.get("at", "end")
            return {"metric": value["metric"], "at": at if at in AT else float(parse_time(at))}
    advice = "write {time_to: 0.9}, or {metric: accuracy, at: 20 s}"
    raise invalid(f"a metric, or one of {one_of(tuple(COSTS))}", show(value), advice)


def _seeds(value: object) -> int | tuple[int, ...]:
    if isinstance(value, list | tuple):
        seeds = tuple(Within(at_least=0, below=2**64).integer(seed) for seed in value)
        if not seeds or len(set(seeds)) < len(seeds):
            raise invalid("different seeds", show(value), "write how many, or list each once")
        return seeds
    return Within(at_least=1, at_most=1000).integer(value)


_OBJECT = WithJsonSchema({"type": "object"})
KeyPaths = Annotated[dict[str, Any], BeforeValidator(_also), _OBJECT]


class Tune(Config):
    """Values to try for each setting of the grid, before the study itself is run."""

    also: KeyPaths = option({}, "key paths with the values to try; so may be written beside the other keys of tune")
    rule: Annotated[dict[str, Any], BeforeValidator(_rule), _OBJECT] = Field(
        alias="for",
        description="what is best: `{time_to: 0.9}`, the least cost of a target (" + ", ".join(COSTS) + "), or "
        "`{metric: accuracy, at: 20 s}`, a metric at a time, at the `end` or at its `best`",
    )
    seeds: Annotated[int | tuple[int, ...], BeforeValidator(_seeds), WithJsonSchema({"type": ["integer", "array"]})] = (
        option(3, "how many seeds, from the scenario's own onwards, or a list; the study itself has others")
    )
    by: Literal["all", "halving"] = option(
        "all", "all values with all seeds; or halving: of all values with one seed, the better half gets another one"
    )
    on: Literal["validation", "test"] = option("validation", "the examples that choose: those of data.validation")
    widen: Index = option(
        4, f"the most times that a range gets {WIDER} more values, because the best value is at its border"
    )

    @model_validator(mode="before")
    @classmethod
    def _collected(cls, data: Any) -> Any:
        """Take keys with a dot as key paths to tune."""
        if not isinstance(data, Mapping):
            return data
        paths = {key: value for key, value in data.items() if "." in str(key)}
        others = {key: value for key, value in data.items() if key not in paths}
        if not paths or not isinstance(others.get("also", {}), Mapping):
            return others
        _also(paths)
        return {**others, "also": {**paths, **others.get("also", {})}}

    @property
    def values(self) -> dict[str, Values]:
        """The values of each key path."""
        return {key: _values(value, ()) for key, value in self.also.items()}
