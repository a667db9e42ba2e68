"""The templates, styles and scripts of this folder, and how a page is written."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from simfl.errors import ScenarioError
from simfl.records.writer import replacing

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def environment() -> Environment:
    """Return an environment with the templates of this folder."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("simfl.reports", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def asset(*names: str) -> Markup:
    """Return a style or a script as it is, or several as one."""
    from importlib.resources import files

    from markupsafe import Markup

    folder = files("simfl.reports")
    return Markup("".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names))


def embedded(json: str) -> Markup:
    """Return JSON that cannot end the element that it stands in."""
    from markupsafe import Markup

    return Markup(json.replace("<", "\\u003c"))


def hash_of(script: str) -> str:
    """Return the SHA-256 by which a Content-Security-Policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def write_page(place: Path, text: str, what: str) -> Path:
    """Write a page and return its path; ScenarioError if that fails."""
    try:
        with replacing(place) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{place}: cannot write the {what}: {error.strerror}") from error
    return place
