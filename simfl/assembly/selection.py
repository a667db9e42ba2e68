"""How the server chooses clients, from the section `selection`."""

from __future__ import annotations

from simfl.errors import ScenarioError
from simfl.scenario import Scenario
from simfl.scenario.sections import made
from simfl.selection.base import AbstractSelector


def selector_of(scenario: Scenario) -> AbstractSelector | None:
    """Return the selector; None for equal chances.

    Raises:
        ScenarioError: a user's class is not a selector, or does not say what it reads.
    """
    config = scenario.selection
    if config is None:
        return None
    selector: AbstractSelector = made(config, AbstractSelector, "selection")
    if selector.reads != config.reads:  # privacy is checked by what the class says
        raise ScenarioError(
            f"selection.kind: expected a class with reads = {selector.reads!r}, found {config.kind!r} that says "
            f"{config.reads!r}; name the class itself"
        )
    return selector
