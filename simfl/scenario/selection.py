"""How a server chooses clients: sections of `simfl.selection`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from simfl.errors import ScenarioError
from simfl.scenario.fields import ByKind, OwnCode, OwnName
from simfl.scenario.own_code import load
from simfl.scenario.sections import ClassSection, Sections


class SelectorConfig(ClassSection):
    """Base of selectors."""

    #: What it reads of the clients, see `simfl.selection.base.Reads`.
    reads: ClassVar[str] = "world"


class OwnSelector(SelectorConfig, OwnCode):
    """A selector of your own, a subclass of `simfl.selection.base.AbstractSelector`."""

    kind: OwnName = Field(description="module and class of the selector, as in my_module:MySelector")

    @property
    def reads(self) -> str:  # type: ignore[override]
        """What its class says; who runs it says why the class cannot be loaded."""
        try:
            return getattr(load(self.kind, "selection.kind"), "reads", "world")
        except ScenarioError:
            return "world"


SelectorConfig.variants = Sections(
    "simfl.selection.selectors:SELECTORS",
    lambda _: SelectorConfig,
    "{}Selector",
    "uniform data_size fastest round_robin tiers deadline fair power_of_choice oort",
    OwnSelector,
)
Selection = Annotated[SelectorConfig, ByKind(external=OwnSelector)]
