"""Text of the package is plain: short first lines, values with real names, no mannered words (CONTRIBUTING.md)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "simfl").rglob("*.py"))
#: Words that stand for a noun, and idioms. "There is no file" is English; "the value is no time" is not.
SIGNS = re.compile(
    r"(?<!there )\bis no\b(?! (more|longer|easier|worse|larger|smaller|wider))|\bwas no (?!run)"
    r"|\bfor good\b|\bat hand\b|\b(nobody|somebody|anybody|everybody|whoever|so many|what is asked)\b|\bbehind\b",
    re.IGNORECASE,
)
BRITISH = re.compile(
    r"\b\w*(colo[u]r|neighbo[u]r|optimi[s]|normali[s]|decentrali[s]|quanti[s]|behavio[u]r)\w*", re.IGNORECASE
)


def docstrings(path):
    """Yield the line and the text of each docstring of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def test_first_lines_of_docstrings_are_short():
    long = [f"{path}:{line}" for path in SOURCES for line, text in docstrings(path) if len(text.splitlines()[0]) > 80]
    assert not long


@pytest.mark.parametrize(("pattern", "most"), [(SIGNS, 60), (BRITISH, 0), (re.compile(r"\bfound(: [^=]+)? ="), 40)])
def test_signs_are_rare(pattern, most):
    lines = [
        f"{path}:{number}: {line.strip()}"
        for path in SOURCES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert len(lines) <= most, "\n".join(lines)


def test_pages_are_short():
    pages = [path for path in (ROOT / "docs").glob("*.md") if len(path.read_text(encoding="utf-8").splitlines()) > 300]
    assert not pages


#: Pages for developers, and pages that explain the words. All others are for users of scenarios.
FOR_DEVELOPERS = {
    *("benchmarks", "contributing", "design", "glossary", "in_150_lines", "own_algorithm", "plugins", "stability"),
}
#: A share of a secret is the field's word; a share of a whole is a fraction or a part.
HOUSE_WORDS = re.compile(
    r"\b(tapes?|banks?|lanes?|promises?|gates?|cohorts?|an? share|shares? of (?!a_S|t |its secrets))\b", re.I
)


@pytest.mark.parametrize(
    "page",
    [path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem not in FOR_DEVELOPERS],
    ids=lambda path: path.stem,
)
def test_pages_for_users_of_scenarios_have_no_words_of_the_code(page):
    """The glossary has the field's words beside them; names in code, and targets of links, stay."""
    code = r"```.*?```|`[^`]*`|\*\*\w+\*\*|^#+ .*?$|\[[\w.]+\]\(|\]\([^)]*\)"
    text = re.sub(code, "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not [line for line in text.splitlines() if HOUSE_WORDS.search(line)]


def test_the_glossary_has_the_words_of_the_code_with_those_of_the_field():
    table = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Words of the code")[2]
    words = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    assert words == ["tape", "bank", "lane", "promise", "cohort", "gate", "share"]
