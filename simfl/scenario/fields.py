"""Parts of the schema: a strict frozen base, unions by `kind`, checked scalars.

The scalars check themselves, so that a message can say everything that a field expects ("an integer >= 1"), whatever is
wrong with the value.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, SchemaValidator, core_schema

from simfl.scenario.own_code import NAME
from simfl.scenario.problems import InvalidValueError, Problem, invalid, is_number, one_of, show, suggestion
from simfl.scenario.units import format_bandwidth, format_time, parse_bandwidth, parse_bytes, parse_time

T = TypeVar("T")

DISCRIMINATORS = ("kind", "set", "mechanism", "correlated")
"""The keys that name a variant."""


class Config(BaseModel):
    """Base of all sections: frozen, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", serialize_by_alias=True, validate_default=False, defer_build=True
    )

    #: The variants that a base stands for in a type, if they are made of classes: `simfl.scenario.sections.Sections`.
    variants: ClassVar[Any] = None
    #: Whether it names a user's own code.
    is_own: ClassVar[bool] = False
    #: Keys of earlier versions -> what to do where one is set.
    removed: ClassVar[Mapping[str, str]] = {}
    #: Keys that have another name now -> it. They work for two more minor versions, with a warning (docs/stability.md).
    renamed: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys of this section as they are written in YAML."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    def __hash__(self) -> int:
        return hash(hashable({name: getattr(self, name) for name in type(self).model_fields}))

    def problems(self) -> Iterator[Problem]:
        """Yield contradictions between the fields of this section."""
        return iter(())

    def with_default(self, name: str, value: Any) -> Self:
        """Return a copy with another value of a field, which still counts as left out."""
        copy = self.model_copy()
        copy.__dict__[name] = value
        return copy

    def complete(self) -> None:
        """Fill in defaults that depend on other fields, before `problems` is asked."""

    @model_validator(mode="before")
    @classmethod
    def _renewed(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not (old := cls.renamed.keys() & data.keys()):
            return data
        for key in sorted(old):
            if (new := cls.renamed[key]) in data:
                raise invalid(
                    f"one of '{key}' and '{new}'", "both", f"delete '{key}', which is called '{new}' now", (key,)
                )
            warnings.warn(f"{key}: this key is called {new} now; write {new}: {show(data[key])}", FutureWarning, 2)
        return {cls.renamed.get(key, key): value for key, value in data.items()}

    @model_validator(mode="after")
    def _checked(self) -> Self:
        self.complete()
        if problems := tuple(self.problems()):
            raise InvalidValueError(*problems)
        return self


@dataclass(frozen=True)
class _Settled:
    """Marks an option that is resolved before the run, not passed to the class."""


@dataclass(frozen=True)
class _Arithmetic:
    """Marks a number that reaches models alone, so that no time depends on it."""


@dataclass(frozen=True)
class NamesFile:
    """Marks a text that names a file.

    Args:
        of_world: the world is read from it; False: data or a model.
    """

    of_world: bool


SETTLED = _Settled()
#: Marks a number of clients, which is at most `clients.count`.
OF_CLIENTS = "at most clients.count"
Settled = Annotated[T, SETTLED]
ARITHMETIC = _Arithmetic()
#: A sweep may play runs together that differ in such numbers (`simfl.studies.worlds`).
Arithmetic = Annotated[T, ARITHMETIC]


def variant(name: T) -> T:
    """Return the field that names a variant, as in `variant("ring")`."""
    return Field(default=name, description="names this variant")


def option(default: T, description: str, **more: Any) -> T:
    """Return a field that may be left out; `more` is for pydantic's `Field`."""
    about: dict[str, Any] = {"description": description, **more}
    return dataclasses.field(default=default, metadata=about)


_EXAMPLE_NAMES = {"set": "my_data:load"}
"""An example of a name of a user's code, by the key that has it."""


@dataclass(frozen=True)
class ByKind:
    """Marks a union of `Config` classes, the variants; `key` names the variant.

    A bare word stands for the mapping that has only this key: `topology: ring` is `topology: {kind: ring}`.

    Args:
        key: the key that names the variant.
        default: its value if it is left out; None makes it required.
        number: the range of plain numbers, if a number may stand in the place of a mapping and stays one.
        scalar: the variant that a number stands for, as its `value`; with `quantities`, also a text.
        quantities: texts are quantities such as "1 ms" instead of names of variants.
        listed: the variant that a list stands for, as its `values`.
        external: the variant whose names have the form "module:Class", or are `names`.
        names: returns the names of `external`, if they do not have that form.
        listed_by: the command that lists the names, for messages in the place of a long list.
        renew: rewrites a mapping in an older form in the present one.
    """

    key: str = "kind"
    default: str | None = None
    number: Within | None = None
    scalar: str | None = None
    quantities: bool = False
    listed: str | None = None
    external: type[Config] | None = None
    names: Callable[[], list[str]] | None = None
    listed_by: str = ""
    renew: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    def _is_external(self, kind: str) -> bool:
        return self.external is not None and (":" in kind if self.names is None else kind in self.names())

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        members: tuple[type, ...] = (source,)
        kinds: Mapping[str, type[Config]] | None = variants_of(source)
        if kinds is None:
            members = members_of(source)
            kinds = {kind_of(member, self.key): member for member in members if member is not self.external}

        def check(data: object) -> object:
            if self.number is not None and is_number(data):
                return self.number.number(data)
            if isinstance(data, members):
                return data
            mapping = self._complete(data, kinds)
            kind = str(mapping[self.key])
            return _checked(self.external if self._is_external(kind) else kinds[kind], mapping)

        # The schema of a variant is built when a scenario names it: that of all would take longer than many a run.
        return core_schema.no_info_plain_validator_function(check, metadata={"source": source})

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return a schema for editors that includes the short forms."""
        kinds: list[str] = []
        forms: list[JsonSchemaValue] = []
        external_kind = {"type": "string", "pattern": ":"} if self.names is None else {"enum": self.names()}
        for member in (handler(_named_schema_of(each)) for each in members_of(schema["metadata"]["source"])):
            named_by = handler.resolve_ref_schema(member)["properties"][self.key]
            kind = named_by.get("const", named_by.get("enum", [None])[0])  # an enum: also under another name
            if kind is None:
                named = {"properties": {self.key: external_kind}, "required": [self.key]}
                forms += [external_kind, {"allOf": [member], **named}]
            else:
                kinds.append(kind)
                forms.append({"allOf": [member]} | ({} if kind == self.default else {"required": [self.key]}))
        if self.number is not None:
            forms.append(self.number.json_schema({"type": "number"}))
        if self.scalar:
            forms.append({"type": ["number", "string"] if self.quantities else "number"})
        if self.listed:
            forms.append({"type": "array"})
        return {"anyOf": [{"enum": kinds}, *forms]}

    def _valid(self, kinds: Mapping[str, type[Config]]) -> list[str]:
        external = self.names() if self.names is not None else [_EXAMPLE_NAMES.get(self.key, "my_module:MyClass")]
        return list(kinds) + (external if self.external else [])

    def _expected(self, valid: list[str]) -> str:
        """Return the valid names, or where to find them."""
        if not self.listed_by:
            return one_of(valid)
        return f"a name that '{self.listed_by}' has, or {valid[-1]}"

    def _complete(self, data: object, kinds: Mapping[str, type[Config]]) -> Mapping[str, object]:
        """Return the mapping that `data` stands for, with a valid kind in it."""
        match data:
            case str() if not (self.scalar and self.quantities):
                mapping: Mapping[str, Any] = {self.key: data}
            case int() | float() | str() if self.scalar:
                mapping = {self.key: self.scalar, "value": data}
            case list() | tuple() if self.listed:
                mapping = {self.key: self.listed, "values": data}
            case Mapping():
                mapping = data
            case _:
                valid = self._valid(kinds)
                advice = f"write {self.key}: and {'' if self.listed_by else 'one of '}{self._expected(valid)}"
                expected = f"a mapping with '{self.key}'"
                if self.number is not None:
                    expected = f"{self.number.expected('a number')} or {self._expected(valid)}"
                    advice = "write one of them"
                raise invalid(expected, show(data), advice)
        if self.renew is not None:
            mapping = self.renew(mapping)
        match kind := mapping.get(self.key, self.default):
            case None:
                valid = self._valid(kinds)
                advice = f"add {self.key}: {valid[0]}" if len(valid) == 1 else f"add '{self.key}' with one of them"
                raise invalid(self._expected(valid), "nothing", advice, (self.key,))
            case str() if self._is_external(kind) or kind in kinds:
                return {**mapping, self.key: kind}
        title = str(kind).casefold()  # as tables show it, such as D-PSGD, which begins the class's docstring
        meant = next((k for k, m in kinds.items() if (m.__doc__ or "").casefold().startswith(f"{title}: ")), kind)
        advice = suggestion(meant, kinds, f"see {self.listed_by}" if self.listed_by else "choose one of them")
        raise invalid(self._expected(self._valid(kinds)), show(kind), advice, (self.key,))


def _schema_of(member: type[Config]) -> CoreSchema:
    """Return the schema of a section, which is built when it is first needed."""
    member.model_rebuild()
    return member.__pydantic_core_schema__


def _named_schema_of(member: type[Config]) -> Any:
    """Return the schema under a name, so that a JSON schema has it once."""
    name = f"{member.__module__}.{member.__qualname__}:{id(member)}"
    named: Any = {**_schema_of(member), "ref": name}
    return core_schema.definitions_schema(core_schema.definition_reference_schema(name), [named])


def _checked(member: type[Config] | None, mapping: Mapping[str, object]) -> object:
    """Return the section of a mapping; an error's location begins with the variant.

    Angle brackets tell its name from a key of the document.
    """
    assert member is not None
    try:
        return member.model_validate(mapping)
    except ValidationError:
        union = core_schema.tagged_union_schema(
            {f"<{member.__name__}>": _schema_of(member)}, lambda _: f"<{member.__name__}>"
        )
        return SchemaValidator(union).validate_python(mapping)


def file_marks(field: FieldInfo) -> list[NamesFile]:
    """Return the marks of a field that names a file, such as that of `WorldFile`."""
    marks, types = list(field.metadata), [field.annotation]
    while types:
        annotation = types.pop()
        marks += getattr(annotation, "__metadata__", ())
        types += get_args(annotation)
    return [mark for mark in marks if isinstance(mark, NamesFile)]


def world_files(section: Any) -> Iterator[str]:
    """Yield the `WorldFile`s of a section and its subsections, in the schema's order."""
    return _named_files(section, of_world=True)


def content_files(section: Any) -> Iterator[str]:
    """Yield the `ContentFile`s of a section and its subsections."""
    return _named_files(section, of_world=False)


def _named_files(section: Any, of_world: bool) -> Iterator[str]:
    match section:
        case tuple():
            for item in section:
                yield from _named_files(item, of_world)
        case Config():
            for name, field in type(section).model_fields.items():
                match value := getattr(section, name):
                    case str() if NamesFile(of_world) in file_marks(field):
                        yield value
                    case _:
                        yield from _named_files(value, of_world)


@dataclass(frozen=True)
class Short:
    """Marks a section with a short form: `clients: 4` is `clients: {count: 4}`.

    Args:
        key: the key whose value the short form is.
        text: whether the value is a text such as "1 s"; else it is a number.
    """

    key: str
    text: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def prepare(data: object) -> object:
            plain = isinstance(data, str) if self.text else is_number(data)
            return {self.key: data} if plain else data

        return core_schema.no_info_before_validator_function(prepare, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        section = handler(schema)
        return {"anyOf": [handler.resolve_ref_schema(section)["properties"][self.key], section]}


def members_of(annotation: Any) -> tuple[type[Config], ...]:
    """Return every `Config` class in a type such as `tuple[A | B, ...] | None`.

    The variants of a base take its place.
    """
    if (variants := variants_of(annotation)) is not None:
        return tuple(variants.members())
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return (annotation,)
    return tuple(dict.fromkeys(member for inner in get_args(annotation) for member in members_of(inner)))


def variants_of(annotation: Any) -> Any:
    """Return the variants that a base stands for; None for other types."""
    return getattr(annotation, "__dict__", {}).get("variants")


def kind_of(member: type[Config], key: str) -> str:
    """Return the name of a variant."""
    return str(member.model_fields[key].default)


_COMPARISONS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Within:
    """A number in a range; an `int` field takes whole numbers, also as 1e4."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    @property
    def _bounds(self) -> Iterator[tuple[str, float]]:
        bounds = zip(_COMPARISONS, (self.at_least, self.above, self.at_most, self.below), strict=True)
        return ((sign, bound) for sign, bound in bounds if bound is not None)

    def holds(self, value: float) -> bool:
        """Return whether a value is in the range."""
        return all(_COMPARISONS[sign](value, bound) for sign, bound in self._bounds)

    def expected(self, noun: str) -> str:
        """Return "a number > 0" for "a number"."""
        bounds = [f"{sign} {bound if isinstance(bound, int) else f'{bound:g}'}" for sign, bound in self._bounds]
        return f"{noun} {' and '.join(bounds)}".rstrip()

    def integer(self, value: object) -> int:
        """Return `value` as an integer in the range, or reject it."""
        if not is_number(value) or value % 1 != 0:  # infinity and NaN leave NaN
            raise invalid(self.expected("an integer"), show(value), "write a whole number")
        if not self.holds(value):
            raise invalid(self.expected("an integer"), show(value), "choose a value in this range")
        return int(value)

    def number(self, value: object) -> float:
        """Return `value` as a float in the range, or reject it."""
        if not is_number(value):
            raise invalid(self.expected("a number"), show(value), "write a plain number")
        if not abs(value) < 10**300:
            raise invalid(self.expected("a finite number"), show(value), "write a finite number")
        if not self.holds(value):
            raise invalid(self.expected("a number"), show(value), "choose a value in this range")
        return float(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        check = self.integer if source is int else self.number
        return core_schema.no_info_before_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.json_schema(handler(schema))

    def json_schema(self, schema: JsonSchemaValue) -> JsonSchemaValue:
        """Return a JSON schema with these bounds."""
        names = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}
        return schema | {names[sign]: bound for sign, bound in self._bounds}


LONGEST_S = 1e12
"""The longest time of a scenario: added to some 30,000 years, the times of mini-batches would vanish."""


def _quantity(
    parse: Callable[[object], float], noun: str, limits: Within, longest: float = math.inf
) -> BeforeValidator:
    def check(value: object) -> float:
        number = parse(value)
        if longest < number < math.inf:
            raise invalid(f"{noun} of at most {longest:g} s", show(value), "choose a shorter time")
        if not limits.holds(number) or not math.isfinite(number):
            raise invalid(limits.expected(noun), show(value), "choose a value in this range")
        return number

    return BeforeValidator(check)


def _size(limits: Within) -> BeforeValidator:
    return BeforeValidator(lambda value: limits.integer(parse_bytes(value) if isinstance(value, str) else value))


def _word(value: object) -> str:
    match value:
        case str() if value.strip():
            if value.isprintable():
                return value
            raise invalid("a text on one line", show(value), "remove the control characters")
        case str() | None:
            raise invalid("a text", show(value), "write something")
    raise invalid("a text", show(value), "put it in quotes")


def _distinct(noun: str, advice: str) -> AfterValidator:
    """Return a check of lists: at least one item, each once."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        if not items:
            raise invalid(f"at least one {noun}", "[]", advice)
        item, times = Counter(items).most_common(1)[0]
        if times > 1:
            raise invalid(f"each {noun} once", f"{noun} {item} more than once", f"list every {noun} only once")
        return items

    return AfterValidator(check)


def _one_or_each(limits: Within) -> BeforeValidator:
    """Return a check of one number, or a list with one for each client."""

    def check(value: object) -> float | tuple[float, ...]:
        match value:
            case []:
                raise invalid("at least one number", "[]", "write one number, or one for each client")
            case list() | tuple():
                return tuple(limits.number(item) for item in value)
        return limits.number(value)

    return BeforeValidator(check)


def auto_or(check: Callable[[object], float], expected: str, noun: str) -> BeforeValidator:
    """Return a check of "auto" or a number."""

    def check_value(value: object) -> object:
        match value:
            case "auto":
                return value
            case str() | None:
                raise invalid(f"auto or {expected}", show(value), f"write auto or {noun}")
        return check(value)

    return BeforeValidator(check_value)


def _own_name(value: object) -> str:
    match value:
        case str() if NAME.fullmatch(value):
            return value
    raise invalid("a name like my_module:my_name", show(value), "write module, colon, name")


def _frozen(value: Any) -> Any:
    match value:
        case list() | tuple():
            return tuple(_frozen(item) for item in value)
        case dict():
            return {key: _frozen(item) for key, item in value.items()}
    return value


def hashable(value: Any) -> Any:
    """Return a hashable form of plain values; equal values have equal forms."""
    match value:
        case dict():
            return frozenset((key, hashable(item)) for key, item in value.items())
        case tuple():
            return tuple(hashable(item) for item in value)
    return value


def _number_or_array(**bounds: float) -> WithJsonSchema:
    number: dict[str, Any] = {"type": "number", **bounds}
    return WithJsonSchema({"anyOf": [number, {"type": "array", "items": number}]})


def _letters(value: object) -> str:
    match value:
        case str() if 2 <= len(set(value)) == len(value):
            return value
    raise invalid("two or more characters, each once", show(value), "list each character once")


def _fraction(value: object) -> object:
    """Return the value of "1/255"; other values unchanged."""
    match value:
        case str() if ratio := re.fullmatch(r"\s*([1-9][0-9]{0,8})\s*/\s*([1-9][0-9]{0,8})\s*", value):
            return int(ratio[1]) / int(ratio[2])
    return value


Count = Annotated[int, Within(at_least=1)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1)]
FiveCounts = Annotated[tuple[Count, ...], Field(min_length=5, max_length=5)]
Index = Annotated[int, Within(at_least=0)]
Number = Annotated[float, Within()]
AtLeastOne = Annotated[float, Within(at_least=1)]
NonNegative = Annotated[float, Within(at_least=0)]
Positive = Annotated[float, Within(above=0)]
NonNegativeEach = Annotated[float | tuple[float, ...], _one_or_each(Within(at_least=0)), _number_or_array(minimum=0)]
PositiveFraction = Annotated[
    float,
    BeforeValidator(lambda value: Within(above=0).number(_fraction(value))),
    WithJsonSchema({"type": ["number", "string"], "exclusiveMinimum": 0, "examples": ["1/255"]}),
]
PositiveEach = Annotated[float | tuple[float, ...], _one_or_each(Within(above=0)), _number_or_array(exclusiveMinimum=0)]
Share = Annotated[float, Within(above=0, at_most=1)]
OpenShare = Annotated[float, Within(above=0, below=1)]
Probability = Annotated[float, Within(at_least=0, at_most=1)]
Loss = Annotated[float, Within(at_least=0, at_most=0.9999)]
Sigma = Annotated[float, Within(at_least=0, at_most=5)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, BeforeValidator(_word)]
WorldFile = Annotated[Text, NamesFile(of_world=True)]
"""The path of a file that the world is read from; checkpoints and sweeps compare its bytes."""
ContentFile = Annotated[Text, NamesFile(of_world=False)]
"""The path of data or of a model; checkpoints and sweeps compare the content that was read from it."""
Letters = Annotated[str, BeforeValidator(_letters)]
Clients = Annotated[tuple[Index, ...], _distinct("client", "list clients by number, the first is 0")]
RegionNames = Annotated[tuple[Text, ...], _distinct("region", "list some of regions.names")]
Seconds = Annotated[
    float,
    _quantity(parse_time, "a time", Within(at_least=0), LONGEST_S),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "format": "time >= 0", "examples": ["10 ms"]}),
]
PositiveSeconds = Annotated[
    float,
    _quantity(parse_time, "a time", Within(above=0), LONGEST_S),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": ["string", "number"], "format": "time > 0", "examples": ["10 ms"]}),
]
Bandwidth = Annotated[
    float,
    _quantity(parse_bandwidth, "a bandwidth", Within(above=0)),
    PlainSerializer(format_bandwidth, return_type=str),
    WithJsonSchema({"type": "string", "format": "bandwidth", "examples": ["100 Mbit/s"]}),
]
Bytes = Annotated[
    int, _size(Within(at_least=0)), WithJsonSchema({"type": ["integer", "string"], "format": "bytes >= 0"})
]
PositiveBytes = Annotated[
    int, _size(Within(at_least=1)), WithJsonSchema({"type": ["integer", "string"], "format": "bytes > 0"})
]
OwnName = Annotated[str, BeforeValidator(_own_name)]
"""The name of a user's code: my_module:my_name."""
OwnOptions = Annotated[dict[str, Any], AfterValidator(_frozen)]
"""The keyword arguments of a user's code, which checks them itself."""


class OwnCode(Config):
    """Base of sections that name a user's own code, by `kind` or `set`."""

    is_own: ClassVar[bool] = True
    options: OwnOptions = option({}, "its keyword arguments")
