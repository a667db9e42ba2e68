"""Shell completion of a scenario's fields and values after `--set`."""

from __future__ import annotations


def complete_override(incomplete: str) -> list[str]:
    """Return completions of `--set KEY.PATH=VALUE`: words of the path, or kinds."""
    from simfl.scenario.fields import DISCRIMINATORS, Config, kind_of, members_of
    from simfl.scenario.scenario import Scenario

    path, equals, _ = incomplete.partition("=")
    *above, last = path.split(".")
    owners: tuple[type[Config], ...] = (Scenario,)
    for key in above:
        owners = tuple(
            member
            for owner in owners
            for name, field in owner.model_fields.items()
            if (field.alias or name) == key
            for member in members_of(field.annotation)
        )

    completions: set[str] = set()
    start = "".join(f"{key}." for key in above)
    for owner in owners:
        for name, field in owner.model_fields.items():
            key = field.alias or name
            if equals and key == last and key in DISCRIMINATORS:
                completions.add(f"{path}={kind_of(owner, name)}")
            elif not equals and key.startswith(last):  # variants that are not needed are not imported
                completions.add(f"{start}{key}{'.' if members_of(field.annotation) else '='}")
    return sorted(way for way in completions if way.startswith(incomplete))
