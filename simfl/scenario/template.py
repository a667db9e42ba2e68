"""The scenario of `simfl new`: a complete small example with commented options.

A line that begins with `#` and no space is an option. Without the `#` it replaces the line with the same key, if there
is one, and the scenario is still valid.
"""

from pathlib import Path


def template() -> str:
    """Return a commented scenario to start from; it is valid as it stands."""
    return Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
