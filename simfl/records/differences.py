"""The differences between scenarios, by key path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: What does not make two runs different for a comparison.
IGNORED = ("name", "description", "seed")

ABSENT = "–"
"""In the place of a value, where a scenario has no such key."""
_WIDEST = 40


def describe_differences(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return each scenario's values at the key paths that differ.

    Args:
        scenarios: plain values, as `Scenario.resolved` returns them.

    Returns:
        One mapping per scenario, all with the same keys in the same order: `{"algorithm.kind": "adpsgd", ...}`.
    """
    flat = [dict(_leaves(scenario)) for scenario in scenarios]
    keys = list(dict.fromkeys(key for leaves in flat for key in leaves))
    differing = [key for key in keys if len({leaves.get(key, ABSENT) for leaves in flat}) > 1]
    return [{key: leaves.get(key, ABSENT) for key in differing} for leaves in flat]


def _leaves(scenario: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in scenario.items():
        if key not in IGNORED:
            yield from _below(key, value)


def _below(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _below(f"{path}.{key}", inner)
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    yield path, text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
