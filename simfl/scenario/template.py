"""The files of `simfl new`: a study, and a scenario with commented options.

A line that begins with `#` and no space is an option. Without the `#` it replaces the line with the same key, if there
is one, and the scenario is still valid.
"""

from pathlib import Path


def template(name: str = "template") -> str:
    """Return a commented scenario to start from; it is valid as it stands.

    `name` "question" is a study: four algorithms, a straggler, tuned step sizes, five seeds.
    """
    return Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
