"""The base of kinds, and the options that an algorithm takes.

A family whose options are not the arguments of its class has its own file in this folder.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from simfl.algorithms import Algorithm
from simfl.algorithms.staleness import StalenessBound
from simfl.assembly.setup import Kind, Setup
from simfl.errors import ScenarioError, nearest
from simfl.scenario.algorithms import BoundedConfig
from simfl.scenario.algorithms.own import section_of
from simfl.scenario.fields import kind_of

__all__ = ["BoundedKind", "Kind", "check_options", "completed", "options_of"]


def options_of(algorithm: type[Algorithm]) -> tuple[dict[str, bool], bool]:
    """Return the options that an algorithm takes, and whether it may take others too.

    They are the arguments of `set_up`, and those that an `__init__` adds to that of `Algorithm`. If a class passes
    arguments on (`**options`), those of its base class count as well. If a user's class passes arguments on, any name
    may be an option.

    Returns:
        By name whether an option is required; and whether any other name may be an option.
    """
    options: dict[str, bool] = {}
    others = builds_itself = False
    above = algorithm.__mro__[: algorithm.__mro__.index(Algorithm)]
    for method in ("__init__", "set_up"):
        for depth, owner in enumerate(owner for owner in above if method in vars(owner)):
            of_user = not owner.__module__.startswith("simfl.")
            builds_itself |= of_user and method == "__init__"
            # A class states the signature of its `__init__`, also if it is compiled.
            signature = inspect.signature(owner if method == "__init__" else vars(owner)[method])
            parameters = list(signature.parameters.values())[method == "set_up" :]
            for parameter in parameters:
                if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    required = method == "set_up" and depth == 0 and not builds_itself
                    options.setdefault(parameter.name, required and parameter.default is parameter.empty)
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                break
            others |= of_user
    of_base = {p.name for p in inspect.signature(Algorithm).parameters.values() if p.kind != p.VAR_KEYWORD}
    return {name: required for name, required in options.items() if name not in of_base}, others


def completed(algorithm: Any) -> type[Algorithm]:
    """Return a user's class whose base has the defaults of the base's section.

    The class may so leave out options of its base in `super().set_up(...)`. Without such a base, it stays as it is.
    """
    section = section_of(algorithm)
    if section is None:
        return cast(type[Algorithm], algorithm)
    base: Any = next(one for one in algorithm.__mro__ if vars(one).get("kind") == kind_of(section, "kind"))
    defaults = section.defaults_of_class()

    class Completed(base):  # type: ignore[misc]
        def set_up(self, **options: Any) -> None:
            super().set_up(**{**defaults, **options})

    # The class's own methods come first, then this one, then those of its base.
    bases = (Completed,) if algorithm is base else (algorithm, Completed)
    return type(algorithm.__name__, bases, {"__module__": algorithm.__module__, "__doc__": algorithm.__doc__})


def check_options(algorithm: type[Algorithm], options: Mapping[str, Any]) -> None:
    """Reject options that an algorithm does not take, and missing ones.

    Raises:
        ScenarioError: with one line.
    """
    accepted, others = options_of(algorithm)
    for name in options:
        if name not in accepted and not others:
            listed = f"one of {', '.join(sorted(accepted))}" if accepted else "none"
            raise ScenarioError(
                f"algorithm.options: expected {listed}, the options of {algorithm.__name__}, found {name!r}"
                f"{nearest(name, accepted)}"
            )
    for name, needed in accepted.items():
        if needed and name not in options:
            raise ScenarioError(
                f"algorithm.options: expected a value of {name!r}, which {algorithm.__name__} asks for, found nothing; "
                "add it"
            )


B = TypeVar("B", bound=BoundedConfig)


class BoundedKind(Kind[B]):
    """Base of the kinds whose algorithms take a bound on staleness."""

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the bound on staleness."""
        limit = self.config.staleness_bound
        bound = None if limit is None else StalenessBound(limit.bound, limit.policy)
        return {**super().options(setup), "staleness": bound}
