"""The site: Sphinx with MyST and pydata-sphinx-theme (`make site`).

The pages read well as files, too: they are plain Markdown, and link to files beside docs/ as such. What makes a site of
them is here: the order of pages, and links out of docs/, which become plain words where the site has no such page.
"""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from typing import Any

from simfl.version import __version__

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"  # copies, because Sphinx reads files below docs/ only
NOTEBOOKS.mkdir(exist_ok=True)
for notebook in (ROOT / "notebooks").glob("*.ipynb"):
    text = notebook.read_text(encoding="utf-8").replace("../docs/", "../")
    (NOTEBOOKS / notebook.name).write_text(text, encoding="utf-8")

project = "simfl"
html_title = f"simfl {__version__}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_static"]
nitpicky = False
nb_execution_mode = "off"  # notebooks are stored with their outputs

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
default_role = "literal"  # docstrings put code into single backticks

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 4,
    "navigation_with_keys": False,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],  # a field does not fit beside the links at 1280 pixels
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "tutorial": [], "for_*": []}  # nothing lies below them
copyright = "the authors of simfl, Apache-2.0"

#: The address that all versions lie below, such as https://example.org/simfl; empty: the site is read from files.
SITE = os.environ.get("SITE_URL", "").rstrip("/")
VERSION = __version__.rpartition(".")[0]
html_baseurl = f"{SITE}/{VERSION}/" if SITE else ""
if SITE:
    html_theme_options |= {
        "navbar_start": ["navbar-logo", "version-switcher"],
        "switcher": {"json_url": f"{SITE}/versions.json", "version_match": VERSION},
        "check_switcher": False,
    }

#: Page -> the pages below it, in their order. Pages that nobody names stand below the papers, so that none is lost.
BELOW = {
    "index": [
        "for_comparing",
        "for_privacy",
        "for_federations",
        "tutorial",
        "examples",
        "guides",
        "reference",
        "papers",
        "design",
    ],
    "examples": ["notebooks/quickstart", *sorted(f"notebooks/{path.stem}" for path in NOTEBOOKS.glob("[!q]*.ipynb"))],
    "guides": [
        "looking",
        "playing",
        "studies",
        "fair",
        "asynchrony",
        "resuming",
        "privacy",
        "planning",
        "users",
        "secure_sums",
        "users_correlated",
        "network_privacy",
        "audit",
        "attacks",
        "devices",
        "logs",
        "topologies",
        "own_model",
        "own_torch",
        "own_algorithm",
        "selection",
        "personal",
        "compression",
        "robust",
        "own_data",
        "known_optima",
        "plugins",
    ],
    "reference": ["scenario", "algorithms", "combinations", "faults", "network", "glossary", "api", "stability"],
    "algorithms": [
        "algorithms-servers",
        "algorithms-rounds",
        "algorithms-gossip",
        "algorithms-walks",
        "algorithms-low-communication",
        "algorithms-papers",
    ],
    "api": [
        "api-runs",
        "api-scenarios",
        "api-results",
        "api-figures",
        "api-models",
        "api-algorithms",
        "api-robust",
        "api-privacy",
    ],
    "scenario": [
        "scenario-data",
        "scenario-clients",
        "scenario-network",
        "scenario-algorithm",
        "scenario-steps",
        "scenario-robust",
        "scenario-privacy",
    ],
    "papers": ["reproduction", "adp2sgd", "async_fl", "mapa", "proactive_dp", "without_replacement", "theorems"],
    "design": ["in_150_lines", "validation", "benchmarks", "contributing", "publishing"],
}
OTHERS = "papers"

#: Titles where the page's own is too long for a menu, or says too little there.
TITLES = {
    "for_comparing": "To compare algorithms",
    "for_privacy": "To account for privacy",
    "for_federations": "To run a federation",
    "in_150_lines": "simfl in 150 lines",
    "tutorial": "Tutorial",
    "examples": "Notebooks",
    "guides": "How to",
    "design": "How it is built",
    "studies": "Run studies",
    "asynchrony": "Compare algorithms",
    "resuming": "Resume long runs",
    "privacy": "Account for privacy",
    "planning": "Plan privacy",
    "users": "Privacy of users",
    "secure_sums": "Secure sums",
    "users_correlated": "Correlated noise of a server",
    "network_privacy": "Privacy of a network",
    "audit": "Audit a run",
    "attacks": "Attack a run",
    "looking": "Look into a run",
    "playing": "Play a run",
    "devices": "Describe devices",
    "logs": "Start from a log",
    "topologies": "Read a graph, or let it change",
    "own_model": "Use your own model",
    "own_torch": "Use a module of PyTorch",
    "own_algorithm": "Write an algorithm",
    "selection": "Choice of clients",
    "personal": "Personal models",
    "compression": "Compressed messages",
    "robust": "Robust rules and hostile clients",
    "own_data": "Use your own data",
    "plugins": "Make a package",
    "validation": "Validation against real runs",
    "scenario": "Scenario",
    "scenario-data": "Data and models",
    "scenario-clients": "Clients and server",
    "scenario-network": "Network",
    "scenario-algorithm": "Algorithm",
    "scenario-steps": "Steps",
    "scenario-robust": "Hostile clients",
    "scenario-privacy": "Privacy",
    "algorithms": "Algorithms",
    "faults": "Faults",
    "network": "The network",
    "glossary": "Glossary",
    "api": "From Python",
    "stability": "Stability",
    "api-runs": "Runs",
    "api-scenarios": "Scenarios",
    "api-results": "Results",
    "api-figures": "Figures",
    "api-models": "Models",
    "api-algorithms": "Algorithms",
    "api-robust": "Robust rules and attacks",
    "api-privacy": "Privacy and attacks",
    "reproduction": "What was reproduced",
    "adp2sgd": "A(DP)²SGD",
    "async_fl": "Asynchronous FL",
    "mapa": "MAPA",
    "proactive_dp": "Proactive DP",
    "without_replacement": "Without replacement",
    "reproduction-adp2sgd": "All claims: A(DP)²SGD",
    "reproduction-async_fl": "All claims: Asynchronous FL",
    "reproduction-mapa": "All claims: MAPA",
    "reproduction-proactive_dp": "All claims: Proactive DP",
    "reproduction-others": "Other studies",
    "reproduction-without_replacement": "All claims: Without replacement",
    "theorems": "Theorems",
    "benchmarks": "Speed",
    "contributing": "Contributing",
    "publishing": "Publishing",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#]+)(#[^)]*)?\)")


def below() -> dict[str, list[str]]:
    """Return the pages below each page, those that nobody names among the others."""
    named = {page for pages in BELOW.values() for page in pages} | {"index"}
    rest = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem not in named)
    return {page: [*pages, *(rest if page == OTHERS else [])] for page, pages in BELOW.items()}


def for_the_site(page: str, text: str) -> str:
    """Return the text of a page as the site has it: links that lead somewhere, and the pages below it."""
    if page.startswith("notebooks/"):
        return text
    text = _LINK.sub(_linked, text)
    if pages := below().get(page):
        entries = "\n".join(f"{TITLES[name]} <{name}>" if name in TITLES else name for name in pages)
        text += f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    return text


def _linked(match: re.Match[str]) -> str:
    words, target, anchor = match[1], match[2], match[3] or ""
    if target == "../CONTRIBUTING.md":
        return f"[{words}](contributing.md{anchor})"
    if target.endswith(".ipynb"):
        return f"[{words}]({target.removeprefix('../')})"
    if target.endswith(".csv"):  # a download
        return match[0]
    return words if (ROOT / "docs" / target).exists() else match[0]


def setup(app: Any) -> None:
    """Sphinx asks here what is to be done when."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = for_the_site(page, source[0])

    def document(app: Any, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
        lines[:] = docstring(lines)
        if what in ("attribute", "property") and lines:  # napoleon would take the words before a colon for a type
            lines[0] = lines[0].replace(": ", " – ")

    def shorten(app: Any, *_: Any) -> None:
        for hints in app.env.current_document.autodoc_annotations.values():
            hints.update(
                {name: hint.replace("TypeAliasForwardRef('ArrayLike')", "ArrayLike") for name, hint in hints.items()}
            )

    def card(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        context["metatags"] = context.get("metatags", "") + card_of(page, context.get("title", ""))

    def finish(app: Any, error: Any) -> None:
        if SITE and error is None:
            for name, text in for_the_web(sorted(app.env.found_docs)).items():
                Path(app.outdir, name).write_text(text, encoding="utf-8")

    app.connect("html-page-context", card)
    app.connect("build-finished", finish)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", document, priority=400)  # before napoleon, which writes RST
    app.connect("autodoc-process-signature", shorten, priority=900)  # after autodoc, which records the types


def card_of(page: str, title: str) -> str:
    """Return the meta tags with which other sites show a link to a page: its title, and the played picture."""
    title = html.unescape(re.sub("<.*?>", "", title))
    start = html_baseurl or "../" * page.count("/")
    described = "A discrete-event simulator of asynchronous, decentralized and federated learning with privacy"
    tags = {
        "og:type": "website",
        "og:title": title,
        "og:description": described,
        "og:image": f"{start}_images/play.png",
    }
    tags |= {"og:url": f"{SITE}/{VERSION}/{page}.html"} if SITE else {}
    written = [f'<meta property="{name}" content="{html.escape(value)}" />' for name, value in tags.items()]
    return "\n".join(["", *written, '<meta name="twitter:card" content="summary_large_image" />'])


def for_the_web(pages: list[str]) -> dict[str, str]:
    """Return what a published site has beside its pages: a sitemap, and this version's entry of `versions.json`."""
    urls = "".join(f"<url><loc>{html_baseurl}{page}.html</loc></url>\n" for page in pages)
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    entry = {"name": f"{VERSION} (stable)", "version": VERSION, "url": html_baseurl, "preferred": True}
    return {
        "sitemap.xml": f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{space}">\n{urls}</urlset>\n',
        "versions.json": json.dumps([entry], indent=1) + "\n",
    }


def docstring(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText: an indented block is code, and elsewhere stars and bars are no markup."""
    found: list[str] = []
    code = False
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("    "):
            code = False
        elif line.startswith("    ") and number and not lines[number - 1].strip() and not code:
            above = next((other for other in reversed(lines[:number]) if other.strip()), "")
            if code := not above.startswith(" "):
                found += ["::", ""]
        parts = enumerate(line.split("`"))
        found.append(line if code else "`".join(_plain(part, position) for position, part in parts))
    return found


def _plain(part: str, position: int) -> str:
    return part if position % 2 else re.sub(r"(?<!\\)([*|])", r"\\\1", part)
