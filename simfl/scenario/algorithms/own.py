"""A user's own algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, ClassVar, cast

from pydantic import Field

from simfl.errors import ScenarioError
from simfl.scenario.algorithms.base import AlgorithmConfig, states
from simfl.scenario.fields import OwnCode, OwnName, kind_of, members_of
from simfl.scenario.own_code import load
from simfl.scenario.seams import Uses

_CATALOGUE = "simfl.scenario.catalogues:Algorithm"


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
        sections: dict[Any, Any] = {
            kind_of(section, "kind"): section for section in members_of(resolve_name(_CATALOGUE))
        }
        try:
            loaded = load(self.kind, "algorithm.kind")
        except ScenarioError:
            return Uses(channel="unknown", sum="unknown", step="clients")
        for base in getattr(loaded, "__mro__", ()):
            if isinstance(said := vars(base).get("uses"), Uses):
                return said
            if (section := sections.get(vars(base).get("kind"))) is not None:
                return cast(Uses, section.uses)
        return Uses()

    @property
    def has_server(self) -> bool | None:
        """None: that is not known."""
        return None

    def own_options(self) -> dict[str, Any]:
        """Return `options`."""
        return dict(self.options)
