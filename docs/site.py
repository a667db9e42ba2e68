"""What MkDocs needs to know beyond mkdocs.yml: pages outside docs/, and the order of pages.

The pages read well as files too, and link to files beside docs/ as such; here such links lead to copies in the site,
or become plain words where the site has no such page.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]

#: Heading -> pages. What is not named here stands under the heading at the end, so that no page is lost.
NAVIGATION = {
    "": ["index.md", "tutorial.md"],
    "How to": ["looking.md", "studies.md", "privacy.md", "planning.md", "own_algorithm.md"],
    "Reference": ["scenario.md", "algorithms.md"],
    "Papers": [
        "papers.md",
        "reproduction.md",
        "adp2sgd.md",
        "async_fl.md",
        "mapa.md",
        "proactive_dp.md",
        "without_replacement.md",
    ],
    "How it is built": ["design.md", "benchmarks.md", "contributing.md"],
}
OTHERS = "Papers"

#: Titles where the page's own is too long for a menu, or says too little there.
TITLES = {
    "index.md": "Home",
    "tutorial.md": "Tutorial",
    "studies.md": "Run studies",
    "privacy.md": "Account for privacy",
    "planning.md": "Plan privacy",
    "looking.md": "Look into runs",
    "own_algorithm.md": "Write an algorithm",
    "scenario.md": "Scenario",
    "algorithms.md": "Algorithms",
    "papers.md": "Overview",
    "reproduction.md": "What was reproduced",
    "adp2sgd.md": "A(DP)²SGD",
    "async_fl.md": "Asynchronous FL",
    "mapa.md": "MAPA",
    "proactive_dp.md": "Proactive DP",
    "without_replacement.md": "Without replacement",
    "reproduction-adp2sgd.md": "Numbers: A(DP)²SGD",
    "reproduction-async_fl.md": "Numbers: Asynchronous FL",
    "reproduction-mapa.md": "Numbers: MAPA",
    "reproduction-proactive_dp.md": "Numbers: Proactive DP",
    "reproduction-without_replacement.md": "Numbers: Without replacement",
    "design.md": "Design",
    "benchmarks.md": "Speed",
}
BESIDE = {"contributing.md": "CONTRIBUTING.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)?([^)#:]+)(#[^)]*)?\)")


def on_config(config):
    """Give every page its place."""
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(BESIDE)
    named = {page for listed in NAVIGATION.values() for page in listed}
    config.nav = []
    for heading, listed in NAVIGATION.items():
        here = [page for page in listed if page in pages]
        here += sorted(pages - named) if heading == OTHERS else []
        here = [{TITLES[page]: page} if page in TITLES else page for page in here]
        config.nav += [{heading: here}] if heading else here
    return config


def on_files(files, config):
    """Add the pages that are beside docs/."""
    for name, path in BESIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links as the files have them into links as the site has them."""
    return _LINK.sub(lambda match: _linked(match, files), markdown)


def _linked(match, files):
    text, target, anchor = match[1], match[2], match[3] or ""
    name = target.removeprefix("docs/")
    name = next((page for page, path in BESIDE.items() if path == name), name)
    if files.get_file_from_path(name) is not None:
        return f"[{text}]({name}{anchor})"
    return text if (ROOT / target).exists() else match[0]
