"""The manifest of a run: how it went, and of what it was made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simfl.assembly.data import sources_of
from simfl.assembly.privacy import noise_of
from simfl.assembly.setup import Setup
from simfl.compiled import is_compiled
from simfl.privacy.assumptions import assumptions
from simfl.records import Manifest
from simfl.records.folder import combine_digests, digest_of_file, flags
from simfl.runs.context import Context
from simfl.scenario.fields import world_files
from simfl.scenario.own_code import source_digests
from simfl.version import commit


def manifest_of(context: Context, facts: Mapping[str, Any], digests: dict[str, str]) -> Manifest:
    """Return the manifest of a run as it is now.

    Args:
        facts: further entries, by name; those that are empty are left out, but for the count `released_as_zero`.
        digests: those of the complete tables.
    """
    setup = context.setup
    extra: dict[str, Any] = {
        "scenario_digest": setup.scenario.digest(),
        "model_size": setup.model.size,
        "sampling": setup.training.sampling,
        "warnings": context.warnings,
    }
    optional = {**facts, "title": " ".join(context.algorithm.title.split()), "xla_flags": flags(), "commit": commit()}
    extra |= {name: value for name, value in optional.items() if value or name == "released_as_zero"}
    if setup.scenario.learning_seed is not None:
        extra["learning_seed"] = setup.scenario.learning_seed
    if (start := setup.start) is not None:
        extra["init"] = {"from": str(start.path), "digest": start.digest}
    if setup.ledger is not None:
        account = context.account()
        extra["privacy"] = setup.ledger.statement_of(account)
        extra["assumptions"] = assumptions(setup.ledger, account)
        extra["noise"] = noise_of(setup)
    return Manifest(
        status=context.status,
        seed=setup.scenario.seed,
        device=context.device.platform,
        reason=context.reason,
        wall_s=context.wall_s,
        time_s=context.world.clock.now,
        updates=context.algorithm.updates,
        window=context.window,
        width=context.width,
        compiled=is_compiled(),
        digest=combine_digests(digests) if digests else "",
        tables=digests,
        extra=extra,
    )


def sources_of_run(setup: Setup) -> dict[str, Any]:
    """Return digests of a run's inputs besides its scenario."""
    scenario = setup.scenario
    return {
        "own_code": source_digests(scenario.resolved()),
        "data": sources_of(scenario, setup.dataset),
        "world_files": {path: digest_of_file(Path(path)) for path in world_files(scenario)},
        "own_model": setup.model.described(),
    }
