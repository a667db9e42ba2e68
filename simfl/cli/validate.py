"""`simfl validate`: everything that `simfl run` checks before it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from simfl.cli.shared import Overrides, Scenarios, Seed, say
from simfl.errors import DataError, ScenarioError

if TYPE_CHECKING:
    from simfl.simulation.setup import Setup

T = TypeVar("T")


def validate(scenarios: Scenarios, overrides: Overrides = None, seed: Seed = None) -> None:
    """Check scenarios and the data files they need, without running them."""
    for path, summary in zip(scenarios, load_all(scenarios, overrides, seed, None, _summary), strict=True):
        print(f"{path}: valid: {summary}")


def _summary(setup: Setup) -> str:
    """Say in a few words what would run; how fast models mix decides how well gossip works."""
    scenario = setup.scenario
    parts = [scenario.algorithm.kind, f"{scenario.clients.count} clients", scenario.topology.kind]
    if scenario.algorithm.uses_topology:
        rule = scenario.topology.mixing if scenario.algorithm.mixes else "metropolis"
        parts.append(f"spectral gap {setup.topology.spectral_gap(rule):.3g}")
    return ", ".join(parts)


def load_all(
    paths: Sequence[Path],
    overrides: Sequence[str] | None,
    seed: int | None,
    device: str | None,
    keep: Callable[[Setup], T],
) -> list[T]:
    """Load and check all scenarios; what is wrong with any of them is said at once.

    Args:
        paths: of the scenarios.
        overrides, seed, device: as the options of `simfl run`.
        keep: what is to be kept of each one that is right; the rest of it is dropped.
    """
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside
    from simfl.simulation import runner

    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    look_beside(paths)
    kept: list[T] = []
    problems: list[str] = []
    for path in paths:
        where = ""
        try:
            scenario = load(path, changes)
            where = f"{path}: "  # what is found from here on does not know which file it is about
            setup = runner.prepare(scenario, device)
        except (ScenarioError, DataError) as error:
            lines = [line if line.startswith("--") else where + line for line in str(error).splitlines()]
            problems += [line for line in lines if line not in problems]
        else:
            for warning in setup.warnings:
                say(where + warning)
            kept.append(keep(setup))
            del setup
    if problems:
        raise ScenarioError("\n".join(problems))
    return kept
