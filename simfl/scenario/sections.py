"""Sections that are made of the classes that run.

A field of a frozen dataclass that is set by `option` is an option of the scenario, with its type, range, default and
line of the reference:

    tau: Positive = option(1.0, "bound on the L2 norm of a difference")

This package imports none of the classes: a catalogue is looked up by its name, as plugins are, and a class is imported
when a scenario has its kind.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_type_hints

from pydantic import ValidationError, create_model

from simfl.errors import ScenarioError
from simfl.scenario.errors import problems_of
from simfl.scenario.fields import Config, OwnCode, variant
from simfl.scenario.own_code import in_one_line, load, make
from simfl.scenario.problems import spell


class ClassSection(Config):
    """Base of sections that name a class by `kind` and have its options."""

    #: The class that a section is made of.
    item: ClassVar[Any] = None

    if TYPE_CHECKING:  # each class names itself
        kind: str

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the class by name; `options` of a user's own."""
        if isinstance(self, OwnCode):
            return dict(self.options)
        return {name: getattr(self, name) for name in _options_of(self.item)}

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a made section by its base and kind: no module has it."""
        if self.item is None:
            return super().__reduce_ex__(protocol)
        base = next(one for one in type(self).__mro__ if vars(one).get("variants"))
        return _again, (base, self.kind, self.__getstate__())


def _again(base: type[ClassSection], kind: str, state: dict[Any, Any]) -> ClassSection:
    section: type[ClassSection] = base.variants[kind]
    made = section.__new__(section)
    made.__setstate__(state)
    return made


@dataclasses.dataclass(frozen=True)
class Sections(Mapping[str, type[ClassSection]]):
    """Sections by kind, each made of its class when a scenario has it.

    Args:
        catalogue: the classes by kind, as "module:NAME"; they have a `summary` and perhaps a `note`, which follows it.
        base: returns the base of a class's section; None if the class is not a variant.
        name: of a section in the JSON schema; {} stands for its kind.
        first: the kinds that come first in the reference, with spaces between them.
        own: the section of users' own classes.
        written: sections by kind that are made of no class.
    """

    catalogue: str
    base: Callable[[Any], type[ClassSection] | None]
    name: str
    first: str = ""
    own: type[ClassSection] | None = None
    written: Mapping[str, type[ClassSection]] = dataclasses.field(default_factory=dict)
    _made: dict[str, type[ClassSection]] = dataclasses.field(default_factory=dict)

    @property
    def _classes(self) -> Mapping[str, Any]:
        classes: Mapping[str, Any] = pkgutil.resolve_name(self.catalogue)
        return classes

    def __getitem__(self, kind: str) -> type[ClassSection]:
        """Return a section by its kind."""
        if kind in self.written:
            return self.written[kind]
        if kind not in self._made:
            item = self._classes[kind]
            if (base := self.base(item)) is None:
                raise KeyError(kind)
            name, about = self.name.format(kind.title().replace("_", "")), item.summary[:1].upper() + item.summary[1:]
            fields: dict[str, Any] = {"kind": (Literal[kind], variant(kind)), **_options_of(item)}
            about = "\n\n".join([f"{about}.", *([item.note] if hasattr(item, "note") else [])])
            made = create_model(name, __base__=base, __module__=base.__module__, __doc__=about, **fields)
            for one in {*base.__class_vars__} & {*dir(item)}:  # what the class says of itself, and the schema checks
                setattr(made, one, getattr(item, one))
            made.item = item
            self._made[kind] = made
        return self._made[kind]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the kinds."""
        classes = self._classes
        made = (kind for kind in dict.fromkeys([*self.first.split(), *classes]) if self.base(classes[kind]) is not None)
        return chain(made, self.written)

    def __len__(self) -> int:
        """Return the number of kinds."""
        return sum(1 for _ in self)

    def members(self) -> tuple[type[Config], ...]:
        """Return all sections; that of users' own classes is the last."""
        return (*self.values(), *([self.own] if self.own else []))


def _options_of(item: Any) -> dict[str, Any]:
    """Return the options of a class by name, each as type and field."""
    fields = dataclasses.fields(item) if isinstance(item, type) and dataclasses.is_dataclass(item) else ()
    declared = [field for field in fields if "description" in field.metadata]
    hints = get_type_hints(item, include_extras=True) if declared else {}
    return {field.name: (hints[field.name], field) for field in declared}


def made(config: ClassSection, base: type, section: str) -> Any:
    """Return the object of a section, of a class of its catalogue or of a user's own.

    Raises:
        ScenarioError: a user's class cannot be loaded or is not derived from `base`, or an option is wrong.
    """
    if config.item is not None:
        return config.item(**config.arguments())
    where = f"{section}.kind"
    own = make(config.kind, _checked(load(config.kind, where), config, section), where)
    if not isinstance(own, base):
        raise ScenarioError(
            f"{where}: expected an object of {base.__module__}.{base.__name__} from {config.kind!r}, "
            f"found {type(own).__name__}"
        )
    return own


def _checked(loaded: Any, config: ClassSection, section: str) -> dict[str, Any]:
    """Return the arguments of a user's class; those that it declares are checked."""
    given = config.arguments()
    if isinstance(loaded, type) and any(isinstance(value, dataclasses.Field) for value in vars(loaded).values()):
        raise ScenarioError(f"{section}.kind: expected @dataclass(frozen=True) on {config.kind!r}, which has options")
    with in_one_line(f"{section}.kind", repr(config.kind)):
        declared = _options_of(loaded)
    return checked(declared, given, section)


def checked(declared: Mapping[str, Any], given: dict[str, Any], section: str) -> dict[str, Any]:
    """Return the options of a user's class, checked and completed.

    Args:
        declared: the type and the field of each option that is checked.
        given: all options.
        section: has the options.

    Raises:
        ScenarioError: an option is wrong.
    """
    options = create_model("Options", __base__=Config, __doc__="Options.", **declared)
    try:
        valid = options.model_validate({name: value for name, value in given.items() if name in declared})
    except ValidationError as error:
        problems = [problem.below((section, "options")) for problem in problems_of(error, options, given)]
        raise ScenarioError("\n".join(f"{spell(problem.at)}: {problem}" for problem in problems)) from None
    return {**given, **{name: getattr(valid, name) for name in declared}}
