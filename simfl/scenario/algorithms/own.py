"""A user's own algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import Field

from simfl.errors import ScenarioError
from simfl.scenario.algorithms.base import AlgorithmConfig, states
from simfl.scenario.fields import OwnCode, OwnName, kind_of, members_of
from simfl.scenario.own_code import in_one_line, load
from simfl.scenario.seams import Uses
from simfl.scenario.sections import checked

_CATALOGUE = "simfl.scenario.catalogues:Algorithm"


def section_of(algorithm: Any) -> type[AlgorithmConfig] | None:
    """Return the section of simfl's algorithm from which a class is derived, if any."""
    kinds = [vars(base).get("kind") for base in getattr(algorithm, "__mro__", ())]
    sections = {kind_of(section, "kind"): section for section in members_of(resolve_name(_CATALOGUE))}
    return next((cast(type[AlgorithmConfig], sections[kind]) for kind in kinds if kind in sections), None)


class ExternalAlgorithm(AlgorithmConfig, OwnCode):
    """An algorithm of your own, from an importable module."""

    fixed: ClassVar[Mapping[str, str]] = states(
        "crash", why="what becomes of states beside models is a matter of your class"
    )

    kind: OwnName = Field(description="module and class of the algorithm, as in my_module:MyAlgorithm")

    @property
    def uses(self) -> Uses:  # type: ignore[override]
        """What its class says, or the algorithm of simfl's from which it is derived.

        Unknown if the class cannot be loaded: who runs it says why.
        """
        try:
            loaded = load(self.kind, "algorithm.kind")
        except ScenarioError:
            return Uses(channel="unknown", sum="unknown", step="clients")
        said = getattr(loaded, "uses", None)
        return said if isinstance(said, Uses) else (section_of(loaded) or AlgorithmConfig).uses

    @property
    def has_server(self) -> bool | None:
        """None: that is not known."""
        return None

    @property
    def selects(self) -> bool:
        """What its class says, or its base in simfl."""
        try:
            return bool(getattr(load(self.kind, "algorithm.kind"), "selects", False))
        except ScenarioError:
            return True

    def own_options(self) -> dict[str, Any]:
        """Return `options`, checked where the class or its base in simfl declares them."""
        loaded = load(self.kind, "algorithm.kind")
        inherited = (section_of(loaded) or AlgorithmConfig).options_of_class()
        declared = {name: (field.annotation, field) for name, field in inherited.items()}
        with in_one_line("algorithm.kind", repr(self.kind)):
            declared |= _declared(loaded)
        asked = {name: option for name, option in declared.items() if name in self.options}
        return checked(asked, dict(self.options), "algorithm")


def _declared(algorithm: type) -> dict[str, Any]:
    """Return a user's arguments with types that say what they take, such as `Count`."""
    declared: dict[str, Any] = {}
    for owner in algorithm.__mro__[:-1]:  # simfl's algorithms have such types in their sections only
        for method in {"set_up", "__init__"} & {*vars(owner)}:
            for name, hint in get_type_hints(vars(owner)[method], include_extras=True).items():
                if _has_range(hint):
                    declared.setdefault(name, (hint, ...))
    return declared


def _has_range(hint: Any) -> bool:
    return get_origin(hint) in (Annotated, Literal) or any(map(_has_range, get_args(hint)))
