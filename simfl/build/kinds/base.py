"""The base of kinds, and the options that an algorithm takes.

A family whose options mean something else than arguments of its class has a file beside this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from simfl.algorithms import Algorithm
from simfl.build.setup import Kind
from simfl.errors import ScenarioError, nearest

__all__ = ["Kind", "check_options", "options_of"]


def options_of(algorithm: type[Algorithm]) -> tuple[dict[str, bool], bool]:
    """Return the options that an algorithm takes, and whether it may take others too.

    They are the arguments of `set_up`, and those that an `__init__` adds to that of `Algorithm`. Where a class hands
    arguments on (`**options`), those of the class above count as well; what a user's own class does with what it
    passes on is unknown.

    Returns:
        By name whether an option has to be given; and whether any other name may be an option.
    """
    options: dict[str, bool] = {}
    others = builds_itself = False
    above = algorithm.__mro__[: algorithm.__mro__.index(Algorithm)]
    for method in ("__init__", "set_up"):
        for depth, owner in enumerate(one for one in above if method in vars(one)):
            own = not owner.__module__.startswith("simfl.")
            builds_itself |= own and method == "__init__"
            parameters = list(inspect.signature(vars(owner)[method]).parameters.values())[1:]
            for one in parameters:
                if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                    asked = method == "set_up" and depth == 0 and not builds_itself
                    options.setdefault(one.name, asked and one.default is one.empty)
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
            others |= own
    taken = {
        one.name for one in inspect.signature(Algorithm.__init__).parameters.values() if one.kind != one.VAR_KEYWORD
    }
    return {name: needed for name, needed in options.items() if name not in taken}, others


def check_options(algorithm: type[Algorithm], options: Mapping[str, Any]) -> None:
    """Reject options that an algorithm does not take, and missing ones.

    Raises:
        ScenarioError: with one line.
    """
    known, others = options_of(algorithm)
    for name in options:
        if name not in known and not others:
            listed = f"one of {', '.join(sorted(known))}" if known else "none"
            raise ScenarioError(
                f"algorithm.options: expected {listed}, the options of {algorithm.__name__}, found {name!r}"
                f"{nearest(name, known)}"
            )
    for name, needed in known.items():
        if needed and name not in options:
            raise ScenarioError(
                f"algorithm.options: expected a value of {name!r}, which {algorithm.__name__} asks for, found nothing; "
                "add it"
            )
