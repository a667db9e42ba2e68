"""Differences between scenarios, by key path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

IGNORED = ("name", "description", "seed", "learning_seed")
"""Keys that do not make two runs different."""

ABSENT = "–"
"""Stands for the value of a missing key."""
_WIDEST = 40


def describe_differences(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the scenarios' values at the key paths that differ between them.

    All mappings have the same keys in the same order: `{"algorithm.kind": "adpsgd", ...}`.
    """
    flat = [dict(_leaves(scenario)) for scenario in scenarios]
    keys = list(dict.fromkeys(key for leaves in flat for key in leaves))
    differing = [key for key in keys if len({leaves.get(key, ABSENT) for leaves in flat}) > 1]
    return [{key: leaves.get(key, ABSENT) for key in differing} for leaves in flat]


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            if path or key not in IGNORED:
                yield from _leaves(inner, f"{path}.{key}" if path else key)
        return
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    yield path, text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
